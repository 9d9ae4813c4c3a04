//! The client of a session.

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

/// The client of a session, for handlers.
#[derive(Clone, Debug)]
pub struct Peer(pub(crate) Arc<Session>);

impl Peer {
    /// Sends a notification that belongs to no call: to one of the session's GET streams, or to the next one that is
    /// opened, in this process or in a later one with the same store. It is stored for replay. This does not wait for the
    /// store: if the process is killed before the message is stored, the message is lost. Fails only when the session has
    /// ended.
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

    /// Notifies the client that a list changed, if the server declares `listChanged` for it. A notification that still waits
    /// replaces further ones for the same list.
    pub fn list_changed(&self, list: ListKind) {
        if self.0.declares(&format!("{}.listChanged", list.capability())) {
            self.0.offer(list_changed(list));
        }
    }

    /// Notifies the client that a resource changed, if it [subscribed](Self::is_subscribed) to it.
    pub fn resource_updated(&self, uri: &str) {
        if self.0.is_subscribed(uri) {
            self.0.offer(resource_updated(uri));
        }
    }

    /// Whether the client wants log messages of this level, and the server declares the capability `logging` (LOG-01).
    pub fn wants_log(&self, level: LogLevel) -> bool {
        self.0.log_level().is_none_or(|least| level >= least) && self.0.declares("logging")
    }

    /// Ends the session. Further requests of its client get 404, so the client opens a new one.
    pub fn end(&self) {
        self.0.end().detach();
    }

    /// Resolves when the session has ended, also if that happens while it is being opened. A handler can then stop to
    /// prepare for it.
    pub async fn ended(&self) {
        self.0.when_ended().await;
    }

    /// The current users of the session, for handlers that can release an expensive resource while there are none.
    pub fn activity(&self) -> Activity {
        self.0.activity()
    }

    /// Whether the client subscribed to `uri`, or to a parent of it.
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

    /// The state of the session that a restarted server needs to continue it.
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
