//! Tools in a catalog: their functions, and calls of them.

use super::EntryError;
use super::arguments::refuse;
use super::function::params;
use super::input::{self, NeedsInput};
use super::listing::{Listing, Shown};
use super::tool::{ResolvedTool, Tool};
use super::tool_error::ToolError;
use super::tool_input::InputSchema;
use super::tool_result::{IntoToolResult, ToolResult};
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::{Call, Inputs};
use crate::call::schema::Schema;
use rethread_proto::Version;
use rethread_proto::gate::mirror::HeaderParams;
use rethread_proto::jsonrpc::RpcError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The future of the function of a tool.
type ToolFuture = Pin<Box<dyn Future<Output = Result<Reply, ToolError>> + Send>>;

/// Starts a call from its raw arguments. Fails with the reason if the arguments do not have the type of the function.
type Run = dyn Fn(&str, &Call, Context) -> Result<ToolFuture, String> + Send + Sync;

/// The function of a tool, the schema of its arguments, and the arguments that are mirrored in headers.
pub(super) struct ToolEntry {
    run: Box<Run>,
    input_schema: Schema,
    header_params: Option<Arc<HeaderParams>>,
}

impl ToolEntry {
    /// Adds a tool to a list.
    pub(super) fn add<I, A, F, Fut, R>(tools: &Listing<Self>, tool: Tool<I>, run: F) -> Result<(), EntryError>
    where
        I: InputSchema<A>,
        A: DeserializeOwned,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        let start = move |arguments: &str, _: &Call, cx: Context| -> Result<ToolFuture, String> {
            let version = cx.version();
            let running = run(read(arguments)?, cx);
            Ok(Box::pin(async move { reply(running.await, version) }))
        };
        ToolEntry::insert(tools, &tool.resolve::<A>(R::output_schema)?, Box::new(start))
    }

    /// Adds a tool that is called again with the answers of the client.
    pub(super) fn add_with_inputs<I, A, F, Fut, R>(
        tools: &Listing<Self>,
        tool: Tool<I>,
        run: F,
    ) -> Result<(), EntryError>
    where
        I: InputSchema<A>,
        A: DeserializeOwned,
        F: Fn(A, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: IntoToolResult,
    {
        let run = Arc::new(run);
        let start = move |arguments: &str, call: &Call, cx: Context| -> Result<ToolFuture, String> {
            let (run, arguments, inputs) = (Arc::clone(&run), arguments.to_owned(), call.inputs().clone());
            Ok(Box::pin(async move {
                let version = cx.version();
                let again = |inputs| {
                    let running = read(&arguments).map(|arguments| run(arguments, inputs, cx.clone()));
                    async move {
                        match running {
                            Ok(running) => Ok(reply(running.await?, version)?),
                            Err(why) => Ok(refuse(&why, version)?),
                        }
                    }
                };
                input::finish(inputs, &cx, again).await
            }))
        };
        ToolEntry::insert(tools, &tool.resolve::<A>(R::output_schema)?, Box::new(start))
    }

    fn insert(tools: &Listing<Self>, tool: &ResolvedTool, run: Box<Run>) -> Result<(), EntryError> {
        let name = tool.name.as_str();
        let unusable =
            |why: String| EntryError::Invalid(format!("the input schema of the tool `{name}` cannot be used: {why}"));
        // HDR-05: a client would silently drop the tool.
        let header_params = HeaderParams::of_schema(&tool.input_schema).map_err(|why| unusable(why.to_string()))?;
        let entry = ToolEntry {
            run,
            input_schema: Schema::compile(&tool.input_schema).map_err(unusable)?,
            header_params: Some(header_params).filter(|params| !params.is_empty()).map(Arc::new),
        };
        tools.add(tool.name.clone(), Shown::new(|version| tool.at(version)), entry)
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

fn reply(returned: impl IntoToolResult, version: Version) -> Result<Reply, ToolError> {
    let mut result = returned.into_tool_result()?;
    result.restrict_to(version);
    Ok(Reply::json(result))
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Answers a `tools/call`. The params are parsed once, and the arguments go directly from raw text to their type.
pub(super) async fn call(tools: &Listing<ToolEntry>, call: &Call, cx: &Context) -> Result<Reply, RpcError> {
    let (name, running) = start(tools, call, cx)?;
    running.await.or_else(|error| {
        let text = error.into_text(&name, call.id())?;
        Ok(Reply::json(ToolResult::error(text)))
    })
}

fn start<'a>(tools: &Listing<ToolEntry>, call: &'a Call, cx: &Context) -> Result<(Cow<'a, str>, ToolFuture), RpcError> {
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
    let running = running.or_else(|why| -> Result<ToolFuture, RpcError> {
        let refusal = refuse(&why, cx.version())?;
        Ok(Box::pin(std::future::ready(Ok(refusal))))
    });
    Ok((name, running?))
}
