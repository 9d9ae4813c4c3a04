//! Messages of an upstream, and the errors that its callers get.

use super::bounded::QueuedBytes;
use bytes::Bytes;
use rethread::RpcError;
use rethread_proto::jsonrpc::RequestId;
use serde_json::json;

/// A message that belongs to one call.
#[derive(Debug)]
pub(crate) enum UpstreamMessage {
    /// A notification. Its progress token is the gateway's.
    Notification { method: String, params: Bytes },
    /// A question to the client.
    Question(UpstreamQuestion),
    /// The server no longer waits for the answer to this question.
    QuestionCancelled(RequestId),
    /// The server has ended a subscription.
    SubscriptionEnded,
    /// The server asks to close the client's connection while the call continues (SSE-08).
    CloseConnection,
    /// The raw result, or the raw error.
    Response(Result<Bytes, Bytes>),
}

impl QueuedBytes for UpstreamMessage {
    fn queued_bytes(&self) -> usize {
        match self {
            UpstreamMessage::Notification { method, params } => method.len() + params.len(),
            UpstreamMessage::Question(question) => question.queued_bytes(),
            UpstreamMessage::QuestionCancelled(id) => id.as_json().len(),
            UpstreamMessage::SubscriptionEnded | UpstreamMessage::CloseConnection => 0,
            UpstreamMessage::Response(Ok(raw) | Err(raw)) => raw.len(),
        }
    }
}

/// A message that belongs to no call.
#[derive(Debug)]
pub(crate) enum UnsolicitedMessage {
    /// A notification.
    Notification { method: String, params: Bytes },
    /// A question to the client.
    Question(UpstreamQuestion),
    /// The server no longer waits for the answer to this question.
    QuestionCancelled(RequestId),
}

impl QueuedBytes for UnsolicitedMessage {
    fn queued_bytes(&self) -> usize {
        match self {
            UnsolicitedMessage::Notification { method, params } => method.len() + params.len(),
            UnsolicitedMessage::Question(question) => question.queued_bytes(),
            UnsolicitedMessage::QuestionCancelled(id) => id.as_json().len(),
        }
    }
}

/// A request of a server to its client, under the server's own id.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamQuestion {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Bytes,
}

impl QueuedBytes for UpstreamQuestion {
    fn queued_bytes(&self) -> usize {
        self.id.as_json().len() + self.method.len() + self.params.len()
    }
}

impl QueuedBytes for Bytes {
    fn queued_bytes(&self) -> usize {
        self.len()
    }
}

/// The error for callers of an upstream that has ended (GW-09).
pub(crate) fn upstream_ended_error(reason: &str) -> RpcError {
    RpcError::internal(format!("the server behind the gateway is gone: {reason}"))
        .with_data(json!({ "reason": "server_exited" }))
}

/// Parses the `error` of an upstream's response.
pub(crate) fn parse_upstream_error(raw: &[u8]) -> RpcError {
    serde_json::from_slice(raw)
        .unwrap_or_else(|_| RpcError::internal("the server behind the gateway sent a malformed error"))
}
