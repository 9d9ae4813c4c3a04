//! One session in the index.

use super::Totals;
use super::segments::Segments;
use super::stream::Stream;
use crate::group::Location;
use crate::record::{Message, Part};
use rethread_proto::clock::Wall;
use rethread_proto::push::message_cost;
use rethread_store::{Ordinal, QueuePosition, SessionKey};
use std::collections::VecDeque;
use std::time::Duration;

/// Cost of a session without its record.
const SESSION_OVERHEAD_BYTES: u64 = 512;

/// Location and checksum of a value in the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Blob {
    pub(crate) at: Location,
    pub(crate) part: Part,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) record: Blob,
    /// The epoch of the record.
    pub(crate) epoch: u64,
    pub(crate) touched: Wall,
    pub(crate) high_water: Ordinal,
    /// Sorted by ordinal. Streams are added at the back and mostly forgotten from the front. Boxed, so that an insertion
    /// moves only pointers.
    pub(crate) streams: VecDeque<(Ordinal, Box<Stream>)>,
    /// The ended streams, in the order of their end.
    pub(crate) ended: VecDeque<Ordinal>,
    pub(crate) queue: Option<Box<PushQueue>>,
    /// The commit of the last change of anything but a stream. A read waits for it.
    pub(crate) changed: u64,
}

/// The push queue of a session, with locations instead of messages. Behaves like
/// [`StoredQueue`](rethread_store::StoredQueue).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PushQueue {
    pub(crate) floor: QueuePosition,
    /// In the order of their positions, all above the floor.
    pub(crate) messages: VecDeque<(Message, Location)>,
    pub(crate) cost: u64,
}

impl Session {
    /// A session without streams.
    pub(crate) fn new(key: SessionKey, record: Blob, epoch: u64, touched: Wall) -> Self {
        Session {
            key,
            record,
            epoch,
            touched,
            high_water: Ordinal(0),
            streams: VecDeque::new(),
            ended: VecDeque::new(),
            queue: None,
            changed: 0,
        }
    }

    /// The cost of the record against the total.
    pub(crate) fn record_cost(part: Part) -> u64 {
        SESSION_OVERHEAD_BYTES + u64::from(part.len)
    }

    pub(crate) fn is_idle(&self, now: Wall, idle: Duration) -> bool {
        now.since(self.touched) >= idle
    }

    pub(crate) fn find(&self, ordinal: Ordinal) -> Result<usize, usize> {
        // Most appends go to the newest stream or create the next one. Most forgotten streams are the oldest.
        match (self.streams.back(), self.streams.front()) {
            (Some((newest, _)), _) if *newest == ordinal => Ok(self.streams.len() - 1),
            (Some((newest, _)), _) if *newest < ordinal => Err(self.streams.len()),
            (_, Some((oldest, _))) if *oldest == ordinal => Ok(0),
            (_, Some((oldest, _))) if *oldest > ordinal => Err(0),
            _ => self.streams.binary_search_by_key(&ordinal, |(ordinal, _)| *ordinal),
        }
    }

    pub(crate) fn stream(&self, ordinal: Ordinal) -> Option<&Stream> {
        let at = self.find(ordinal).ok()?;
        Some(&self.streams[at].1)
    }

    pub(crate) fn stream_mut(&mut self, ordinal: Ordinal) -> Option<&mut Stream> {
        let at = self.find(ordinal).ok()?;
        Some(&mut self.streams[at].1)
    }

    /// The cost of the push queue against the total.
    pub(crate) fn queue_cost(&self) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.cost)
    }

    /// Changes the push queue and counts the difference.
    pub(crate) fn change_queue(&mut self, totals: &mut Totals, change: impl FnOnce(&mut PushQueue)) {
        let queue = self.queue.get_or_insert_default();
        let before = queue.cost;
        change(queue);
        totals.change_queue(before, queue.cost);
    }
}

impl PushQueue {
    /// Adds a message at location `at`. Ignores a message at or below the floor or at an occupied position.
    pub(crate) fn add(&mut self, message: Message, at: Location, segments: &mut Segments) {
        if message.position > self.floor
            && let Err(index) = self.find(message.position)
        {
            segments.add(at.segment, message.body);
            self.cost += message.cost();
            self.messages.insert(index, (message, at));
        }
    }

    /// Removes the messages up to `floor`.
    pub(crate) fn raise_floor(&mut self, floor: QueuePosition, segments: &mut Segments) {
        self.floor = self.floor.max(floor);
        while let Some((message, at)) = self.messages.front().filter(|(held, _)| held.position <= self.floor) {
            self.cost -= message.cost();
            segments.sub(at.segment, message.body);
            self.messages.pop_front();
        }
    }

    /// The cost of the messages up to `floor`.
    pub(crate) fn cost_up_to(&self, floor: QueuePosition) -> u64 {
        let below = self.messages.iter().take_while(|(held, _)| held.position <= floor);
        below.map(|(message, _)| message.cost()).sum()
    }

    /// The index of a held message, or the index at which it would be inserted.
    pub(crate) fn find(&self, position: QueuePosition) -> Result<usize, usize> {
        self.messages.binary_search_by_key(&position, |(held, _)| held.position)
    }

    pub(crate) fn release_segments(&self, segments: &mut Segments) {
        for (message, at) in &self.messages {
            segments.sub(at.segment, message.body);
        }
    }
}

impl Message {
    /// The cost against byte limits.
    pub(crate) fn cost(&self) -> u64 {
        message_cost(self.body.len as usize) as u64
    }
}
