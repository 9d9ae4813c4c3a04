//! What a change of a stream asks for, once every lock is released: nothing that could wait, or come back, runs under one.

use super::Stream;
use super::queue::Stretch;
use crate::telemetry;
use rethread_proto::event_id::Seq;
use rethread_store::{Batch, QueuePosition, StoreError};
use std::sync::Arc;
use std::task::Waker;

/// What is to be done after unlocking. Small, and owns no allocation of its own.
#[must_use]
#[derive(Default)]
pub(crate) struct Effects {
    /// An append that is due. It counts as in flight already, so that what is said meanwhile queues behind it.
    pub(super) append: Option<Append>,
    /// The reader that has something to read.
    pub(super) wake: Option<Waker>,
    /// Whether those who wait for room should look again.
    pub(super) room: bool,
    /// Whether the stream has just ended.
    pub(super) ended: bool,
    /// How many events were stored.
    pub(super) stored: usize,
    /// Messages of the push queue up to here are settled, and whether they were appended.
    pub(super) settled: Option<(QueuePosition, bool)>,
    /// Why the store did not take an append.
    pub(super) failure: Option<StoreError>,
}

/// A batch for the store, and what is made of it when the store has it.
pub(super) struct Append {
    pub(super) batch: Batch,
    pub(super) sent: Sent,
}

/// An append in flight: what the reader gets when it is stored.
pub(super) struct Sent {
    pub(super) stretches: Vec<Stretch>,
    /// The questions that it releases, if it does nothing else.
    pub(super) released: Vec<Seq>,
    pub(super) seals: bool,
    /// The append takes the messages of the push queue up to here.
    pub(super) taken: Option<QueuePosition>,
}

impl Stream {
    /// Does what a change asked for: tells others, and appends until nothing is due. Call it without any lock.
    pub(crate) fn perform(self: &Arc<Self>, mut effects: Effects) {
        loop {
            let due = effects.append.take();
            self.notify(effects);
            let Some(Append { batch, sent }) = due else { return };
            match self.node.store.append(&self.key, batch).now() {
                Ok(result) => effects = self.settle(sent, result),
                Err(later) => {
                    let stream = Arc::clone(self);
                    tokio::spawn(async move {
                        let result = later.await;
                        stream.perform(stream.settle(sent, result));
                    });
                    return;
                }
            }
        }
    }

    /// Tells others what has changed. There is nothing to append.
    pub(super) fn notify(&self, effects: Effects) {
        debug_assert!(effects.append.is_none(), "an append that is due is made");
        if effects.stored > 0 {
            telemetry::appended(effects.stored);
        }
        if let Some(error) = effects.failure {
            if error.is_outage() {
                telemetry::store_lost(&error);
            } else if let Some(session) = self.session.upgrade() {
                session.refused(error);
            }
        }
        if let Some((position, appended)) = effects.settled
            && let Some(session) = self.session.upgrade()
        {
            session.push_bound(position, appended);
        }
        if let Some(waker) = effects.wake {
            waker.wake();
        }
        if effects.room {
            self.room.notify_waiters();
        }
        if effects.ended
            && let Some(session) = self.session.upgrade()
        {
            session.stream_over(self);
        }
    }
}
