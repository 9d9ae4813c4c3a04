//! The log of one stream in memory. The memory backend is a table of these. Every other backend must behave like it.

use super::fence::{Admission, Refused, StreamEnd};
use super::retention::{self, HeldAmount};
use super::{Batch, Event, Retain, Retention, StreamInfo};
use crate::cluster::Incarnation;
use crate::event_id::Seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// The events of one stream, and the data that remain after eviction.
#[derive(Clone, Debug)]
pub struct Log {
    info: Arc<StreamInfo>,
    epoch: u64,
    events: VecDeque<Event>,
    bytes: usize,
    last: Option<Seq>,
    purged: Option<Seq>,
    sealed: bool,
    answers_lost: bool,
}

/// The state of a stored stream, without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The permanent data of the stream.
    pub info: Arc<StreamInfo>,
    /// The epoch of the last writer.
    pub epoch: u64,
    /// The last number appended.
    pub last: Option<Seq>,
    /// The highest evicted number, or the end of a gap in the store.
    pub purged: Option<Seq>,
    /// The oldest retained number.
    pub first_kept: Option<Seq>,
    /// Whether the stream has ended.
    pub sealed: bool,
    /// Whether an answer was evicted.
    pub answers_lost: bool,
    /// The node of the last writer. `None` in a store with one member.
    pub writer: Option<Incarnation>,
}

/// Events after a cursor, and the status of the stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The status of the stream when they were read.
    pub status: StreamStatus,
}

impl StreamStatus {
    /// The status of an empty stream.
    pub fn new(info: impl Into<Arc<StreamInfo>>, epoch: u64) -> Self {
        StreamStatus {
            info: info.into(),
            epoch,
            last: None,
            purged: None,
            first_kept: None,
            sealed: false,
            answers_lost: false,
            writer: None,
        }
    }
}

impl Page {
    /// Events in order, and the status of their stream when they were read.
    pub const fn new(events: Vec<Event>, status: StreamStatus) -> Self {
        Page { events, status }
    }

    /// Whether events after `cursor` are no longer retained.
    pub fn has_gap_after(&self, cursor: Seq) -> bool {
        retention::has_gap_after(cursor, self.status.purged)
    }
}

impl Log {
    /// An empty log.
    pub fn new(info: impl Into<Arc<StreamInfo>>, epoch: u64) -> Self {
        Log {
            info: info.into(),
            epoch,
            events: VecDeque::new(),
            bytes: 0,
            last: None,
            purged: None,
            sealed: false,
            answers_lost: false,
        }
    }

    /// Appends a batch if [`StreamEnd::admit`] accepts it. Repeating the last batch changes nothing. A batch with
    /// [`Batch::gap`] may skip numbers.
    pub fn append(&mut self, batch: Batch) -> Result<(), Refused> {
        if self.end().admit(&batch)? == Admission::Repeated {
            return Ok(());
        }
        self.epoch = batch.epoch;
        if let Some(gap) = batch.gap.filter(|gap| Some(*gap) > self.last) {
            self.last = Some(gap);
            self.purged = retention::evicted_up_to(self.purged, gap);
        }
        self.bytes += batch.events.iter().map(Event::cost).sum::<usize>();
        self.last = batch.events.last().map(|event| event.seq).or(self.last);
        if self.events.is_empty() {
            self.events = batch.events.into(); // reuses the allocation
        } else {
            self.events.extend(batch.events);
        }
        self.sealed |= batch.seals;
        if self.sealed {
            self.release(|event| event.retain == Retain::Question);
            self.events.shrink_to_fit();
        } else if !batch.released.is_empty() {
            self.release(|event| batch.released.contains(&event.seq));
        }
        Ok(())
    }

    /// Evicts the oldest events beyond `limits`, except retained ones (RES-08). Returns the number of evicted events.
    pub fn evict(&mut self, limits: &Retention) -> usize {
        let mut evicted = 0;
        while limits.is_exceeded(self.held())
            && let Some(at) = retention::next_victim(self.events.iter().map(|event| event.retain))
        {
            self.remove(at);
            evicted += 1;
        }
        evicted
    }

    /// Drops every event and leaves a tombstone: the info and the last number (D4). Returns the freed bytes.
    pub fn bury(&mut self) -> usize {
        let freed = self.bytes;
        while !self.events.is_empty() {
            self.remove(0);
        }
        self.events = VecDeque::new();
        freed
    }

    /// Up to `limit` events after `cursor`, and at most `bytes` of payload unless the first event alone is larger.
    pub fn read_after(&self, cursor: Seq, limit: usize, bytes: usize) -> Page {
        // No cursor precedes the priming event, so a replay skips it (STO-03).
        let start = self.events.partition_point(|event| event.seq <= cursor);
        let mut total = 0;
        let fits = |event: &&Event| {
            let first = total == 0;
            total += event.payload.len().max(1);
            first || total <= bytes
        };
        let events = self
            .events
            .range(start..)
            .take(limit)
            .take_while(fits)
            .cloned()
            .collect();
        Page {
            events,
            status: self.status(),
        }
    }

    /// The status of the stream.
    pub fn status(&self) -> StreamStatus {
        StreamStatus {
            info: Arc::clone(&self.info),
            epoch: self.epoch,
            last: self.last,
            purged: self.purged,
            first_kept: self.events.front().map(|event| event.seq),
            sealed: self.sealed,
            answers_lost: self.answers_lost,
            writer: None,
        }
    }

    /// Bytes held: payloads and bookkeeping.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the stream has ended.
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// The number of held events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether no event is held.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn held(&self) -> HeldAmount {
        HeldAmount {
            events: self.events.len(),
            bytes: self.bytes,
        }
    }

    fn end(&self) -> StreamEnd {
        StreamEnd {
            epoch: self.epoch,
            last: self.last,
            sealed: self.sealed,
        }
    }

    fn release(&mut self, which: impl Fn(&Event) -> bool) {
        for event in &mut self.events {
            if which(event) {
                event.retain = Retain::None;
            }
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(event) = self.events.remove(at) else {
            return;
        };
        self.bytes -= event.cost();
        self.answers_lost |= event.retain == Retain::Answer;
        self.purged = retention::evicted_up_to(self.purged, event.seq);
    }
}

impl Event {
    /// The cost against byte limits: its payload and its bookkeeping.
    pub fn cost(&self) -> usize {
        retention::event_cost(self.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_id::StreamKind;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn log() -> Log {
        let info = StreamInfo {
            kind: StreamKind::Call,
            calls: vec![7.into()],
            node: "n".into(),
        };
        Log::new(info, 1)
    }

    fn events(range: std::ops::Range<u64>) -> Vec<Event> {
        range.map(|n| Event::new(Seq(n), Bytes::from(n.to_string()))).collect()
    }

    fn batch(range: std::ops::Range<u64>) -> Batch {
        Batch {
            epoch: 1,
            info: None,
            events: events(range),
            released: Vec::new(),
            seals: false,
            taken: None,
            gap: None,
        }
    }

    fn seqs(page: &Page) -> Vec<u64> {
        page.events.iter().map(|event| event.seq.0).collect()
    }

    const KEEP_TEN: Retention = Retention {
        events: 10,
        bytes: usize::MAX,
        age: std::time::Duration::ZERO,
    };

    #[test]
    fn d2_numbers_must_follow_and_a_repeated_append_changes_nothing() {
        let mut log = log();
        log.append(batch(0..3)).unwrap();
        log.append(batch(0..3)).unwrap();
        assert_eq!(log.len(), 3);
        for wrong in [0..2, 1..2, 2..4, 4..5] {
            assert!(matches!(
                log.append(batch(wrong)),
                Err(Refused::Conflict {
                    epoch: 1,
                    last: Some(Seq(2))
                })
            ));
        }
        log.append(batch(3..4)).unwrap();
        let holed = Batch {
            events: [events(4..5), events(6..7)].concat(),
            ..batch(0..0)
        };
        assert!(log.append(holed).is_err());
    }

    #[test]
    fn d2_a_later_writer_fences_an_earlier_one() {
        let mut log = log();
        log.append(batch(1..2)).unwrap();
        log.append(Batch {
            epoch: 2,
            ..batch(2..3)
        })
        .unwrap();
        assert!(matches!(
            log.append(batch(3..4)),
            Err(Refused::Conflict { epoch: 2, .. })
        ));
    }

    #[test]
    fn d2_sealed_stream_refuses_appends() {
        let mut log = log();
        let last = || Batch {
            seals: true,
            ..batch(1..3)
        };
        log.append(last()).unwrap();
        log.append(last()).unwrap();
        log.append(Batch {
            seals: true,
            ..batch(0..0)
        })
        .unwrap();
        assert_eq!(log.append(batch(3..4)), Err(Refused::Sealed));
        assert_eq!(
            log.append(Batch {
                seals: true,
                ..batch(3..4)
            }),
            Err(Refused::Sealed)
        );
    }

    #[test]
    fn res_08_eviction_keeps_the_answer_and_the_newest() {
        let mut log = log();
        log.append(batch(0..51)).unwrap();
        log.evict(&KEEP_TEN);
        let mut answer = events(51..52);
        answer[0].retain = Retain::Answer;
        log.append(Batch {
            events: answer,
            seals: true,
            ..batch(0..0)
        })
        .unwrap();
        log.evict(&KEEP_TEN);
        let page = log.read_after(Seq(1), 100, usize::MAX);
        assert_eq!(seqs(&page), (42..52).collect::<Vec<_>>());
        assert!(page.has_gap_after(Seq(1)) && page.has_gap_after(Seq(40)) && !page.has_gap_after(Seq(41)));
        log.evict(&Retention { events: 0, ..KEEP_TEN });
        assert_eq!(seqs(&log.read_after(Seq(0), 9, usize::MAX)), [51]);
        assert!(!log.status().answers_lost);
    }

    #[test]
    fn d4_open_questions_are_not_evicted_until_they_are_settled() {
        let mut log = log();
        let mut asked = events(1..3);
        asked[0].retain = Retain::Question;
        log.append(Batch {
            events: asked,
            ..batch(0..0)
        })
        .unwrap();
        log.append(batch(3..40)).unwrap();
        log.evict(&KEEP_TEN);
        assert_eq!(seqs(&log.read_after(Seq(0), 1, usize::MAX)), [1]);
        log.append(Batch {
            released: vec![Seq(1)],
            ..batch(40..41)
        })
        .unwrap();
        log.evict(&KEEP_TEN);
        assert_eq!(seqs(&log.read_after(Seq(0), 1, usize::MAX)), [31]);
    }

    #[test]
    fn d4_tombstone_keeps_the_calls_of_its_stream() {
        let mut log = log();
        let mut answer = events(1..2);
        answer[0].retain = Retain::Answer;
        log.append(Batch {
            events: answer,
            seals: true,
            ..batch(0..0)
        })
        .unwrap();
        assert!(log.bury() > 0);
        let page = log.read_after(Seq(0), 9, usize::MAX);
        assert!(page.events.is_empty() && page.status.answers_lost && page.status.sealed);
        assert_eq!(page.status.info.calls, [7.into()]);
        assert_eq!(log.bytes(), 0);
    }

    #[test]
    fn pages_are_bounded_by_count_and_bytes() {
        let mut log = log();
        log.append(batch(1..100)).unwrap();
        assert_eq!(seqs(&log.read_after(Seq(10), 3, usize::MAX)), [11, 12, 13]);
        assert_eq!(seqs(&log.read_after(Seq(10), 99, 5)), [11, 12]);
        assert_eq!(
            seqs(&log.read_after(Seq(10), 99, 0)),
            [11],
            "a large event still makes progress"
        );
        assert_eq!(seqs(&log.read_after(Seq(99), 9, 9)), [0u64; 0]);
    }

    proptest! {
        /// Any cursor reads the retained events after it, in order and once, and learns of missing ones.
        #[test]
        fn oracle_cursor_sees_the_suffix_or_a_gap(
            appends in proptest::collection::vec(1u64..6, 1..40),
            keep in 1usize..30,
            cursor in 0u64..100,
            page_size in 1usize..7,
        ) {
            let mut log = log();
            let mut next = 1;
            for n in appends {
                log.append(batch(next..next + n)).unwrap();
                next += n;
                log.evict(&Retention { events: keep, bytes: usize::MAX, age: std::time::Duration::ZERO });
            }
            let last = next - 1;
            let cursor = cursor.min(last);
            let (mut at, mut seen, mut gap) = (Seq(cursor), Vec::new(), false);
            loop {
                let page = log.read_after(at, page_size, usize::MAX);
                gap |= page.has_gap_after(at);
                let Some(end) = page.events.last() else { break };
                at = end.seq;
                seen.extend(seqs(&page));
            }
            let first_kept = last + 1 - (keep as u64).min(last);
            prop_assert_eq!(seen, (first_kept.max(cursor + 1)..=last).collect::<Vec<_>>());
            prop_assert_eq!(gap, cursor + 1 < first_kept);
        }
    }
}
