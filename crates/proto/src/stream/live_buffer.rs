//! Frames that are ready for the attached reader.

use super::queue::{BLOCK_BYTES, FIRST_BLOCK_BYTES, FrameRun};
use super::{Framing, StreamLimits};
use crate::event_id::Seq;
use crate::sse::{self, EncodeMessage};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// A frame of this size or more is sent alone: one more write is cheaper than a copy.
pub(super) const LARGE_FRAME_BYTES: usize = 8 << 10;

/// The name of events on streams of 2024-11-05.
const EVENT_NAME: &str = "message";

/// Runs of frames, oldest first.
#[derive(Debug, Default)]
pub(super) struct LiveBuffer {
    /// Usually the only run. It is stored inline, so that a broadcast does not allocate a table for each stream.
    first: Option<FrameRun>,
    rest: VecDeque<FrameRun>,
    /// The newest messages without ids. They share one block until the reader takes it.
    block: Option<Block>,
    events: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Block {
    first: Seq,
    last: Seq,
    payload_bytes: usize,
    wire: Vec<u8>,
}

impl From<Block> for FrameRun {
    fn from(block: Block) -> Self {
        FrameRun {
            first: block.first,
            last: block.last,
            wire: Bytes::from(block.wire),
            payload_bytes: block.payload_bytes,
        }
    }
}

impl LiveBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.block.is_none()
    }

    /// Whether `events` and `bytes` more are within the limits. A single run always fits.
    pub(super) fn fits(&self, events: usize, bytes: usize, limits: &StreamLimits) -> bool {
        let has_room = self.events + events <= limits.live_events && self.bytes + bytes <= limits.live_bytes;
        has_room || self.is_empty()
    }

    /// Whether it is at least half full, in events or in bytes.
    pub(super) fn is_half_full(&self, limits: &StreamLimits) -> bool {
        self.events >= (limits.live_events / 2).max(1) || self.bytes >= (limits.live_bytes / 2).max(1)
    }

    pub(super) fn push(&mut self, run: FrameRun) {
        self.close_block();
        self.events += run.events();
        self.bytes += run.wire.len();
        self.push_run(run);
    }

    /// Adds a message without an id.
    pub(super) fn push_message(&mut self, seq: Seq, framing: Framing, message: impl EncodeMessage) {
        let size = message.size();
        if size >= LARGE_FRAME_BYTES {
            let draft = message.draft();
            let frame = match framing {
                Framing::Named => draft.named(EVENT_NAME),
                Framing::Line => draft.line(),
                Framing::Numbered => draft.unnumbered(),
            };
            return self.push(FrameRun::one(seq, frame));
        }
        let block = self.block.get_or_insert_with(|| Block {
            first: seq,
            last: seq,
            payload_bytes: 0,
            wire: Vec::with_capacity(size + FIRST_BLOCK_BYTES),
        });
        let before = block.wire.len();
        match framing {
            Framing::Named => sse::write_without_id(&mut block.wire, Some(EVENT_NAME), &message),
            Framing::Numbered => sse::write_without_id(&mut block.wire, None, &message),
            Framing::Line => {
                message.write(&mut block.wire);
                block.wire.push(b'\n');
            }
        }
        block.last = seq;
        block.payload_bytes += size;
        self.events += 1;
        self.bytes += block.wire.len() - before;
        if block.wire.len() >= BLOCK_BYTES {
            self.close_block();
        }
    }

    fn close_block(&mut self) {
        if let Some(block) = self.block.take() {
            self.push_run(block.into());
        }
    }

    fn push_run(&mut self, run: FrameRun) {
        match &self.first {
            None => self.first = Some(run),
            Some(_) => self.rest.push_back(run),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = LiveBuffer::default();
    }

    /// Drops the runs up to `cursor`. If the cursor is inside a run, empties the buffer and returns false.
    pub(super) fn skip_to(&mut self, cursor: Seq) -> bool {
        self.close_block();
        while let Some(run) = self.first.take_if(|run| run.first <= cursor) {
            if run.last > cursor {
                self.clear();
                return false;
            }
            self.events -= run.events();
            self.bytes -= run.wire.len();
            self.first = self.rest.pop_front();
        }
        true
    }

    /// Takes the next chunk for the socket: small frames together, a large frame alone and not copied.
    pub(super) fn take(&mut self) -> Option<FrameRun> {
        self.close_block();
        let mut next = self.first.take()?;
        let is_small = |run: &FrameRun| run.wire.len() < LARGE_FRAME_BYTES;
        let more = self.rest.iter().take_while(|ready| is_small(ready)).count();
        if is_small(&next) && more > 0 {
            let sizes = self.rest.iter().take(more).map(|ready| ready.wire.len());
            let mut wire = BytesMut::with_capacity(next.wire.len() + sizes.sum::<usize>());
            wire.extend_from_slice(&next.wire);
            for ready in self.rest.drain(..more) {
                wire.extend_from_slice(&ready.wire);
                next.payload_bytes += ready.payload_bytes;
                next.last = ready.last;
            }
            next.wire = wire.freeze();
        }
        self.events -= next.events();
        self.bytes -= next.wire.len();
        self.first = self.rest.pop_front();
        if self.is_empty() {
            self.clear(); // frees the table, because most streams are idle
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::OneLine;
    use proptest::prelude::*;

    fn run(seq: u64, size: usize) -> FrameRun {
        FrameRun {
            first: Seq(seq),
            last: Seq(seq),
            wire: Bytes::from(vec![seq as u8; size]),
            payload_bytes: size,
        }
    }

    proptest! {
        /// For any order of pushes and takes: all bytes once, in order, with correct counts.
        #[test]
        fn oracle_all_pushed_bytes_are_taken_in_order(sizes in proptest::collection::vec((1usize..2 * LARGE_FRAME_BYTES, any::<bool>(), any::<bool>()), 0..60)) {
            let (mut buffer, mut expected, mut wire) = (LiveBuffer::default(), Vec::new(), Vec::new());
            let (mut expected_payload, mut payload) = (0, 0);
            let mut cursor = Seq(0);
            for (nth, (size, has_id, takes)) in (1..).zip(&sizes) {
                let text = vec![b'a' + nth as u8 % 26; *size];
                expected.extend_from_slice(&text);
                expected_payload += size;
                if *has_id {
                    buffer.push(FrameRun { wire: text.into(), ..run(nth, *size) });
                } else {
                    buffer.push_message(Seq(nth), Framing::Line, OneLine(text.into()));
                    expected.push(b'\n');
                }
                if *takes && let Some(taken) = buffer.take() {
                    prop_assert_eq!(taken.first, cursor.next());
                    cursor = taken.last;
                    payload += taken.payload_bytes;
                    wire.extend_from_slice(&taken.wire);
                }
                prop_assert_eq!(buffer.bytes, expected.len() - wire.len());
                prop_assert_eq!(buffer.events as u64, nth - cursor.0);
                prop_assert_eq!(buffer.is_empty(), buffer.bytes == 0);
            }
            while let Some(taken) = buffer.take() {
                payload += taken.payload_bytes;
                wire.extend_from_slice(&taken.wire);
            }
            prop_assert!(wire == expected && payload == expected_payload);
        }
    }

    #[test]
    fn small_frames_are_joined_and_large_frames_are_sent_alone() {
        let mut buffer = LiveBuffer::default();
        for (seq, size) in [(1, 10), (2, 20), (3, LARGE_FRAME_BYTES), (4, 5)] {
            buffer.push(run(seq, size));
        }
        let taken: Vec<_> = std::iter::from_fn(|| buffer.take())
            .map(|next| (next.last.0, next.wire.len()))
            .collect();
        assert_eq!(taken, [(2, 30), (3, LARGE_FRAME_BYTES), (4, 5)]);
    }

    #[test]
    fn single_run_always_fits_and_others_within_the_limits() {
        let limits = StreamLimits {
            live_events: 3,
            live_bytes: 100,
            ..StreamLimits::default()
        };
        let mut buffer = LiveBuffer::default();
        assert!(buffer.fits(1, 1000, &limits));
        buffer.push(run(1, 60));
        assert!(buffer.is_half_full(&limits));
        assert!(buffer.fits(1, 40, &limits) && !buffer.fits(1, 41, &limits));
        buffer.push(run(2, 1));
        buffer.push(run(3, 1));
        assert!(!buffer.fits(1, 1, &limits));
    }
}
