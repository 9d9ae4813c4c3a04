//! Errors for requests whose child is not available.

use crate::child::StartError;
use rethread::RpcError;
use serde_json::json;
use std::future::Future;
use std::time::Duration;

/// The error for a request that gets no child: `busy` if one may be free soon (GW-21).
pub(super) fn start_error(error: StartError) -> RpcError {
    match error {
        StartError::Busy { .. } => RpcError::internal(error.to_string()).with_data(json!({ "reason": "busy" })),
        StartError::Spawn(error) => unavailable_error(error),
    }
}

/// The error for a request that gets no child.
pub(super) fn unavailable_error(reason: impl std::fmt::Display) -> RpcError {
    RpcError::internal(format!("the server behind the gateway is not available: {reason}"))
        .with_data(json!({ "reason": "server_unavailable" }))
}

/// Waits at most `limit` for a child. `action` completes "it did not …".
pub(super) async fn with_timeout<T>(
    limit: Duration,
    action: &str,
    future: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let timed_out = || {
        unavailable_error(format_args!(
            "it did not {action} within {} seconds",
            limit.as_secs_f32()
        ))
    };
    tokio::time::timeout(limit, future)
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}
