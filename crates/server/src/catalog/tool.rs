//! Tools and their functions.

use super::arguments::refuse;
use super::function::{FunctionFuture, params};
use super::input::{self, NeedsInput};
use super::page::Listing;
use super::schema::Schema;
use super::tool_result::IntoToolResult;
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::{Call, Inputs};
use rethread_proto::gate::mirror::HeaderParams;
use rethread_proto::jsonrpc::RpcError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

/// The description of a tool for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Value>,
}

impl Tool {
    /// A tool without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Tool {
            name: name.into(),
            title: None,
            description: None,
            input_schema: json!({ "type": "object", "properties": {} }),
            output_schema: None,
            annotations: None,
        }
    }

    /// The title for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The description of the tool, for a model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The JSON Schema of the arguments. It is sent unchanged.
    ///
    /// # Panics
    /// If its `type` is not `object`.
    #[must_use]
    pub fn input(mut self, schema: Value) -> Self {
        self.check_root(&schema, "input");
        self.input_schema = schema;
        self
    }

    /// The JSON Schema of the structured content. It is sent unchanged.
    ///
    /// # Panics
    /// If its `type` is not `object`.
    #[must_use]
    pub fn output(mut self, schema: Value) -> Self {
        self.check_root(&schema, "output");
        self.output_schema = Some(schema);
        self
    }

    /// Hints about the tool: `ToolAnnotations` of the MCP schema.
    #[must_use]
    pub fn annotations(mut self, annotations: Value) -> Self {
        self.annotations = Some(annotations);
        self
    }

    pub(super) fn into_name(self) -> String {
        self.name
    }

    fn check_root(&self, schema: &Value, which: &str) {
        let is_object = schema.get("type").is_some_and(|t| t == "object");
        assert!(
            is_object,
            "the {which} schema of the tool `{}` must have the type `object`",
            self.name
        );
    }
}

/// The arguments of a tool without arguments. Accepts any object.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct NoArgs {}

/// Starts a call from its raw arguments. Fails with the reason if the arguments do not have the type of the function.
type Run = dyn Fn(&str, &Call, Context) -> Result<FunctionFuture, String> + Send + Sync;

/// The function of a tool, the schema of its arguments, and the arguments that are mirrored in headers.
pub(super) struct ToolEntry {
    run: Box<Run>,
    input_schema: Schema,
    header_params: Option<Arc<HeaderParams>>,
}

impl ToolEntry {
    pub(super) fn new<A, F, Fut, R>(tool: &Tool, run: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoToolResult,
    {
        ToolEntry::running(tool, move |arguments, _, cx| {
            let running = run(read(arguments)?, cx);
            Ok(Box::pin(async move { Ok(reply(running.await?)) }))
        })
    }

    pub(super) fn with_inputs<A, F, Fut, R>(tool: &Tool, run: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(A, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: IntoToolResult,
    {
        let run = Arc::new(run);
        ToolEntry::running(tool, move |arguments, call, cx| {
            let (run, arguments, inputs) = (Arc::clone(&run), arguments.to_owned(), call.inputs().clone());
            Ok(Box::pin(async move {
                let version = cx.version();
                let again = |inputs| {
                    let running = read(&arguments).map(|arguments| run(arguments, inputs, cx.clone()));
                    Ok(async move {
                        match running {
                            Ok(running) => running.await.map(reply),
                            Err(why) => Ok(refuse(&why, version)?),
                        }
                    })
                };
                input::finish(inputs, &cx, again).await
            }))
        })
    }

    fn running<F>(tool: &Tool, run: F) -> Self
    where
        F: Fn(&str, &Call, Context) -> Result<FunctionFuture, String> + Send + Sync + 'static,
    {
        let name = tool.name.as_str();
        assert!(
            is_tool_name(name),
            "`{name}` is no tool name: 1 to 64 of A-Z a-z 0-9 _ . / - are allowed"
        );
        let unusable = |why: String| -> ! { panic!("the input schema of the tool `{name}` cannot be used: {why}") };
        // HDR-05: a client would silently drop the tool.
        let header_params = HeaderParams::of_schema(&tool.input_schema).unwrap_or_else(|why| unusable(why.to_string()));
        ToolEntry {
            run: Box::new(run),
            input_schema: Schema::compile(&tool.input_schema).unwrap_or_else(|why| unusable(why)),
            header_params: Some(header_params).filter(|params| !params.is_empty()).map(Arc::new),
        }
    }

    pub(super) fn header_params(&self) -> Option<Arc<HeaderParams>> {
        self.header_params.clone()
    }
}

fn read<A: DeserializeOwned>(arguments: &str) -> Result<A, String> {
    serde_json::from_str(arguments).map_err(|error| {
        let text = error.to_string();
        // The position refers to a text that the client has not seen, so it is removed.
        let (reason, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
        format!("- {reason}")
    })
}

fn reply(result: impl IntoToolResult) -> Reply {
    Reply::json(result.into_tool_result())
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Starts a `tools/call`. The params are parsed once, and the arguments go directly from raw text to their type.
pub(super) fn call(tools: &Listing<ToolEntry>, call: &Call, cx: &Context) -> Result<FunctionFuture, RpcError> {
    let CallParams { name, arguments } = params(call)?;
    let tool = tools
        .get(&name)
        .ok_or_else(|| RpcError::invalid_params(format!("unknown tool: {name}")))?;
    let arguments = arguments.map_or("{}", RawValue::get);
    if !arguments.starts_with('{') {
        // An error in every revision: this violates the schema of the request, not that of the tool.
        return Err(RpcError::invalid_params("arguments must be an object"));
    }
    let checked = tool.input_schema.check(arguments);
    let running = checked.and_then(|()| (tool.run)(arguments, call, cx.clone()));
    running.or_else(|why| {
        let refusal = refuse(&why, cx.version())?;
        Ok(Box::pin(std::future::ready(Ok(refusal))))
    })
}

fn is_tool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_./-".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::super::tool_result::ToolResult;
    use super::*;

    #[test]
    fn tool_names_have_a_bounded_length_and_alphabet() {
        let longest = "x".repeat(64);
        for good in ["a", "echo", "a.b/c-d_E9", longest.as_str()] {
            assert!(is_tool_name(good), "{good}");
        }
        let too_long = "x".repeat(65);
        for bad in ["", "a b", "a:b", "é", "a\n", too_long.as_str()] {
            assert!(!is_tool_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn schema_is_sent_unchanged() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "a": { "$anchor": "b" } },
            "if": { "properties": {} },
            "x-mcp-header": "Kept",
        });
        let tool = Tool::new("t").title("T").description("d").input(schema.clone());
        assert_eq!(
            serde_json::to_value(tool).unwrap(),
            json!({ "name": "t", "title": "T", "description": "d", "inputSchema": schema })
        );
    }

    #[test]
    #[should_panic(expected = "the input schema of the tool `t` must have the type `object`")]
    fn a_schema_describes_an_object() {
        let _ = Tool::new("t").input(json!({ "type": "string" }));
    }

    #[test]
    fn results_have_the_shape_of_the_schema() {
        let text = |t: &str| json!([{ "type": "text", "text": t }]);
        for (result, shape) in [
            ("hi".into_tool_result(), json!({ "content": text("hi") })),
            (vec![].into_tool_result(), json!({ "content": [] })),
            (
                ToolResult::error("no"),
                json!({ "content": text("no"), "isError": true }),
            ),
            (
                ToolResult::structured(json!({ "a": 1 })),
                json!({ "content": text(r#"{"a":1}"#), "structuredContent": { "a": 1 } }),
            ),
        ] {
            assert_eq!(serde_json::to_value(result).unwrap(), shape);
        }
    }
}
