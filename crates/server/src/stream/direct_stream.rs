//! A stream without a log, for the response to a stateless request: its messages reach the one connection that waits for it.

use super::Emission;
use crate::node::Node;
use parking_lot::Mutex;
use rethread_proto::event_id::Seq;
use rethread_proto::sse::EncodeMessage;
use rethread_proto::stream::{
    ConnectionId, Effects, Framing, Room, StreamClosed, StreamCore, StreamParams, TakeOutcome,
};
use rethread_store::Retain;
use std::sync::Arc;
use std::task::{Context, Waker};
use tokio::sync::Notify;

/// The name of the only reader.
const READER: ConnectionId = ConnectionId(0);

/// The messages of one response, until its connection takes them.
pub(crate) struct DirectStream {
    core: Mutex<StreamCore<Waker>>,
    params: Arc<StreamParams>,
    room: Notify,
    node: Arc<Node>,
}

impl DirectStream {
    /// A new stream with its reader.
    pub(crate) fn open(params: Arc<StreamParams>, node: &Arc<Node>) -> Arc<Self> {
        let stream = Arc::new(DirectStream {
            core: Mutex::new(StreamCore::connection_bound()),
            params,
            room: Notify::new(),
            node: Arc::clone(node),
        });
        let _ = stream.core.lock().attach(READER, Seq::default(), false); // nobody waits yet
        stream
    }

    /// Emits a message; `seals` if the stream ends with it. The caller passes the effects to [`perform`](Self::perform) after
    /// it has released its own locks.
    pub(crate) fn emit(
        &self,
        message: impl EncodeMessage,
        seals: bool,
    ) -> Result<(Emission, Effects<Waker>), StreamClosed> {
        let mut core = self.core.lock();
        let (seq, effects) = core.emit(&self.params, message, Retain::None, seals)?;
        let has_room = core.room(&self.params) == Room::Free;
        Ok((Emission { seq, has_room }, effects))
    }

    /// Emits a message for a caller that holds no lock.
    pub(crate) fn emit_now(&self, message: impl EncodeMessage, seals: bool) -> Result<(), StreamClosed> {
        self.emit(message, seals).map(|(_, effects)| self.perform(effects))
    }

    /// Ends the stream without a message.
    pub(crate) fn seal(&self) -> Effects<Waker> {
        self.core.lock().seal()
    }

    /// Wakes the reader: there is something for it elsewhere.
    pub(crate) fn wake(&self) -> Effects<Waker> {
        self.core.lock().wake()
    }

    /// Wakes whom the effects name. Call it without any lock.
    pub(crate) fn perform(&self, effects: Effects<Waker>) {
        if effects.reader_stalled {
            self.node.metrics.events.stalled();
        }
        if let Some(waker) = effects.wake {
            waker.wake();
        }
        if effects.room || effects.ended.is_some() {
            self.room.notify_waiters();
        }
    }

    /// Whether comments may break a silence (SSE-04): lines have none.
    pub(crate) fn needs_keep_alive(&self) -> bool {
        self.params.framing != Framing::Line
    }

    /// Takes what is ready. Keeps the waker if nothing is.
    pub(crate) fn take(&self, cx: &Context<'_>) -> TakeOutcome {
        let (taken, effects) = self.core.lock().take(READER, cx.waker());
        self.perform(effects);
        taken
    }

    /// Whether an emitter may go on at once.
    pub(crate) fn has_room(&self) -> bool {
        self.core.lock().room(&self.params) == Room::Free
    }

    /// Waits for a reader that is behind, for a bounded time. False if it took nothing: it is detached, and the stream is of
    /// no use (SSE-14).
    pub(crate) async fn wait_for_room(&self) -> bool {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            {
                let core = self.core.lock();
                if core.room(&self.params) == Room::Free {
                    return core.has_reader() || core.is_closed();
                }
                freed.as_mut().enable();
            }
            if tokio::time::timeout(self.node.timing.stall, freed).await.is_err() {
                let effects = self.core.lock().reader_stalled(&self.params);
                let stalled = effects.reader_stalled;
                self.perform(effects);
                if stalled {
                    return false;
                }
            }
        }
    }
}
