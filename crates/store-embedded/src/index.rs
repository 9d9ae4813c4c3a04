//! The index: the state of the store, with locations in the log instead of payloads.
//!
//! Pure. A running store and a replay both change it with [`Index::apply`], so a restart restores the same state.
//! Limits and clocks decide which records are written, never the effect of a record. So a replay with other limits has
//! the same result.

pub(crate) mod segments;
pub(crate) mod session;
pub(crate) mod stream;

use crate::group::Location;
use crate::record::{Append, Record};
use foldhash::fast::RandomState;
use rethread_proto::clock::Wall;
use rethread_store::{Ordinal, Retention, Seq, SessionKey};
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
    /// Ended streams with events, in the order of their end. An entry may be outdated.
    whole: VecDeque<EndedStream>,
    /// Tombstones, in the same order.
    tombs: VecDeque<EndedStream>,
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

/// A record contradicts the state before it. The log is damaged, or this crate has a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistent(pub(crate) &'static str);

/// Outdated entries of `whole` and `tombs` that are tolerated in addition to the number of streams.
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

    /// Whether a stream is known and has not ended.
    pub(crate) fn can_grow(&self, session: &SessionKey, ordinal: Ordinal) -> bool {
        let stream = self.session(session).and_then(|session| session.stream(ordinal));
        stream.is_some_and(|stream| stream.ended.is_none())
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
                self.tombs.push_back(EndedStream {
                    session,
                    ordinal,
                    ticket: ended.ticket,
                });
            }
            Record::ForgetStream { session, ordinal } => {
                let (session, segments, totals) = self.parts(session)?;
                let found = session.find(ordinal).ok().and_then(|at| session.streams.remove(at));
                let (_, stream) = found.ok_or(Inconsistent("a forgotten stream is unknown"))?;
                if let Some(ended) = session.ended.iter().position(|ended| *ended == ordinal) {
                    session.ended.remove(ended); // cheap: the oldest ended streams are forgotten first
                }
                session.changed = commit;
                forget(&stream, segments, totals);
                self.oldest_whole(); // removes outdated entries, so that they do not pile up
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
            Record::Move {
                session,
                ordinal,
                extent,
                runs,
            } => {
                let (stream, segments, _) = self.stream_parts(session, ordinal)?;
                if !stream.relocate(extent, runs, at, segments) {
                    return Err(Inconsistent("moved events are not held"));
                }
                stream.changed = commit;
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
        stream.append(append.events, at, segments);
        totals.held += stream.bytes - before;
        stream.retain(append.retained);
        if let Some(at) = sealed_at {
            stream.seal(Ended { at, ticket });
            session.ended.push_back(ordinal);
        } else if !append.released.is_empty() {
            stream.release(|seq, _| append.released.contains(&seq));
        }
        if let Some(floor) = append.taken {
            session.change_queue(totals, |queue| queue.raise_floor(floor, segments));
            session.changed = commit;
        }
        if sealed_at.is_some() {
            self.next_ticket += 1;
            self.whole.push_back(EndedStream {
                session: number,
                ordinal,
                ticket,
            });
            self.drop_outdated();
        }
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
    pub(crate) fn events_in(&self, segment: u32) -> Vec<(u64, Ordinal, Seq)> {
        let mut found = Vec::new();
        for (number, session) in &self.sessions {
            for (ordinal, stream) in &session.streams {
                let events = stream.held_after(None).filter(|event| event.at.segment == segment);
                found.extend(events.map(|event| (*number, *ordinal, event.seq)));
            }
        }
        found
    }

    /// Marks an event as damaged.
    pub(crate) fn mark_damaged(&mut self, session: u64, ordinal: Ordinal, seq: Seq) {
        let session = self.sessions.get_mut(&session);
        if let Some(stream) = session.and_then(|session| session.stream_mut(ordinal)) {
            let known = stream.damaged.get_or_insert_with(|| Box::new((seq, seq)));
            **known = (known.0.min(seq), known.1.max(seq));
        }
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
            for event in stream.held_after(None) {
                self.segments.add(event.at.segment, event.part);
            }
            if let Some(Ended { ticket, .. }) = stream.ended {
                let queue = if stream.buried {
                    &mut self.tombs
                } else {
                    &mut self.whole
                };
                queue.push_back(EndedStream {
                    session: number,
                    ordinal: *ordinal,
                    ticket,
                });
            }
        }
        for (message, at) in session.queue.iter().flat_map(|queue| &queue.messages) {
            self.segments.add(at.segment, message.body);
        }
        self.insert_session(number, session);
    }

    /// Puts the ended streams of a checkpoint in order.
    pub(crate) fn sort_ended(&mut self) {
        for queue in [&mut self.whole, &mut self.tombs] {
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

    /// The ended stream with events that ended first.
    pub(crate) fn oldest_whole(&mut self) -> Option<EndedStream> {
        while let Some(ended) = self.whole.front().copied() {
            if self.ended(ended).is_some_and(|stream| !stream.buried) {
                return Some(ended);
            }
            self.whole.pop_front();
        }
        None
    }

    /// The tombstone whose stream ended first.
    pub(crate) fn oldest_tomb(&mut self) -> Option<EndedStream> {
        while let Some(ended) = self.tombs.front().copied() {
            if self.ended(ended).is_some() {
                return Some(ended);
            }
            self.tombs.pop_front();
        }
        None
    }

    /// A stream that ended at least `age` ago.
    pub(crate) fn next_aged(&mut self, now: Wall, age: Duration) -> Option<EndedStream> {
        let oldest = [self.oldest_whole(), self.oldest_tomb()];
        let is_aged = |ended: &EndedStream| {
            let end = self.ended(*ended).and_then(|stream| stream.ended);
            end.is_some_and(|end| now.since(end.at) >= age)
        };
        oldest.into_iter().flatten().find(is_aged)
    }

    fn ended(&self, ended: EndedStream) -> Option<&Stream> {
        let stream = self.stream(ended.session, ended.ordinal)?;
        stream
            .ended
            .is_some_and(|end| end.ticket == ended.ticket)
            .then_some(stream)
    }

    /// Removes outdated entries when most entries are outdated.
    fn drop_outdated(&mut self) {
        if self.whole.len() + self.tombs.len() > 2 * self.totals.streams as usize + MAX_OUTDATED {
            let (mut whole, mut tombs) = (std::mem::take(&mut self.whole), std::mem::take(&mut self.tombs));
            whole.retain(|ended| self.ended(*ended).is_some_and(|stream| !stream.buried));
            tombs.retain(|ended| self.ended(*ended).is_some());
            (self.whole, self.tombs) = (whole, tombs);
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
mod tests {
    use super::*;
    use crate::record::{Part, Run};
    use rethread_proto::StreamKind;
    use rethread_store::{SessionId, StreamInfo};

    /// A session at its limit forgets a stream with every call. The entry of the stream must not stay for long.
    #[test]
    fn forgotten_stream_leaves_no_outdated_entry() {
        let (at, body) = (Location { segment: 1, offset: 64 }, Part { len: 2, crc: 0 });
        let (session, epoch, touched) = (1, 1, Wall::from_millis(5));
        let key = SessionKey {
            principal: rethread_store::Principal::anonymous(),
            session: SessionId::parse("s").unwrap(),
        };
        let mut index = Index::default();
        let create = Record::Create {
            session,
            key,
            at: touched,
            epoch,
            body,
        };
        index.apply(create, at).unwrap();
        for ordinal in (1..100).map(Ordinal) {
            let events = Run {
                first: Seq(0),
                parts: [body; 2].into_iter().collect(),
            };
            let append = Append {
                session,
                ordinal,
                epoch,
                events,
                info: Some(StreamInfo::new(StreamKind::Call, vec![7.into()], "test").into()),
                sealed_at: Some(touched),
                taken: None,
                retained: Vec::new(),
                released: Vec::new(),
            };
            index.apply(Record::Append { append }, at).unwrap();
            if let Some(oldest) = ordinal.0.checked_sub(10).filter(|oldest| *oldest > 0).map(Ordinal) {
                let ordinal = oldest;
                index.apply(Record::ForgetStream { session, ordinal }, at).unwrap();
            }
            assert_eq!(index.whole.len() as u64, index.totals.streams);
        }
    }
}
