//! What a call says while it runs: progress and logs.

#![expect(deprecated)] // logging, which clients still use

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use crate::Everything;

/// Reports progress, if the client asked for it.
pub(crate) async fn progress(
    context: &RequestContext<RoleServer>,
    done: f64,
    of: f64,
    message: &str,
) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok(());
    };
    let progress = ProgressNotificationParam::new(token, done)
        .with_total(of)
        .with_message(message);
    context.peer.notify_progress(progress).await.map_err(failed)
}

impl Everything {
    /// Logs at level info, if the client wants to hear of it.
    pub(crate) async fn log(
        &self,
        context: &RequestContext<RoleServer>,
        logger: &str,
        data: Value,
    ) -> Result<(), ErrorData> {
        let wanted = if has_sessions(context) {
            self.session.level().is_none_or(includes_info)
        } else {
            context.meta.log_level().is_some_and(includes_info)
        };
        if !wanted {
            return Ok(());
        }
        let message = message(logger, data);
        context.peer.notify_logging_message(message).await.map_err(failed)
    }
}

/// A message at level info.
pub(crate) fn message(logger: &str, data: Value) -> LoggingMessageNotificationParam {
    LoggingMessageNotificationParam::new(LoggingLevel::Info, data).with_logger(logger)
}

/// Whether the call belongs to a session, as it does before 2026-07-28.
pub(crate) fn has_sessions(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

/// The call fails with whatever the client, or the way to it, failed with.
pub(crate) fn failed(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

fn includes_info(least: LoggingLevel) -> bool {
    matches!(least, LoggingLevel::Debug | LoggingLevel::Info)
}
