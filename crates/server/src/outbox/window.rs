//! The live end of a stream: what is stored, and waits for the connection that reads along.

use super::queue::Stretch;
use crate::limits::Limits;
use bytes::BytesMut;
use std::collections::VecDeque;

/// A frame from this size on is cheaper to write by itself than to copy.
pub(super) const LARGE: usize = 8 << 10;

/// Stretches of the wire, oldest first.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Mostly the only one. In place, because news for all would otherwise make a table for each of thousands of streams.
    first: Option<Stretch>,
    rest: VecDeque<Stretch>,
    events: usize,
    bytes: usize,
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether there is room for `stretch`. A single one always fits.
    pub(super) fn fits(&self, stretch: &Stretch, limits: &Limits) -> bool {
        let events = self.events + stretch.events();
        let bytes = self.bytes + stretch.wire.len();
        self.is_empty() || (events <= limits.window_events && bytes <= limits.window_bytes)
    }

    /// Whether half of what it may hold is in it, or more, by either measure.
    pub(super) fn is_half_full(&self, limits: &Limits) -> bool {
        self.events >= (limits.window_events / 2).max(1) || self.bytes >= (limits.window_bytes / 2).max(1)
    }

    pub(super) fn push(&mut self, stretch: Stretch) {
        self.events += stretch.events();
        self.bytes += stretch.wire.len();
        match &self.first {
            None => self.first = Some(stretch),
            Some(_) => self.rest.push_back(stretch),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Window::default();
    }

    /// What goes out next: small frames together, for one write; a large one alone, uncopied.
    pub(super) fn take(&mut self) -> Option<Stretch> {
        let mut next = self.first.take()?;
        let is_small = |stretch: &Stretch| stretch.wire.len() < LARGE;
        let more = self.rest.iter().take_while(|ready| is_small(ready)).count();
        if is_small(&next) && more > 0 {
            let sizes = self.rest.iter().take(more).map(|ready| ready.wire.len());
            let mut wire = BytesMut::with_capacity(next.wire.len() + sizes.sum::<usize>());
            wire.extend_from_slice(&next.wire);
            for ready in self.rest.drain(..more) {
                wire.extend_from_slice(&ready.wire);
                next.payload += ready.payload;
                next.last = ready.last;
            }
            next.wire = wire.freeze();
        }
        self.events -= next.events();
        self.bytes -= next.wire.len();
        self.first = self.rest.pop_front();
        if self.first.is_none() {
            self.clear(); // the table goes, too: a stream is mostly idle, and may be one of many
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use rethread_proto::event_id::Seq;

    fn stretch(seq: u64, size: usize) -> Stretch {
        Stretch {
            first: Seq(seq),
            last: Seq(seq),
            wire: Bytes::from(vec![seq as u8; size]),
            payload: size,
        }
    }

    proptest! {
        /// However pushes and takes alternate: all bytes, once, in order, and the counts are those of what is left.
        #[test]
        fn oracle_what_goes_in_comes_out(sizes in proptest::collection::vec((1usize..2 * LARGE, any::<bool>()), 0..60)) {
            let (mut window, mut expected, mut wire, mut payload) = (Window::default(), Vec::new(), Vec::new(), 0);
            let mut cursor = Seq(0);
            for (nth, (size, takes)) in (1..).zip(&sizes) {
                expected.extend(vec![nth as u8; *size]);
                window.push(stretch(nth, *size));
                if *takes && let Some(taken) = window.take() {
                    prop_assert_eq!(taken.first, cursor.next());
                    cursor = taken.last;
                    payload += taken.payload;
                    wire.extend_from_slice(&taken.wire);
                }
                prop_assert_eq!(window.bytes, expected.len() - wire.len());
                prop_assert_eq!(window.events as u64, nth - cursor.0);
                prop_assert_eq!(window.is_empty(), window.bytes == 0);
            }
            while let Some(taken) = window.take() {
                payload += taken.payload;
                wire.extend_from_slice(&taken.wire);
            }
            prop_assert!(wire == expected && payload == expected.len());
        }
    }

    #[test]
    fn small_ones_are_written_together_and_large_ones_alone() {
        let mut window = Window::default();
        for (seq, size) in [(1, 10), (2, 20), (3, LARGE), (4, 5)] {
            window.push(stretch(seq, size));
        }
        let taken: Vec<_> = std::iter::from_fn(|| window.take())
            .map(|next| (next.last.0, next.wire.len()))
            .collect();
        assert_eq!(taken, [(2, 30), (3, LARGE), (4, 5)]);
    }

    #[test]
    fn one_always_fits_and_two_only_within_the_limits() {
        let limits = Limits {
            window_events: 3,
            window_bytes: 100,
            ..Limits::default()
        };
        let mut window = Window::default();
        assert!(window.fits(&stretch(1, 1000), &limits));
        window.push(stretch(1, 60));
        assert!(window.is_half_full(&limits));
        assert!(window.fits(&stretch(2, 40), &limits) && !window.fits(&stretch(2, 41), &limits));
        window.push(stretch(2, 1));
        window.push(stretch(3, 1));
        assert!(!window.fits(&stretch(4, 1), &limits));
    }
}
