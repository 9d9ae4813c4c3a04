//! What users write: a [`Handler`], which answers calls.

use crate::call::context::Context;
use crate::call::opening::{InitializeReply, OpenError, SessionStart};
use crate::call::peer::Peer;
use crate::call::reply::Reply;
use crate::call::request::{Call, Notification};
use crate::node::server_info::ServerInfo;
use rethread_proto::gate::mirror::HeaderParams;
use rethread_proto::jsonrpc::Params;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::{Principal, SessionId};
use std::future::Future;
use std::sync::Arc;

/// An MCP server without its transport: it is told of calls and answers them.
///
/// The transport itself answers `initialize`, `ping` and `logging/setLevel`, keeps track of `resources/subscribe`, and
/// delivers whatever the handler says through its [`Context`]. On session-era revisions a handler outlives its
/// connection: a client that goes away changes nothing for it, and what it says is kept for the client's return. It is
/// asked to stop through [`Context::cancelled`], and dropped if it does not within the configured grace.
///
/// A handler that panics answers `-32603`; the panic stays in its call.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, call: Call, cx: &Context) -> impl Future<Output = Result<Reply, RpcError>> + Send;

    /// Who this server is and what it can do: the answer to `initialize`. Asked once, when the service is built.
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    /// Which arguments of a tool are mirrored in `Mcp-Param-*` headers, and must equal them (2026-07-28, HDR-04). `None`
    /// if the tool has none, or is unknown.
    fn header_params(&self, tool: &str, caller: &Principal) -> impl Future<Output = Option<Arc<HeaderParams>>> + Send {
        let _ = (tool, caller);
        async { None }
    }

    /// A session begins: the client has said `initialize`, or has come back to one whose process is gone. For handlers that
    /// keep something for each session, or that answer `initialize` in their own words. Whatever is kept must be given up
    /// in [`on_session_closed`](Self::on_session_closed), which follows every opening that succeeded.
    ///
    /// An error refuses the session; one that comes back may be tried again.
    fn open(&self, opening: &SessionStart) -> impl Future<Output = Result<InitializeReply, OpenError>> + Send {
        let _ = opening;
        async { Ok(InitializeReply::standard()) }
    }

    /// A session has ended: by its client, by expiry, or with its connection.
    fn on_session_closed(&self, session: &SessionId) {
        let _ = session;
    }

    /// Whether this handler answers every request itself but `ping`, and hears every notification but cancellations: for
    /// those that pass them on. On 2026-07-28 `subscriptions/listen` is its business too, and so are `requestState` and
    /// `inputResponses`, which stay in the params. Only what the transport has sealed itself, because this handler asked
    /// through its [`Context`], is the transport's: that retry takes up the waiting call and is not passed on. A relay
    /// behind a relay cannot ask so, since the outer one takes the seal for its own. Otherwise the transport answers `logging/setLevel`, and keeps back log
    /// messages below the level that was set.
    fn relays(&self) -> bool {
        false
    }

    /// Whether this handler also wants to hear what the transport can settle alone: `notifications/initialized` and
    /// `notifications/cancelled`, `logging/setLevel`, and `server/discover` (2026-07-28), which it then answers. The
    /// transport keeps its books all the same: the level that was agreed to, say, holds for [`Context::log`].
    fn hears_all(&self) -> bool {
        false
    }

    /// Whether [`handle`](Self::handle) serves this `subscriptions/listen` (2026-07-28). Otherwise the transport does, and
    /// tells of what [`Notifier`](crate::Notifier) and [`Context::list_changed`] announce.
    fn listens(&self, params: &Params, caller: &Principal) -> bool {
        let _ = (params, caller);
        self.relays()
    }

    /// Whether this handler wants the whole head of the HTTP request with everything it is told: see [`Call::take_parts`].
    /// The request's extensions are then in there, and not in [`Context::extensions`].
    fn wants_parts(&self) -> bool {
        false
    }

    /// Hears a notification of the client that the transport has no use for, such as
    /// `notifications/roots/list_changed`. The client's POST is answered when this returns.
    fn on_notification(&self, notice: Notification, peer: &Peer) -> impl Future<Output = ()> + Send {
        let _ = (notice, peer);
        async {}
    }
}
