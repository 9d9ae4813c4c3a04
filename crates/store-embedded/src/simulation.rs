//! Compares the pure parts of the store with models: random operations on an [`Engine`] over a log in memory.
//!
//! The index must equal a replay of the log, from its beginning and from a checkpoint, also after compaction and
//! deletion of segments. Every stream must read like [`Log`](rethread_proto::stream::Log), every queue like
//! [`StoredQueue`]. Proptest prints and replays a failing history.

#![allow(clippy::needless_pass_by_value, reason = "steps and operations are used once")]

mod segments;
mod step;

use crate::checkpoint;
use crate::engine::{Engine, decode_message};
use crate::group::{GroupBuffer, Location};
use crate::index::Index;
use crate::op::Op;
use crate::options::{Limits, Options};
use bytes::Bytes;
use proptest::prelude::*;
use rethread_proto::StreamKind;
use rethread_proto::clock::Wall;
use rethread_proto::stream::Log;
use rethread_store::{
    Batch, Event, Ordinal, Principal, QueuePosition, QueueUpdate, Queued, Retain, Retention, Seq, SessionId,
    SessionKey, SessionRecord, StoredQueue, StreamInfo, StreamKey,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use step::{Step, step};

const STORE: u64 = 77;
const SEGMENT_BYTES: u32 = 1500;
const EVENTS: usize = 6;
const ENDED_STREAMS: usize = 3;
const AGE: Duration = Duration::from_secs(60);

/// The expected content of one session.
struct SessionModel {
    record: SessionRecord,
    streams: BTreeMap<Ordinal, StreamModel>,
    queue: StoredQueue,
    next_position: u64,
    /// Earlier streams of a slot have ended or were forgotten. Their ordinals are not reused.
    slots: [u64; 4],
    high_water: u64,
}

struct StreamModel {
    log: Log,
    latest: Option<Batch>,
    /// Position in the order of ends, and the time of the end.
    ended: Option<(u64, Wall)>,
}

struct World {
    engine: Engine,
    now: Arc<AtomicU64>,
    segments: BTreeMap<u32, Vec<u8>>,
    checkpoint: Option<(Vec<u8>, u64, Location)>,
    sessions: BTreeMap<u8, SessionModel>,
    written: u64,
}

fn key(session: u8) -> SessionKey {
    SessionKey {
        principal: Principal::new("issuer", format!("subject {}", session % 2)),
        session: SessionId::from_random([session; 18]),
    }
}

fn limits() -> Retention {
    Retention::default().with_events(EVENTS).with_age(AGE)
}

fn options(now: &Arc<AtomicU64>) -> Options {
    let now = Arc::clone(now);
    Options::default()
        .limits(
            Limits::default()
                .with_stream(limits())
                .with_ended_streams_per_session(ENDED_STREAMS),
        )
        .clock(move || Wall::from_millis(now.load(Ordering::SeqCst)))
}

impl World {
    fn new() -> Self {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let start = Location { segment: 1, offset: 0 };
        let mut engine = Engine::new(Index::default(), Arc::new(options(&now)), STORE, start, 0);
        engine.roll(STORE, 1);
        World {
            engine,
            now,
            segments: BTreeMap::new(),
            checkpoint: None,
            sessions: BTreeMap::new(),
            written: 0,
        }
    }

    fn now(&self) -> Wall {
        Wall::from_millis(self.now.load(Ordering::SeqCst))
    }

    /// Commits an operation as its own group.
    fn commit(&mut self, op: Op) -> Result<usize, rethread_store::StoreError> {
        self.engine.begin_group();
        let outcome = self.engine.run(&op);
        let durable = self.engine.commit;
        let group = self.engine.finish_group(durable, GroupBuffer::new(STORE));
        if let Some(group) = group {
            let segment = self.segments.entry(self.engine.end.segment).or_default();
            group.slices().iter().for_each(|slice| segment.extend_from_slice(slice));
            assert_eq!(segment.len(), self.engine.end.offset as usize);
            if self.engine.end.offset >= SEGMENT_BYTES {
                let next = self.engine.end.segment + 1;
                self.engine.roll(STORE, next);
            }
        }
        outcome
    }

    /// The model of a session, which is created if it is missing.
    fn session(&mut self, session: u8) -> &mut SessionModel {
        if !self.sessions.contains_key(&session) {
            self.create(session);
        }
        self.sessions.get_mut(&session).expect("it was just created")
    }

    fn create(&mut self, session: u8) {
        self.written += 1;
        let params = Bytes::from(format!("{{\"n\":{}}}", self.written));
        let record = SessionRecord::new(rethread_proto::Version::V2025_11_25, params);
        self.commit(Op::Create(key(session), record.clone()))
            .expect("a session is created");
        let model = SessionModel {
            record,
            streams: BTreeMap::new(),
            queue: StoredQueue::default(),
            next_position: 1,
            slots: [1, 2, 3, 4],
            high_water: 0,
        };
        self.sessions.insert(session, model);
    }

    fn batch(&mut self, session: u8, stream: u8, count: u64, ahead: u64) -> (StreamKey, Batch) {
        self.written += 1;
        let tag = self.written;
        let epoch = self.session(session).record.epoch;
        let model = self.session(session);
        let ordinal = Ordinal(model.slots[stream as usize]);
        let known = model.streams.get(&ordinal);
        let last = known.and_then(|stream| stream.log.status().last);
        let first = last.map_or(u64::from(stream % 2), |last| last.0 + 1) + ahead;
        let payload = |seq: u64| match (tag + seq) % 5 {
            0 => Bytes::new(),
            1 => Bytes::from(vec![seq as u8; 2500]),
            _ => Bytes::from(format!(
                "session {session}, stream {}, event {seq}, batch {tag}",
                ordinal.0
            )),
        };
        let events = (first..first + count)
            .map(|seq| Event::new(Seq(seq), payload(seq)))
            .collect();
        let calls = vec![i64::from(stream).into()];
        let mut batch = Batch::new(epoch, events);
        if known.is_none() {
            batch = batch.with_info(StreamInfo::new(StreamKind::Call, calls, "node"));
        }
        let session = key(session);
        (StreamKey { session, ordinal }, batch)
    }

    fn append(&mut self, session: u8, slot: u8, key: StreamKey, batch: Batch) {
        let outcome = self.commit(Op::Append(key.clone(), batch.clone()));
        let (now, written) = (self.now(), self.written);
        let model = self.session(session);
        let mut fresh = None;
        let stream = match model.streams.get_mut(&key.ordinal) {
            Some(stream) => stream,
            None => fresh.insert(StreamModel {
                log: Log::new(batch.info.clone().expect("a first batch has info"), batch.epoch),
                latest: None,
                ended: None,
            }),
        };
        let was_sealed = stream.log.is_sealed();
        let expected = stream.log.append(batch.clone());
        stream.log.evict(&limits());
        let expected = expected.map(|()| 0).map_err(rethread_store::StoreError::from);
        assert_eq!(format!("{outcome:?}"), format!("{expected:?}"), "{batch:?}");
        if outcome.is_err() {
            return;
        }
        if stream.log.is_sealed() && !was_sealed {
            stream.ended = Some((written, now));
        }
        stream.latest = Some(batch.clone());
        if let Some(stream) = fresh {
            model.streams.insert(key.ordinal, stream);
        }
        if let Some(floor) = batch.taken {
            model.queue.raise_floor(floor);
        }
        model.high_water = model.high_water.max(key.ordinal.0);
        if batch.seals {
            model.slots[slot as usize] += 4;
            model.bound_ended();
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Append {
                session,
                stream,
                count,
                retain,
                release,
                seal,
                take,
            } => {
                let (key, mut batch) = self.batch(session, stream, count, 0);
                let model = self.session(session);
                batch.events[0].retain = retain;
                batch.seals = seal;
                if release {
                    let held = model
                        .streams
                        .get(&key.ordinal)
                        .map(|stream| stream.log.read_after(Seq(0), 99, 1 << 20));
                    let held = held.into_iter().flat_map(|page| page.events);
                    batch.released = held
                        .filter(|event| event.retain != Retain::None)
                        .map(|event| event.seq)
                        .collect();
                }
                if take {
                    let oldest = model.queue.messages().next().map(|queued| queued.position);
                    batch.taken = oldest;
                }
                self.append(session, stream, key, batch);
            }
            Step::Repeat { session, stream } => {
                let model = self.session(session);
                let ordinal = Ordinal(model.slots[stream as usize]);
                let latest = model.streams.get(&ordinal).and_then(|stream| stream.latest.clone());
                // A batch that takes from the queue needs the epoch of the record.
                let epoch = model.record.epoch;
                if let Some(batch) = latest.filter(|batch| batch.taken.is_none() || batch.epoch == epoch) {
                    let key = StreamKey {
                        session: key(session),
                        ordinal,
                    };
                    self.append(session, stream, key, batch);
                }
            }
            Step::Wrong { session, stream, ahead } => {
                let (key, batch) = self.batch(session, stream, 2, ahead + 1);
                if self.session(session).streams.contains_key(&key.ordinal) {
                    self.append(session, stream, key, batch);
                }
            }
            Step::ForgetStream { session, stream } => {
                let model = self.session(session);
                let ordinal = Ordinal(model.slots[stream as usize]);
                model.slots[stream as usize] += 4;
                model.streams.remove(&ordinal);
                let key = StreamKey {
                    session: key(session),
                    ordinal,
                };
                self.commit(Op::ForgetStream(key)).expect("a stream is forgotten");
            }
            Step::ForgetSession { session } => {
                let model = self.session(session);
                model.streams.clear();
                model.queue = StoredQueue::default();
                model.slots = model.slots.map(|slot| slot + 4);
                self.commit(Op::ForgetSession(key(session)))
                    .expect("a session is forgotten");
            }
            Step::Create { session } => self.create(session),
            Step::Update { session } => {
                let record = self.session(session).record.clone();
                let epoch = record.epoch;
                let record = record.with_epoch(epoch + 1);
                self.session(session).record = record.clone();
                self.commit(Op::Update(key(session), epoch, record))
                    .expect("a record is updated");
            }
            Step::Touch { session } => {
                self.session(session);
                self.commit(Op::Touch(key(session))).expect("a session is touched");
            }
            Step::End { session } => {
                self.sessions.remove(&session);
                self.commit(Op::End(key(session))).expect("a session ends");
            }
            Step::Queue { session, count, drop } => {
                let model = self.session(session);
                let first = model.next_position;
                model.next_position += count;
                let queued = (first..first + count).map(|n| {
                    let queued = Queued::new(
                        QueuePosition(n),
                        match n % 4 {
                            0 => Bytes::new(),
                            _ => Bytes::from(format!("message {n} {}", "x".repeat(n as usize % 90))),
                        },
                    );
                    if n % 3 == 0 {
                        queued.with_collapse(format!("key {n}"))
                    } else {
                        queued
                    }
                });
                let messages: Vec<_> = queued.collect();
                let floor = QueuePosition(model.queue.floor().0 + drop);
                let update = QueueUpdate::new(model.record.epoch, messages.clone(), floor);
                model.queue.update(messages, floor);
                self.commit(Op::UpdateQueue(key(session), update))
                    .expect("a queue is updated");
            }
            Step::Sweep { seconds } => {
                self.now.fetch_add(seconds * 1000, Ordering::SeqCst);
                let now = self.now();
                for model in self.sessions.values_mut() {
                    model
                        .streams
                        .retain(|_, stream| stream.ended.is_none_or(|(_, at)| now.since(at) < AGE));
                }
                self.commit(Op::Sweep).expect("a sweep works");
            }
            Step::Compact { segment } => self.compact(segment),
            Step::Checkpoint => {
                let (commit, end) = (self.engine.commit, self.engine.checkpoint_end());
                if commit > 0 {
                    self.checkpoint = Some((checkpoint::encode(&self.engine.index, STORE, commit, end), commit, end));
                }
            }
            Step::DeleteDead => self.delete_dead(),
        }
    }

    fn check(&self) {
        let index = &self.engine.index;
        assert_eq!(index.sessions.len(), self.sessions.len());
        let mut streams = 0;
        for (number, model) in &self.sessions {
            let session = index.session(&key(*number)).expect("a session is known");
            let record = self.bytes(session.record.at, session.record.part);
            assert_eq!(SessionRecord::from_bytes(&record).as_ref(), Some(&model.record));
            assert_eq!(session.high_water.0, model.high_water);
            let ordinals: Vec<_> = session.streams.iter().map(|(ordinal, _)| *ordinal).collect();
            assert_eq!(ordinals, model.streams.keys().copied().collect::<Vec<_>>());
            streams += ordinals.len() as u64;
            for (ordinal, stream) in &model.streams {
                let stored = session.stream(*ordinal).expect("a stream is known");
                assert_eq!(stored.status(), stream.log.status());
                let events = stored
                    .held_after(Seq(0))
                    .map(|event| Event::new(event.seq, self.bytes(event.at, event.part)).with_retain(event.retain));
                assert_eq!(
                    events.collect::<Vec<_>>(),
                    stream.log.read_after(Seq(0), 99, usize::MAX).events
                );
                assert_eq!(
                    (stored.events.len(), stored.bytes),
                    (stream.log.len(), stream.log.bytes() as u64)
                );
            }
            let queue = session.queue.as_deref();
            let messages = queue
                .into_iter()
                .flat_map(|queue| &queue.messages)
                .map(|(message, at)| {
                    decode_message(message, &self.bytes(*at, message.body)).expect("a message is valid")
                });
            assert_eq!(
                messages.collect::<Vec<_>>(),
                model.queue.messages().cloned().collect::<Vec<_>>()
            );
            assert_eq!(session.queue_cost(), model.queue.bytes() as u64);
        }
        assert_eq!(index.totals.streams, streams);
        if let Some((bytes, commit, end)) = &self.checkpoint {
            let start = checkpoint::decode(bytes, STORE).expect("a checkpoint is valid");
            assert_eq!((start.commit, start.end), (*commit, *end));
            assert_same(&self.replay(start.index, *commit, *end), index);
        }
        if self.segments.keys().next() == Some(&1) || self.segments.is_empty() {
            let complete = self.segments.keys().copied().eq((1..).take(self.segments.len()));
            if complete {
                let start = Location { segment: 1, offset: 0 };
                assert_same(&self.replay(Index::default(), 0, start), index);
            }
        }
    }
}

impl SessionModel {
    /// Forgets the stream that ended first, if there are too many.
    fn bound_ended(&mut self) {
        let ended = self
            .streams
            .iter()
            .filter_map(|(ordinal, stream)| Some((stream.ended?.0, *ordinal)));
        let ended: Vec<(u64, Ordinal)> = ended.collect();
        if ended.len() > ENDED_STREAMS
            && let Some((_, oldest)) = ended.iter().min()
        {
            self.streams.remove(oldest);
        }
    }
}

/// Compares two indexes, except for the commits of their last changes.
pub(crate) fn assert_same(one: &Index, other: &Index) {
    let plain = |index: &Index| {
        let mut sessions: Vec<_> = index
            .sessions
            .iter()
            .map(|(number, session)| (*number, session.clone()))
            .collect();
        sessions.sort_by_key(|(number, _)| *number);
        for (_, session) in &mut sessions {
            session.changed = 0;
            session.queue = session.queue.take().filter(|queue| **queue != Default::default());
            session.streams.iter_mut().for_each(|(_, stream)| stream.changed = 0);
        }
        sessions
    };
    assert_eq!(plain(one), plain(other));
    assert_eq!(one.totals, other.totals);
    assert_eq!(
        (one.next_session, one.next_ticket),
        (other.next_session, other.next_ticket)
    );
    let live = |index: &Index| {
        index
            .segments
            .iter()
            .filter(|(_, used)| used.live > 0)
            .map(|(n, used)| (n, used.live))
            .collect::<Vec<_>>()
    };
    assert_eq!(live(one), live(other));
}

proptest! {
    /// The oracle of the log.
    #[test]
    fn random_history_matches_its_replay_and_its_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        world.check();
    }
}
