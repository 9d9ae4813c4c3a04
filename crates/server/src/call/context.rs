//! The interface between a handler and the call that it serves.

use crate::call::active_call::ActiveCall;
use crate::call::call_ended::CallEnded;
use crate::call::call_scope::CallScope;
use crate::call::peer::Peer;
use crate::call::progress_message::ProgressMessage;
use crate::call::response_sink::ResponseSink;
use crate::session::Transport;
use crate::session::notifier::Notifier;
use http::Extensions;
use rethread_proto::ClientCapabilities;
use rethread_proto::jsonrpc::{Report, write_notification};
use rethread_proto::sse::{Draft, EncodeMessage};
use rethread_proto::subscription::Change;
use rethread_proto::{LogLevel, Principal, ProgressToken, RequestId, Revisions, Version};
use rethread_store::ListKind;
use serde::Serialize;
use std::sync::Arc;

/// The notification by which a server on stdio asks the gateway to close the client's connection while a call continues.
pub const CLOSE_CONNECTION: &str = "notifications/rethread/close_connection";
/// The environment variable that the gateway sets for a child, so that the child knows that its client is the gateway: see
/// [`Builder::behind_gateway`](crate::Builder::behind_gateway).
pub const BEHIND_GATEWAY: &str = "RETHREAD_GATEWAY";

/// The interface of a running call: progress, logs, questions to the client, cancellation.
///
/// Messages go to the stream of this call only. Cheap to clone. A clone that outlives the call returns [`CallEnded`].
#[derive(Clone)]
pub struct Context {
    pub(crate) call: Arc<ActiveCall>,
    peer: Option<Peer>,
}

impl Context {
    pub(crate) fn new(call: Arc<ActiveCall>) -> Self {
        let peer = call.session().map(|session| Peer(Arc::clone(session)));
        Context { call, peer }
    }

    /// Reports progress, if the client asked for it; otherwise does nothing. Values must increase. A report with
    /// a value that does not is dropped (PRG-01).
    ///
    /// The first emission makes the response a stream. If the client is a whole retained window behind, this waits for it,
    /// for a bounded time.
    ///
    /// `message` is a string of any type, or `None`.
    pub async fn progress(&self, progress: f64, message: impl ProgressMessage) -> Result<(), CallEnded> {
        self.report(progress, None, message.as_message()).await
    }

    /// Reports progress out of `total`.
    pub async fn progress_of(&self, progress: f64, total: f64, message: impl ProgressMessage) -> Result<(), CallEnded> {
        self.report(progress, Some(total), message.as_message()).await
    }

    /// The client's progress token, from `params._meta.progressToken`: a string or a number. `None` if the client did not
    /// ask for progress.
    pub fn progress_token(&self) -> Option<ProgressToken> {
        self.call.progress_token()
    }

    /// Whether the client asked for progress.
    pub fn wants_progress(&self) -> bool {
        self.call.progress_token().is_some()
    }

    async fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) -> Result<(), CallEnded> {
        let report = Report::Value {
            progress,
            total: total.filter(|total| total.is_finite()),
            message: message.filter(|_| self.version().progress_has_message()),
        };
        self.call.report(report).await.map_err(|_| CallEnded)?;
        yield_to_readers().await;
        Ok(())
    }

    /// Sends the progress report of another server under the client's own token, for handlers that relay. `report` must be a
    /// JSON object: the `params` of that server's notification without their `progressToken`. Does nothing if the client did not ask for progress.
    pub async fn relay_progress(&self, report: impl Serialize) -> Result<(), CallEnded> {
        let mut report = serde_json::to_vec(&report).unwrap_or_default();
        for byte in &mut report {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' '; // SSE-02; a string has no such byte
            }
        }
        let members = report.trim_ascii();
        let Some(members) = members.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}")) else {
            tracing::error!(target: crate::node::telemetry::TARGET, "progress dropped: its params are not a JSON object");
            return Ok(());
        };
        let report = Report::Members(members.trim_ascii());
        self.call.report(report).await.map_err(|_| CallEnded)?;
        yield_to_readers().await;
        Ok(())
    }

    /// Sends a log message, if the client's log level includes it (LOG-01).
    ///
    /// While a call of 2026-07-28 waits for input, up to 64 log messages (256 KiB in all) and the latest progress report are
    /// kept for the request that brings the input. The log messages are sent if the level of that request includes them.
    /// Further ones are dropped and counted.
    pub async fn log(
        &self,
        level: LogLevel,
        logger: impl Into<Option<&str>>,
        data: impl Serialize,
    ) -> Result<(), CallEnded> {
        #[derive(Serialize)]
        struct Log<'a, T> {
            level: LogLevel,
            #[serde(skip_serializing_if = "Option::is_none")]
            logger: Option<&'a str>,
            data: T,
        }
        if !self.call.exchange.wants_log(level) || !self.call.declares("logging") {
            return Ok(());
        }
        let logger = logger.into();
        let Some(draft) = draft("notifications/message", &Log { level, logger, data }, 224) else {
            return Ok(());
        };
        self.call.emit_log(level, draft).await.map_err(|_| CallEnded)?;
        yield_to_readers().await;
        Ok(())
    }

    /// Whether a log message of this level would be sent: the client's level includes it, and the server declares the
    /// capability `logging`.
    pub fn wants_log(&self, level: LogLevel) -> bool {
        self.call.exchange.wants_log(level) && self.call.declares("logging")
    }

    /// Notifies the caller that a list changed, if the server declares `listChanged` for that list. The notification goes to
    /// the session of the call; on 2026-07-28 to every subscription of the caller. [`Notifier`](crate::Notifier) notifies all
    /// clients. Also works after the call has ended.
    pub fn list_changed(&self, list: ListKind) {
        match &self.peer {
            Some(peer) => peer.list_changed(list),
            None if !self.call.declares(&format!("{}.listChanged", list.capability())) => {}
            None => self.announce(&list.into()),
        }
    }

    /// Notifies the caller that a resource changed, if the caller subscribed to its URI or to a parent of it. The receivers
    /// are those of [`list_changed`](Self::list_changed).
    pub fn resource_updated(&self, uri: &str) {
        match &self.peer {
            Some(peer) => peer.resource_updated(uri),
            None => self.announce(&Change::Updated(uri.into())),
        }
    }

    fn announce(&self, change: &Change) {
        if let CallScope::Stateless(scope) = &self.call.exchange.scope {
            scope.tables.subscriptions.announce(change, Some(&scope.principal));
        }
    }

    /// Sends any notification on the stream of this call, for handlers that relay. Use [`progress`](Self::progress) and
    /// [`log`](Self::log) for those: they apply the client's token and log level.
    pub async fn notify(&self, method: &str, params: impl Serialize) -> Result<(), CallEnded> {
        self.send_notification(method, &params, 256).await
    }

    async fn send_notification(&self, method: &str, params: &impl Serialize, expected: usize) -> Result<(), CallEnded> {
        match draft(method, params, expected) {
            Some(draft) => self.send(draft).await,
            None => Ok(()),
        }
    }

    async fn send(&self, message: impl EncodeMessage) -> Result<(), CallEnded> {
        self.call.emit(message).await.map_err(|_| CallEnded)?;
        yield_to_readers().await;
        Ok(())
    }

    /// Closes the client's connection while the call continues. The client reconnects after the `retry` delay and gets the
    /// rest (SSE-08). Does nothing on revisions without this feature (SSE-09).
    pub async fn close_connection(&self) {
        let exchange = &self.call.exchange;
        let Some(session) = exchange.session() else {
            return;
        };
        if session.transport == Transport::Lines && exchange.node.behind_gateway {
            // The gateway has the client's connection.
            let params = serde_json::json!({ "requestId": self.call.id() });
            let _ = self.notify(CLOSE_CONNECTION, params).await; // the call has ended: so has its connection
            return;
        }
        if !self.version().may_close_early() {
            return;
        }
        exchange.upgrade();
        if let Some(ResponseSink::Session(stream)) = exchange.sink() {
            stream.close_reader(session.close());
        }
    }

    /// A handle that notifies all clients of changes, not only the caller.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.call.exchange.node))
    }

    /// Resolves when the client cancels the call, or the session ends; on 2026-07-28 also when the client disconnects.
    pub async fn cancelled(&self) {
        self.call.cancelled().await;
    }

    /// Whether the call was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.call.is_cancelled()
    }

    /// The negotiated revision.
    pub fn version(&self) -> Version {
        self.call.version()
    }

    /// The revisions that this endpoint serves.
    pub fn revisions(&self) -> Revisions {
        self.call.exchange.node.revisions
    }

    /// The client of this session. `None` on revisions without sessions.
    pub fn session(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Whether this is a request of the session era that names no session: see
    /// [`Builder::serve_without_session`](crate::Builder::serve_without_session).
    pub fn is_sessionless(&self) -> bool {
        self.call.exchange.is_sessionless()
    }

    /// The id of the request that waits for the answer.
    pub fn request_id(&self) -> RequestId {
        self.call.id()
    }

    /// The principal of the caller.
    pub fn principal(&self) -> Principal {
        self.call.exchange.principal().clone()
    }

    /// The capabilities of the client.
    pub fn client(&self) -> ClientCapabilities {
        self.call.client()
    }

    /// The extensions of the HTTP request of this call, with the values that other layers inserted. Empty for a handler that
    /// [wants the whole head](crate::HandlerOptions::wants_request_head): the head contains them.
    pub fn extensions(&self) -> &Extensions {
        self.call.extensions.get()
    }
}

/// A notification. `None` if its params are not JSON.
fn draft(method: &str, params: &impl Serialize, expected: usize) -> Option<Draft> {
    let mut problem = None;
    let draft = Draft::new(expected, |out| problem = write_notification(out, method, params).err());
    if let Some(error) = problem {
        tracing::error!(target: crate::node::telemetry::TARGET, %error, method, "notification dropped: its params are not JSON");
        return None;
    }
    Some(draft)
}

/// Lets other tasks run: a handler that emits in a loop would otherwise occupy the thread that its readers need.
async fn yield_to_readers() {
    tokio::task::coop::consume_budget().await;
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("request", &self.call.id())
            .finish_non_exhaustive()
    }
}
