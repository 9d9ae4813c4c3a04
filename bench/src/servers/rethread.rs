//! This library with the tools of the suites.

use super::{RethreadOptions, Store, rmcp};
use anyhow::{Context as _, Result};
use rethread::{Call, Context, Handler, ListKind, McpService, Notifier, Reply, RpcError, ServerInfo, SseUpgradeDelay};
use rethread_rmcp::RmcpHandler;
use rethread_store_embedded::EmbeddedStore;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(super) fn service(options: &RethreadOptions) -> Result<McpService> {
    let tools = Tools::default();
    let notifier = Arc::clone(&tools.notifier);
    let service = build(tools, options)?;
    let _ = notifier.set(service.notifier());
    Ok(service)
}

/// The unchanged rmcp server behind this library.
pub(super) fn rmcp_service(options: &RethreadOptions) -> Result<McpService> {
    let tools = rmcp::Tools::default();
    build(RmcpHandler::new(move || tools.clone()), options)
}

fn build<H: Handler>(handler: H, options: &RethreadOptions) -> Result<McpService> {
    let mut builder = McpService::builder(handler);
    if options.store == Store::Embedded {
        let data = options.data.as_ref().context("the embedded store needs a folder")?;
        builder = builder.store(EmbeddedStore::builder().open(data)?);
    }
    if options.streams {
        builder = builder.upgrade_after(SseUpgradeDelay::new(
            Duration::ZERO,
            SseUpgradeDelay::default().fallback,
        ));
    }
    Ok(builder.try_build()?)
}

#[derive(Default)]
pub(super) struct Tools {
    notifier: Arc<OnceLock<Notifier>>,
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
