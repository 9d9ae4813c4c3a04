//! The store's copy of a push queue, seen from the process that writes it.

use super::{Lifetime, ListenerId, Push, QueuePosition, QueueUpdate, Queued, StoredQueue, Waiting};

/// How far the store's copy has come.
#[derive(Debug, Default)]
pub(super) struct StoreCopy {
    /// Messages up to here are stored.
    stored: QueuePosition,
    /// Messages up to here were sent to the store, which may have them.
    sent: QueuePosition,
    /// The store has let go of everything up to here.
    floor: QueuePosition,
    state: CopyState,
}

#[derive(Debug, Default)]
enum CopyState {
    #[default]
    Idle,
    /// An update is at the store. One at a time, so that a burst becomes few updates.
    Updating { last: QueuePosition, floor: QueuePosition },
    /// The last update failed. It is made again when [`Push::next_update`] is asked to retry.
    Failed,
}

impl StoreCopy {
    /// The copy that an earlier process left.
    pub(super) fn of(queue: &StoredQueue) -> Self {
        StoreCopy {
            stored: queue.last(),
            sent: queue.last(),
            floor: queue.floor(),
            state: CopyState::Idle,
        }
    }

    /// Whether the store may have the message at this position.
    pub(super) fn may_have(&self, position: QueuePosition) -> bool {
        position <= self.sent
    }
}

impl Push {
    /// From now on the queue is stored, with what waits already.
    pub fn begin_copy(&mut self) {
        self.copy.get_or_insert_default();
    }

    /// What the store's copy lacks; `None` if it lacks nothing, or if an update is on its way. After a failure only one that
    /// comes to `retry` gets the update. [`Push::updated`] must be told how it ended.
    pub fn next_update(&mut self, epoch: u64, retry: bool) -> Option<QueueUpdate> {
        let front = self.waiting.front();
        let gone = front.map_or(self.last, |waiting| QueuePosition(waiting.position.0 - 1));
        let copy = self.copy.as_mut()?;
        // Messages on their way into a stream leave the copy with their append, not before it. Were others dropped
        // meanwhile, the copy waits: it could not let go of these, and would grow beyond the limits.
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
        let floor = if binding.is_some() { copy.floor } else { gone };
        if messages.is_empty() && copy.floor >= floor.min(copy.sent) {
            return None;
        }
        let last = messages.last().map_or(copy.stored, |queued| queued.position);
        copy.sent = copy.sent.max(last);
        copy.state = CopyState::Updating { last, floor };
        Some(QueueUpdate { epoch, messages, floor })
    }

    /// The update is stored, or it failed and may have been stored all the same.
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

    /// Taken messages up to `position` are settled: appended to their stream, or not to be appended any more. Returns whom
    /// to wake.
    pub fn bound(&mut self, position: QueuePosition, appended: bool) -> Option<ListenerId> {
        self.binding.take_if(|(_, last)| *last <= position);
        if let Some(copy) = self.copy.as_mut().filter(|_| appended) {
            copy.floor = copy.floor.max(position);
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
