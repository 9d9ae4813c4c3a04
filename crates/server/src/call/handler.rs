//! The [`Handler`] trait: users implement it to answer calls.

use crate::call::context::Context;
use crate::call::opening::{InitializeReply, OpenError, SessionStart};
use crate::call::peer::Peer;
use crate::call::reply::Reply;
use crate::call::request::{Call, Notification};
use crate::node::handler_options::HandlerOptions;
use crate::node::server_info::ServerInfo;
use crate::session::notifier::Notifier;
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

    /// The name and the capabilities of this server: the answer to `initialize`. Asked once, when the service is built.
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    /// The service of this handler is built. `notifier` reaches all its clients, for handlers that change their lists.
    fn on_start(&self, notifier: &Notifier) {
        let _ = notifier;
    }

    /// Which arguments of a tool are mirrored in `Mcp-Param-*` headers, and must equal them (2026-07-28, HDR-04). `None`
    /// if the tool has none, or is unknown. `params` are those of the call: their `_meta` tells who the client is, for a relay
    /// whose tools depend on it.
    fn header_params(
        &self,
        tool: &str,
        params: &Params,
        caller: &Principal,
    ) -> impl Future<Output = Option<Arc<HeaderParams>>> + Send {
        let _ = (tool, params, caller);
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

    /// The client has opened a GET stream of its session, or has resumed one: the handler may push on it.
    fn on_push_stream_opened(&self, peer: &Peer) {
        let _ = peer;
    }

    /// Whether a session that nobody uses may leave the memory now ([`UnusedSessions::Unload`](crate::UnusedSessions::Unload)).
    /// [`on_session_closed`](Self::on_session_closed) follows, and the next request opens the session again with
    /// [`SessionStart::earlier`]. For handlers that keep something for the session that still works.
    fn may_unload(&self, peer: &Peer) -> bool {
        let _ = peer;
        true
    }

    /// The tasks that this handler takes over from the transport. For gateways and adapters; a server has no need of it. Asked
    /// once, when the service is built.
    fn options(&self) -> HandlerOptions {
        HandlerOptions::default()
    }

    /// Whether [`handle`](Self::handle) serves this `subscriptions/listen` (2026-07-28). Otherwise the transport does, with the
    /// changes of [`Notifier`](crate::Notifier) and [`Context::list_changed`]. By default a relay serves all of them.
    fn serves_subscription(&self, params: &Params, caller: &Principal) -> bool {
        let _ = (params, caller);
        self.options().relays
    }

    /// Hears a notification of the client that the transport has no use for, such as
    /// `notifications/roots/list_changed`. The client's POST is answered when this returns.
    fn on_notification(&self, notice: Notification, peer: &Peer) -> impl Future<Output = ()> + Send {
        let _ = (notice, peer);
        async {}
    }
}
