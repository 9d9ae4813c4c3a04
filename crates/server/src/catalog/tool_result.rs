//! The result of a tool.

use super::Content;
use serde::Serialize;
use serde_json::Value;

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResult {
    /// Content for the model.
    pub content: Vec<Content>,
    /// Content for programs: a JSON object. Since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed in a way that the model should read about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolResult {
    /// A success.
    pub fn new(content: Vec<Content>) -> Self {
        ToolResult {
            content,
            ..ToolResult::default()
        }
    }

    /// A failure that the model reads about. For an invalid call return an [`RpcError`](crate::RpcError) instead.
    pub fn error(content: impl Into<Content>) -> Self {
        ToolResult {
            is_error: true,
            ..ToolResult::new(vec![content.into()])
        }
    }

    /// A success with a JSON object for programs, and the same object as text.
    pub fn structured(object: Value) -> Self {
        ToolResult {
            content: vec![Content::text(object.to_string())],
            structured_content: Some(object),
            is_error: false,
        }
    }
}

/// A return value of the function of a tool.
pub trait IntoToolResult {
    /// The result to send.
    fn into_tool_result(self) -> ToolResult;
}

impl IntoToolResult for ToolResult {
    fn into_tool_result(self) -> ToolResult {
        self
    }
}

impl IntoToolResult for Vec<Content> {
    fn into_tool_result(self) -> ToolResult {
        ToolResult::new(self)
    }
}

impl<C: Into<Content>> IntoToolResult for C {
    fn into_tool_result(self) -> ToolResult {
        ToolResult::new(vec![self.into()])
    }
}
