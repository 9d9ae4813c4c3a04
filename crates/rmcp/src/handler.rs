//! Adapts an rmcp `ServerHandler` to a `rethread` [`Handler`].

use crate::client_identity;
use crate::dispatch::{CallSetup, catch_panic, serve};
use crate::factory::IntoServer;
use crate::notification_handler::NotificationHandler;
use crate::peer_loop::Destination;
use crate::peer_pool::{PeerPool, Registry};
use crate::session_server::SessionServer;
use crate::tool_schemas::ToolSchemas;
use parking_lot::Mutex;
use rethread::{
    Call, Context, Handler, HandlerOptions, HeaderParams, InitializeReply, Notification, OpenError, Params, Peer,
    Principal, Reply, RpcError, ServerInfo, SessionId, SessionStart,
};
use rmcp::ServerHandler;
use rmcp::model::SubscriptionsListenRequestParams;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};

/// Peers that all stateless calls together may retain. Beyond this, the oldest is closed.
const MAX_RETAINED_STATELESS_PEERS: usize = 256;

/// Serves an rmcp [`ServerHandler`]. Pass it to [`McpService::builder`](rethread::McpService::builder).
///
/// See the [crate's documentation](crate).
pub struct RmcpHandler<S> {
    factory: Box<dyn Fn() -> io::Result<S> + Send + Sync>,
    /// A server that handles no calls. It answers `get_info`, tool schemas and subscription filters.
    template: OnceLock<Arc<S>>,
    sessions: Mutex<HashMap<SessionId, Arc<SessionServer<S>>>>,
    stateless_peers: Arc<PeerPool>,
    schemas: ToolSchemas,
}

impl<S: ServerHandler> RmcpHandler<S> {
    /// Creates a handler whose servers come from `factory`.
    ///
    /// The factory runs once for each session and once for each request of 2026-07-28, which has no sessions. It may
    /// return a server, or a [`Result`] like the factories for rmcp's own transport.
    pub fn new<F, R, Kind>(factory: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: IntoServer<Kind, Server = S>,
    {
        RmcpHandler {
            factory: Box::new(move || factory().into_server()),
            template: OnceLock::new(),
            sessions: Mutex::default(),
            stateless_peers: PeerPool::new(
                MAX_RETAINED_STATELESS_PEERS,
                Registry::Stateless(Arc::default()),
                NotificationHandler::default(),
            ),
            schemas: ToolSchemas::default(),
        }
    }

    fn create_server(&self) -> Result<S, RpcError> {
        (self.factory)().map_err(|error| {
            tracing::error!(%error, "server factory failed");
            RpcError::internal(format!("the server factory failed: {error}"))
        })
    }

    fn template(&self) -> Option<&Arc<S>> {
        if self.template.get().is_none() {
            let server = Arc::new(self.create_server().ok()?);
            let _ = self.template.set(server); // keeps the first of two concurrent ones
        }
        self.template.get()
    }

    fn session(&self, session: &SessionId) -> Option<Arc<SessionServer<S>>> {
        self.sessions.lock().get(session).cloned()
    }
}

impl<S: ServerHandler> Handler for RmcpHandler<S> {
    fn info(&self) -> ServerInfo {
        let Some(template) = self.template() else {
            return ServerInfo::default();
        };
        let rmcp_info = template.get_info();
        let mut info = ServerInfo::new(rmcp_info.server_info.name, rmcp_info.server_info.version);
        info.title = rmcp_info.server_info.title;
        info.capabilities = serde_json::to_value(&rmcp_info.capabilities).unwrap_or_default();
        info.instructions = rmcp_info.instructions;
        info
    }

    fn options(&self) -> HandlerOptions {
        HandlerOptions::new().receives_all().wants_request_head()
    }

    fn serves_subscription(&self, params: &Params, _: &Principal) -> bool {
        let params = params.read::<SubscriptionsListenRequestParams>();
        let (Ok(params), Some(template)) = (params, self.template()) else {
            return false;
        };
        template.accepted_subscription_filter(&params.notifications).is_some()
    }

    async fn open(&self, start: &SessionStart) -> Result<InitializeReply, OpenError> {
        let (server, result) = catch_panic(async { SessionServer::open(self.create_server()?, start).await }).await?;
        let json = serde_json::to_vec(&result)
            .map_err(|e| RpcError::internal(format!("the server's result cannot be serialized as JSON: {e}")))?;
        self.sessions.lock().insert(start.peer().id().clone(), server);
        Ok(InitializeReply::raw(json))
    }

    fn on_session_closed(&self, session: &SessionId) {
        let server = self.sessions.lock().remove(session);
        if let Some(server) = server {
            server.close();
        }
    }

    async fn handle(&self, mut call: Call, cx: &Context) -> Result<Reply, RpcError> {
        if let Some(session) = cx.session() {
            let ended = || RpcError::internal("the session has ended");
            let server = self.session(session.id()).ok_or_else(ended)?;
            return server.handle(call, cx).await;
        }
        let server = self.create_server()?;
        let lease = self
            .stateless_peers
            .lease(Destination::Call(cx.clone()), client_identity::unknown_client);
        let setup = CallSetup {
            cx,
            lease: &lease,
            parts: call.take_parts(),
        };
        serve(&server, &call, setup).await
    }

    async fn on_notification(&self, notification: Notification, peer: &Peer) {
        if let Some(server) = self.session(peer.id()) {
            server.on_notification(notification).await;
        }
    }

    async fn header_params(&self, tool: &str, _: &Params, _: &Principal) -> Option<Arc<HeaderParams>> {
        self.schemas
            .header_params(&**self.template()?, &self.stateless_peers, tool)
            .await
    }
}

impl<S> std::fmt::Debug for RmcpHandler<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RmcpHandler")
            .field("sessions", &self.sessions.lock().len())
            .finish_non_exhaustive()
    }
}
