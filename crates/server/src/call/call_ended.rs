//! The error of an emission after the end of its call.

use rethread_proto::jsonrpc::RpcError;

/// The call or the session has ended. Nothing more can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call has ended")]
pub struct CallEnded;

impl From<CallEnded> for RpcError {
    fn from(_: CallEnded) -> Self {
        RpcError::internal("the call has ended")
    }
}
