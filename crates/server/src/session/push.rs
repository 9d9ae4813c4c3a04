//! The push queue of a session with its listeners: wakes the listener whose turn it is (D6).

use crate::node::Node;
use crate::stream::Stream;
use parking_lot::Mutex;
use rethread_proto::clock::Mono;
use rethread_proto::push::{Collapse, Lifetime, ListenerId, Push, PushLimits, TakenMessage};
use rethread_proto::sse::{Draft, OneLine};
use rethread_proto::stream::{ConnectionId, StreamClosed};
use rethread_store::{QueuePosition, QueueUpdate, StoredQueue};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct SessionPush(Mutex<State>);

struct State {
    push: Push,
    listeners: Vec<(ListenerId, Arc<Stream>)>,
}

impl State {
    fn stream(&self, listener: Option<ListenerId>) -> Option<Arc<Stream>> {
        let listener = listener?;
        let found = self.listeners.iter().find(|(id, _)| *id == listener)?;
        Some(Arc::clone(&found.1))
    }
}

impl SessionPush {
    pub(crate) fn new(limits: PushLimits) -> Self {
        SessionPush(Mutex::new(State {
            push: Push::new(limits),
            listeners: Vec::new(),
        }))
    }

    /// Offers a message to the session. True if the message waits.
    ///
    /// Fast path: append directly if the newest listener is caught up and resumable. Otherwise queue the message and wake the
    /// listener. The message is numbered under the lock, so that messages keep their order, and appended after the lock is
    /// released.
    pub(crate) fn offer(&self, node: &Node, mut draft: Draft, collapse: Collapse, lifetime: Lifetime) -> bool {
        let mut state = self.0.lock();
        let taker = state.push.direct_taker();
        if let Some((listener, stream)) = taker.zip(state.stream(taker)) {
            match stream.emit_to(listener, draft) {
                Ok(pending) => {
                    drop(state);
                    stream.perform(pending);
                    return false;
                }
                Err(unsaid) => draft = unsaid,
            }
        }
        let offered = state
            .push
            .offer(draft.into_payload(), collapse, lifetime, node.clock.now());
        let stream = state.stream(offered.taker);
        drop(state);
        node.metrics.events.push_dropped(offered.dropped);
        if let Some(stream) = stream {
            stream.wake();
        }
        true
    }

    /// Continues with the queue that an earlier process left in the store.
    pub(crate) fn restore(&self, node: &Node, queue: StoredQueue) {
        let dropped = self.0.lock().push.restore(queue, node.clock.now());
        node.metrics.events.push_dropped(dropped);
    }

    /// The store has the session. From now on it also gets the queue.
    pub(crate) fn begin_copy(&self) {
        self.0.lock().push.begin_copy();
    }

    /// The update that the store's copy of the queue lacks: see [`Push::next_update`].
    pub(crate) fn next_update(&self, epoch: u64, retry: bool) -> Option<QueueUpdate> {
        self.0.lock().push.next_update(epoch, retry)
    }

    /// Whether the store has the queue as it is now: see [`Push::is_copied`].
    pub(crate) fn is_copied(&self) -> bool {
        self.0.lock().push.is_copied()
    }

    /// The result of an update. Returns the update that the copy lacks now.
    pub(crate) fn updated(&self, stored: bool, epoch: u64) -> Option<QueueUpdate> {
        let push = &mut self.0.lock().push;
        push.updated(stored);
        push.next_update(epoch, false)
    }

    /// Taken messages up to `position` were appended to their stream, or will not be. Other listeners may take messages now.
    pub(crate) fn bound(&self, position: QueuePosition, appended: bool) {
        self.change(|push| push.bound(position, appended));
    }

    /// The client is initialized: messages may be sent (SES-08).
    pub(crate) fn begin(&self) {
        self.change(Push::begin);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.lock().push.has_begun()
    }

    /// Adds a listener.
    pub(crate) fn listen(&self, connection: ConnectionId, stream: &Arc<Stream>) {
        let listener = ListenerId(connection.0);
        let mut state = self.0.lock();
        state.push.listen(listener);
        state.listeners.push((listener, Arc::clone(stream)));
    }

    /// Removes a listener. The next one takes its turn.
    pub(crate) fn leave(&self, connection: ConnectionId) {
        let listener = ListenerId(connection.0);
        self.0.lock().listeners.retain(|(id, _)| *id != listener);
        self.change(|push| push.leave(listener));
    }

    /// Binds up to `limit` waiting messages to the stream of `connection`, whose turn it is. Returns their number, which is
    /// zero while an append of the stream is in flight. Fails if the session has ended. As in [`offer`](Self::offer),
    /// messages are numbered under the lock and appended after it.
    pub(crate) fn take(
        &self,
        connection: ConnectionId,
        stream: &Arc<Stream>,
        limit: usize,
    ) -> Result<usize, StreamClosed> {
        let mut state = self.0.lock();
        let push = &mut state.push;
        if push.waiting() == 0 {
            return Ok(0);
        }
        let mut left = limit;
        let bound = stream.bind(|| {
            left = left.checked_sub(1)?;
            let TakenMessage { message, stored, .. } = push.take(ListenerId(connection.0))?;
            Some((OneLine(message), stored, left > 0 && push.waiting() > 0))
        });
        drop(state);
        let (taken, pending) = bound?;
        stream.perform(pending);
        Ok(taken)
    }

    /// Binds waiting messages to the one stream of a session before a message of a call, so that messages keep the order in
    /// which the handler sent them. Stops when the stream is full. The rest follows later.
    pub(crate) fn bind_before_call_message(&self, stream: &Arc<Stream>) {
        let listener = {
            let state = self.0.lock();
            let waits = state.push.has_begun() && state.push.waiting() > 0;
            state.listeners.last().map(|(id, _)| *id).filter(|_| waits)
        };
        let Some(ListenerId(connection)) = listener else { return };
        while stream.has_room() && matches!(self.take(ConnectionId(connection), stream, 1), Ok(1)) {}
    }

    /// Passes the turn to another listener if the current one does not take its messages (SSE-14).
    pub(crate) fn pass_over_stalled(&self, now: Mono, limit: Duration) {
        self.change(|push| push.pass_over_stalled(now, limit));
    }

    /// The streams of all listeners, oldest first.
    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        self.0
            .lock()
            .listeners
            .iter()
            .map(|(_, stream)| Arc::clone(stream))
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn change(&self, change: impl FnOnce(&mut Push) -> Option<ListenerId>) {
        let mut state = self.0.lock();
        let taker = change(&mut state.push);
        let stream = state.stream(taker);
        drop(state);
        if let Some(stream) = stream {
            stream.wake();
        }
    }
}
