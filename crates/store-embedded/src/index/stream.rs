//! One stream in the index: its status and the locations of its events.

use super::segments::Segments;
use crate::group::Location;
use crate::record::{Part, Run};
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
    /// Held events.
    pub(crate) count: usize,
    /// The cost of the held events.
    pub(crate) bytes: u64,
    /// All events from here on are held. Below, only the events in `marked` are held.
    pub(crate) floor: Seq,
    /// Retained events and all held events below the floor. Sorted.
    pub(crate) marked: Vec<(Seq, Retain)>,
    /// The locations of the events, in order. Each extent has at least one held event.
    pub(crate) extents: VecDeque<Extent>,
    /// The commit of the last change. A read waits for it.
    pub(crate) changed: u64,
}

/// The events of one record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extent {
    /// The location of the first payload.
    pub(crate) at: Location,
    pub(crate) run: Run,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) at: Wall,
    /// Unique in the store. Later ends have higher tickets.
    pub(crate) ticket: u64,
}

/// The location of a held event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EventLocation {
    pub(crate) seq: Seq,
    pub(crate) retain: Retain,
    pub(crate) at: Location,
    pub(crate) part: Part,
}

impl Extent {
    /// Every event with its number, location and part.
    fn events(&self) -> impl Iterator<Item = (Seq, Location, Part)> + '_ {
        let mut at = self.at;
        let parts = self.run.parts.iter().zip(self.run.first.0..);
        parts.map(move |(part, seq)| {
            let event = (Seq(seq), at, *part);
            at = at.plus(part.len as usize);
            event
        })
    }
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
            count: 0,
            bytes: 0,
            floor: Seq::PRIMING,
            marked: Vec::new(),
            extents: VecDeque::new(),
            changed: 0,
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
        status.first_kept = self.held_after(None).next().map(|event| event.seq);
        status.sealed = self.ended.is_some();
        status.answers_lost = self.answers_lost;
        status
    }

    /// The cost against the total: events, info and bookkeeping.
    pub(crate) fn cost(&self) -> u64 {
        self.bytes + (STREAM_OVERHEAD_BYTES + self.info.cost()) as u64
    }

    /// Adds events with payloads from `at` on. The caller has checked that their numbers continue the stream.
    pub(crate) fn append(&mut self, run: Run, at: Location, segments: &mut Segments) {
        if run.parts.is_empty() {
            return;
        }
        if self.last.is_none() {
            self.floor = run.first;
        }
        self.last = Some(run.last());
        self.count += run.parts.len();
        for part in &*run.parts {
            self.bytes += cost(*part);
            segments.add(at.segment, *part);
        }
        if self.extents.is_empty() {
            self.extents.reserve_exact(1); // most streams have one extent
        }
        self.extents.push_back(Extent { at, run });
    }

    /// Marks retained events, which are later than all marked ones.
    pub(crate) fn retain(&mut self, retained: Vec<(Seq, Retain)>) {
        if self.marked.is_empty() {
            self.marked = retained;
        } else {
            self.marked.extend(retained);
        }
    }

    /// Ends the stream. Its questions are released.
    pub(crate) fn seal(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.release(|_, retain| retain == Retain::Question);
        self.extents.shrink_to_fit();
        self.marked.shrink_to_fit();
    }

    /// Releases retained events. Events below the floor stay until they are evicted.
    pub(crate) fn release(&mut self, which: impl Fn(Seq, Retain) -> bool) {
        let floor = self.floor;
        self.marked.retain_mut(|(seq, retain)| {
            if which(*seq, *retain) {
                *retain = Retain::None;
            }
            *retain != Retain::None || *seq < floor
        });
    }

    /// Evicts the oldest events beyond `limits`, except retained ones, as
    /// [`Log::evict`](rethread_proto::stream::Log::evict). Returns the evicted numbers as ranges.
    pub(crate) fn evict(&mut self, limits: &Retention, segments: &mut Segments) -> Vec<(Seq, u64)> {
        let mut ranges: Vec<(Seq, u64)> = Vec::new();
        while limits.is_exceeded(HeldAmount::new(self.count, self.bytes as usize))
            && let Some(seq) = self.next_victim()
        {
            self.remove(seq, segments);
            match ranges.last_mut() {
                Some((first, count)) if first.0 + *count == seq.0 => *count += 1,
                _ => ranges.push((seq, 1)),
            }
        }
        ranges
    }

    /// The oldest held event that is not retained. The newest event is never evicted.
    fn next_victim(&self) -> Option<Seq> {
        let last = self.last?;
        let below = self.marked.iter().take_while(|(seq, _)| *seq < self.floor);
        let mut released = below.filter(|(_, retain)| retention::may_be_evicted(*retain));
        let oldest = released.next().map(|(seq, _)| *seq).unwrap_or_else(|| {
            let mut seq = self.floor;
            while self.mark(seq).is_some() {
                seq = seq.next();
            }
            seq
        });
        (oldest < last).then_some(oldest)
    }

    fn mark(&self, seq: Seq) -> Option<Retain> {
        let at = self.marked.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(self.marked[at].1)
    }

    fn is_held(&self, seq: Seq) -> bool {
        seq >= self.floor || self.mark(seq).is_some()
    }

    /// Removes an event. False if it is not held.
    pub(crate) fn remove(&mut self, seq: Seq, segments: &mut Segments) -> bool {
        let Some(at) = self.extent_with(seq).filter(|_| self.is_held(seq)) else {
            return false;
        };
        let extent = &self.extents[at];
        let part = extent.run.parts[(seq.0 - extent.run.first.0) as usize];
        segments.sub(extent.at.segment, part);
        if let Ok(marked) = self.marked.binary_search_by_key(&seq, |(seq, _)| *seq) {
            let (_, retain) = self.marked.remove(marked);
            self.answers_lost |= retain == Retain::Answer;
        }
        self.floor = self.floor.max(seq.next());
        self.count -= 1;
        self.bytes -= cost(part);
        self.purged = retention::evicted_up_to(self.purged, seq);
        let extent = &self.extents[at];
        let (first, last) = (extent.run.first, extent.run.last());
        if last < self.floor && !self.marked.iter().any(|(seq, _)| (first..=last).contains(seq)) {
            self.extents.remove(at);
        }
        true
    }

    fn extent_with(&self, seq: Seq) -> Option<usize> {
        let at = self
            .extents
            .partition_point(|extent| extent.run.first <= seq)
            .checked_sub(1)?;
        (seq <= self.extents[at].run.last()).then_some(at)
    }

    /// Removes every event and leaves a tombstone.
    pub(crate) fn bury(&mut self, segments: &mut Segments) {
        self.release_segments(segments); // first, because it reads the floor and the marks
        if let Some(last) = self.last.filter(|_| self.count > 0) {
            self.purged = retention::evicted_up_to(self.purged, last);
            self.floor = last.next();
        }
        self.answers_lost |= self.marked.iter().any(|(_, retain)| *retain == Retain::Answer);
        self.extents = VecDeque::new();
        self.marked = Vec::new();
        (self.count, self.bytes) = (0, 0);
        self.buried = true;
    }

    /// Counts the events as dead in their segments, before the stream is dropped or emptied.
    pub(crate) fn release_segments(&self, segments: &mut Segments) {
        for event in self.held_after(None) {
            segments.sub(event.at.segment, event.part);
        }
    }

    /// The held events after `cursor`, in order.
    pub(crate) fn held_after(&self, cursor: Option<Seq>) -> impl Iterator<Item = EventLocation> + '_ {
        let is_after = move |seq: Seq| cursor.is_none_or(|cursor| seq > cursor);
        let start = self.extents.partition_point(|extent| !is_after(extent.run.last()));
        let events = self.extents.range(start..).flat_map(Extent::events);
        events
            .filter(move |(seq, ..)| is_after(*seq) && self.is_held(*seq))
            .map(|(seq, at, part)| EventLocation {
                seq,
                retain: self.mark(seq).unwrap_or_default(),
                at,
                part,
            })
    }

    /// The held events of the extent that begins with `first` at `at`. Empty if there is no such extent.
    pub(crate) fn held_in(&self, first: Seq, at: Location) -> Vec<(Seq, Location, Part)> {
        let found = self.extent_with(first).map(|index| &self.extents[index]);
        let found = found.filter(|extent| extent.run.first == first && extent.at == at);
        let events = found.into_iter().flat_map(Extent::events);
        events.filter(|(seq, ..)| self.is_held(*seq)).collect()
    }

    /// Replaces an extent by copies of its held events, which begin at `at`. False if there is no such extent.
    pub(crate) fn relocate(&mut self, first: Seq, runs: Vec<Run>, mut at: Location, segments: &mut Segments) -> bool {
        let Some(index) = self
            .extent_with(first)
            .filter(|index| self.extents[*index].run.first == first)
        else {
            return false;
        };
        for (_, at, part) in self.held_in(first, self.extents[index].at) {
            segments.sub(at.segment, part);
        }
        self.extents.remove(index);
        for (run, index) in runs.into_iter().zip(index..) {
            let start = at;
            for part in &*run.parts {
                segments.add(at.segment, *part);
                at = at.plus(part.len as usize);
            }
            self.extents.insert(index, Extent { at: start, run });
        }
        true
    }
}

fn cost(part: Part) -> u64 {
    retention::event_cost(part.len as usize) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Parts;
    use rethread_proto::StreamKind;

    /// The same as `Log::bury` of the memory store.
    #[test]
    fn d4_tombstone_tells_that_an_answer_is_lost() {
        for (retain, lost) in [(Retain::Answer, true), (Retain::Question, false)] {
            let info = StreamInfo::new(StreamKind::Call, vec![7.into()], "test");
            let (mut stream, mut segments) = (Stream::new(Arc::new(info), 1), Segments::default());
            let (at, first) = (Location { segment: 1, offset: 64 }, Seq(1));
            let run = Run {
                first,
                parts: Parts::One(Part { len: 10, crc: 0 }),
            };
            stream.append(run, at, &mut segments);
            stream.marked.push((first, retain));
            stream.bury(&mut segments);
            let status = stream.status();
            assert_eq!((status.answers_lost, status.first_kept), (lost, None), "{retain:?}");
            assert_eq!(segments.get(1).live, 0);
        }
    }
}
