//! The answer to arguments that do not fit a tool.

use super::tool_result::ToolResult;
use crate::call::reply::Reply;
use crate::call::schema::shorten;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::version::Version;

/// Bound of the text, in bytes. A model reads it, and the arguments determine its length. Beyond: the text is cut.
const MAX_TEXT_BYTES: usize = 2048;

/// Since 2025-11-25 the answer is a result, which the model reads and can act on.
pub(super) fn refuse(why: &str, version: Version) -> Result<Reply, RpcError> {
    let text = shorten(format!("Invalid arguments:\n{why}"), MAX_TEXT_BYTES);
    if version.reports_invalid_arguments_as_result() {
        Ok(Reply::json(ToolResult::error(text)))
    } else {
        Err(RpcError::invalid_params(text))
    }
}
