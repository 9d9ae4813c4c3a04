//! One stream, its store and its clients.

use crate::client::{Client, Connection, message_number};
use crate::random::Random;
use bytes::Bytes;
use rethread_proto::event_id::IdPrefix;
use rethread_proto::sse::{Decoder, Draft};
use rethread_proto::stream::{
    AppendOutcome, Batch, Close, ConnectionId, Effects, Event, Framing, Input, Log, Reader, ReaderStart, ResumePlan,
    Retain, Retention, Room, Step, StreamCore, StreamInfo, StreamLimits, StreamParams, TakeOutcome, plan,
};
use rethread_proto::{EventId, Ordinal, Seq, StreamKind, Version};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

const RETRY_MILLIS: u64 = 1000;
const MAX_BLOCK_BYTES: usize = 1 << 20;
/// Most messages are small. Some are as large as a large frame, a batch or the live buffer.
const MESSAGE_BYTES: [usize; 12] = [1, 20, 40, 40, 80, 80, 150, 300, 600, 8_100, 8_300, 30_000];

pub(crate) struct World {
    params: StreamParams,
    core: StreamCore<ConnectionId>,
    log: Option<Log>,
    /// Every payload that was ever stored, by number.
    stored: BTreeMap<u64, Vec<u8>>,
    stored_messages: HashSet<u64>,
    /// The append in flight, and whether the store has it already.
    pending: Option<(Batch, bool)>,
    store_is_down: bool,
    retention: Retention,
    clients: Vec<Client>,
    /// Connections that were cut and that the server has not noticed.
    unnoticed: Vec<ConnectionId>,
    woken: HashSet<ConnectionId>,
    next_connection: u64,
    next_message: u64,
    /// Messages that this process accepted.
    accepted: Vec<u64>,
    questions: Vec<Seq>,
}

impl World {
    pub(crate) fn new(random: &mut Random) -> Self {
        let retention = Retention::new(
            random.pick(&[4, 20, 4096]),
            random.pick(&[20_000, 8 << 20]),
            Duration::ZERO,
        );
        let mut limits = StreamLimits::default();
        limits.live_events = random.pick(&[2, 16, 1024]);
        limits.live_bytes = random.pick(&[1_000, 50_000, 1 << 20]);
        limits.retained_events = retention.events;
        limits.retained_bytes = retention.bytes;
        let params = StreamParams {
            prefix: IdPrefix::new("7-"),
            framing: Framing::Numbered,
            epoch: 1,
            info: StreamInfo::new(random.pick(&[StreamKind::Call, StreamKind::Push]), vec![1.into()], "n"),
            primed: true,
            limits: Arc::new(limits),
        };
        let mut world = World {
            core: StreamCore::open(&params, RETRY_MILLIS),
            params,
            log: None,
            stored: BTreeMap::new(),
            stored_messages: HashSet::new(),
            pending: None,
            store_is_down: false,
            retention,
            clients: (0..3).map(|_| Client::default()).collect(),
            unnoticed: Vec::new(),
            woken: HashSet::new(),
            next_connection: 0,
            next_message: 0,
            accepted: Vec::new(),
            questions: Vec::new(),
        };
        for _ in 0..random.below(4) {
            world.emit(random, false); // no reader can exist yet
        }
        world.connect(0, ReaderStart::default());
        world.core.flush();
        world.drive(random);
        world
    }

    pub(crate) fn operate(&mut self, random: &mut Random) {
        let client = random.below(self.clients.len());
        match random.below(100) {
            0..28 => self.emit(random, false),
            28..45 => self.acknowledge(random),
            45..63 => self.poll(client, random),
            63..70 => self.early_apply(random),
            70..76 => self.resume(client, random),
            76..80 => self.cut(client, random),
            80..83 => self.notice_cut(),
            83..86 => self.evict(),
            86..88 => self.store_is_down = random.chance(30),
            88..90 => self.recover(),
            90..92 => self.close_reader(),
            92..94 => self.stall(),
            94..96 => self.release(),
            96..97 => self.restart(random),
            97..98 if random.chance(5) => self.emit(random, true),
            _ => self.early_apply(random),
        }
        if random.chance(80) {
            self.drive(random);
        }
    }

    /// A waiting reader that could take something must have been woken.
    pub(crate) fn check_wake_ups(&mut self) {
        for at in 0..self.clients.len() {
            let Some(connection) = &self.clients[at].connection else {
                continue;
            };
            let id = connection.id;
            if !connection.waits || self.woken.contains(&id) {
                continue;
            }
            let (taken, effects) = self.core.take(id, &id);
            assert_eq!(
                taken,
                TakeOutcome::Nothing,
                "a reader could take something and was not woken"
            );
            self.apply(effects);
        }
    }

    /// The store works again, the stream ends, and every client resumes for the rest.
    pub(crate) fn finish(&mut self, random: &mut Random) {
        self.store_is_down = false;
        self.settle(random);
        self.recover();
        if !self.core.is_closed() {
            self.emit(random, true);
        }
        self.settle(random);
        let Some(last) = self.log.as_ref().map(|log| log.status().last) else {
            return;
        };
        if !self.log.as_ref().is_some_and(Log::is_sealed) {
            assert!(
                self.core.is_unlogged(),
                "the stream has ended and its log is not sealed"
            );
            return; // it ended in an outage; its session closes it
        }
        for client in 0..self.clients.len() {
            let mut rounds = 0;
            while !self.clients[client].is_done {
                self.resume(client, random);
                while self.clients[client].connection.is_some() {
                    self.poll(client, random);
                    rounds += 1;
                    assert!(rounds < 10_000, "a client never gets to the end");
                }
            }
            assert_eq!(
                self.clients[client].cursor, last,
                "a client has not got the end of the stream"
            );
        }
    }

    fn settle(&mut self, random: &mut Random) {
        self.drive(random);
        while self.pending.is_some() {
            self.acknowledge(random);
            self.drive(random);
        }
    }

    fn emit(&mut self, random: &mut Random, seals: bool) {
        let message = self.next_message;
        let filler = "x".repeat(random.pick(&MESSAGE_BYTES));
        let text = format!("{{\"m\":{message},\"x\":\"{filler}\"}}");
        let retain = match (seals, random.chance(5)) {
            (true, _) => Retain::Answer,
            (false, true) => Retain::Question,
            (false, false) => Retain::None,
        };
        let emitted = self
            .core
            .emit(&self.params, Draft::copy_of(text.as_bytes()), retain, seals);
        let Ok((seq, effects)) = emitted else { return };
        self.next_message += 1;
        self.accepted.push(message);
        if retain == Retain::Question {
            self.questions.push(seq);
        }
        self.apply(effects);
        let waits = matches!(self.core.room(&self.params), Room::WaitForReader | Room::WaitForStore);
        if waits && random.chance(50) {
            let effects = self.core.reader_stalled(&self.params);
            self.apply(effects);
        }
    }

    /// Takes the next append to the store.
    fn drive(&mut self, random: &mut Random) {
        while let Some(batch) = self.core.next_append(&self.params) {
            assert!(self.pending.is_none(), "two appends are in flight");
            self.pending = Some((batch, false));
            if random.chance(50) {
                return;
            }
            self.acknowledge(random);
        }
    }

    /// The store has the batch; its answer comes later.
    fn early_apply(&mut self, random: &mut Random) {
        if !self.store_is_down && random.chance(50) {
            self.store_pending();
        }
    }

    fn store_pending(&mut self) -> bool {
        let Some((batch, is_stored)) = self.pending.as_mut() else {
            return false;
        };
        if *is_stored {
            return true;
        }
        *is_stored = true;
        let batch = batch.clone();
        self.store(batch)
    }

    fn store(&mut self, batch: Batch) -> bool {
        let new = |event: &Event| (event.seq.0, event.payload.to_vec());
        let events: Vec<_> = batch.events.iter().map(new).collect();
        let log = match (&mut self.log, &batch.info) {
            (Some(log), _) => log,
            (none, Some(info)) => none.insert(Log::new(info.clone(), batch.epoch)),
            (_, None) => panic!("the first batch of a stream has no info"),
        };
        if log.append(batch).is_err() {
            return false;
        }
        for (seq, payload) in events {
            let text = String::from_utf8_lossy(&payload).into_owned();
            self.stored_messages.extend(message_number(&text));
            let before = self.stored.insert(seq, payload);
            assert!(before.is_none(), "number {seq} is used twice");
        }
        true
    }

    fn acknowledge(&mut self, random: &mut Random) {
        if self.pending.is_none() {
            return;
        }
        let fails = self.store_is_down && random.chance(70);
        if !fails || random.chance(50) {
            self.store_pending();
        }
        let Some((_, is_stored)) = self.pending.take() else {
            return;
        };
        let outcome = match (fails, is_stored) {
            (true, _) => AppendOutcome::StoreFailed, // it may have the batch nevertheless
            (false, true) => AppendOutcome::Stored,
            (false, false) => AppendOutcome::Refused,
        };
        let effects = self.core.appended(&self.params, outcome);
        self.apply(effects);
    }

    fn evict(&mut self) {
        if let Some(log) = &mut self.log {
            log.evict(&self.retention);
        }
    }

    /// The session appends a refresh that replaces the messages without ids.
    fn recover(&mut self) {
        let Some(status) = self.log.as_ref().map(Log::status) else {
            return;
        };
        if self.store_is_down || !self.core.is_unlogged() || self.core.is_closed() || status.sealed {
            return;
        }
        let unlogged = self.core.last_unlogged();
        let mut last = status.last;
        if self.core.has_unlogged_after(status.last) {
            let seq = status.last.unwrap_or_default().next();
            let refresh = Batch::new(
                self.params.epoch,
                vec![Event::new(seq, Bytes::from_static(b"{\"refresh\":true}"))],
            );
            assert!(self.store(refresh), "the refresh fits");
            last = Some(seq);
        }
        if let Some(effects) = self.core.store_recovered(unlogged, last) {
            self.accepted.clear(); // the refresh replaces them

            self.apply(effects);
        }
    }

    fn close_reader(&mut self) {
        let effects = self.core.close_reader(Close { retry: 5 });
        self.apply(effects);
    }

    fn stall(&mut self) {
        let effects = self.core.reader_stalled(&self.params);
        self.apply(effects);
    }

    fn release(&mut self) {
        if let Some(question) = self.questions.pop() {
            self.core.release(question);
        }
    }

    /// The process is killed, and the next one adopts the stream.
    fn restart(&mut self, random: &mut Random) {
        if random.chance(50) {
            self.store_pending();
        }
        let Some(log) = &self.log else { return };
        self.pending = None;
        self.params.epoch += 1;
        self.core = StreamCore::adopt(&log.status());
        self.accepted.clear();
        self.questions.clear();
        self.unnoticed.clear();
        for client in &mut self.clients {
            client.connection = None;
        }
    }

    fn connect(&mut self, client: usize, start: ReaderStart) {
        self.next_connection += 1;
        let id = ConnectionId(self.next_connection);
        let effects = self.core.attach(id, start.cursor, start.resumes);
        self.clients[client].connection = Some(Connection {
            id,
            gap_announced: start.gap_announced,
            reader: Reader::new(start, Version::V2025_11_25, RETRY_MILLIS),
            decoder: Decoder::new(MAX_BLOCK_BYTES),
            page: None,
            waits: false,
            may_skip: false,
        });
        self.apply(effects);
    }

    fn cut(&mut self, client: usize, random: &mut Random) {
        if let Some(connection) = self.clients[client].connection.take() {
            if random.chance(50) {
                self.unnoticed.push(connection.id);
            } else {
                self.detach(connection.id);
            }
        }
    }

    fn notice_cut(&mut self) {
        if let Some(id) = self.unnoticed.pop() {
            self.detach(id);
        }
    }

    fn detach(&mut self, id: ConnectionId) {
        let (_, effects) = self.core.detach(id);
        self.apply(effects);
    }

    fn resume(&mut self, client: usize, random: &mut Random) {
        let Some(status) = self.log.as_ref().map(Log::status) else {
            return;
        };
        self.cut(client, random);
        let cursor = self.clients[client].cursor.unwrap_or(Seq::PRIMING);
        let id = EventId {
            ordinal: Ordinal(7),
            seq: cursor,
        };
        let missed = self.core.has_unlogged_after(status.last);
        match plan(Some(id), true, Some(&status), missed) {
            ResumePlan::Ended => self.clients[client].is_done = true,
            ResumePlan::Resume { after, gap, .. } => {
                let lost = |message: &&u64| {
                    !self.stored_messages.contains(message) && !self.clients[client].without_ids.contains(message)
                };
                if self.core.is_unlogged() && self.accepted.iter().any(|message| lost(&message)) {
                    let missing: Vec<_> = self.accepted.iter().filter(lost).collect();
                    assert!(
                        gap,
                        "messages {missing:?} without ids are missing, and the resume after {after:?} is not told: {status:?} {:?}",
                        self.core
                    );
                }
                self.connect(
                    client,
                    ReaderStart {
                        cursor: after,
                        first: None,
                        resumes: true,
                        gap_announced: gap,
                    },
                );
            }
            other => panic!("a resume from {cursor:?} of {status:?} leads to {other:?}"),
        }
    }

    /// Runs a connection for a while, as its socket has room.
    fn poll(&mut self, client: usize, random: &mut Random) {
        for _ in 0..=random.below(6) {
            let Some(connection) = &mut self.clients[client].connection else {
                return;
            };
            let id = connection.id;
            if connection.waits && !self.woken.remove(&id) && random.chance(80) {
                return;
            }
            connection.waits = false;
            let input = match connection.reader.step() {
                Step::End => {
                    self.clients[client].connection = None;
                    return self.detach(id);
                }
                Step::Send(chunk) => Input::Send(chunk),
                Step::Read(cursor) => {
                    if connection.page.is_none() {
                        let limit = 1 + random.below(5);
                        let page = self.log.as_ref().map(|log| log.read_after(cursor, limit, 100_000));
                        connection.page = Some(page.filter(|_| !random.chance(2)));
                        if random.chance(50) {
                            return; // it arrives later
                        }
                    }
                    let page = connection.page.take().flatten();
                    connection.may_skip = std::mem::take(&mut connection.gap_announced);
                    let (core, mut effects) = (&mut self.core, Effects::default());
                    let input = connection.reader.page(&self.params, page.as_ref(), |cursor, bytes| {
                        let (caught_up, caused) = core.caught_up(id, cursor, bytes);
                        effects = caused;
                        caught_up
                    });
                    self.apply(effects);
                    input
                }
                Step::Take => {
                    let (taken, effects) = self.core.take(id, &id);
                    let input = connection.reader.taken(&self.params, taken);
                    self.apply(effects);
                    input
                }
            };
            let client = &mut self.clients[client];
            match input {
                Input::Send(chunk) => client.receive(&chunk, &self.stored),
                Input::Continue | Input::Overtaken => {}
                Input::Wait => {
                    if let Some(connection) = &mut client.connection {
                        connection.waits = true;
                    }
                }
            }
            if let Some(connection) = &mut client.connection {
                connection.may_skip = false;
            }
        }
    }

    #[allow(clippy::needless_pass_by_value)] // effects are performed once
    fn apply(&mut self, effects: Effects<ConnectionId>) {
        self.woken.extend(effects.wake);
    }
}
