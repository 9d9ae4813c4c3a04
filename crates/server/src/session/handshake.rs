//! The start of a session in its handler. One `initialize` at a time asks the handler to open the session. The opening and
//! the end of the session may overlap: the later of the two sees the earlier. `Handler::on_session_closed` follows every
//! successful opening, once.

use super::Session;
use super::stage::Stage;
use rethread_proto::jsonrpc::RpcError;
use std::sync::Arc;

/// A running `initialize`, or the restore of a session. If it is dropped before it is [kept](Self::keep), the session stays
/// unopened. A handler that has opened it is notified that it is closed.
#[must_use]
pub(crate) struct Handshake(Option<Arc<Session>>);

impl Session {
    /// Claims the session for one `initialize`. Fails if another one runs or has succeeded, and if the session has ended.
    pub(crate) fn begin_handshake(self: &Arc<Self>) -> Result<Handshake, RpcError> {
        let mut state = self.state.lock();
        if self.has_ended() {
            return Err(ended());
        }
        match state.stage {
            Stage::Unopened => state.stage = Stage::Opening,
            Stage::Opening => return Err(RpcError::invalid_request("an initialize of this session is running")),
            Stage::Open => return Err(RpcError::invalid_request("this session is initialized")),
        }
        Ok(Handshake(Some(Arc::clone(self))))
    }

    /// Whether the handler of this process has opened the session.
    pub(crate) fn is_open_in_handler(&self) -> bool {
        self.state.lock().stage == Stage::Open
    }

    /// Notifies the handler that a session it has opened is closed.
    pub(super) fn notify_closed(&self) {
        (self.node.closed)(&self.key.session);
    }
}

impl Handshake {
    /// The handler has opened the session. Fails and notifies the handler if the session has ended meanwhile.
    pub(crate) fn opened(&self) -> Result<(), RpcError> {
        let Some(session) = &self.0 else { return Ok(()) };
        let mut state = session.state.lock();
        if session.has_ended() {
            drop(state);
            session.notify_closed();
            return Err(ended());
        }
        state.stage = Stage::Open;
        Ok(())
    }

    /// The session is registered. From now on its end notifies the handler.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let Some(session) = self.0.take() else { return };
        let stage = std::mem::take(&mut session.state.lock().stage);
        if stage == Stage::Open {
            session.notify_closed();
        }
    }
}

fn ended() -> RpcError {
    RpcError::invalid_request("the session has ended")
}
