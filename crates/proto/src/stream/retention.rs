//! The rules of eviction, and the gaps that it causes (RES-08, D4). Every store uses these functions.

use super::{Retain, Retention};
use crate::event_id::Seq;

/// Cost of a stream without its events and its info. A tombstone costs this too.
pub const STREAM_OVERHEAD_BYTES: usize = 512;
/// Cost of an event without its payload, for the byte limits: its entry, its number, its share of the frame.
const EVENT_OVERHEAD_BYTES: usize = 96;

/// The cost of an event against byte limits: its payload and its bookkeeping.
pub const fn event_cost(payload_bytes: usize) -> usize {
    payload_bytes + EVENT_OVERHEAD_BYTES
}

/// The held part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAmount {
    /// Events.
    pub events: usize,
    /// Their cost in bytes.
    pub bytes: usize,
}

impl HeldAmount {
    /// A number of events and their cost in bytes.
    pub const fn new(events: usize, bytes: usize) -> Self {
        HeldAmount { events, bytes }
    }
}

impl Retention {
    /// Whether a stream exceeds its limits.
    pub fn is_exceeded(&self, held: HeldAmount) -> bool {
        held.events > self.events || held.bytes > self.bytes
    }
}

/// The index of the next event to evict when a stream exceeds its limits, among the held events from the oldest to the
/// newest. It is the oldest event that is not retained. The newest event is never evicted. `None` if no event may be
/// evicted.
pub fn next_victim(held: impl ExactSizeIterator<Item = Retain>) -> Option<usize> {
    let newest = held.len().checked_sub(1)?;
    held.take(newest).position(may_be_evicted)
}

/// Whether retention limits may remove an event.
pub fn may_be_evicted(retain: Retain) -> bool {
    retain == Retain::None
}

/// The highest evicted number that a cursor can miss, after `seq` was evicted too. The priming event has no message, so
/// its loss is not a gap.
pub fn evicted_up_to(evicted: Option<Seq>, seq: Seq) -> Option<Seq> {
    if seq > Seq::PRIMING {
        evicted.max(Some(seq))
    } else {
        evicted
    }
}

/// Whether events after `cursor` are no longer retained.
pub fn has_gap_after(cursor: Seq, evicted: Option<Seq>) -> bool {
    evicted.is_some_and(|evicted| evicted > cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn res_08_oldest_event_without_a_reason_to_retain_is_evicted() {
        use Retain::{Answer, None as Plain, Question};
        for (held, victim) in [
            (&[][..], None),
            (&[Plain], None),
            (&[Plain, Plain], Some(0)),
            (&[Question, Plain, Plain], Some(1)),
            (&[Question, Answer, Plain], None),
            (&[Answer, Question, Plain, Answer], Some(2)),
        ] {
            assert_eq!(next_victim(held.iter().copied()), victim, "{held:?}");
        }
    }

    #[test]
    fn res_08_loss_of_the_priming_event_is_not_a_gap() {
        assert_eq!(evicted_up_to(None, Seq::PRIMING), None);
        let evicted = evicted_up_to(evicted_up_to(None, Seq(5)), Seq(3));
        assert_eq!(evicted, Some(Seq(5)));
        assert!(has_gap_after(Seq(4), evicted) && !has_gap_after(Seq(5), evicted));
    }
}
