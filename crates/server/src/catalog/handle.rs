//! Changes of a catalog while it is served.

use super::entries::Entries;
use super::prompt::PromptEntry;
use super::tool_entry::ToolEntry;
use super::{
    EntryError, InputSchema, IntoToolResult, NeedsInput, Prompt, PromptMessage, Resource, ResourceContents,
    ResourceTemplate, Tool,
};
use crate::call::context::Context;
use crate::call::request::Inputs;
use rethread_proto::jsonrpc::RpcError;
use rethread_store::ListKind;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Weak};

/// Adds and removes entries of a [`Catalog`](super::Catalog) while it is served. Each change raises the `list_changed`
/// notification of its list, for every session and every subscription. Clones are handles of the same catalog.
///
/// ```
/// use rethread::catalog::{Catalog, NoArgs, Tool};
/// use rethread::{Context, McpService};
///
/// async fn ping(_: NoArgs, _: Context) -> &'static str {
///     "pong"
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let catalog = Catalog::new("changing", "1.0.0");
/// let handle = catalog.handle();
/// let mcp = McpService::builder(catalog).build();
/// handle.add_tool(Tool::new("ping"), ping)?; // clients are notified
/// assert!(handle.remove_tool("ping")); // calls that run finish
/// # drop(mcp);
/// # Ok::<_, rethread::catalog::EntryError>(())
/// # }).unwrap();
/// ```
///
/// A handle does not keep the catalog alive, so the functions of the catalog may capture one. A catalog with a handle declares
/// tools, resources and prompts, because each list may get entries. Call the methods within a tokio runtime: a store may need
/// one to reach other nodes.
#[derive(Clone)]
pub struct CatalogHandle(Weak<Entries>);

impl CatalogHandle {
    pub(super) fn new(entries: &Arc<Entries>) -> Self {
        entries.set_has_handle();
        CatalogHandle(Arc::downgrade(entries))
    }

    fn entries(&self) -> Result<Arc<Entries>, EntryError> {
        self.0.upgrade().ok_or(EntryError::Closed)
    }

    /// Adds a tool, as [`Catalog::tool`](super::Catalog::tool) does.
    pub fn add_tool<I, A, F, Fut, R>(&self, tool: Tool<I>, run: F) -> Result<(), EntryError>
    where
        I: InputSchema<A>,
        A: DeserializeOwned,
        F: Fn(A, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        let entries = self.entries()?;
        entries.added(ListKind::Tools, ToolEntry::add(&entries.tools, tool, run))
    }

    /// Adds a tool that asks for input, as [`Catalog::tool_with_inputs`](super::Catalog::tool_with_inputs) does.
    pub fn add_tool_with_inputs<I, A, F, Fut, R>(&self, tool: Tool<I>, run: F) -> Result<(), EntryError>
    where
        I: InputSchema<A>,
        A: DeserializeOwned,
        F: Fn(A, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: IntoToolResult,
    {
        let entries = self.entries()?;
        entries.added(ListKind::Tools, ToolEntry::add_with_inputs(&entries.tools, tool, run))
    }

    /// Removes a tool. Calls of it that run finish; later ones get the error for unknown tools. `false` if there is no such tool.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.remove(ListKind::Tools, |entries| entries.tools.remove(name))
    }

    /// Adds a resource, as [`Catalog::resource`](super::Catalog::resource) does.
    pub fn add_resource<F, Fut, R>(&self, resource: Resource, read: F) -> Result<(), EntryError>
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let entries = self.entries()?;
        entries.added(ListKind::Resources, entries.resources.add(resource, read))
    }

    /// Removes a resource. `false` if there is none with this URI.
    pub fn remove_resource(&self, uri: &str) -> bool {
        self.remove(ListKind::Resources, |entries| entries.resources.remove(uri))
    }

    /// Adds a family of resources, as [`Catalog::template`](super::Catalog::template) does.
    pub fn add_template<F, Fut, R>(&self, template: ResourceTemplate, read: F) -> Result<(), EntryError>
    where
        F: Fn(BTreeMap<String, String>, String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<ResourceContents>>,
    {
        let entries = self.entries()?;
        entries.added(ListKind::Resources, entries.resources.add_template(template, read))
    }

    /// Removes a family of resources. `false` if there is no such template.
    pub fn remove_template(&self, uri_template: &str) -> bool {
        self.remove(ListKind::Resources, |entries| {
            entries.resources.remove_template(uri_template)
        })
    }

    /// Adds a prompt, as [`Catalog::prompt`](super::Catalog::prompt) does.
    pub fn add_prompt<F, Fut, R>(&self, prompt: Prompt, make: F) -> Result<(), EntryError>
    where
        F: Fn(BTreeMap<String, String>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let entries = self.entries()?;
        entries.added(ListKind::Prompts, PromptEntry::add(&entries.prompts, prompt, make))
    }

    /// Adds a prompt that asks for input, as [`Catalog::prompt_with_inputs`](super::Catalog::prompt_with_inputs) does.
    pub fn add_prompt_with_inputs<F, Fut, R>(&self, prompt: Prompt, make: F) -> Result<(), EntryError>
    where
        F: Fn(BTreeMap<String, String>, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let entries = self.entries()?;
        entries.added(
            ListKind::Prompts,
            PromptEntry::add_with_inputs(&entries.prompts, prompt, make),
        )
    }

    /// Removes a prompt. `false` if there is no such prompt.
    pub fn remove_prompt(&self, name: &str) -> bool {
        self.remove(ListKind::Prompts, |entries| entries.prompts.remove(name))
    }

    fn remove(&self, list: ListKind, remove: impl FnOnce(&Entries) -> bool) -> bool {
        let Some(entries) = self.0.upgrade() else { return false };
        entries.removed(list, remove(&entries))
    }
}

impl std::fmt::Debug for CatalogHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CatalogHandle").finish_non_exhaustive()
    }
}
