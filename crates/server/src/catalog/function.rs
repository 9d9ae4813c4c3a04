//! The common part of the functions of a catalog: their params and their future.

use crate::call::reply::Reply;
use crate::call::request::Call;
use rethread_proto::jsonrpc::RpcError;
use serde::Deserialize;
use std::future::Future;
use std::pin::Pin;

/// The future of a function.
pub(super) type FunctionFuture = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

/// Reads the params of a call, which are an object in every method of MCP. Serde alone would also accept an array for a
/// struct.
pub(super) fn params<'a, T: Deserialize<'a>>(call: &'a Call) -> Result<T, RpcError> {
    object(call.raw_params().as_json(), "params")
}

pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8], what: &str) -> Result<T, RpcError> {
    if json.first() != Some(&b'{') {
        return Err(RpcError::invalid_params(format!("{what} must be an object")));
    }
    serde_json::from_slice(json).map_err(|e| RpcError::invalid_params(format!("invalid {what}: {e}")))
}
