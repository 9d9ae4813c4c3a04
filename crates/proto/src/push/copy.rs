//! The store's copy of a push queue, as the writing process knows it.

use super::{Lifetime, ListenerId, Push, QueuePosition, QueueUpdate, Queued, StoredQueue, Waiting};

/// The state of the store's copy.
#[derive(Debug, Default)]
pub(super) struct StoreCopy {
    /// Messages up to here are stored.
    stored: QueuePosition,
    /// Messages up to here were sent to the store, which may have them.
    sent: QueuePosition,
    /// The store has removed everything up to here.
    floor: QueuePosition,
    /// Taken messages up to here are settled: the store may remove them.
    settled: QueuePosition,
    state: CopyState,
}

#[derive(Debug, Default)]
enum CopyState {
    #[default]
    Idle,
    /// An update is in flight. Only one at a time, so that a burst becomes few updates.
    Updating { last: QueuePosition, floor: QueuePosition },
    /// The last update failed. [`Push::next_update`] repeats it with `retry`.
    Failed,
}

impl StoreCopy {
    /// The copy that an earlier process left.
    pub(super) fn of(queue: &StoredQueue) -> Self {
        StoreCopy {
            stored: queue.last(),
            sent: queue.last(),
            floor: queue.floor(),
            settled: queue.floor(),
            state: CopyState::Idle,
        }
    }

    /// Whether the store may have the message at this position.
    pub(super) fn may_have(&self, position: QueuePosition) -> bool {
        position <= self.sent
    }
}

impl Push {
    /// From now on the queue is stored, including the messages that already wait.
    pub fn begin_copy(&mut self) {
        self.copy.get_or_insert_default();
    }

    /// The next update of the store's copy. `None` if it is up to date, or if an update is in flight. After a failure only a
    /// call with `retry` returns the update. The caller reports its outcome to [`Push::updated`].
    pub fn next_update(&mut self, epoch: u64, retry: bool) -> Option<QueueUpdate> {
        let gone = self.gone();
        let copy = self.copy.as_mut()?;
        // Messages that are being bound to a stream leave the copy with their append, not before. If others were dropped
        // meanwhile, the copy waits: it could not remove the bound ones, and would exceed the limits.
        let binding = self.binding.map(|(_, last)| last);
        if binding.is_some_and(|last| last < gone) {
            return None;
        }
        match copy.state {
            CopyState::Updating { .. } => return None,
            CopyState::Failed if !retry => return None,
            CopyState::Idle | CopyState::Failed => copy.state = CopyState::Idle,
        }
        let new = |waiting: &&Waiting| waiting.position > copy.stored;
        let kept = |waiting: &&Waiting| waiting.lifetime == Lifetime::Session;
        let lacking = self.waiting.iter().rev().take_while(new).filter(kept);
        let mut messages: Vec<Queued> = lacking.map(Waiting::queued).collect();
        messages.reverse();
        let floor = if binding.is_some() {
            copy.floor.max(copy.settled)
        } else {
            gone
        };
        if messages.is_empty() && copy.floor >= floor.min(copy.sent) {
            return None;
        }
        let last = messages.last().map_or(copy.stored, |queued| queued.position);
        copy.sent = copy.sent.max(last);
        copy.state = CopyState::Updating { last, floor };
        Some(QueueUpdate { epoch, messages, floor })
    }

    /// Whether the store has the queue as it is now. Then nothing is lost without the queue in memory.
    pub fn is_copied(&self) -> bool {
        let Some(copy) = &self.copy else { return false };
        let is_stored = |waiting: &Waiting| waiting.lifetime == Lifetime::Session && waiting.position <= copy.stored;
        let is_settled = matches!(copy.state, CopyState::Idle) && self.binding.is_none();
        is_settled && self.waiting.iter().all(is_stored) && copy.floor >= self.gone().min(copy.sent)
    }

    /// The position before the first message that waits.
    fn gone(&self) -> QueuePosition {
        let front = self.waiting.front();
        front.map_or(self.last, |waiting| QueuePosition(waiting.position.0 - 1))
    }

    /// The outcome of the update. A failed one may be stored nevertheless.
    pub fn updated(&mut self, stored: bool) {
        let Some(copy) = &mut self.copy else { return };
        if let CopyState::Updating { last, floor } = copy.state {
            copy.state = if stored {
                copy.stored = copy.stored.max(last);
                copy.floor = copy.floor.max(floor);
                CopyState::Idle
            } else {
                CopyState::Failed
            };
        }
    }

    /// Taken messages up to `position` are settled: appended to their stream, or never to be appended. Returns the listener
    /// to wake.
    pub fn bound(&mut self, position: QueuePosition, appended: bool) -> Option<ListenerId> {
        self.binding.take_if(|(_, last)| *last <= position);
        if let Some(copy) = &mut self.copy {
            // A failed append removes nothing. The next update does, also if other messages are bound by then.
            copy.settled = copy.settled.max(position);
            if appended {
                copy.floor = copy.floor.max(position);
            }
        }
        self.taker()
    }
}

impl Waiting {
    fn queued(&self) -> Queued {
        Queued {
            position: self.position,
            message: self.message.clone(),
            collapse: self.collapse.key(),
        }
    }
}
