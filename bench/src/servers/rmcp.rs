//! The official Rust SDK with the tools of the suites.
#![allow(deprecated)] // rmcp deprecates log messages; the suites measure their delivery in sessions

use super::RmcpOptions;
use super::rmcp_event_store::RmcpEventStore;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig,
    SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) fn service(options: &RmcpOptions) -> StreamableHttpService<Tools, LocalSessionManager> {
    let mut sessions = LocalSessionManager::default();
    if options.store {
        sessions = sessions.with_event_store(Arc::new(RmcpEventStore::default()));
    }
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(!options.json)
        .with_json_response(options.json);
    let tools = Tools::default();
    StreamableHttpService::new(move || Ok(tools.clone()), Arc::new(sessions), config)
}

#[derive(Clone, Default)]
pub(super) struct Tools {
    peers: Arc<Mutex<Vec<Peer<RoleServer>>>>,
    changes: watch::Sender<u64>,
}

impl ServerHandler for Tools {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2025_11_25])
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("bench", "1"))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.peers.lock().push(context.peer);
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                _ = changes.changed() => {
                    if context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let number = |name: &str| arguments.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let message = || {
            let message = arguments.get("message").and_then(|message| message.as_str());
            message.unwrap_or_default().to_owned()
        };
        let answer = match &*request.name {
            "echo" => message(),
            "burst" => {
                let token = context.meta.get_progress_token();
                let token = token.ok_or_else(|| ErrorData::invalid_params("no progress token", None))?;
                let (events, message) = (number("events"), "x".repeat(number("bytes") as usize));
                for event in 1..=events {
                    let progress = ProgressNotificationParam::new(token.clone(), event as f64)
                        .with_total(events as f64)
                        .with_message(message.as_str());
                    context.peer.notify_progress(progress).await.map_err(internal)?;
                }
                "done".to_owned()
            }
            "push" => {
                for n in 1..=number("events") {
                    let data = "x".repeat(number("bytes") as usize);
                    log(&context.peer, &n.to_string(), &data).await?;
                }
                "done".to_owned()
            }
            "broadcast" => {
                let peers = self.peers.lock().clone();
                let message = message();
                for peer in &peers {
                    let _ = log(peer, "", &message).await; // a disconnected client must not stop the others
                }
                "done".to_owned()
            }
            "change_tools" => {
                self.changes.send_modify(|changes| *changes += 1);
                "done".to_owned()
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(answer)]).into())
    }
}

async fn log(peer: &Peer<RoleServer>, logger: &str, data: &str) -> Result<(), ErrorData> {
    let mut message = LoggingMessageNotificationParam::new(LoggingLevel::Info, data.into());
    if !logger.is_empty() {
        message = message.with_logger(logger);
    }
    peer.notify_logging_message(message).await.map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
