//! The push queue of a session in a store (D6).
//!
//! Messages leave a queue only from its front: taken by a stream, or dropped. One number, the *floor*, thus determines which
//! messages are gone, and late or repeated updates change nothing.

use bytes::Bytes;
use std::collections::VecDeque;

/// Cost of a waiting message without its bytes, for the byte limits of a store.
const MESSAGE_OVERHEAD_BYTES: usize = 96;

/// The cost of a waiting message against byte limits, from the bytes of the message and its collapse key.
pub const fn message_cost(bytes: usize) -> usize {
    bytes + MESSAGE_OVERHEAD_BYTES
}

/// The position of a message in the push queue of its session. The session's owner assigns ascending positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePosition(pub u64);

impl QueuePosition {
    /// The position after this one.
    pub const fn next(self) -> Self {
        QueuePosition(self.0 + 1)
    }
}

/// A message that waits for a GET.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// Its position.
    pub position: QueuePosition,
    /// The JSON-RPC message.
    pub message: Bytes,
    /// Messages with equal keys are equivalent: see [`Collapse`](super::Collapse). A store does not interpret the key.
    pub collapse: Option<Box<str>>,
}

impl Queued {
    /// A message without a collapse key.
    pub const fn new(position: QueuePosition, message: Bytes) -> Self {
        Queued {
            position,
            message,
            collapse: None,
        }
    }

    /// The same message with a collapse key.
    #[must_use]
    pub fn with_collapse(mut self, key: impl Into<Box<str>>) -> Self {
        self.collapse = Some(key.into());
        self
    }

    /// The cost against byte limits: its bytes and its bookkeeping.
    pub fn cost(&self) -> usize {
        message_cost(self.message.len() + self.collapse.as_deref().map_or(0, str::len))
    }
}

/// A change of a stored push queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueUpdate {
    /// The epoch of the session's record.
    pub epoch: u64,
    /// New messages, in the order of their positions.
    pub messages: Vec<Queued>,
    /// Messages up to here have left the queue.
    pub floor: QueuePosition,
}

impl QueueUpdate {
    /// Adds `messages`, then removes those up to `floor`.
    pub const fn new(epoch: u64, messages: Vec<Queued>, floor: QueuePosition) -> Self {
        QueueUpdate { epoch, messages, floor }
    }

    /// The same update of another epoch.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }
}

/// A stored push queue. The memory store is a table of these. Every other store must behave in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredQueue {
    /// In the order of their positions, all above the floor.
    messages: VecDeque<Queued>,
    /// Messages up to here have left the queue for ever.
    floor: QueuePosition,
    bytes: usize,
}

impl StoredQueue {
    /// The messages above `floor`, at their positions.
    pub fn new(messages: Vec<Queued>, floor: QueuePosition) -> Self {
        let mut queue = StoredQueue::default();
        queue.update(messages, floor);
        queue
    }

    /// Applies an update. A message at or below the floor, or at an occupied position, is ignored.
    pub fn update(&mut self, messages: Vec<Queued>, floor: QueuePosition) {
        self.raise_floor(floor);
        for queued in messages {
            if queued.position <= self.floor {
                continue;
            }
            let at = self.messages.partition_point(|held| held.position < queued.position);
            let known = self
                .messages
                .get(at)
                .is_some_and(|held| held.position == queued.position);
            if !known {
                self.bytes += queued.cost();
                self.messages.insert(at, queued);
            }
        }
    }

    /// Removes the messages up to `floor`.
    pub fn raise_floor(&mut self, floor: QueuePosition) {
        self.floor = self.floor.max(floor);
        while let Some(gone) = self.messages.front().filter(|held| held.position <= self.floor) {
            self.bytes -= gone.cost();
            self.messages.pop_front();
        }
        if self.messages.is_empty() {
            self.messages = VecDeque::new(); // an idle session needs no buffer
        }
    }

    /// Bytes held: messages and bookkeeping.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that raising the floor would free.
    pub fn bytes_up_to(&self, floor: QueuePosition) -> usize {
        let below = self.messages.iter().take_while(|held| held.position <= floor);
        below.map(Queued::cost).sum()
    }

    /// Messages up to here have left the queue.
    pub fn floor(&self) -> QueuePosition {
        self.floor
    }

    /// The last position that is known to be used.
    pub fn last(&self) -> QueuePosition {
        self.messages.back().map_or(self.floor, |held| held.position)
    }

    /// The messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &Queued> {
        self.messages.iter()
    }

    /// The messages, oldest first.
    pub fn into_messages(self) -> impl Iterator<Item = Queued> {
        self.messages.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(position: u64) -> Queued {
        Queued {
            position: QueuePosition(position),
            message: Bytes::from(position.to_string()),
            collapse: None,
        }
    }

    fn positions(queue: &StoredQueue) -> Vec<u64> {
        queue.messages.iter().map(|held| held.position.0).collect()
    }

    #[test]
    fn d6_late_and_repeated_updates_change_nothing() {
        let mut queue = StoredQueue::default();
        queue.update(vec![queued(2), queued(3)], QueuePosition(0));
        queue.update(vec![queued(1), queued(2)], QueuePosition(0));
        assert_eq!(positions(&queue), [1, 2, 3]);
        queue.raise_floor(QueuePosition(2));
        queue.update(vec![queued(1), queued(2), queued(5)], QueuePosition(1));
        assert_eq!((positions(&queue), queue.floor), (vec![3, 5], QueuePosition(2)));
        assert_eq!(
            (queue.bytes(), queue.last()),
            (2 * (1 + MESSAGE_OVERHEAD_BYTES), QueuePosition(5))
        );
        queue.raise_floor(QueuePosition(9));
        assert_eq!((queue.bytes(), queue.last()), (0, QueuePosition(9)));
    }
}
