//! Numbered messages that are not appended yet.

use super::live_buffer::LARGE_FRAME_BYTES;
use super::{Event, Retain};
use crate::event_id::{IdPrefix, Seq};
use crate::sse::{self, EncodeMessage, Frame};
use bytes::Bytes;
use std::ops::Range;

/// Soft limits of one append batch.
const BATCH_EVENTS: usize = 128;
const BATCH_BYTES: usize = 256 << 10;
/// Soft limit of the shared block. Allocators map larger blocks separately, which is slower.
pub(super) const BLOCK_BYTES: usize = 48 << 10;
/// The first capacity of a block: a priming event, a short message and a short answer.
pub(super) const FIRST_BLOCK_BYTES: usize = 512;
/// A larger emptied table is freed.
const MAX_SPARE_ENTRIES: usize = 2 * BATCH_EVENTS;

/// Numbered messages, oldest first. Small messages that wait together share one block. The socket gets the block, and
/// the store gets slices of it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    block: Vec<u8>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    seq: Seq,
    retain: Retain,
    location: Location,
}

#[derive(Debug)]
enum Location {
    /// In its own allocation.
    Alone(Frame),
    /// In the block: the range of the message, and the end of its frame.
    Block { payload: Range<usize>, end: usize },
}

/// The frames of consecutive events, in one piece.
#[derive(Debug)]
pub(super) struct FrameRun {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) wire: Bytes,
    /// Bytes of the messages, without their frames.
    pub(super) payload_bytes: usize,
}

impl FrameRun {
    pub(super) fn one(seq: Seq, frame: Frame) -> Self {
        FrameRun {
            first: seq,
            last: seq,
            payload_bytes: frame.payload.len(),
            wire: frame.wire,
        }
    }

    pub(super) fn events(&self) -> usize {
        (self.last.0 - self.first.0) as usize + 1
    }

    /// The same messages without ids. `None` if it has no message.
    pub(super) fn without_ids(&self) -> Option<Self> {
        let wire = sse::without_ids(&self.wire);
        (!wire.is_empty()).then(|| FrameRun {
            wire: wire.into(),
            ..*self
        })
    }
}

/// A run of frames in the block while it is measured.
struct OpenRun {
    first: Seq,
    last: Seq,
    wire: Range<usize>,
    payload_bytes: usize,
}

impl OpenRun {
    fn finish(self, block: &Bytes) -> FrameRun {
        FrameRun {
            first: self.first,
            last: self.last,
            wire: block.slice(self.wire),
            payload_bytes: self.payload_bytes,
        }
    }
}

impl Queue {
    /// Adds the priming event, which has an id and no message.
    pub(super) fn push_priming(&mut self, prefix: &IdPrefix, seq: Seq, retry_millis: u64) {
        self.block.reserve(FIRST_BLOCK_BYTES);
        sse::write_priming(&mut self.block, prefix, seq);
        sse::write_retry(&mut self.block, retry_millis);
        let end = self.block.len();
        self.entries.push(Entry {
            seq,
            retain: Retain::None,
            location: Location::Block { payload: end..end, end },
        });
    }

    /// Adds a message. `may_join` if other messages may join it before it is appended.
    pub(super) fn push(
        &mut self,
        prefix: &IdPrefix,
        seq: Seq,
        message: impl EncodeMessage,
        retain: Retain,
        may_join: bool,
    ) {
        let size = message.size();
        self.bytes += size;
        let location = if size < LARGE_FRAME_BYTES && (may_join || !self.block.is_empty()) {
            let payload = sse::write_encoded(&mut self.block, prefix, seq, |out| message.write(out));
            let end = self.block.len();
            Location::Block { payload, end }
        } else {
            Location::Alone(message.draft().number(prefix, seq))
        };
        self.entries.push(Entry { seq, retain, location });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a batch is full. Then an append is due even if no reader can exist yet.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= BATCH_EVENTS || self.block.len() >= BLOCK_BYTES || self.bytes >= BATCH_BYTES
    }

    /// Whether so many messages are queued that emitters must wait for the store.
    pub(super) fn is_long(&self) -> bool {
        self.bytes >= 2 * BATCH_BYTES
    }

    pub(super) fn clear(&mut self) {
        *self = Queue::default();
    }

    /// Takes everything: as events for the store, and as runs of frames, which are added to `runs`.
    pub(super) fn take(&mut self, runs: &mut Vec<FrameRun>) -> Vec<Event> {
        let mut block = std::mem::take(&mut self.block);
        block.shrink_to_fit(); // the store holds slices of the block
        let block = Bytes::from(block);
        self.bytes = 0;
        let mut events = Vec::with_capacity(self.entries.len());
        let (mut open, mut frame_start) = (None::<OpenRun>, 0);
        for Entry { seq, retain, location } in self.entries.drain(..) {
            let payload = match location {
                Location::Block { payload, end } => {
                    let size = payload.len();
                    let run = open.get_or_insert(OpenRun {
                        first: seq,
                        last: seq,
                        wire: frame_start..end,
                        payload_bytes: 0,
                    });
                    run.last = seq;
                    run.wire.end = end;
                    run.payload_bytes += size;
                    frame_start = end;
                    block.slice(payload)
                }
                Location::Alone(Frame { wire, payload }) => {
                    if let Some(run) = open.take() {
                        runs.push(run.finish(&block));
                    }
                    runs.push(FrameRun {
                        first: seq,
                        last: seq,
                        wire,
                        payload_bytes: payload.len(),
                    });
                    payload
                }
            };
            events.push(Event { seq, payload, retain });
        }
        runs.extend(open.map(|run| run.finish(&block)));
        if self.entries.capacity() > MAX_SPARE_ENTRIES {
            self.entries = Vec::new();
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::Draft;
    use proptest::prelude::*;

    proptest! {
        /// For any grouping of messages: the runs are the frames in order, and the events are the messages.
        #[test]
        fn oracle_queue_keeps_messages_and_their_order(sizes in proptest::collection::vec((0usize..9000, any::<bool>()), 0..40)) {
            let (prefix, mut queue) = (IdPrefix::new("7-"), Queue::default());
            queue.push_priming(&prefix, Seq::PRIMING, 5);
            let mut expected = b"id: 7-0\ndata:\n\nretry: 5\n\n".to_vec();
            for (n, (size, waits)) in (1..).zip(&sizes) {
                let message = vec![b'x'; *size];
                queue.push(&prefix, Seq(n), Draft::copy_of(&message), Retain::None, *waits);
                sse::write_event(&mut expected, &prefix, Seq(n), &message);
            }
            let mut runs = Vec::new();
            let events = queue.take(&mut runs);
            prop_assert!(queue.is_empty() && queue.bytes == 0);
            let wire: Vec<u8> = runs.iter().flat_map(|run| run.wire.to_vec()).collect();
            prop_assert!(wire == expected);
            prop_assert_eq!(events.len(), sizes.len() + 1);
            let lengths: Vec<_> = events.iter().skip(1).map(|event| event.payload.len()).collect();
            prop_assert_eq!(lengths, sizes.iter().map(|(size, _)| *size).collect::<Vec<_>>());
            prop_assert!(events.iter().zip(0..).all(|(event, n)| event.seq == Seq(n)));
            let mut next = 0;
            for run in &runs {
                prop_assert_eq!(run.first, Seq(next));
                next += run.events() as u64;
            }
            prop_assert_eq!(next as usize, events.len());
        }
    }

    #[test]
    fn sto_02_without_a_store_the_same_messages_have_no_ids() {
        let (prefix, mut queue) = (IdPrefix::new("7-"), Queue::default());
        queue.push_priming(&prefix, Seq::PRIMING, 5);
        queue.push(&prefix, Seq(1), Draft::copy_of(b"{}"), Retain::None, true);
        let mut runs = Vec::new();
        queue.take(&mut runs);
        let bare = runs[0].without_ids().unwrap();
        assert_eq!(&bare.wire[..], b"data: {}\n\n");
        queue.push_priming(&prefix, Seq::PRIMING, 5);
        runs.clear();
        queue.take(&mut runs);
        assert!(runs[0].without_ids().is_none(), "a priming event has no message");
    }
}
