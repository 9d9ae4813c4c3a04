//! One stream, its store and its clients. `connections.rs` has the actions of clients.

mod connections;

use crate::client::Client;
use crate::random::Random;
use crate::store::{Reported, Store};
use bytes::Bytes;
use rethread_proto::event_id::IdPrefix;
use rethread_proto::sse::Draft;
use rethread_proto::stream::{
    AppendOutcome, Batch, Close, ConnectionId, Effects, Event, Framing, ReaderStart, Retain, Retention, Room,
    StreamCore, StreamInfo, StreamLimits, StreamParams, TakeOutcome,
};
use rethread_proto::{Seq, StreamKind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

const RETRY_MILLIS: u64 = 1000;
const MAX_BLOCK_BYTES: usize = 1 << 20;
/// Most messages are small. Some are as large as a large frame, a batch or the live buffer.
const MESSAGE_BYTES: [usize; 12] = [1, 20, 40, 40, 80, 80, 150, 300, 600, 8_100, 8_300, 30_000];

pub(crate) struct World {
    params: StreamParams,
    core: StreamCore<ConnectionId>,
    store: Store,
    /// Whether the store has several members: remote readers, gaps, and lost writes.
    is_cluster: bool,
    pending: Option<Pending>,
    clients: Vec<Client>,
    /// Broken connections that the server has not detected.
    unnoticed: Vec<ConnectionId>,
    woken: HashSet<ConnectionId>,
    next_connection: u64,
    next_message: u64,
    /// Messages that this process accepted.
    accepted: Vec<u64>,
    /// The numbers of messages on a call stream in a cluster, where they are not reused.
    numbers: HashMap<u64, u64>,
    questions: Vec<Seq>,
    /// The store has lost writes at least once.
    has_lost_writes: bool,
}

/// The append in flight.
struct Pending {
    batch: Batch,
    /// The store's answer, if it has the batch already.
    answer: Option<Result<Reported, ()>>,
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
            info: StreamInfo::new(random.pick(&[StreamKind::Call, StreamKind::Push]), vec![1.into()], "n").into(),
            primed: true,
            limits: Arc::new(limits),
        };
        let mut world = World {
            core: StreamCore::open(&params, RETRY_MILLIS),
            store: Store::new(params.info.clone(), retention),
            params,
            is_cluster: random.chance(60),
            pending: None,
            clients: (0..3).map(|_| Client::default()).collect(),
            unnoticed: Vec::new(),
            woken: HashSet::new(),
            next_connection: 0,
            next_message: 0,
            accepted: Vec::new(),
            numbers: HashMap::new(),
            questions: Vec::new(),
            has_lost_writes: false,
        };
        for _ in 0..random.below(4) {
            world.emit(random, false); // no reader can exist yet
        }
        world.connect(0, ReaderStart::default(), false);
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
            83..85 => self.store.evict(),
            85..86 => self.learn_remote_reader(),
            86..88 => self.store.is_down = random.chance(30),
            88..90 => self.recover(),
            90..92 => self.close_reader(),
            92..94 => self.stall(),
            94..96 => self.release(),
            96..97 => self.restart(random),
            97..98 if random.chance(5) => self.emit(random, true),
            98..99 if random.chance(50) => self.lose_writes(random),
            _ => self.early_apply(random),
        }
        if random.chance(80) {
            self.drive(random);
        }
    }

    /// A waiting reader with frames to take must have been woken.
    pub(crate) fn check_wake_ups(&mut self) {
        for at in 0..self.clients.len() {
            let Some(connection) = &self.clients[at].connection else {
                continue;
            };
            let id = connection.id;
            if !connection.waits || connection.token.is_some() || self.woken.contains(&id) {
                continue;
            }
            let (taken, effects) = self.core.take(id, &id);
            assert_eq!(
                taken,
                TakeOutcome::Nothing,
                "a waiting reader has frames to take and was not woken"
            );
            self.apply(effects);
        }
    }

    /// Ends the outage and the stream. Then every client must receive the rest.
    pub(crate) fn finish(&mut self, random: &mut Random) {
        self.store.is_down = false;
        self.settle(random);
        self.recover();
        self.settle(random);
        if !self.core.is_closed() {
            self.emit(random, true);
        }
        self.settle(random);
        let Some(status) = self.store.status() else { return };
        if !status.sealed {
            assert!(
                self.core.is_unlogged(),
                "the stream has ended but its log is not sealed"
            );
            return; // the stream ended in an outage, so its session closes it
        }
        for client in 0..self.clients.len() {
            let mut rounds = 0;
            while !self.clients[client].is_done {
                self.resume(client, random);
                while self.clients[client].connection.is_some() {
                    self.poll(client, random);
                    rounds += 1;
                    assert!(rounds < 10_000, "a client never reaches the end");
                }
            }
            assert_eq!(
                self.clients[client].cursor, status.last,
                "a client has not received the end of the stream"
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
        if self.is_cluster && self.params.info.kind == StreamKind::Call {
            self.numbers.insert(message, seq.0);
        }
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

    /// Starts the next append.
    fn drive(&mut self, random: &mut Random) {
        while let Some(batch) = self.core.next_append(&self.params) {
            assert!(self.pending.is_none(), "two appends are in flight");
            self.pending = Some(Pending { batch, answer: None });
            if random.chance(50) {
                return;
            }
            self.acknowledge(random);
        }
    }

    /// The store applies the batch. Its reply arrives later.
    fn early_apply(&mut self, random: &mut Random) {
        if !self.store.is_down && random.chance(50) {
            self.store_pending(random);
        }
    }

    fn store_pending(&mut self, random: &mut Random) {
        let Some(Pending { batch, answer }) = &mut self.pending else {
            return;
        };
        if answer.is_some() {
            return;
        }
        let batch = batch.clone();
        let mut result = self.store.append(batch.clone());
        if let Err(refused) = result
            && self.is_cluster
            && let Some(again) = batch.after_loss(refused, &self.params.info)
        {
            result = self.store.append(again);
        }
        *answer = Some(result.map(|()| self.store.reader.clone()).map_err(drop));
        self.wake_remote(random);
    }

    /// The store wakes the node of a remote reader. Some wake-ups are lost.
    fn wake_remote(&mut self, random: &mut Random) {
        for connection in self.clients.iter().filter_map(|client| client.connection.as_ref()) {
            if connection.token.is_some() && random.chance(70) {
                self.woken.insert(connection.id);
            }
        }
    }

    fn acknowledge(&mut self, random: &mut Random) {
        if self.pending.is_none() {
            return;
        }
        let fails = self.store.is_down && random.chance(70);
        if !fails || random.chance(50) {
            self.store_pending(random);
        }
        let Some(pending) = self.pending.take() else { return };
        let outcome = match &pending.answer {
            _ if fails => AppendOutcome::StoreFailed, // the store may have the batch nevertheless
            Some(Ok(_)) => AppendOutcome::Stored,
            _ => AppendOutcome::Refused,
        };
        let effects = self.core.appended(&self.params, outcome);
        self.apply(effects);
        if let (AppendOutcome::Stored, Some(Ok(reported)), true) = (outcome, pending.answer, self.is_cluster) {
            let effects = self.core.remote_reader(reported);
            self.apply(effects);
        }
    }

    /// The writer is woken, because the stream has another reader.
    fn learn_remote_reader(&mut self) {
        if self.is_cluster {
            let effects = self.core.remote_reader(self.store.reader.clone());
            self.apply(effects);
        }
    }

    /// The store fails over to a copy without the last writes. An ended stream has no writer that could detect it.
    fn lose_writes(&mut self, random: &mut Random) {
        let seals = self.pending.as_ref().is_some_and(|pending| pending.batch.seals);
        if self.is_cluster && !self.core.is_closed() && !seals {
            self.store.lose_writes(random);
            self.has_lost_writes = true;
        }
    }

    /// The session appends a refresh that replaces the messages without ids.
    fn recover(&mut self) {
        if self.is_cluster && !self.store.is_down && self.core.store_recovered_with_gap(&self.params).is_some() {
            return;
        }
        let Some(status) = self.store.status() else { return };
        if self.store.is_down || !self.core.is_unlogged() || self.core.is_closed() || status.sealed {
            return;
        }
        let unlogged = self.core.last_unlogged();
        let mut last = status.last;
        let seq = if self.is_cluster {
            self.core.first_unseen(status.last)
        } else {
            status.last.unwrap_or_default().next()
        };
        let gap = Some(Seq(seq.0 - 1)).filter(|before| Some(*before) > status.last);
        if self.core.has_unlogged_after(status.last) || gap.is_some() {
            let event = Event::new(seq, Bytes::from_static(b"{\"refresh\":true}"));
            let mut refresh = Batch::new(self.params.epoch, vec![event]);
            refresh.gap = gap;
            assert!(self.store.append(refresh).is_ok(), "the store refused the refresh");
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

    /// Kills the process. The next one adopts the stream.
    fn restart(&mut self, random: &mut Random) {
        if random.chance(50) {
            self.store_pending(random);
        }
        let Some(status) = self.store.status().filter(|_| !self.has_lost_writes) else {
            return;
        };
        self.pending = None;
        self.params.epoch += 1;
        self.core = StreamCore::adopt(&status);
        self.accepted.clear();
        self.questions.clear();
        self.unnoticed.clear();
        for client in &mut self.clients {
            client.connection = None;
        }
    }

    fn apply(&mut self, effects: Effects<ConnectionId>) {
        self.woken.extend(effects.wake);
        if let Some(token) = effects.displaced {
            self.store.detach(&token);
        }
    }
}
