//! Progress and logs of a running call.

#![expect(deprecated)] // clients still use logging

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use crate::EverythingServer;

/// Reports progress if the client sent a token.
pub(crate) async fn progress(
    context: &RequestContext<RoleServer>,
    done: f64,
    total: f64,
    message: &str,
) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok(());
    };
    let progress = ProgressNotificationParam::new(token, done)
        .with_total(total)
        .with_message(message);
    context.peer.notify_progress(progress).await.map_err(to_error_data)
}

impl EverythingServer {
    /// Logs at level info if the client wants this level.
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
        context
            .peer
            .notify_logging_message(message)
            .await
            .map_err(to_error_data)
    }
}

/// A log message at level info.
pub(crate) fn message(logger: &str, data: Value) -> LoggingMessageNotificationParam {
    LoggingMessageNotificationParam::new(LoggingLevel::Info, data).with_logger(logger)
}

/// Whether the call belongs to a session: all revisions before 2026-07-28.
pub(crate) fn has_sessions(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

/// Converts an error of a question or a notification to the error of the call.
pub(crate) fn to_error_data(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

fn includes_info(minimum: LoggingLevel) -> bool {
    matches!(minimum, LoggingLevel::Debug | LoggingLevel::Info)
}
