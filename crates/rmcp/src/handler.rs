//! rmcp's servers as a handler of ours.

use crate::ears::Ears;
use crate::factory::IntoServer;
use crate::line::Place;
use crate::pool::{Ledger, Pool};
use crate::schemas::Schemas;
use crate::seat::Seat;
use crate::server::{Setting, caught, serve};
use crate::stateless;
use parking_lot::Mutex;
use rethread::{
    Call, Context, Handler, HeaderParams, InitializeReply, Notification, OpenError, Params, Peer, Principal, Reply,
    RpcError, ServerInfo, SessionId, SessionStart,
};
use rmcp::ServerHandler;
use rmcp::model::SubscriptionsListenRequestParams;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};

/// Lines that handlers of stateless calls may keep, in all. Beyond: the one kept longest is closed.
const KEPT: usize = 256;

/// Serves what is written as an rmcp [`ServerHandler`]: a [`Handler`] for
/// [`McpService::builder`](rethread::McpService::builder).
///
/// See the [crate's documentation](crate).
pub struct RmcpHandler<S> {
    factory: Box<dyn Fn() -> io::Result<S> + Send + Sync>,
    /// One server that serves nobody: it is asked who it is and what its tools look like.
    sample: OnceLock<Arc<S>>,
    seats: Mutex<HashMap<SessionId, Arc<Seat<S>>>>,
    /// The lines of stateless calls.
    lines: Arc<Pool>,
    schemas: Schemas,
}

impl<S: ServerHandler> RmcpHandler<S> {
    /// A handler whose servers come from `factory`: one for each session, and one for each request of 2026-07-28, which
    /// has no sessions. It may return a server, or a [`Result`] as the factories for rmcp's own transport do.
    pub fn new<F, R, Kind>(factory: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: IntoServer<Kind, Server = S>,
    {
        RmcpHandler {
            factory: Box::new(move || factory().into_server()),
            sample: OnceLock::new(),
            seats: Mutex::default(),
            lines: Pool::new(KEPT, Ledger::Stateless(Arc::default()), Ears::default()),
            schemas: Schemas::default(),
        }
    }

    fn server(&self) -> Result<S, RpcError> {
        (self.factory)().map_err(|error| {
            tracing::error!(%error, "no server could be made");
            RpcError::internal(format!("the server could not be made: {error}"))
        })
    }

    fn sample(&self) -> Option<&Arc<S>> {
        if self.sample.get().is_none() {
            let made = Arc::new(self.server().ok()?);
            let _ = self.sample.set(made); // another was faster: as good
        }
        self.sample.get()
    }

    fn seat(&self, session: &SessionId) -> Option<Arc<Seat<S>>> {
        self.seats.lock().get(session).cloned()
    }
}

impl<S: ServerHandler> Handler for RmcpHandler<S> {
    fn info(&self) -> ServerInfo {
        let Some(sample) = self.sample() else {
            return ServerInfo::default();
        };
        let info = sample.get_info();
        ServerInfo {
            title: info.server_info.title,
            capabilities: serde_json::to_value(&info.capabilities).unwrap_or_default(),
            instructions: info.instructions,
            ..ServerInfo::new(info.server_info.name, info.server_info.version)
        }
    }

    fn hears_all(&self) -> bool {
        true
    }

    fn wants_parts(&self) -> bool {
        true
    }

    fn listens(&self, params: &Params, _: &Principal) -> bool {
        let params = params.read::<SubscriptionsListenRequestParams>();
        let (Ok(params), Some(sample)) = (params, self.sample()) else {
            return false;
        };
        sample.accepted_subscription_filter(&params.notifications).is_some()
    }

    async fn open(&self, opening: &SessionStart) -> Result<InitializeReply, OpenError> {
        let (seat, welcome) = caught(async { Seat::open(self.server()?, opening).await }).await?;
        let welcome = serde_json::to_vec(&welcome)
            .map_err(|e| RpcError::internal(format!("the server's answer cannot be written as JSON: {e}")))?;
        self.seats.lock().insert(opening.peer().id().clone(), seat);
        Ok(InitializeReply::raw(welcome))
    }

    fn on_session_closed(&self, session: &SessionId) {
        let seat = self.seats.lock().remove(session);
        if let Some(seat) = seat {
            seat.close();
        }
    }

    async fn handle(&self, mut call: Call, cx: &Context) -> Result<Reply, RpcError> {
        if let Some(session) = cx.session() {
            let ended = || RpcError::internal("the session has ended");
            let seat = self.seat(session.id()).ok_or_else(ended)?;
            return seat.handle(call, cx).await;
        }
        let server = self.server()?;
        let lease = self.lines.take(Place::Call(cx.clone()), stateless::nobody);
        let setting = Setting {
            cx,
            lease: &lease,
            parts: call.take_parts(),
        };
        serve(&server, &call, setting).await
    }

    async fn on_notification(&self, notice: Notification, peer: &Peer) {
        if let Some(seat) = self.seat(peer.id()) {
            seat.on_notification(notice).await;
        }
    }

    async fn header_params(&self, tool: &str, _: &Principal) -> Option<Arc<HeaderParams>> {
        self.schemas.header_params(&**self.sample()?, &self.lines, tool).await
    }
}

impl<S> std::fmt::Debug for RmcpHandler<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RmcpHandler")
            .field("sessions", &self.seats.lock().len())
            .finish_non_exhaustive()
    }
}
