//! The server: shared state, session state and all methods except tools.

// rmcp deprecates logging, roots and sampling. Clients still use them.
#![expect(deprecated)]

use futures::future::BoxFuture;
use rmcp::handler::server::prompt::PromptContext;
use rmcp::handler::server::router::prompt::PromptRouter;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, tool_handler};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::broadcast::Receiver;

use crate::changes::{Change, Changes};
use crate::load_tools::SleepCounters;
use crate::{inputs, prompts, resources};

/// Closes the connection of a running call, if the transport supports it.
pub type CloseConnection = Box<dyn Fn(&RequestContext<RoleServer>) -> BoxFuture<'static, ()> + Send + Sync>;

/// State shared by all sessions of the process.
#[derive(Default)]
pub struct SharedState {
    pub(crate) changes: Changes,
    pub(crate) sleep_counters: SleepCounters,
    close: Option<CloseConnection>,
}

impl SharedState {
    /// Creates the state with a function that closes connections.
    pub fn with_close_connection(close: CloseConnection) -> Self {
        SharedState {
            close: Some(close),
            ..SharedState::default()
        }
    }

    /// The broadcast of changes.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// State of one session.
#[derive(Default)]
pub(crate) struct Session {
    /// The peer for messages outside of calls.
    pub(crate) peer: OnceLock<Peer<RoleServer>>,
    level: Mutex<Option<LoggingLevel>>,
    subscribed: Mutex<BTreeSet<String>>,
    /// Changes since the server of this session was made, until a subscription takes them.
    changes: Mutex<Option<Receiver<Change>>>,
}

impl Session {
    fn new(shared: &SharedState) -> Self {
        Session {
            changes: Mutex::new(Some(shared.changes.subscribe())),
            ..Session::default()
        }
    }

    fn take_changes(&self) -> Option<Receiver<Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The minimum log level. `None` means all levels.
    pub(crate) fn level(&self) -> Option<LoggingLevel> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_subscribed_to(&self, uri: &str) -> bool {
        self.subscriptions(|subscribed| subscribed.contains(uri))
    }

    fn subscriptions<T>(&self, access: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        access(&mut self.subscribed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The server of one session.
#[derive(Clone)]
pub struct EverythingServer {
    pub(crate) shared: Arc<SharedState>,
    pub(crate) session: Arc<Session>,
    tool_router: ToolRouter<Self>,
    prompt_router: PromptRouter<Self>,
}

impl EverythingServer {
    /// Creates the server of a new session.
    pub fn new(shared: Arc<SharedState>) -> Self {
        let tool_router = Self::conformance_tools()
            + Self::question_tools()
            + Self::input_tools()
            + Self::load_tools()
            + Self::unsolicited_tools();
        EverythingServer {
            session: Arc::new(Session::new(&shared)),
            shared,
            tool_router,
            prompt_router: Self::prompt_router(),
        }
    }

    /// Closes the connection of a call, which continues. Does nothing if the transport does not support it.
    pub(crate) async fn close_connection(&self, context: &RequestContext<RoleServer>) {
        if let Some(close) = &self.shared.close {
            close(context).await;
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for EverythingServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let identity = Implementation::new("rmcp-everything", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(identity.with_title("rmcp: everything"))
            .with_instructions("A server for testing MCP clients. Its tools do nothing useful, and do it reliably.")
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.session.peer.set(context.peer.clone()).is_ok() {
            self.shared.changes.forward_to_session(context.peer, &self.session);
        }
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        *self.session.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.level);
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::all()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(request.uri).map(ReadResourceResponse::from)
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.session.subscriptions(|subscribed| subscribed.insert(request.uri));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.subscriptions(|subscribed| subscribed.remove(&request.uri));
        Ok(())
    }

    /// Accepts the whole filter. rmcp removes kinds without a declared capability.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let since = self.session.take_changes();
        self.shared.changes.forward_to_subscription(since, &context).await;
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let (reference, argument) = (request.r#ref, request.argument);
        let candidates = match (&reference, argument.name.as_str()) {
            (Reference::Prompt(prompt), "arg1") if prompt.name == prompts::WITH_ARGUMENTS => prompts::CITIES,
            (Reference::Resource(template), "id") if template.uri == resources::TEMPLATE => resources::IDS,
            _ => &[],
        };
        let fitting = candidates.iter().filter(|value| value.starts_with(&argument.value));
        let completion = CompletionInfo::with_all_values(fitting.map(|&value| value.to_owned()).collect());
        let completion = completion.map_err(|reason| ErrorData::internal_error(reason, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.prompt_router.list_all()))
    }

    /// Written by hand, because the router passes input responses only to tools.
    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == inputs::PROMPT {
            return inputs::prompt(request.input_responses.as_ref());
        }
        let context = PromptContext::new(self, request.name, request.arguments, context);
        self.prompt_router.get_prompt(context).await
    }
}
