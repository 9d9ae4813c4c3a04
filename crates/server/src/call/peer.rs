//! The client at the other end of a session.

use crate::call::call_ended::CallEnded;
use crate::session::activity::Activity;
use crate::session::previous_state::PreviousState;
use crate::session::{Session, list_changed, resource_updated};
use rethread_proto::jsonrpc::write_notification;
use rethread_proto::push::Collapse;
use rethread_proto::sse::Draft;
use rethread_proto::{ClientCapabilities, LogLevel, Principal, SessionId, Version};
use rethread_store::ListKind;
use serde::Serialize;
use std::sync::Arc;

/// The client at the other end of a session, as a handler sees it.
#[derive(Clone, Debug)]
pub struct Peer(pub(crate) Arc<Session>);

impl Peer {
    /// Sends a notification that belongs to no call: to one of the session's GET streams, or to the next one that is
    /// opened, by this process or by the next one on the same store. It is kept for replay. This does not wait until it is
    /// stored: a process that is killed within that moment takes it along. Fails only when the session has ended.
    pub fn push(&self, method: &str, params: impl Serialize) -> Result<(), CallEnded> {
        if self.0.has_ended() {
            return Err(CallEnded);
        }
        let mut problem = None;
        let draft = Draft::new(128, |out| problem = write_notification(out, method, &params).err());
        if let Some(error) = problem {
            tracing::error!(target: crate::node::telemetry::TARGET, %error, method, "notification dropped: its params are not JSON");
            return Ok(());
        }
        self.0.offer((draft, Collapse::Never));
        Ok(())
    }

    /// A list changed for this client, if the server declares `listChanged` for it. A notification that still waits
    /// covers the next one.
    pub fn list_changed(&self, list: ListKind) {
        if self.0.declares(&format!("{}.listChanged", list.capability())) {
            self.0.offer(list_changed(list));
        }
    }

    /// A resource changed: told to the client if it [subscribed](Self::is_subscribed) to it.
    pub fn resource_updated(&self, uri: &str) {
        if self.0.is_subscribed(uri) {
            self.0.offer(resource_updated(uri));
        }
    }

    /// Whether the client wants log messages of this level, and the server declares that it logs (LOG-01).
    pub fn wants_log(&self, level: LogLevel) -> bool {
        self.0.log_level().is_none_or(|least| level >= least) && self.0.declares("logging")
    }

    /// Ends the session: its client gets 404 from now on, and begins a new one.
    pub fn end(&self) {
        self.0.end().detach();
    }

    /// Waits until the session has ended, also one that is only about to begin: what is made for it is then of no use.
    pub async fn ended(&self) {
        self.0.when_ended().await;
    }

    /// The users of the session now: for handlers that keep something expensive for it, and can do without for a while.
    pub fn activity(&self) -> Activity {
        self.0.activity()
    }

    /// Whether the client subscribed to `uri`, or to something above it.
    pub fn is_subscribed(&self, uri: &str) -> bool {
        self.0.is_subscribed(uri)
    }

    /// The principal that opened the session.
    pub fn principal(&self) -> &Principal {
        &self.0.key.principal
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.0.key.session
    }

    /// The negotiated revision.
    pub fn version(&self) -> Version {
        self.0.version()
    }

    /// The capabilities of the client.
    pub fn capabilities(&self) -> ClientCapabilities {
        self.0.client()
    }

    /// The state of the session: what a server that is started again needs to continue it.
    pub fn state(&self) -> PreviousState {
        let record = self.0.record();
        PreviousState {
            initialized: record.initialized,
            log_level: record.log_level,
            subscriptions: record.subscriptions,
        }
    }

    /// The raw params of the client's `initialize`.
    pub fn initialize_params(&self) -> &[u8] {
        self.0.initialize_params()
    }
}
