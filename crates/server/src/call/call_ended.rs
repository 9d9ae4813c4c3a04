//! The error of an emission that comes too late.

use rethread_proto::jsonrpc::RpcError;

/// The call or the session is over: nothing more can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call has ended")]
pub struct CallEnded;

impl From<CallEnded> for RpcError {
    fn from(_: CallEnded) -> Self {
        RpcError::internal("the call has ended")
    }
}
