//! A server behind the gateway: a process that speaks MCP in lines on its stdin and stdout.

pub(crate) mod bounded;
pub(crate) mod guardian;
mod link;
mod process;
mod reading;
mod text;
pub(crate) mod wire;

pub(crate) use guardian::Guardian;
pub(crate) use link::{Calling, Link, Said, read_error};
pub(crate) use process::{Ground, Room};

use bounded::QueuedBytes;
use bytes::Bytes;
use rethread::RpcError;
use rethread_proto::jsonrpc::RequestId;
use serde_json::json;

/// What a child says that belongs to no call.
#[derive(Debug)]
pub(crate) enum Aside {
    /// A notification.
    Notified { method: String, params: Bytes },
    /// A question to the client, under the child's own id.
    Asked(Question),
    /// The child no longer waits for an answer.
    Withdrawn(RequestId),
}

impl QueuedBytes for Aside {
    fn queued_bytes(&self) -> usize {
        match self {
            Aside::Notified { method, params } => method.len() + params.len(),
            Aside::Asked(question) => question.queued_bytes(),
            Aside::Withdrawn(id) => id.as_json().len(),
        }
    }
}

/// A question that a child asks its client.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Bytes,
}

impl QueuedBytes for Question {
    fn queued_bytes(&self) -> usize {
        self.id.as_json().len() + self.method.len() + self.params.len()
    }
}

impl QueuedBytes for Bytes {
    fn queued_bytes(&self) -> usize {
        self.len()
    }
}

/// What a caller is told when the child is gone (GW-09).
pub(crate) fn gone(why: &str) -> RpcError {
    RpcError::internal(format!("the server behind the gateway is gone: {why}"))
        .with_data(json!({ "reason": "server_exited" }))
}
