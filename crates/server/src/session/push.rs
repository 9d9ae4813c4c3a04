//! The push side of a session at work: who listens, and waking the one whose turn it is (design D6).

use crate::node::telemetry;
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

    /// A message for the session: it waits until a connection takes it. One that has read all there was and waits for more, and
    /// can be resumed, has as good as taken it: then it need not be called to fetch it. True if the message waits.
    ///
    /// It is numbered under the lock, so that what is offered next comes next, and appended after it.
    pub(crate) fn offer(&self, mut draft: Draft, collapse: Collapse, lifetime: Lifetime, now: Mono) -> bool {
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
        let offered = state.push.offer(draft.into_payload(), collapse, lifetime, now);
        let stream = state.stream(offered.taker);
        drop(state);
        telemetry::push_dropped(offered.dropped);
        if let Some(stream) = stream {
            stream.wake();
        }
        true
    }

    /// Goes on with the queue that an earlier process left in the store.
    pub(crate) fn restore(&self, queue: StoredQueue, now: Mono) {
        let dropped = self.0.lock().push.restore(queue, now);
        telemetry::push_dropped(dropped);
    }

    /// The store has the session: from now on it has the queue, too.
    pub(crate) fn begin_copy(&self) {
        self.0.lock().push.begin_copy();
    }

    /// What the store's copy of the queue lacks: see [`Push::next_update`].
    pub(crate) fn next_update(&self, epoch: u64, retry: bool) -> Option<QueueUpdate> {
        self.0.lock().push.next_update(epoch, retry)
    }

    /// The store answered to an update. Returns what its copy lacks now.
    pub(crate) fn updated(&self, stored: bool, epoch: u64) -> Option<QueueUpdate> {
        let push = &mut self.0.lock().push;
        push.updated(stored);
        push.next_update(epoch, false)
    }

    /// Taken messages up to `position` are in their stream, or will not be. Others may take now.
    pub(crate) fn bound(&self, position: QueuePosition, appended: bool) {
        self.change(|push| push.bound(position, appended));
    }

    /// The client is ready: messages may flow (SES-08).
    pub(crate) fn begin(&self) {
        self.change(Push::begin);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.lock().push.has_begun()
    }

    /// A connection listens from now on.
    pub(crate) fn listen(&self, connection: ConnectionId, stream: &Arc<Stream>) {
        let listener = ListenerId(connection.0);
        let mut state = self.0.lock();
        state.push.listen(listener);
        state.listeners.push((listener, Arc::clone(stream)));
    }

    /// A connection is gone; the next one takes its turn.
    pub(crate) fn leave(&self, connection: ConnectionId) {
        let listener = ListenerId(connection.0);
        self.0.lock().listeners.retain(|(id, _)| *id != listener);
        self.change(|push| push.leave(listener));
    }

    /// Binds up to `limit` waiting messages to the stream of `connection`, whose turn it is. Returns how many: none while an
    /// append of the stream is on its way. Fails if the session has ended. As in [`offer`](Self::offer), they are numbered
    /// under the lock and appended after it.
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

    /// Binds what waits to the one stream of a session before a message of a call follows on it: what a handler pushed
    /// first comes first. Stops when the stream is full, and the rest follows later.
    pub(crate) fn bind_before_call_message(&self, stream: &Arc<Stream>) {
        let listener = {
            let state = self.0.lock();
            let waits = state.push.has_begun() && state.push.waiting() > 0;
            state.listeners.last().map(|(id, _)| *id).filter(|_| waits)
        };
        let Some(ListenerId(connection)) = listener else { return };
        while stream.has_room() && matches!(self.take(ConnectionId(connection), stream, 1), Ok(1)) {}
    }

    /// Gives the turn to another connection if the one whose turn it is does not take its messages (SSE-14).
    pub(crate) fn pass_over_stalled(&self, now: Mono, patience: Duration) {
        self.change(|push| push.pass_over_stalled(now, patience));
    }

    /// The streams that connections listen on, oldest first.
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
