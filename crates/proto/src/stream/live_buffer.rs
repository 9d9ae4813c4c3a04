//! Frames that are ready for the attached reader.

use super::StreamLimits;
use super::queue::FrameRun;
use bytes::BytesMut;
use std::collections::VecDeque;

/// A frame of this size or more is sent alone: one more write is cheaper than a copy.
pub(super) const LARGE_FRAME_BYTES: usize = 8 << 10;

/// Runs of frames, oldest first.
#[derive(Debug, Default)]
pub(super) struct LiveBuffer {
    /// Usually the only run. It is stored in place: a broadcast would otherwise allocate a table for each stream.
    first: Option<FrameRun>,
    rest: VecDeque<FrameRun>,
    events: usize,
    bytes: usize,
}

impl LiveBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether there is room for `run`. A single run always fits.
    pub(super) fn fits(&self, run: &FrameRun, limits: &StreamLimits) -> bool {
        let events = self.events + run.events();
        let bytes = self.bytes + run.wire.len();
        self.is_empty() || (events <= limits.live_events && bytes <= limits.live_bytes)
    }

    /// Whether it is at least half full, in events or in bytes.
    pub(super) fn is_half_full(&self, limits: &StreamLimits) -> bool {
        self.events >= (limits.live_events / 2).max(1) || self.bytes >= (limits.live_bytes / 2).max(1)
    }

    pub(super) fn push(&mut self, run: FrameRun) {
        self.events += run.events();
        self.bytes += run.wire.len();
        match &self.first {
            None => self.first = Some(run),
            Some(_) => self.rest.push_back(run),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = LiveBuffer::default();
    }

    /// Takes the next chunk for the socket: small frames together, a large frame alone and not copied.
    pub(super) fn take(&mut self) -> Option<FrameRun> {
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
        if self.first.is_none() {
            self.clear(); // free the table: most streams are idle
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_id::Seq;
    use bytes::Bytes;
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
        fn oracle_all_pushed_bytes_are_taken_in_order(sizes in proptest::collection::vec((1usize..2 * LARGE_FRAME_BYTES, any::<bool>()), 0..60)) {
            let (mut buffer, mut expected, mut wire, mut payload) = (LiveBuffer::default(), Vec::new(), Vec::new(), 0);
            let mut cursor = Seq(0);
            for (nth, (size, takes)) in (1..).zip(&sizes) {
                expected.extend(vec![nth as u8; *size]);
                buffer.push(run(nth, *size));
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
            prop_assert!(wire == expected && payload == expected.len());
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
        assert!(buffer.fits(&run(1, 1000), &limits));
        buffer.push(run(1, 60));
        assert!(buffer.is_half_full(&limits));
        assert!(buffer.fits(&run(2, 40), &limits) && !buffer.fits(&run(2, 41), &limits));
        buffer.push(run(2, 1));
        buffer.push(run(3, 1));
        assert!(!buffer.fits(&run(4, 1), &limits));
    }
}
