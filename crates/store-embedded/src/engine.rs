//! Operations: each is refused, or becomes records of the current group and changes the index.
//!
//! Pure except for the clock. An operation is checked before its first record is written. A refused operation may have
//! freed space, but changes nothing else.

use crate::data_dir::DataDir;
use crate::error::damaged_stream;
use crate::group::{GroupBuffer, Location, SegmentHeader};
use crate::index::session::Session;
use crate::index::{EndedStream, Inconsistent, Index};
use crate::log::Log;
use crate::op::{Op, Outcome};
use crate::options::Options;
use crate::record::{Append, Message, NewEvent, Part, Record};
use crate::recovery::Recovered;
use bytes::Bytes;
use rethread_proto::clock::Wall;
use rethread_proto::stream::retention::STREAM_OVERHEAD_BYTES;
use rethread_proto::stream::{Admission, StreamEnd};
use rethread_store::{
    Batch, Event, Ordinal, QueueUpdate, Queued, Retention, SessionKey, SessionRecord, StoreError, StreamKey,
};
use std::sync::Arc;
use std::time::Duration;

/// Push queues may use 1/4 of the total, so that messages without a reader do not displace streams.
const QUEUE_SHARE: u64 = 4;
/// A full store frees 1/16 of the total at once, so that not every append has to.
const FREED_SHARE: u64 = 16;
/// Streams that one sweep forgets.
pub(crate) const SWEEP_STREAMS: usize = 256;
/// The largest body of one operation.
const MAX_BODY_BYTES: u64 = 256 << 20;

/// The index and the group that is being built.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) index: Index,
    options: Arc<Options>,
    group: GroupBuffer,
    /// The end of the log.
    pub(crate) end: Location,
    /// The number of the last group.
    pub(crate) commit: u64,
    /// The header of the current segment, until it is written with the first group.
    segment_header: Option<SegmentHeader>,
}

impl Engine {
    pub(crate) fn new(index: Index, options: Arc<Options>, store: u64, end: Location, commit: u64) -> Self {
        Engine {
            index,
            options,
            group: GroupBuffer::new(store),
            end,
            commit,
            segment_header: None,
        }
    }

    /// The engine and the open log of a recovered store.
    pub(crate) fn open(options: Arc<Options>, dir: Arc<DataDir>, recovered: Recovered) -> (Self, Log) {
        let store = dir.store();
        let log = Log::new(dir, &recovered);
        let Recovered { index, commit, end, .. } = recovered;
        let mut engine = Engine::new(index, options, store, end, commit);
        if end.offset == 0 {
            engine.roll(store, end.segment);
        }
        (engine, log)
    }

    /// The end of a checkpoint of the current state. A replay ignores a segment without a header.
    pub(crate) fn checkpoint_end(&self) -> Location {
        match &self.segment_header {
            Some(header) if header.number > 1 => Location {
                segment: header.number - 1,
                offset: header.previous_end as u32,
            },
            _ => self.end,
        }
    }

    /// Continues in an empty segment.
    pub(crate) fn roll(&mut self, store: u64, segment: u32) {
        self.segment_header = Some(SegmentHeader {
            store,
            number: segment,
            first_commit: self.commit + 1,
            previous_end: self.end.offset.into(),
        });
        self.end = Location { segment, offset: 0 };
    }

    pub(crate) fn begin_group(&mut self) {
        self.index.segments.commit = self.commit + 1;
        self.group.begin(self.end, self.segment_header.as_ref());
    }

    /// Ends the group and returns it for writing, or `None` if it has no record. `spare` is the buffer of the next
    /// group.
    pub(crate) fn finish_group(&mut self, durable: u64, spare: GroupBuffer) -> Option<GroupBuffer> {
        if self.group.is_empty() {
            return None;
        }
        self.commit += 1;
        self.segment_header = None;
        let mut group = std::mem::replace(&mut self.group, spare);
        group.finish(self.commit, durable);
        self.end = self.end.plus(group.len() as usize);
        self.index.segments.set_len(self.end.segment, self.end.offset.into());
        #[cfg(test)]
        crate::simulated_disk::remember(self.commit, &self.index);
        Some(group)
    }

    pub(crate) fn run(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Append(key, batch) => self.append(key, batch).map(|()| 0),
            Op::ForgetStream(key) => self.forget_stream(key).map(|()| 0),
            Op::ForgetSession(key) => self.forget_session(key).map(|()| 0),
            Op::Create(key, record) => self.create(key, record).map(|()| 0),
            Op::Update(key, epoch, record) => self.update(key, *epoch, record).map(|()| 0),
            Op::UpdateQueue(key, update) => self.update_queue(key, update).map(|()| 0),
            Op::Touch(key) => {
                let session = self.number(key)?;
                let at = self.now();
                self.log(Record::Touch { session, at }, &[]).map(|()| 0)
            }
            Op::End(key) => self.end_session(key),
            Op::Expire(key, idle) => self.expire(key, *idle),
            Op::Sweep => self.sweep(),
            Op::Move(copies) => self.move_live(copies).map(|()| 0),
        }
    }

    fn now(&self) -> Wall {
        (self.options.clock)()
    }

    fn number(&self, key: &SessionKey) -> Result<u64, StoreError> {
        self.index.session_number(key).ok_or(StoreError::SessionGone)
    }

    /// Writes a record into the group and applies it.
    pub(crate) fn log(&mut self, record: Record, body: &[Bytes]) -> Result<(), StoreError> {
        self.log_body(record, body.iter())
    }

    fn log_body<'a>(&mut self, record: Record, body: impl Iterator<Item = &'a Bytes>) -> Result<(), StoreError> {
        let at = self.group.push(&record, body);
        self.index
            .apply(record, at)
            .map_err(|Inconsistent(what)| StoreError::unavailable(what))
    }

    fn append(&mut self, key: &StreamKey, batch: &Batch) -> Result<(), StoreError> {
        let ordinal = key.ordinal;
        let number = self.number(&key.session)?;
        let session = &self.index.sessions[&number];
        if batch.taken.is_some() {
            check_epoch(session, batch.epoch)?;
        }
        let (end, info) = match (session.stream(ordinal), &batch.info) {
            (Some(stream), _) => {
                if let Some(damaged) = &stream.damaged {
                    return Err(damaged_stream(key, **damaged));
                }
                (stream.end(), None)
            }
            (None, Some(info)) => (StreamEnd::empty(batch.epoch), Some(info)),
            (None, None) => return Err(StoreError::UnknownStream),
        };
        if end.admit(batch)? == Admission::Repeated {
            return Ok(());
        }
        let fixed = info.map_or(0, |info| STREAM_OVERHEAD_BYTES + info.cost());
        let size = fixed + batch.events.iter().map(Event::cost).sum::<usize>();
        self.make_room(size as u64, Some((number, ordinal)))?;
        let session = &self.index.sessions[&number];
        let ended = session.ended.iter().copied().chain([ordinal]);
        let excess = match batch.seals {
            true => (session.ended.len() + 1).saturating_sub(self.options.limits.ended_streams_per_session),
            false => 0,
        };
        let event = |event: &Event| NewEvent {
            retain: event.retain,
            part: Part::of(&event.payload),
        };
        let append = Append {
            session: number,
            ordinal,
            epoch: batch.epoch,
            first: batch.events.first().map_or_else(Default::default, |event| event.seq),
            events: batch.events.iter().map(event).collect(),
            info: info.cloned(),
            sealed_at: batch.seals.then(|| self.now()),
            taken: batch.taken,
            released: batch.released.clone(),
            forgotten: ended.take(excess).collect(),
        };
        let payloads = batch.events.iter().map(|event| &event.payload);
        self.log_body(Record::Append { append }, payloads)?;
        self.evict(number, ordinal, &self.options.limits.stream.clone());
        Ok(())
    }

    /// Evicts events of a stream beyond its limits.
    fn evict(&mut self, session: u64, ordinal: Ordinal, limits: &Retention) {
        let ranges = self.index.evict(session, ordinal, limits);
        if !ranges.is_empty() {
            let record = Record::Evict {
                session,
                ordinal,
                ranges,
            };
            self.group.push(&record, [].iter()); // `Index::evict` has applied it
        }
    }

    fn forget(&mut self, session: u64, ordinal: Ordinal) -> Result<(), StoreError> {
        self.log(Record::ForgetStream { session, ordinal }, &[])
    }

    fn forget_stream(&mut self, key: &StreamKey) -> Result<(), StoreError> {
        match self.index.session_number(&key.session) {
            Some(session) if self.index.stream(session, key.ordinal).is_some() => self.forget(session, key.ordinal),
            _ => Ok(()),
        }
    }

    fn forget_session(&mut self, key: &SessionKey) -> Result<(), StoreError> {
        let Some(session) = self.index.session_number(key) else {
            return Ok(());
        };
        self.log(Record::ForgetSession { session }, &[])
    }

    fn create(&mut self, key: &SessionKey, record: &SessionRecord) -> Result<(), StoreError> {
        let bytes = Bytes::from(record.to_bytes());
        let body = Part::of(&bytes);
        self.make_room(Session::record_cost(body), None)?;
        let record = Record::Create {
            session: self.index.next_session,
            key: key.clone(),
            at: self.now(),
            epoch: record.epoch,
            body,
        };
        self.log(record, &[bytes])
    }

    fn update(&mut self, key: &SessionKey, epoch: u64, record: &SessionRecord) -> Result<(), StoreError> {
        let session = self.number(key)?;
        let stored = &self.index.sessions[&session];
        check_epoch(stored, epoch)?;
        let bytes = Bytes::from(record.to_bytes());
        let body = Part::of(&bytes);
        let growth = body.len.saturating_sub(stored.record.part.len);
        if growth > 0 {
            self.make_room(growth.into(), None)?;
        }
        let record = Record::Update {
            session,
            at: self.now(),
            epoch: record.epoch,
            body,
        };
        self.log(record, &[bytes])
    }

    fn update_queue(&mut self, key: &SessionKey, update: &QueueUpdate) -> Result<(), StoreError> {
        let session = self.number(key)?;
        let stored = &self.index.sessions[&session];
        check_epoch(stored, update.epoch)?;
        let queue = stored.queue.as_deref();
        let known = queue.map(|queue| queue.floor).unwrap_or_default();
        let (floor, floor_rises) = (known.max(update.floor), known < update.floor);
        let is_new = |queued: &&Queued| {
            queued.position > floor && queue.is_none_or(|queue| queue.find(queued.position).is_err())
        };
        let (mut messages, mut bodies) = (Vec::new(), Vec::new());
        for queued in update.messages.iter().filter(is_new) {
            let (collapse, body) = encode_message(queued);
            let position = queued.position;
            messages.push(Message {
                position,
                collapse,
                body: Part::of(&body),
            });
            bodies.push(body);
        }
        let size: u64 = messages.iter().map(Message::cost).sum();
        let growth = size.saturating_sub(queue.map_or(0, |queue| queue.cost_up_to(floor)));
        if growth > 0 {
            if self.index.totals.queued + growth > self.options.limits.total_bytes / QUEUE_SHARE {
                return Err(StoreError::Full);
            }
            self.make_room(growth, None)?;
        }
        if messages.is_empty() && !floor_rises {
            return Ok(());
        }
        let record = Record::Queue {
            session,
            floor: update.floor,
            messages,
        };
        self.log(record, &bodies)
    }

    fn end_session(&mut self, key: &SessionKey) -> Outcome {
        let Some(session) = self.index.session_number(key) else {
            return Ok(0);
        };
        self.log(Record::End { session }, &[])?;
        Ok(1)
    }

    fn expire(&mut self, key: &SessionKey, idle: Duration) -> Outcome {
        let now = self.now();
        let Some(session) = self.index.session(key) else {
            return Ok(0);
        };
        if session.touched > now {
            // The clock was set back: the session counts as touched now.
            let session = self.number(key)?;
            return self.log(Record::Touch { session, at: now }, &[]).map(|()| 0);
        }
        if session.is_idle(now, idle) {
            self.end_session(key)
        } else {
            Ok(0)
        }
    }

    fn sweep(&mut self) -> Outcome {
        let (now, age) = (self.now(), self.options.limits.stream.age);
        for forgotten in 0..SWEEP_STREAMS {
            let Some(EndedStream { session, ordinal, .. }) = self.index.next_aged(now, age) else {
                return Ok(forgotten);
            };
            self.forget(session, ordinal)?;
        }
        Ok(SWEEP_STREAMS)
    }

    /// Frees space for `size` bytes, or fails. The streams that ended first become tombstones, then tombstones are
    /// forgotten, and finally the stream `own` evicts its own events (D4).
    fn make_room(&mut self, size: u64, own: Option<(u64, Ordinal)>) -> Result<(), StoreError> {
        let total = self.options.limits.total_bytes;
        if self.index.totals.held + size <= total && size <= MAX_BODY_BYTES {
            return Ok(());
        }
        if size > total.min(MAX_BODY_BYTES) {
            return Err(StoreError::Full);
        }
        while self.index.totals.held + size + total / FREED_SHARE > total
            && let Some(EndedStream { session, ordinal, .. }) = self.index.oldest_ended(false)
        {
            self.log(Record::Bury { session, ordinal }, &[])?;
        }
        while self.index.totals.held + size > total
            && let Some(EndedStream { session, ordinal, .. }) = self.index.oldest_ended(true)
        {
            self.forget(session, ordinal)?;
        }
        if self.index.totals.held + size > total
            && let Some((session, ordinal)) = own
            && let Some(stream) = self.index.stream(session, ordinal)
        {
            let bytes = stream.bytes.saturating_sub(size) as usize;
            self.evict(session, ordinal, &self.options.limits.stream.with_bytes(bytes));
        }
        if self.index.totals.held + size > total {
            return Err(StoreError::Full);
        }
        Ok(())
    }

    /// Sessions that are idle, or whose last touch is in the future because the clock was set back.
    pub(crate) fn idle_sessions(&self, idle: Duration) -> Vec<SessionKey> {
        let now = self.now();
        let is_idle = |session: &&Session| session.is_idle(now, idle) || session.touched > now;
        self.index
            .sessions
            .values()
            .filter(is_idle)
            .map(|session| session.key.clone())
            .collect()
    }
}

fn check_epoch(session: &Session, epoch: u64) -> Result<(), StoreError> {
    if session.epoch == epoch {
        return Ok(());
    }
    Err(StoreError::Conflict {
        epoch: session.epoch,
        last: None,
    })
}

/// Encodes the body of a queued message: the collapse key, then the message. Also returns the length of the key plus
/// one, or zero without a key.
fn encode_message(queued: &Queued) -> (u32, Bytes) {
    match &queued.collapse {
        None => (0, queued.message.clone()),
        Some(key) => (key.len() as u32 + 1, [key.as_bytes(), &queued.message].concat().into()),
    }
}

/// The inverse of [`encode_message`].
pub(crate) fn decode_message(message: &Message, body: &Bytes) -> Option<Queued> {
    let queued = |message_bytes| Queued::new(message.position, message_bytes);
    let Some(length) = message.collapse.checked_sub(1) else {
        return Some(queued(body.clone()));
    };
    let key = std::str::from_utf8(body.get(..length as usize)?).ok()?;
    Some(queued(body.slice(length as usize..)).with_collapse(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a segment is written with its first group. Until then a checkpoint must not end there: after a crash the
    /// segment does not exist.
    #[test]
    fn checkpoint_ends_in_the_last_segment_with_a_header() {
        let written = Location {
            segment: 4,
            offset: 900,
        };
        let mut engine = Engine::new(Index::default(), Arc::default(), 7, written, 20);
        assert_eq!(engine.checkpoint_end(), written);
        engine.roll(7, 5);
        assert_eq!(engine.end, Location { segment: 5, offset: 0 });
        assert_eq!(engine.checkpoint_end(), written);
    }

    /// No segment is before the first one.
    #[test]
    fn checkpoint_of_an_empty_log_ends_at_its_start() {
        let start = Location { segment: 1, offset: 0 };
        let mut engine = Engine::new(Index::default(), Arc::default(), 7, start, 0);
        engine.roll(7, 1);
        assert_eq!(engine.checkpoint_end(), start);
    }
}
