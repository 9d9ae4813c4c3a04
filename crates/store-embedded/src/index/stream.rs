//! One stream in the index: its status and the locations of its events.

use super::segments::Segments;
use crate::group::Location;
use crate::record::{NewEvent, Part};
use crate::watches::Watches;
use rethread_proto::clock::Wall;
use rethread_proto::stream::StreamEnd;
use rethread_proto::stream::retention::{self, HeldAmount, STREAM_OVERHEAD_BYTES};
use rethread_store::{Retain, Retention, Seq, StreamInfo, StreamStatus};
use std::collections::VecDeque;
use std::sync::Arc;

/// A stream. Behaves like [`Log`](rethread_proto::stream::Log), with locations instead of payloads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stream {
    pub(crate) info: Arc<StreamInfo>,
    pub(crate) epoch: u64,
    pub(crate) last: Option<Seq>,
    pub(crate) purged: Option<Seq>,
    pub(crate) ended: Option<Ended>,
    pub(crate) answers_lost: bool,
    /// Whether it is a tombstone.
    pub(crate) buried: bool,
    /// The first and the last damaged event. A damaged stream refuses appends.
    pub(crate) damaged: Option<Box<(Seq, Seq)>>,
    /// The cost of the held events.
    pub(crate) bytes: u64,
    /// The held events, in order.
    pub(crate) events: VecDeque<HeldEvent>,
    /// The commit of the last change. A read waits for it.
    pub(crate) changed: u64,
    pub(crate) watches: Watches,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) at: Wall,
    /// Unique in the store. Later ends have higher tickets.
    pub(crate) ticket: u64,
}

/// A held event. Its payload is in the log. A million of these may be in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeldEvent {
    pub(crate) seq: Seq,
    pub(crate) retain: Retain,
    pub(crate) at: Location,
    pub(crate) part: Part,
}

impl Stream {
    pub(crate) fn new(info: Arc<StreamInfo>, epoch: u64) -> Self {
        Stream {
            info,
            epoch,
            last: None,
            purged: None,
            ended: None,
            answers_lost: false,
            buried: false,
            damaged: None,
            bytes: 0,
            events: VecDeque::new(),
            changed: 0,
            watches: Watches::default(),
        }
    }

    pub(crate) fn end(&self) -> StreamEnd {
        StreamEnd {
            epoch: self.epoch,
            last: self.last,
            sealed: self.ended.is_some(),
        }
    }

    pub(crate) fn status(&self) -> StreamStatus {
        let mut status = StreamStatus::new(Arc::clone(&self.info), self.epoch);
        status.last = self.last;
        status.purged = self.purged;
        status.first_kept = self.events.front().map(|event| event.seq);
        status.sealed = self.ended.is_some();
        status.answers_lost = self.answers_lost;
        status
    }

    /// The cost against the total: events, info and bookkeeping.
    pub(crate) fn cost(&self) -> u64 {
        self.bytes + (STREAM_OVERHEAD_BYTES + self.info.cost()) as u64
    }

    /// Adds events with payloads from `at` on. The caller has checked that their numbers continue the stream.
    pub(crate) fn append(&mut self, first: Seq, events: &[NewEvent], mut at: Location, segments: &mut Segments) {
        for (NewEvent { retain, part }, seq) in events.iter().copied().zip(first.0..) {
            let seq = Seq(seq);
            self.last = Some(seq);
            self.bytes += cost(part);
            segments.add(at.segment, part);
            self.events.push_back(HeldEvent { seq, retain, at, part });
            at = at.plus(part.len as usize);
        }
    }

    /// Ends the stream. Its questions are released.
    pub(crate) fn seal(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.watches = Watches::default();
        self.release(|event| event.retain == Retain::Question);
        self.events.shrink_to_fit();
    }

    /// Releases retained events.
    pub(crate) fn release(&mut self, which: impl Fn(&HeldEvent) -> bool) {
        for event in self.events.iter_mut().filter(|event| which(event)) {
            event.retain = Retain::None;
        }
    }

    /// Evicts the oldest events beyond `limits`, except retained ones, as
    /// [`Log::evict`](rethread_proto::stream::Log::evict). Returns the evicted numbers as ranges.
    pub(crate) fn evict(&mut self, limits: &Retention, segments: &mut Segments) -> Vec<(Seq, u64)> {
        let mut ranges: Vec<(Seq, u64)> = Vec::new();
        while limits.is_exceeded(HeldAmount::new(self.events.len(), self.bytes as usize))
            && let Some(at) = retention::next_victim(self.events.iter().map(|event| event.retain))
        {
            let seq = self.events[at].seq;
            self.remove(seq, segments);
            match ranges.last_mut() {
                Some((first, count)) if first.0 + *count == seq.0 => *count += 1,
                _ => ranges.push((seq, 1)),
            }
        }
        ranges
    }

    /// The index of a held event.
    pub(crate) fn find(&self, seq: Seq) -> Option<usize> {
        self.events.binary_search_by_key(&seq, |event| event.seq).ok()
    }

    /// Removes an event. False if it is not held.
    pub(crate) fn remove(&mut self, seq: Seq, segments: &mut Segments) -> bool {
        let Some(event) = self.find(seq).and_then(|index| self.events.remove(index)) else {
            return false;
        };
        segments.sub(event.at.segment, event.part);
        self.answers_lost |= event.retain == Retain::Answer;
        self.bytes -= cost(event.part);
        self.purged = retention::evicted_up_to(self.purged, seq);
        true
    }

    /// Removes every event and leaves a tombstone.
    pub(crate) fn bury(&mut self, segments: &mut Segments) {
        while let Some(event) = self.events.front() {
            self.remove(event.seq, segments);
        }
        self.events = VecDeque::new();
        self.buried = true;
    }

    /// Counts the events as dead in their segments, before the stream is dropped.
    pub(crate) fn release_segments(&self, segments: &mut Segments) {
        for event in &self.events {
            segments.sub(event.at.segment, event.part);
        }
    }

    /// The held events after `cursor`, in order.
    pub(crate) fn held_after(&self, cursor: Seq) -> impl Iterator<Item = HeldEvent> + '_ {
        let start = self.events.partition_point(|event| event.seq <= cursor);
        self.events.range(start..).copied()
    }
}

fn cost(part: Part) -> u64 {
    retention::event_cost(part.len as usize) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::StreamKind;

    /// A million of them are in memory.
    #[test]
    fn held_event_takes_32_bytes() {
        assert_eq!(size_of::<HeldEvent>(), 32);
    }

    /// The same as `Log::bury` of the memory store.
    #[test]
    fn d4_tombstone_tells_that_an_answer_is_lost() {
        for (retain, lost) in [(Retain::Answer, true), (Retain::Question, false)] {
            let info = StreamInfo::new(StreamKind::Call, vec![7.into()], "test");
            let (mut stream, mut segments) = (Stream::new(Arc::new(info), 1), Segments::default());
            let (at, first) = (Location { segment: 1, offset: 64 }, Seq(1));
            let part = Part { len: 10, crc: 0 };
            stream.append(first, &[NewEvent { retain, part }], at, &mut segments);
            stream.bury(&mut segments);
            let status = stream.status();
            assert_eq!((status.answers_lost, status.first_kept), (lost, None), "{retain:?}");
            assert_eq!(segments.get(1).live, 0);
        }
    }
}
