//! The push queue of a session, and its copy in the store (D6).
//!
//! While the process lives, the queue in memory is authoritative. The copy in the store follows, one update at a time. A
//! burst thus takes few updates, and a message to ten thousand sessions waits for no store.

use super::Session;
use rethread_proto::push::{Collapse, Lifetime};
use rethread_proto::sse::Draft;
use rethread_store::{QueuePosition, QueueUpdate, StoreError};
use std::sync::Arc;

impl Session {
    /// A message for the client that belongs to no call.
    pub(crate) fn offer(self: &Arc<Self>, (draft, collapse): (Draft, Collapse)) {
        self.offer_for(Lifetime::Session, draft, collapse);
    }

    /// A question that belongs to no call. It is not stored, because no handler waits for its answer after a restart.
    pub(crate) fn offer_question(self: &Arc<Self>, draft: Draft) {
        self.offer_for(Lifetime::Process, draft, Collapse::Never);
    }

    /// Offers all change notifications, because signals were lost.
    pub(crate) fn offer_refresh(self: &Arc<Self>) {
        for message in self.refresh_drafts() {
            self.offer(message);
        }
    }

    fn offer_for(self: &Arc<Self>, lifetime: Lifetime, draft: Draft, collapse: Collapse) {
        if self.has_shared_push() {
            return self.enqueue_shared(draft, &collapse);
        }
        if self.push.offer(&self.node, draft, collapse, lifetime) {
            self.update_stored_queue(false);
        }
    }

    /// The store has the session. From now on it also gets the push queue.
    pub(crate) fn begin_stored_queue(self: &Arc<Self>) {
        self.push.begin_copy();
        self.update_stored_queue(false);
    }

    /// Messages of the queue up to `position` were appended to a stream, or will not be.
    pub(crate) fn push_bound(self: &Arc<Self>, position: QueuePosition, appended: bool) {
        self.push.bound(position, appended);
        self.update_stored_queue(false);
    }

    /// Updates the store's copy of the queue. After a failure only the sweep tries again, with `retry`.
    pub(crate) fn update_stored_queue(self: &Arc<Self>, retry: bool) {
        let Some(queues) = self.node.store.push_queues() else {
            return;
        };
        let mut next = self.next_queue_update(retry);
        while let Some(update) = next {
            match queues.update_queue(&self.key, update).now() {
                Ok(result) => next = self.queue_updated(&result),
                Err(later) => {
                    let session = Arc::clone(self);
                    tokio::spawn(async move {
                        let mut next = session.queue_updated(&later.await);
                        while let (Some(update), Some(queues)) = (next, session.node.store.push_queues()) {
                            let result = queues.update_queue(&session.key, update).await;
                            next = session.queue_updated(&result);
                        }
                    });
                    return;
                }
            }
        }
    }

    fn next_queue_update(&self, retry: bool) -> Option<QueueUpdate> {
        if self.has_ended() {
            return None;
        }
        self.push.next_update(self.epoch, retry)
    }

    /// Records the result of an update. Returns the update that the copy lacks now.
    fn queue_updated(&self, result: &Result<(), StoreError>) -> Option<QueueUpdate> {
        match result {
            Err(error) if error.is_outage() => self.node.metrics.events.queue_not_stored(error),
            _ => self.store_answered(result),
        }
        let next = self.push.updated(result.is_ok(), self.epoch);
        next.filter(|_| !self.has_ended())
    }
}
