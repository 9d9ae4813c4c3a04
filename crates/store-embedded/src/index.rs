//! The index: the state of the store, with locations in the log instead of payloads.
//!
//! Pure, except that an append wakes the watches of its stream. A running store and a replay both change it with
//! [`Index::apply`], so a restart restores the same state. Limits and clocks decide which records are written, never the
//! effect of a record. So a replay with other limits has the same result.

pub(crate) mod segments;
pub(crate) mod session;
pub(crate) mod stream;

use crate::group::Location;
use crate::record::{Append, Item, Record};
use crate::watches::Watches;
use foldhash::fast::RandomState;
use rethread_proto::clock::Wall;
use rethread_store::{Ordinal, Retention, Seq, SessionKey, StreamKey};
use segments::Segments;
use session::{Blob, Session};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use stream::{Ended, Stream};

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    keys: HashMap<SessionKey, u64, RandomState>,
    pub(crate) sessions: HashMap<u64, Session, RandomState>,
    pub(crate) segments: Segments,
    /// Ended streams in the order of their end: first those with events, then the tombstones. An entry may be outdated.
    ended: [VecDeque<EndedStream>; 2],
    pub(crate) totals: Totals,
    pub(crate) next_session: u64,
    pub(crate) next_ticket: u64,
}

/// A reference to an ended stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EndedStream {
    pub(crate) session: u64,
    pub(crate) ordinal: Ordinal,
    ticket: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes of payload and bookkeeping.
    pub(crate) held: u64,
    /// The part of `held` that belongs to push queues.
    pub(crate) queued: u64,
    pub(crate) streams: u64,
}

/// The place of a part in the index.
struct Slot<'a> {
    at: &'a mut Location,
    /// The commit of the last change of its stream or session. Reads wait for it.
    changed: &'a mut u64,
}

/// A record contradicts the state before it. The log is damaged, or this crate has a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistent(pub(crate) &'static str);

/// Outdated entries of `ended` that are tolerated in addition to the number of streams.
const MAX_OUTDATED: usize = 1024;

impl Index {
    pub(crate) fn session_number(&self, key: &SessionKey) -> Option<u64> {
        self.keys.get(key).copied()
    }

    pub(crate) fn session(&self, key: &SessionKey) -> Option<&Session> {
        self.sessions.get(&self.session_number(key)?)
    }

    pub(crate) fn stream(&self, session: u64, ordinal: Ordinal) -> Option<&Stream> {
        self.sessions.get(&session)?.stream(ordinal)
    }

    /// The watches of a stream that can grow.
    pub(crate) fn watches(&mut self, key: &StreamKey) -> Option<&mut Watches> {
        let session = self.session_number(&key.session)?;
        let stream = self.sessions.get_mut(&session)?.stream_mut(key.ordinal)?;
        stream.ended.is_none().then_some(&mut stream.watches)
    }

    /// Removes the watches of all streams.
    pub(crate) fn take_watches(&mut self) -> HashMap<StreamKey, Watches> {
        let mut taken = HashMap::new();
        for Session { key, streams, .. } in self.sessions.values_mut() {
            for (ordinal, stream) in streams.iter_mut().filter(|(_, stream)| stream.watches.any()) {
                let (session, ordinal) = (key.clone(), *ordinal);
                taken.insert(StreamKey { session, ordinal }, std::mem::take(&mut stream.watches));
            }
        }
        taken
    }

    /// Applies a record whose body is at `at`.
    pub(crate) fn apply(&mut self, record: Record, at: Location) -> Result<(), Inconsistent> {
        let commit = self.segments.commit;
        match record {
            Record::Create {
                session: number,
                key,
                at: touched,
                epoch,
                body,
            } => {
                if let Some(replaced) = self.session_number(&key) {
                    self.drop_session(replaced);
                }
                self.next_session = self.next_session.max(number + 1);
                self.totals.held += Session::record_cost(body);
                self.segments.add(at.segment, body);
                let mut session = Session::new(key, Blob { at, part: body }, epoch, touched);
                session.changed = commit;
                self.insert_session(number, session);
            }
            Record::Update {
                session,
                at: touched,
                epoch,
                body,
            } => {
                let (session, segments, totals) = self.parts(session)?;
                totals.held += Session::record_cost(body);
                totals.held -= Session::record_cost(session.record.part);
                segments.sub(session.record.at.segment, session.record.part);
                segments.add(at.segment, body);
                session.record = Blob { at, part: body };
                (session.epoch, session.touched, session.changed) = (epoch, touched, commit);
            }
            Record::Touch { session, at } => {
                let (session, ..) = self.parts(session)?;
                (session.touched, session.changed) = (at, commit);
            }
            Record::End { session } => {
                self.parts(session)?;
                self.drop_session(session);
            }
            Record::Append { append } => self.append(append, at)?,
            Record::Evict {
                session,
                ordinal,
                ranges,
            } => {
                let (stream, segments, totals) = self.stream_parts(session, ordinal)?;
                let before = stream.bytes;
                for (first, count) in ranges {
                    for seq in first.0..first.0.saturating_add(count) {
                        if !stream.remove(Seq(seq), segments) {
                            return Err(Inconsistent("an evicted event is not held"));
                        }
                    }
                }
                totals.held -= before - stream.bytes;
                stream.changed = commit;
            }
            Record::Bury { session, ordinal } => {
                let (stream, segments, totals) = self.stream_parts(session, ordinal)?;
                totals.held -= stream.bytes;
                stream.bury(segments);
                stream.changed = commit;
                let ended = stream.ended.ok_or(Inconsistent("a tombstone has not ended"))?;
                self.push_ended(true, session, ordinal, ended.ticket);
            }
            Record::ForgetStream { session, ordinal } => {
                self.forget_stream(session, ordinal)?;
                self.oldest_ended(false); // removes outdated entries, so that they do not pile up
            }
            Record::ForgetSession { session } => {
                let (session, segments, totals) = self.parts(session)?;
                forget_content(session, segments, totals);
                session.changed = commit;
            }
            Record::Queue {
                session,
                floor,
                messages,
            } => {
                let (session, segments, totals) = self.parts(session)?;
                let mut at = at;
                session.change_queue(totals, |queue| {
                    queue.raise_floor(floor, segments);
                    for message in messages {
                        queue.add(message, at, segments);
                        at = at.plus(message.body.len as usize);
                    }
                });
                session.changed = commit;
            }
            Record::Move { parts } => {
                let mut at = at;
                for (item, part) in parts {
                    let held = self.slot(item).ok_or(Inconsistent("a moved part is not held"))?;
                    let from = std::mem::replace(held.at, at);
                    *held.changed = commit;
                    self.segments.sub(from.segment, part);
                    self.segments.add(at.segment, part);
                    at = at.plus(part.len as usize);
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, append: Append, at: Location) -> Result<(), Inconsistent> {
        let (commit, ticket) = (self.segments.commit, self.next_ticket);
        let (number, ordinal, sealed_at) = (append.session, append.ordinal, append.sealed_at);
        let (session, segments, totals) = self.parts(number)?;
        let index = match (session.find(ordinal), append.info) {
            (Ok(index), _) => index,
            (Err(index), Some(info)) => {
                let stream = Box::new(Stream::new(info, append.epoch));
                totals.held += stream.cost();
                totals.streams += 1;
                session.streams.insert(index, (ordinal, stream));
                session.high_water = session.high_water.max(ordinal);
                index
            }
            (Err(_), None) => return Err(Inconsistent("an append has no stream")),
        };
        let stream = &mut session.streams[index].1;
        (stream.epoch, stream.changed) = (append.epoch, commit);
        let before = stream.bytes;
        if sealed_at.is_some() {
            stream.events.reserve_exact(append.events.len()); // no more follow
        }
        stream.append(append.first, &append.events, at, segments);
        totals.held += stream.bytes - before;
        stream.watches.wake();
        if let Some(at) = sealed_at {
            stream.seal(Ended { at, ticket });
            session.ended.push_back(ordinal);
        } else if !append.released.is_empty() {
            stream.release(|event| append.released.contains(&event.seq));
        }
        if let Some(floor) = append.taken {
            session.change_queue(totals, |queue| queue.raise_floor(floor, segments));
            session.changed = commit;
        }
        if sealed_at.is_some() {
            self.next_ticket += 1;
            self.push_ended(false, number, ordinal, ticket);
            for ordinal in append.forgotten {
                self.forget_stream(number, ordinal)?;
            }
            self.oldest_ended(false);
            self.drop_outdated();
        }
        Ok(())
    }

    fn forget_stream(&mut self, session: u64, ordinal: Ordinal) -> Result<(), Inconsistent> {
        let commit = self.segments.commit;
        let (session, segments, totals) = self.parts(session)?;
        let found = session.find(ordinal).ok().and_then(|at| session.streams.remove(at));
        let (_, stream) = found.ok_or(Inconsistent("a forgotten stream is unknown"))?;
        if let Some(ended) = session.ended.iter().position(|ended| *ended == ordinal) {
            session.ended.remove(ended); // cheap: the oldest ended streams are forgotten first
        }
        session.changed = commit;
        forget(&stream, segments, totals);
        Ok(())
    }

    /// Evicts events of a stream beyond `limits`. Returns the evicted numbers, to be logged.
    pub(crate) fn evict(&mut self, session: u64, ordinal: Ordinal, limits: &Retention) -> Vec<(Seq, u64)> {
        let commit = self.segments.commit;
        let Ok((stream, segments, totals)) = self.stream_parts(session, ordinal) else {
            return Vec::new();
        };
        let before = stream.bytes;
        let ranges = stream.evict(limits, segments);
        totals.held -= before - stream.bytes;
        if !ranges.is_empty() {
            stream.changed = commit;
        }
        ranges
    }

    /// The held events in a segment.
    pub(crate) fn events_in(&self, segment: u32) -> Vec<Item> {
        let mut found = Vec::new();
        for (number, session) in &self.sessions {
            for (ordinal, stream) in &session.streams {
                let events = stream.events.iter().filter(|event| event.at.segment == segment);
                found.extend(events.map(|event| Item::Event(*number, *ordinal, event.seq)));
            }
        }
        found
    }

    /// Marks the stream of a damaged event. Only reads detect a damaged session record or message.
    pub(crate) fn mark_damaged(&mut self, item: Item) {
        if let Item::Event(session, ordinal, seq) = item
            && let Ok((stream, ..)) = self.stream_parts(session, ordinal)
        {
            let known = stream.damaged.get_or_insert_with(|| Box::new((seq, seq)));
            **known = (known.0.min(seq), known.1.max(seq));
        }
    }

    /// The location of a part that the index refers to.
    pub(crate) fn locate(&mut self, item: Item) -> Option<Location> {
        self.slot(item).map(|slot| *slot.at)
    }

    fn slot(&mut self, item: Item) -> Option<Slot<'_>> {
        let (Item::Record(session) | Item::Event(session, ..) | Item::Message(session, _)) = item;
        let session = self.sessions.get_mut(&session)?;
        let (at, changed) = match item {
            Item::Record(_) => (&mut session.record.at, &mut session.changed),
            Item::Event(_, ordinal, seq) => {
                let stream = session.stream_mut(ordinal)?;
                let index = stream.find(seq)?;
                (&mut stream.events[index].at, &mut stream.changed)
            }
            Item::Message(_, position) => {
                let queue = session.queue.as_mut()?;
                let index = queue.find(position).ok()?;
                (&mut queue.messages[index].1, &mut session.changed)
            }
        };
        Some(Slot { at, changed })
    }

    /// A session, and the counters that its changes update.
    fn parts(&mut self, session: u64) -> Result<(&mut Session, &mut Segments, &mut Totals), Inconsistent> {
        let session = self
            .sessions
            .get_mut(&session)
            .ok_or(Inconsistent("the session is unknown"))?;
        Ok((session, &mut self.segments, &mut self.totals))
    }

    /// A stream, and the counters that its changes update.
    fn stream_parts(
        &mut self,
        session: u64,
        ordinal: Ordinal,
    ) -> Result<(&mut Stream, &mut Segments, &mut Totals), Inconsistent> {
        let (session, segments, totals) = self.parts(session)?;
        let stream = session
            .stream_mut(ordinal)
            .ok_or(Inconsistent("the stream is unknown"))?;
        Ok((stream, segments, totals))
    }

    /// Adds a session whose streams and queue are counted already.
    fn insert_session(&mut self, number: u64, session: Session) {
        self.keys.insert(session.key.clone(), number);
        self.sessions.insert(number, session);
    }

    /// Adds a session of a checkpoint, with everything in it.
    pub(crate) fn restore_session(&mut self, number: u64, session: Session) {
        self.totals.held += Session::record_cost(session.record.part) + session.queue_cost();
        self.totals.queued += session.queue_cost();
        self.segments.add(session.record.at.segment, session.record.part);
        for (ordinal, stream) in &session.streams {
            self.totals.held += stream.cost();
            self.totals.streams += 1;
            for event in &stream.events {
                self.segments.add(event.at.segment, event.part);
            }
            if let Some(Ended { ticket, .. }) = stream.ended {
                self.push_ended(stream.buried, number, *ordinal, ticket);
            }
        }
        for (message, at) in session.queue.iter().flat_map(|queue| &queue.messages) {
            self.segments.add(at.segment, message.body);
        }
        self.insert_session(number, session);
    }

    /// Puts the ended streams of a checkpoint in order.
    pub(crate) fn sort_ended(&mut self) {
        for queue in &mut self.ended {
            queue.make_contiguous().sort_unstable_by_key(|ended| ended.ticket);
        }
    }

    fn drop_session(&mut self, number: u64) {
        let Some(mut session) = self.sessions.remove(&number) else {
            return;
        };
        self.keys.remove(&session.key);
        self.totals.held -= Session::record_cost(session.record.part);
        self.segments.sub(session.record.at.segment, session.record.part);
        forget_content(&mut session, &mut self.segments, &mut self.totals);
    }

    fn push_ended(&mut self, buried: bool, session: u64, ordinal: Ordinal, ticket: u64) {
        self.ended[usize::from(buried)].push_back(EndedStream {
            session,
            ordinal,
            ticket,
        });
    }

    /// The tombstone, or the other stream, that ended first.
    pub(crate) fn oldest_ended(&mut self, buried: bool) -> Option<EndedStream> {
        while let Some(ended) = self.ended[usize::from(buried)].front().copied() {
            if self.is_current(ended, buried) {
                return Some(ended);
            }
            self.ended[usize::from(buried)].pop_front();
        }
        None
    }

    /// A stream that ended at least `age` ago.
    pub(crate) fn next_aged(&mut self, now: Wall, age: Duration) -> Option<EndedStream> {
        let oldest = [self.oldest_ended(false), self.oldest_ended(true)];
        let is_aged = |ended: &EndedStream| {
            let end = self.stream(ended.session, ended.ordinal)?.ended?;
            Some(now.since(end.at) >= age)
        };
        oldest.into_iter().flatten().find(|ended| is_aged(ended) == Some(true))
    }

    fn is_current(&self, ended: EndedStream, buried: bool) -> bool {
        let stream = self.stream(ended.session, ended.ordinal);
        let stream = stream.filter(|stream| stream.buried == buried);
        stream
            .and_then(|stream| stream.ended)
            .is_some_and(|end| end.ticket == ended.ticket)
    }

    /// Removes outdated entries when most entries are outdated.
    fn drop_outdated(&mut self) {
        if self.ended.iter().map(VecDeque::len).sum::<usize>() > 2 * self.totals.streams as usize + MAX_OUTDATED {
            for buried in [false, true] {
                let mut queue = std::mem::take(&mut self.ended[usize::from(buried)]);
                queue.retain(|ended| self.is_current(*ended, buried));
                self.ended[usize::from(buried)] = queue;
            }
        }
    }
}

impl Totals {
    pub(crate) fn change_queue(&mut self, before: u64, after: u64) {
        self.held = self.held + after - before;
        self.queued = self.queued + after - before;
    }
}

/// Subtracts a removed stream from the counters.
fn forget(stream: &Stream, segments: &mut Segments, totals: &mut Totals) {
    stream.release_segments(segments);
    totals.held -= stream.cost();
    totals.streams -= 1;
}

/// Removes the streams and the push queue of a session.
fn forget_content(session: &mut Session, segments: &mut Segments, totals: &mut Totals) {
    for (_, stream) in session.streams.drain(..) {
        forget(&stream, segments, totals);
    }
    session.ended = VecDeque::new();
    if let Some(queue) = session.queue.take() {
        totals.change_queue(queue.cost, 0);
        queue.release_segments(segments);
    }
}

#[cfg(test)]
mod tests;
