//! What was said and is not yet appended.

use super::window::LARGE;
use bytes::Bytes;
use rethread_proto::event_id::{IdPrefix, Seq};
use rethread_proto::sse::{self, EncodeMessage, Frame};
use rethread_store::{Event, Retain};
use std::ops::Range;

/// So much is appended at once, at most about.
const EVENTS: usize = 128;
const BYTES: usize = 256 << 10;
/// So large a block gets: allocators treat larger ones as a thing of their own.
const BLOCK: usize = 48 << 10;
/// An emptied table that is larger is not kept.
const SPARE: usize = 2 * EVENTS;

/// Numbered messages, oldest first. Small ones that wait together are written into one block, which then is what goes to the
/// socket and what the store keeps slices of.
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
    place: Place,
}

#[derive(Debug)]
enum Place {
    Alone(Frame),
    /// In the block: where the message is, and where its frame ends.
    Block {
        payload: Range<usize>,
        end: usize,
    },
}

/// A piece of the wire: an event, or several in a row.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) wire: Bytes,
    /// The bytes of the messages in it.
    pub(super) payload: usize,
}

impl Stretch {
    pub(super) fn one(seq: Seq, frame: Frame) -> Self {
        Stretch {
            first: seq,
            last: seq,
            payload: frame.payload.len(),
            wire: frame.wire,
        }
    }

    pub(super) fn events(&self) -> usize {
        (self.last.0 - self.first.0) as usize + 1
    }

    /// The same messages without ids. `None` if there is no message in it.
    pub(super) fn unnumbered(&self) -> Option<Self> {
        let wire = sse::without_ids(&self.wire);
        (!wire.is_empty()).then(|| Stretch {
            wire: wire.into(),
            ..*self
        })
    }
}

/// A stretch of the block that is being measured.
struct Run {
    first: Seq,
    last: Seq,
    wire: Range<usize>,
    payload: usize,
}

impl Run {
    fn cut(self, block: &Bytes) -> Stretch {
        Stretch {
            first: self.first,
            last: self.last,
            wire: block.slice(self.wire),
            payload: self.payload,
        }
    }
}

impl Queue {
    /// The event that says nothing but its id.
    pub(super) fn push_priming(&mut self, prefix: &IdPrefix, seq: Seq, retry: u64) {
        sse::write_priming(&mut self.block, prefix, seq);
        sse::write_retry(&mut self.block, retry);
        let end = self.block.len();
        let place = Place::Block { payload: end..end, end };
        let retain = Retain::None;
        self.entries.push(Entry { seq, retain, place });
    }

    /// A message; `waits` if others may join it before it is appended.
    pub(super) fn push(&mut self, prefix: &IdPrefix, seq: Seq, words: impl EncodeMessage, retain: Retain, waits: bool) {
        let size = words.size();
        self.bytes += size;
        let place = if size < LARGE && (waits || !self.block.is_empty()) {
            let payload = sse::write_words(&mut self.block, prefix, seq, |out| words.write(out));
            let end = self.block.len();
            Place::Block { payload, end }
        } else {
            Place::Alone(words.draft().number(prefix, seq))
        };
        self.entries.push(Entry { seq, retain, place });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is time to append, whoever might still join.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= EVENTS || self.block.len() >= BLOCK || self.bytes >= BYTES
    }

    /// Whether so much waits for the store that whoever speaks should wait, too.
    pub(super) fn is_long(&self) -> bool {
        self.bytes >= 2 * BYTES
    }

    pub(super) fn clear(&mut self) {
        *self = Queue::default();
    }

    /// Takes everything: as events for the store, and as stretches of the wire, which are added to `stretches`.
    pub(super) fn take(&mut self, stretches: &mut Vec<Stretch>) -> Vec<Event> {
        let mut block = std::mem::take(&mut self.block);
        block.shrink_to_fit(); // the store keeps it
        let block = Bytes::from(block);
        self.bytes = 0;
        let mut events = Vec::with_capacity(self.entries.len());
        let (mut run, mut cut) = (None::<Run>, 0);
        for Entry { seq, retain, place } in self.entries.drain(..) {
            let payload = match place {
                Place::Block { payload, end } => {
                    let size = payload.len();
                    run = Some(match run {
                        Some(run) => Run {
                            last: seq,
                            wire: run.wire.start..end,
                            payload: run.payload + size,
                            ..run
                        },
                        None => Run {
                            first: seq,
                            last: seq,
                            wire: cut..end,
                            payload: size,
                        },
                    });
                    cut = end;
                    block.slice(payload)
                }
                Place::Alone(frame) => {
                    stretches.extend(run.take().map(|run| run.cut(&block)));
                    let payload = frame.payload.clone();
                    stretches.push(Stretch::one(seq, frame));
                    payload
                }
            };
            events.push(Event { seq, payload, retain });
        }
        stretches.extend(run.map(|run| run.cut(&block)));
        if self.entries.capacity() > SPARE {
            self.entries = Vec::new();
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rethread_proto::sse::Draft;

    proptest! {
        /// Whatever waits together: the stretches are the frames in order, and the events are the messages.
        #[test]
        fn oracle_nothing_is_lost_or_moved_in_the_queue(sizes in proptest::collection::vec((0usize..9000, any::<bool>()), 0..40)) {
            let (prefix, mut queue) = (IdPrefix::new("7-"), Queue::default());
            queue.push_priming(&prefix, Seq::PRIMING, 5);
            let mut expected = b"id: 7-0\ndata:\n\nretry: 5\n\n".to_vec();
            for (n, (size, waits)) in (1..).zip(&sizes) {
                let message = vec![b'x'; *size];
                queue.push(&prefix, Seq(n), Draft::copy_of(&message), Retain::None, *waits);
                sse::write_event(&mut expected, &prefix, Seq(n), &message);
            }
            let mut stretches = Vec::new();
            let events = queue.take(&mut stretches);
            prop_assert!(queue.is_empty() && queue.bytes == 0);
            let wire: Vec<u8> = stretches.iter().flat_map(|stretch| stretch.wire.to_vec()).collect();
            prop_assert!(wire == expected);
            prop_assert_eq!(events.len(), sizes.len() + 1);
            let lengths: Vec<_> = events.iter().skip(1).map(|event| event.payload.len()).collect();
            prop_assert_eq!(lengths, sizes.iter().map(|(size, _)| *size).collect::<Vec<_>>());
            prop_assert!(events.iter().zip(0..).all(|(event, n)| event.seq == Seq(n)));
            let mut next = 0;
            for stretch in &stretches {
                prop_assert_eq!(stretch.first, Seq(next));
                next += stretch.events() as u64;
            }
            prop_assert_eq!(next as usize, events.len());
        }
    }

    #[test]
    fn sto_02_without_a_store_the_same_messages_have_no_ids() {
        let (prefix, mut queue) = (IdPrefix::new("7-"), Queue::default());
        queue.push_priming(&prefix, Seq::PRIMING, 5);
        queue.push(&prefix, Seq(1), Draft::copy_of(b"{}"), Retain::None, true);
        let mut stretches = Vec::new();
        queue.take(&mut stretches);
        let bare = stretches[0].unnumbered().unwrap();
        assert_eq!(&bare.wire[..], b"data: {}\n\n");
        queue.push_priming(&prefix, Seq::PRIMING, 5);
        stretches.clear();
        queue.take(&mut stretches);
        assert!(stretches[0].unnumbered().is_none(), "a priming event says nothing");
    }
}
