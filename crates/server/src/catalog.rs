//! A server as a list of tools, resources, prompts and completions, for servers without an SDK.
//!
//! A [`Catalog`] is a [`Handler`]. Each entry comes with the function that serves it. The catalog derives capabilities,
//! lists, pages, argument parsing and the errors for unknown names.
//!
//! ```
//! use rethread::catalog::{Catalog, Tool};
//! use rethread::{Context, McpService, RpcError};
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! async fn greet(args: Greet, cx: Context) -> Result<String, RpcError> {
//!     cx.progress(0.5, "half way").await?;
//!     Ok(format!("hello, {}", args.name))
//! }
//!
//! let catalog = Catalog::new("greeter", "1.0.0").tool(
//!     Tool::new("greet").description("Greets somebody").input(json!({
//!         "type": "object",
//!         "properties": { "name": { "type": "string" } },
//!         "required": ["name"],
//!     })),
//!     greet,
//! );
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mcp = McpService::builder(catalog).build();
//! # drop(mcp);
//! # });
//! ```
//! Every function gets its arguments and a [`Context`]. It may be an `async fn` or a closure that returns a future.
//!
//! To ask the client, a function may wait for [`Context::elicit`] and similar methods. If the answer may reach another
//! process or come after a restart, add the function [with inputs](Catalog::tool_with_inputs): it returns the questions that
//! it [asks](Ask), and is called again with the answers.

mod arguments;
mod complete;
mod content;
mod function;
mod input;
mod page;
mod prompt;
mod resource;
mod schema;
mod template;
mod tool;
mod tool_result;

pub use complete::Reference;
pub use content::Content;
pub use input::{Ask, NeedsInput};
pub use prompt::{Prompt, PromptMessage};
pub use resource::{Resource, ResourceContents, ResourceTemplate};
pub use tool::{NoArgs, Tool};
pub use tool_result::{IntoToolResult, ToolResult};

use crate::call::context::Context;
use crate::call::handler::Handler;
use crate::call::reply::Reply;
use crate::call::request::{Call, Inputs};
use crate::node::server_info::ServerInfo;
use complete::Completers;
use function::FunctionFuture;
use page::Listing;
use prompt::PromptEntry;
use resource::Resources;
use rethread_proto::Principal;
use rethread_proto::gate::mirror::HeaderParams;
use rethread_proto::jsonrpc::RpcError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tool::ToolEntry;

/// A server made of tools, resources, prompts and their functions. See the [module](self).
///
/// Entries cannot be removed. A name that is in use or that MCP does not allow is a programming error: the method that adds
/// it panics with the name.
pub struct Catalog {
    info: ServerInfo,
    page_size: usize,
    tools: Listing<ToolEntry>,
    resources: Resources,
    prompts: Listing<PromptEntry>,
    completers: Completers,
}

impl Catalog {
    /// An empty catalog of the server `name`.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Catalog {
            info: ServerInfo::new(name, version),
            page_size: 100,
            tools: Listing::new("tool", "tools"),
            resources: Resources::default(),
            prompts: Listing::new("prompt", "prompts"),
            completers: Completers::default(),
        }
    }

    /// The title of the server for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.info.title = Some(title.into());
        self
    }

    /// Instructions for a model that uses the server.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.info.instructions = Some(instructions.into());
        self
    }

    /// Entries of one page of a list. The default is 100.
    ///
    /// # Panics
    /// If `entries` is zero.
    #[must_use]
    pub fn page_size(mut self, entries: usize) -> Self {
        assert!(entries > 0, "a page must hold at least one entry");
        self.page_size = entries;
        self
    }

    /// Adds a tool. `run` gets the call's `arguments` (`{}` if there are none) as `A`. An `Err` of `run` is a JSON-RPC
    /// error; a failure that the model should read is an [error result](ToolResult::error).
    ///
    /// Arguments that violate the [input schema](Tool::input) or are not an `A` never reach `run`. The answer is an error
    /// result that names the arguments and what is expected of them, so that the model can correct itself. Before
    /// 2025-11-25 it is the error `-32602` with the same text, as these revisions want. The text names at most 8 problems
    /// and has at most 2 KiB.
    ///
    /// Arguments that the schema annotates with `x-mcp-header` come in headers too, and are checked before `run`.
    ///
    /// # Panics
    /// If the name is taken or is not 1 to 64 of `A-Z a-z 0-9 _ . / -`, if an `x-mcp-header` breaks the rules, or if the
    /// input schema is not a valid JSON Schema or refers to another document.
    #[must_use]
    pub fn tool<A, F, Fut, R>(self, tool: Tool, run: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: IntoToolResult,
    {
        self.add_tool(tool, |tool| ToolEntry::new(tool, run))
    }

    /// Adds a tool that asks the client for input: it returns an [`Ask`] as its error. It is called again, from its
    /// beginning, with the answers in its [`Inputs`]. On 2026-07-28 the server keeps nothing meanwhile. Before, the client is
    /// asked on the stream of the call.
    ///
    /// # Panics
    /// As [`tool`](Catalog::tool) does.
    #[must_use]
    pub fn tool_with_inputs<A, F, Fut, R>(self, tool: Tool, run: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(A, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: IntoToolResult,
    {
        self.add_tool(tool, |tool| ToolEntry::with_inputs(tool, run))
    }

    fn add_tool(mut self, tool: Tool, entry: impl FnOnce(&Tool) -> ToolEntry) -> Self {
        let (shown, entry) = (page::shown(&tool), entry(&tool));
        self.tools.add(tool.into_name(), shown, entry);
        self
    }

    /// Adds a resource with a URI of its own. `read` gets that URI. Contents without a MIME type get the resource's.
    ///
    /// # Panics
    /// If the URI is taken.
    #[must_use]
    pub fn resource<F, Fut, R>(mut self, resource: Resource, read: F) -> Self
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        self.resources.add(resource, read);
        self
    }

    /// Adds a family of resources. `read` gets the variables of the template, percent-decoded, and the URI that was
    /// asked for. Resources with a URI of their own come first, then templates in the order of their addition.
    ///
    /// # Panics
    /// If the template is taken, or is more than level 1 of RFC 6570: only `{name}`, each within one path segment.
    #[must_use]
    pub fn template<F, Fut, R>(mut self, template: ResourceTemplate, read: F) -> Self
    where
        F: Fn(BTreeMap<String, String>, String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        self.resources.add_template(template, read);
        self
    }

    /// Adds a prompt. `make` gets the arguments. A call without a required argument gets `-32602`.
    ///
    /// # Panics
    /// If the name is empty or taken.
    #[must_use]
    pub fn prompt<F, Fut, R>(mut self, prompt: Prompt, make: F) -> Self
    where
        F: Fn(BTreeMap<String, String>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let (shown, entry) = (page::shown(&prompt), PromptEntry::new(&prompt, make));
        self.prompts.add(prompt.into_name(), shown, entry);
        self
    }

    /// Adds a prompt that asks the client for input, as a [tool](Catalog::tool_with_inputs) may.
    ///
    /// # Panics
    /// If the name is empty or taken.
    #[must_use]
    pub fn prompt_with_inputs<F, Fut, R>(mut self, prompt: Prompt, make: F) -> Self
    where
        F: Fn(BTreeMap<String, String>, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let (shown, entry) = (page::shown(&prompt), PromptEntry::with_inputs(&prompt, make));
        self.prompts.add(prompt.into_name(), shown, entry);
        self
    }

    /// Completes `argument` of a prompt or a resource template. `suggest` gets the text typed so far and returns every value
    /// it knows, best first. The client gets the first hundred.
    ///
    /// # Panics
    /// If this argument is completed already.
    #[must_use]
    pub fn complete<F, Fut>(mut self, of: Reference, argument: impl Into<String>, suggest: F) -> Self
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<String>, RpcError>> + Send + 'static,
    {
        self.completers.add(of, argument.into(), suggest);
        self
    }

    fn capabilities(&self) -> Value {
        let mut declared = Map::from_iter([("logging".to_owned(), json!({}))]);
        let mut declare = |name: &str, has: bool, how: Value| {
            if has {
                declared.insert(name.to_owned(), how);
            }
        };
        declare("tools", !self.tools.is_empty(), json!({ "listChanged": true }));
        declare("prompts", !self.prompts.is_empty(), json!({ "listChanged": true }));
        let resources = json!({ "subscribe": true, "listChanged": true });
        declare("resources", !self.resources.is_empty(), resources);
        declare("completions", !self.completers.is_empty(), json!({}));
        Value::Object(declared)
    }

    fn complete_call(&self, call: &Call, cx: &Context) -> Result<FunctionFuture, RpcError> {
        self.completers.call(call, cx, |reference| match reference {
            Reference::Prompt { name } => self.prompts.get(name).is_some(),
            Reference::Resource { uri } => self.resources.knows(uri),
        })
    }
}

impl Handler for Catalog {
    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        match call.method() {
            "tools/list" => self.tools.page(&call, self.page_size),
            "tools/call" => tool::call(&self.tools, &call, cx)?.await,
            "resources/list" => self.resources.page(&call, self.page_size),
            "resources/templates/list" => self.resources.page_of_templates(&call, self.page_size),
            "resources/read" => self.resources.read(&call, cx)?.await,
            "resources/subscribe" | "resources/unsubscribe" => self.resources.watch(&call, cx),
            "prompts/list" => self.prompts.page(&call, self.page_size),
            "prompts/get" => prompt::get(&self.prompts, &call, cx)?.await,
            "completion/complete" => self.complete_call(&call, cx)?.await,
            other => Err(RpcError::method_not_found(other)),
        }
    }

    fn info(&self) -> ServerInfo {
        ServerInfo {
            capabilities: self.capabilities(),
            ..self.info.clone()
        }
    }

    async fn header_params(&self, tool: &str, _: &Principal) -> Option<Arc<HeaderParams>> {
        self.tools.get(tool).and_then(ToolEntry::header_params)
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::function::object;
    use super::*;
    use serde::Deserialize;

    async fn nothing(_: NoArgs, _: Context) -> Result<String, RpcError> {
        Ok(String::new())
    }

    #[test]
    fn capabilities_are_derived_from_the_entries() {
        let empty = Catalog::new("a", "1");
        assert_eq!(empty.info().capabilities, json!({ "logging": {} }));
        let full = empty
            .tool(Tool::new("t"), nothing)
            .resource(Resource::new("test://r", "r"), |uri, _| async {
                Ok(ResourceContents::text(uri, ""))
            })
            .prompt(Prompt::new("p"), |_, _| async { Ok(PromptMessage::user("hello")) })
            .complete(Reference::prompt("p"), "x", |_, _| async { Ok(vec![]) });
        let expected = json!({
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "prompts": { "listChanged": true },
            "logging": {},
            "completions": {},
        });
        assert_eq!(full.info().capabilities, expected);
    }

    #[test]
    #[should_panic(expected = "the tool `t` is in the catalog already")]
    fn a_name_can_be_taken_once() {
        let _ = Catalog::new("a", "1")
            .tool(Tool::new("t"), nothing)
            .tool(Tool::new("t"), nothing);
    }

    #[tokio::test]
    async fn hdr_05_annotations_are_read_when_a_tool_is_added() {
        let schema = json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        });
        let catalog = Catalog::new("a", "1")
            .tool(Tool::new("plain"), nothing)
            .tool(Tool::new("mirrored").input(schema.clone()), nothing)
            .tool_with_inputs(Tool::new("asking").input(schema.clone()), |_: NoArgs, _, _| async {
                Ok("done")
            });
        let expected = HeaderParams::of_schema(&schema).unwrap();
        for tool in ["mirrored", "asking"] {
            assert_eq!(
                catalog.header_params(tool, &Principal::anonymous()).await.as_deref(),
                Some(&expected),
                "{tool}"
            );
        }
        for tool in ["plain", "unknown"] {
            assert_eq!(
                catalog.header_params(tool, &Principal::anonymous()).await,
                None,
                "{tool}"
            );
        }
    }

    #[test]
    #[should_panic(
        expected = "the input schema of the tool `t` cannot be used: `x-mcp-header` at `/properties/a` needs"
    )]
    fn hdr_05_a_wrong_annotation_is_refused() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "number", "x-mcp-header": "A" } },
        });
        let _ = Catalog::new("a", "1").tool(Tool::new("t").input(schema), nothing);
    }

    #[test]
    fn arrays_are_not_accepted_as_params() {
        #[derive(Debug, Deserialize)]
        struct One {
            _a: u8,
        }
        let message = |json: &str| object::<One>(json.as_bytes(), "params").unwrap_err().message;
        assert_eq!(message("[1]"), "params must be an object");
        assert!(message("{}").starts_with("invalid params: missing field `_a`"));
    }

    #[test]
    #[should_panic(
        expected = "the input schema of the tool `t` cannot be used: `/properties/a/type` must be one of null, "
    )]
    fn invalid_input_schema_is_refused_when_the_tool_is_added() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "strng" } } });
        let _ = Catalog::new("a", "1").tool(Tool::new("t").input(schema), nothing);
    }

    #[test]
    #[should_panic(
        expected = "cannot be used: `/properties/a/$ref` refers to `http://127.0.0.1:9/schema.json`, which is not"
    )]
    fn referenced_schemas_are_not_fetched() {
        let schema = json!({ "type": "object", "properties": { "a": { "$ref": "http://127.0.0.1:9/schema.json" } } });
        let _ = Catalog::new("a", "1").tool(Tool::new("t").input(schema), nothing);
    }
}
