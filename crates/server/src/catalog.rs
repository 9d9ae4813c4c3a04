//! A server as a list of tools, resources, prompts and completions, for servers without an SDK.
//!
//! A [`Catalog`] is a [`Handler`]. Each entry comes with the function that serves it. The catalog derives capabilities,
//! lists, pages, argument parsing and the errors for unknown names.
//!
//! ```
//! use rethread::catalog::{Catalog, Json, Tool, ToolError};
//! use rethread::{Context, McpService};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// Divides two numbers.
//! #[derive(Deserialize, JsonSchema)]
//! struct Divide {
//!     /// The dividend
//!     a: f64,
//!     /// The divisor
//!     b: f64,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Quotient {
//!     quotient: f64,
//! }
//!
//! async fn divide(args: Divide, cx: Context) -> Result<Json<Quotient>, ToolError> {
//!     cx.progress(0.5, "half way").await?;
//!     if args.b == 0.0 {
//!         return Err(ToolError::message("cannot divide by zero")); // the model reads this
//!     }
//!     Ok(Json(Quotient { quotient: args.a / args.b }))
//! }
//!
//! let catalog = Catalog::new("calculator", "1.0.0").tool(Tool::new("divide"), divide);
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mcp = McpService::builder(catalog).build();
//! # drop(mcp);
//! # });
//! ```
//!
//! Every function gets its arguments and a [`Context`]. It may be an `async fn` or a closure that returns a future.
//! [`with_state`] adds a state.
//!
//! | part of the function | part of the tool |
//! |---|---|
//! | the argument type, which implements `schemars::JsonSchema` | `inputSchema`, by which arguments are checked |
//! | its doc comment, and those of its fields | `description`, of the tool and of the arguments |
//! | [`Json`] in the return type | `outputSchema`, and `structuredContent` in the result |
//! | an error | see [`ToolError`] |
//!
//! [`Tool::input`] and [`Tool::output`] replace a schema by one that is written by hand. Without the feature `schemars` every tool
//! with arguments needs one.
//!
//! To ask the client, a function may wait for [`Context::elicit`] and similar methods. If the answer may reach another
//! process or come after a restart, add the function [with inputs](Catalog::tool_with_inputs): it returns the questions that
//! it [asks](Ask), and is called again with the answers.
//!
//! A [`CatalogHandle`] changes a catalog while it is served.

mod annotations;
mod arguments;
mod complete;
mod content;
mod entries;
mod entry_error;
mod function;
mod handle;
mod icon;
mod input;
#[cfg(feature = "schemars")]
mod json;
mod listing;
mod prompt;
mod resource;
mod state;
mod template;
mod tool;
mod tool_entry;
mod tool_error;
mod tool_input;
mod tool_result;

pub use annotations::{Annotations, Role, ToolAnnotations};
pub use complete::Reference;
pub use content::Content;
pub use entry_error::EntryError;
pub use handle::CatalogHandle;
pub use icon::{Icon, IconTheme};
pub use input::{Ask, NeedsInput};
#[cfg(feature = "schemars")]
pub use json::Json;
pub use prompt::{Prompt, PromptMessage};
pub use resource::{Resource, ResourceContents, ResourceTemplate};
pub use state::with_state;
pub use tool::Tool;
pub use tool_error::ToolError;
pub use tool_input::{InputSchema, JsonInput, NoArgs, TypedInput};
pub use tool_result::{IntoToolResult, ToolResult};

use crate::call::context::Context;
use crate::call::handler::Handler;
use crate::call::reply::Reply;
use crate::call::request::{Call, Inputs};
use crate::node::handler_options::HandlerOptions;
use crate::node::server_info::ServerInfo;
use crate::session::notifier::Notifier;
use complete::Completers;
use entries::Entries;
use function::FunctionFuture;
use prompt::PromptEntry;
use rethread_proto::Principal;
use rethread_proto::gate::mirror::HeaderParams;
use rethread_proto::jsonrpc::{Params, RpcError};
use rethread_store::ListKind;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tool_entry::ToolEntry;

/// A server made of tools, resources, prompts and their functions. See the [module](self).
///
/// A name that is in use or that MCP does not allow is a programming error: the method that adds it panics with the name. A
/// [handle](Catalog::handle) returns an error instead.
pub struct Catalog {
    info: ServerInfo,
    page_size: usize,
    entries: Arc<Entries>,
    completers: Completers,
    holds_session_state: bool,
}

impl Catalog {
    /// An empty catalog of the server `name`.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Catalog {
            info: ServerInfo::new(name, version),
            page_size: 100,
            entries: Arc::new(Entries::new()),
            completers: Completers::default(),
            holds_session_state: false,
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

    /// The functions keep state of a session in this process, such as an open file for each session. In a cluster all calls of
    /// a session then run on one node. By default any node runs any call.
    #[must_use]
    pub fn holds_session_state(mut self) -> Self {
        self.holds_session_state = true;
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

    /// A handle that adds and removes entries while the catalog is served.
    pub fn handle(&self) -> CatalogHandle {
        CatalogHandle::new(&self.entries)
    }

    /// Adds a tool. `run` gets the call's `arguments` (`{}` if there are none) as `A`, and returns text, [`Content`], a
    /// [`ToolResult`], a [`Json`], or a `Result` of these. [`ToolError`] describes what becomes of an error.
    ///
    /// The schema of the arguments is that of `A`, or that of [`Tool::input`]. Arguments that violate it or are not an `A` never
    /// reach `run`. The answer is an error result that names the arguments and what is expected of them, so that the model can
    /// correct itself. Before 2025-11-25 it is the error `-32602` with the same text, as these revisions want. The text names at
    /// most 8 problems and has at most 2 KiB.
    ///
    /// Arguments that the schema annotates with `x-mcp-header` come in headers too, and are checked before `run`. A field has such
    /// an annotation with `#[schemars(extend("x-mcp-header" = "Region"))]`.
    ///
    /// # Panics
    /// If the name is taken or is not 1 to 64 of `A-Z a-z 0-9 _ . / -`, if an `x-mcp-header` breaks the rules, or if the
    /// input schema does not have the type `object`, is not a valid JSON Schema or refers to another document.
    #[must_use]
    pub fn tool<I, A, F, Fut, R>(self, tool: Tool<I>, run: F) -> Self
    where
        I: InputSchema<A>,
        A: DeserializeOwned,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        let added = ToolEntry::add(&self.entries.tools, tool, run);
        self.with(added)
    }

    /// Adds a tool that asks the client for input: it returns an [`Ask`] as its error. It is called again, from its
    /// beginning, with the answers in its [`Inputs`]. On 2026-07-28 the server keeps nothing meanwhile. Before, the client is
    /// asked on the stream of the call.
    ///
    /// # Panics
    /// As [`tool`](Catalog::tool) does.
    #[must_use]
    pub fn tool_with_inputs<I, A, F, Fut, R>(self, tool: Tool<I>, run: F) -> Self
    where
        I: InputSchema<A>,
        A: DeserializeOwned,
        F: Fn(A, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: IntoToolResult,
    {
        let added = ToolEntry::add_with_inputs(&self.entries.tools, tool, run);
        self.with(added)
    }

    /// Adds a resource with a URI of its own. `read` gets that URI. Contents without a MIME type get the resource's.
    ///
    /// # Panics
    /// If the URI is taken.
    #[must_use]
    pub fn resource<F, Fut, R>(self, resource: Resource, read: F) -> Self
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let added = self.entries.resources.add(resource, read);
        self.with(added)
    }

    /// Adds a family of resources. `read` gets the variables of the template, percent-decoded, and the URI that was
    /// asked for. Resources with a URI of their own come first, then templates in the order of their addition.
    ///
    /// # Panics
    /// If the template is taken, or is more than level 1 of RFC 6570: only `{name}`, each within one path segment.
    #[must_use]
    pub fn template<F, Fut, R>(self, template: ResourceTemplate, read: F) -> Self
    where
        F: Fn(BTreeMap<String, String>, String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let added = self.entries.resources.add_template(template, read);
        self.with(added)
    }

    /// Adds a prompt. `make` gets the arguments. A call without a required argument gets `-32602`.
    ///
    /// # Panics
    /// If the name is empty or taken.
    #[must_use]
    pub fn prompt<F, Fut, R>(self, prompt: Prompt, make: F) -> Self
    where
        F: Fn(BTreeMap<String, String>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let added = PromptEntry::add(&self.entries.prompts, prompt, make);
        self.with(added)
    }

    /// Adds a prompt that asks the client for input, as a [tool](Catalog::tool_with_inputs) may.
    ///
    /// # Panics
    /// If the name is empty or taken.
    #[must_use]
    pub fn prompt_with_inputs<F, Fut, R>(self, prompt: Prompt, make: F) -> Self
    where
        F: Fn(BTreeMap<String, String>, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let added = PromptEntry::add_with_inputs(&self.entries.prompts, prompt, make);
        self.with(added)
    }

    fn with(self, added: Result<(), EntryError>) -> Self {
        match added {
            Ok(()) => self,
            Err(why) => panic!("{why}"),
        }
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
        let offers = |list| self.entries.offers(list);
        declare("tools", offers(ListKind::Tools), json!({ "listChanged": true }));
        declare("prompts", offers(ListKind::Prompts), json!({ "listChanged": true }));
        let resources = json!({ "subscribe": true, "listChanged": true });
        declare("resources", offers(ListKind::Resources), resources);
        declare("completions", !self.completers.is_empty(), json!({}));
        Value::Object(declared)
    }

    fn complete_call(&self, call: &Call, cx: &Context) -> Result<FunctionFuture, RpcError> {
        self.completers.call(call, cx, |reference| match reference {
            Reference::Prompt { name } => self.entries.prompts.get(name).is_some(),
            Reference::Resource { uri } => self.entries.resources.knows(uri),
        })
    }
}

impl Handler for Catalog {
    fn options(&self) -> HandlerOptions {
        let options = HandlerOptions::new();
        if self.holds_session_state {
            options
        } else {
            options.without_session_state()
        }
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let Entries {
            tools,
            resources,
            prompts,
            ..
        } = &*self.entries;
        let (version, size) = (cx.version(), self.page_size);
        match call.method() {
            "tools/list" => tools.page(&call, version, size),
            "tools/call" => tool_entry::call(tools, &call, cx).await,
            "resources/list" => resources.page(&call, version, size),
            "resources/templates/list" => resources.page_of_templates(&call, version, size),
            "resources/read" => resources.read(&call, cx)?.await,
            "resources/subscribe" | "resources/unsubscribe" => resources.watch(&call, cx),
            "prompts/list" => prompts.page(&call, version, size),
            "prompts/get" => prompt::get(prompts, &call, cx)?.await,
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

    async fn header_params(&self, tool: &str, _: &Params, _: &Principal) -> Option<Arc<HeaderParams>> {
        self.entries.tools.get(tool)?.header_params()
    }

    fn on_start(&self, notifier: &Notifier) {
        self.entries.set_notifier(notifier);
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
mod tests;
