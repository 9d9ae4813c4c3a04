//! This library with the tools of the suites.

use super::accepted_token::AcceptedToken;
use super::{RethreadOptions, Store, rmcp};
use anyhow::{Context as _, Result};
use rethread::{
    Builder, Call, Context, Handler, HandlerOptions, ListKind, McpService, Notifier, Reply, RpcError, ServerInfo,
    SseUpgradeDelay,
};
use rethread_rmcp::RmcpHandler;
use rethread_store_embedded::EmbeddedStore;
use rethread_store_redis::{RedisCluster, RedisOptions};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(super) async fn service(options: &RethreadOptions) -> Result<McpService> {
    let tools = Tools {
        holds_session_state: options.owned,
        ..Tools::default()
    };
    let notifier = Arc::clone(&tools.notifier);
    let mut builder = builder(tools, options)?;
    if options.store == Store::Redis {
        let url = options.redis.as_deref().context("the Redis store needs a URL")?;
        let cluster = RedisCluster::connect(RedisOptions::parse(url)?).await?;
        builder = builder.store(cluster.store("bench").await?);
    }
    let service = builder.try_build()?;
    let _ = notifier.set(service.notifier());
    service.join().await;
    Ok(service)
}

/// The unchanged rmcp server behind this library.
pub(super) fn rmcp_builder(options: &RethreadOptions) -> Result<Builder<RmcpHandler<rmcp::Tools>>> {
    let tools = rmcp::Tools::default();
    builder(RmcpHandler::new(move || tools.clone()), options)
}

fn builder<H: Handler>(handler: H, options: &RethreadOptions) -> Result<Builder<H>> {
    let mut builder = McpService::builder(handler);
    if options.store == Store::Embedded {
        let data = options.data.as_ref().context("the embedded store needs a folder")?;
        builder = builder.store(EmbeddedStore::builder().open(data)?);
    }
    if let Some(kind) = options.auth {
        builder = builder.authenticate(AcceptedToken::new(kind));
    }
    if options.streams {
        builder = builder.upgrade_after(SseUpgradeDelay::new(
            Duration::ZERO,
            SseUpgradeDelay::default().fallback,
        ));
    }
    Ok(builder)
}

#[derive(Default)]
pub(super) struct Tools {
    notifier: Arc<OnceLock<Notifier>>,
    /// Whether a session belongs to the node that opened it.
    holds_session_state: bool,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: Arguments,
}

/// Arguments of all tools.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    message: String,
    events: u32,
    bytes: usize,
}

#[derive(Serialize)]
struct Text<'a> {
    content: [Content<'a>; 1],
}

#[derive(Serialize)]
struct Content<'a> {
    r#type: &'a str,
    text: &'a str,
}

impl Handler for Tools {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("bench", "1").with_capabilities(json!({ "tools": { "listChanged": true } }))
    }

    fn options(&self) -> HandlerOptions {
        if self.holds_session_state {
            HandlerOptions::new()
        } else {
            HandlerOptions::new().without_session_state()
        }
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        if call.method() != "tools/call" {
            return Err(RpcError::method_not_found(call.method()));
        }
        let ToolCall { name, arguments } = call.params()?;
        match name.as_str() {
            "echo" => Ok(text(&arguments.message)),
            "burst" => {
                let message = "x".repeat(arguments.bytes);
                for event in 1..=arguments.events {
                    cx.progress_of(event.into(), arguments.events.into(), message.as_str())
                        .await?;
                }
                Ok(text("done"))
            }
            "push" => {
                let session = cx.session().ok_or_else(|| RpcError::invalid_params("no session"))?;
                let data = "x".repeat(arguments.bytes);
                for n in 1..=arguments.events {
                    session.push(
                        "notifications/message",
                        json!({ "level": "info", "logger": n.to_string(), "data": data }),
                    )?;
                }
                Ok(text("done"))
            }
            "broadcast" => {
                let all = self.notifier.get().ok_or_else(|| RpcError::internal("not connected"))?;
                all.broadcast(
                    "notifications/message",
                    json!({ "level": "info", "data": arguments.message }),
                );
                Ok(text("done"))
            }
            "change_tools" => {
                let all = self.notifier.get().ok_or_else(|| RpcError::internal("not connected"))?;
                all.list_changed(ListKind::Tools);
                Ok(text("done"))
            }
            other => Err(RpcError::invalid_params(format!("no tool {other}"))),
        }
    }
}

fn text(text: &str) -> Reply {
    let r#type = "text";
    Reply::json(Text {
        content: [Content { r#type, text }],
    })
}
