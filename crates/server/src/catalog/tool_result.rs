//! The result of a tool.

use super::{Content, ToolError};
use rethread_proto::Version;
use serde::Serialize;
use serde_json::{Map, Value};

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResult {
    /// Content for the model.
    pub content: Vec<Content>,
    /// Content for programs. Clients before 2025-06-18 do not get it. Clients before 2026-07-28 get it if it is an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed in a way that the model should read about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Data for programs that is not part of the result.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
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

    /// A success with a JSON value for programs, and the same value as text. [`Json`](super::Json) also describes its type to
    /// the client.
    pub fn structured(value: Value) -> Self {
        ToolResult {
            content: vec![Content::text(value.to_string())],
            structured_content: Some(value),
            ..ToolResult::default()
        }
    }

    /// The same result with another member of `_meta`.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Removes the parts that `version` does not have.
    pub(super) fn restrict_to(&mut self, version: Version) {
        let may_have = |value: &mut Value| {
            let any = version.has_any_structured_content();
            version.has_structured_content() && (any || value.is_object())
        };
        self.structured_content.take_if(|value| !may_have(value));
    }
}

/// A return value of the function of a tool: text, content, a [`ToolResult`], a [`Json`](super::Json), nothing, or a `Result` of
/// these whose error converts to a [`ToolError`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the result of a tool",
    note = "return text, `Content`, `ToolResult`, `Json<T>` with `T: Serialize + JsonSchema`, or a `Result` of these"
)]
pub trait IntoToolResult {
    /// The result to send.
    fn into_tool_result(self) -> Result<ToolResult, ToolError>;

    /// The JSON Schema of the structured content, if there always is one.
    fn output_schema() -> Option<Value>
    where
        Self: Sized,
    {
        None
    }
}

impl<R: IntoToolResult, E: Into<ToolError>> IntoToolResult for Result<R, E> {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        self.map_err(Into::into)?.into_tool_result()
    }

    fn output_schema() -> Option<Value> {
        R::output_schema()
    }
}

impl IntoToolResult for ToolResult {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        Ok(self)
    }
}

impl IntoToolResult for Vec<Content> {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::new(self))
    }
}

impl IntoToolResult for () {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::default())
    }
}

impl<C: Into<Content>> IntoToolResult for C {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        Ok(ToolResult::new(vec![self.into()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_have_the_shape_of_the_schema() {
        let text = |t: &str| json!([{ "type": "text", "text": t }]);
        for (result, shape) in [
            ("hi".into_tool_result(), json!({ "content": text("hi") })),
            (vec![].into_tool_result(), json!({ "content": [] })),
            (().into_tool_result(), json!({ "content": [] })),
            (
                Ok::<_, ToolError>("hi".to_owned()).into_tool_result(),
                json!({ "content": text("hi") }),
            ),
            (
                Ok(ToolResult::error("no").with_meta("a", 1)),
                json!({ "content": text("no"), "isError": true, "_meta": { "a": 1 } }),
            ),
            (
                Ok(ToolResult::structured(json!({ "a": 1 }))),
                json!({ "content": text(r#"{"a":1}"#), "structuredContent": { "a": 1 } }),
            ),
        ] {
            assert_eq!(serde_json::to_value(result.unwrap()).unwrap(), shape);
        }
    }

    #[test]
    fn structured_content_is_sent_where_it_exists() {
        let has = |value: Value, version| {
            let mut result = ToolResult::structured(value);
            result.restrict_to(version);
            result.structured_content.is_some()
        };
        let sent = |value: Value| Version::ALL.map(|version| has(value.clone(), version));
        assert_eq!(sent(json!({})), [false, false, true, true, true]);
        assert_eq!(sent(json!([])), [false, false, false, false, true]);
    }
}
