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

/// An MCP server without its transport: it handles calls.
///
/// The transport answers `initialize`, `ping` and `logging/setLevel`, records `resources/subscribe`, and delivers the
/// messages that a handler emits through its [`Context`]. On revisions with sessions a call outlives its connection: if the
/// client disconnects, the handler continues, and its messages are stored until the client resumes. A cancelled handler is
/// notified by [`Context::cancelled`], and dropped if it does not stop within [`Timing::cancel_grace`](crate::Timing).
///
/// A panic of a handler ends its own call only, with the error `-32603`.
pub trait Handler: Send + Sync + 'static {
    /// Handles one request and returns its reply.
    fn handle(&self, call: Call, cx: &Context) -> impl Future<Output = Result<Reply, RpcError>> + Send;

    /// The name and the capabilities of this server: the result of `initialize`. Called once, when the service is built.
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    /// Called once, when the service is built. `notifier` sends changes to all clients, for handlers that change their lists.
    fn on_start(&self, notifier: &Notifier) {
        let _ = notifier;
    }

    /// Which arguments of a tool are mirrored in `Mcp-Param-*` headers, and must equal them (2026-07-28, HDR-04). `None`
    /// if the tool has none, or is unknown. `params` are those of the call: their `_meta` identifies the client, for a relay
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

    /// Opens a session: after `initialize`, or when the first request restores a session whose process has ended. For handlers
    /// that have state for each session, or their own `initialize` result. Release that state in
    /// [`on_session_closed`](Self::on_session_closed), which is called once for each successful `open`.
    ///
    /// An error refuses the session. A client may try again to restore one.
    fn open(&self, opening: &SessionStart) -> impl Future<Output = Result<InitializeReply, OpenError>> + Send {
        let _ = opening;
        async { Ok(InitializeReply::standard()) }
    }

    /// Called when a session has ended: by its client, by expiry, or with its connection.
    fn on_session_closed(&self, session: &SessionId) {
        let _ = session;
    }

    /// Called when the client has opened or resumed a GET stream of its session. The handler may push on it.
    fn on_push_stream_opened(&self, peer: &Peer) {
        let _ = peer;
    }

    /// Whether a session that nobody uses may leave the memory now ([`UnusedSessions::Unload`](crate::UnusedSessions::Unload)).
    /// [`on_session_closed`](Self::on_session_closed) follows, and the next request opens the session again with
    /// [`SessionStart::previous_state`]. Return `false` while the handler does work for the session.
    fn may_unload(&self, peer: &Peer) -> bool {
        let _ = peer;
        true
    }

    /// The tasks that this handler does in place of the transport. For gateways and adapters; servers keep the default.
    /// Called once, when the service is built.
    fn options(&self) -> HandlerOptions {
        HandlerOptions::default()
    }

    /// Whether [`handle`](Self::handle) serves this `subscriptions/listen` (2026-07-28). Otherwise the transport does, with the
    /// changes of [`Notifier`](crate::Notifier) and [`Context::list_changed`]. By default a relay serves all of them.
    fn serves_subscription(&self, params: &Params, caller: &Principal) -> bool {
        let _ = (params, caller);
        self.options().relays
    }

    /// Handles a notification of the client that the transport does not handle itself, such as
    /// `notifications/roots/list_changed`. The client's POST is answered when this returns.
    fn on_notification(&self, notice: Notification, peer: &Peer) -> impl Future<Output = ()> + Send {
        let _ = (notice, peer);
        async {}
    }
}
