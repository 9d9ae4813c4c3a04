//! Two push streams of two nodes that bind messages of one queue in turn: each message is on exactly one stream.

use crate::client::message_number;
use crate::random::Random;
use bytes::Bytes;
use rethread_proto::event_id::IdPrefix;
use rethread_proto::sse::{Decoder, Draft};
use rethread_proto::stream::{
    AppendOutcome, Batch, BindOutcome, BindStart, ConnectionId, Effects, Event, Framing, Log, Retain, StreamCore,
    StreamInfo, StreamLimits, StreamParams, TakeOutcome,
};
use rethread_proto::{Seq, StreamKind};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

const RETRY_MILLIS: u64 = 1000;
const MAX_BLOCK_BYTES: usize = 1 << 20;

pub(crate) struct SharedQueue {
    queue: VecDeque<Bytes>,
    streams: Vec<Stream>,
    /// The stream that may bind next.
    top: usize,
    next_message: u64,
    store_is_down: bool,
}

struct Stream {
    params: StreamParams,
    core: StreamCore<ConnectionId>,
    log: Log,
    operation: Option<Operation>,
    reader: ConnectionId,
    decoder: Decoder,
    /// The last number that the reader received.
    cursor: u64,
    got: BTreeMap<u64, String>,
}

/// An operation at the store, and its result after execution.
enum Operation {
    Append(Batch, Option<bool>),
    Bind(BindStart, Option<Vec<Bytes>>),
}

impl SharedQueue {
    pub(crate) fn new(random: &mut Random) -> Self {
        SharedQueue {
            queue: VecDeque::new(),
            streams: (0..2).map(|at| Stream::new(at, random)).collect(),
            top: 0,
            next_message: 0,
            store_is_down: false,
        }
    }

    pub(crate) fn operate(&mut self, random: &mut Random) {
        let at = random.below(2);
        match random.below(100) {
            0..25 => {
                let message = self.message(random);
                self.queue.push_back(message);
            }
            25..32 => self.emit(at, random),
            32..60 => self.begin(at, random),
            60..75 => self.execute(at, random),
            75..90 => self.answer(at, random),
            90..94 => self.top = random.below(2),
            94..96 => self.store_is_down = random.chance(30),
            96..98 => self.recover(at),
            _ => self.streams[at].take(),
        }
    }

    /// Ends the outage. Then every message must reach a stream.
    pub(crate) fn finish(&mut self, random: &mut Random) {
        self.store_is_down = false;
        for round in 0..1_000 {
            for at in 0..2 {
                self.answer(at, random);
                self.recover(at);
                self.top = at;
                self.begin(at, random);
            }
            if round > 10 && self.queue.is_empty() && self.streams.iter().all(|stream| stream.operation.is_none()) {
                break;
            }
        }
        self.check();
        assert!(self.queue.is_empty(), "messages stay in the queue");
        for stream in &mut self.streams {
            stream.take();
            let page = stream.log.read_after(Seq(stream.cursor), usize::MAX, usize::MAX);
            assert!(page.events.is_empty(), "the live reader lacks the last events");
        }
    }

    fn message(&mut self, random: &mut Random) -> Bytes {
        self.next_message += 1;
        let filler = "x".repeat(random.pick(&[1, 30, 300, 9_000]));
        format!("{{\"m\":{},\"x\":\"{filler}\"}}", self.next_message).into()
    }

    fn emit(&mut self, at: usize, random: &mut Random) {
        let message = self.message(random);
        let stream = &mut self.streams[at];
        let draft = Draft::copy_of(&message);
        let emitted = stream.core.emit(&stream.params, draft, Retain::None, false);
        let (_, effects) = emitted.expect("push streams stay open");
        drop(effects);
    }

    /// Starts an append if one is due, or a bind.
    fn begin(&mut self, at: usize, random: &mut Random) {
        let stream = &mut self.streams[at];
        if stream.operation.is_some() {
            return;
        }
        stream.operation = match stream.core.next_append(&stream.params) {
            Some(batch) => Some(Operation::Append(batch, None)),
            None => stream
                .core
                .begin_bind(&stream.params)
                .map(|start| Operation::Bind(start, None)),
        };
        if random.chance(50) {
            self.execute(at, random);
        }
    }

    /// The store executes the operation. Its reply arrives later.
    fn execute(&mut self, at: usize, random: &mut Random) {
        let stream = &mut self.streams[at];
        let is_top = self.top == at;
        match &mut stream.operation {
            Some(Operation::Append(batch, result @ None)) => *result = Some(stream.log.append(batch.clone()).is_ok()),
            Some(Operation::Bind(start, result @ None)) => {
                let count = if is_top {
                    random.below(start.max + 1).min(self.queue.len())
                } else {
                    0
                };
                let messages: Vec<_> = self.queue.drain(..count).collect();
                let numbers = (start.first.0..).map(Seq);
                let events = numbers
                    .zip(&messages)
                    .map(|(seq, message)| Event::new(seq, message.clone()));
                let batch = Batch::new(stream.params.epoch, events.collect());
                if !messages.is_empty() {
                    stream.log.append(batch).expect("the batch continues the stream");
                }
                *result = Some(messages);
            }
            _ => {}
        }
    }

    fn answer(&mut self, at: usize, random: &mut Random) {
        let fails = self.store_is_down && random.chance(70);
        if !fails || random.chance(50) {
            self.execute(at, random);
        }
        let stream = &mut self.streams[at];
        let effects = match stream.operation.take() {
            Some(Operation::Append(_, result)) => {
                let outcome = match result {
                    _ if fails => AppendOutcome::StoreFailed,
                    Some(true) => AppendOutcome::Stored,
                    _ => AppendOutcome::Refused,
                };
                stream.core.appended(&stream.params, outcome)
            }
            Some(Operation::Bind(_, result)) => {
                let outcome = match result {
                    Some(messages) if !fails => BindOutcome::Messages(messages),
                    _ => BindOutcome::StoreFailed,
                };
                stream.core.bound(&stream.params, outcome)
            }
            None => Effects::default(),
        };
        assert_eq!(effects.ended, None, "the stream has one writer");
    }

    /// The stream continues after the last number of the store, and its client resumes.
    fn recover(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        if self.store_is_down || !stream.core.is_unlogged() {
            return;
        }
        let last = stream.log.status().last;
        let recovered = stream.core.store_recovered(stream.core.last_unlogged(), last);
        drop(recovered.expect("the outage is over"));
        stream.resume();
    }

    /// Each message is in the queue or on one stream, once. An outage may lose an emitted message.
    pub(crate) fn check(&self) {
        let mut seen = HashSet::new();
        let queued = self.queue.iter().cloned();
        let pages = self
            .streams
            .iter()
            .map(|stream| stream.log.read_after(Seq::PRIMING, usize::MAX, usize::MAX));
        let stored = pages.flat_map(|page| page.events).map(|event| event.payload);
        for message in queued
            .chain(stored)
            .filter_map(|bytes| message_number(&String::from_utf8_lossy(&bytes)))
        {
            assert!(seen.insert(message), "message {message} is in two places");
        }
    }
}

impl Stream {
    fn new(at: usize, random: &mut Random) -> Self {
        let mut limits = StreamLimits::default();
        limits.live_events = random.pick(&[100, 1024]);
        let info = Arc::new(StreamInfo::new(StreamKind::Push, Vec::new(), "n"));
        let params = StreamParams {
            prefix: IdPrefix::new(format!("{}-", 2 * at + 2)),
            framing: Framing::Numbered,
            epoch: 1,
            info: info.clone(),
            primed: random.chance(50),
            limits: Arc::new(limits),
        };
        let reader = ConnectionId(at as u64);
        let mut core = StreamCore::open(&params, RETRY_MILLIS);
        drop(core.attach(reader, Seq::PRIMING, false));
        core.flush();
        Stream {
            core,
            params,
            log: Log::new(info, 1),
            operation: None,
            reader,
            decoder: Decoder::new(MAX_BLOCK_BYTES),
            cursor: 0,
            got: BTreeMap::new(),
        }
    }

    /// The client reconnects and reads missing events from the store.
    fn resume(&mut self) {
        self.reader = ConnectionId(self.reader.0 + 2);
        drop(self.core.attach(self.reader, Seq(self.cursor), true));
        self.take();
    }

    /// The live reader takes everything. It must receive each stored event once, in order.
    fn take(&mut self) {
        loop {
            match self.core.take(self.reader, &self.reader).0 {
                TakeOutcome::Frames(chunk, _) => self.receive(&chunk),
                TakeOutcome::Behind => {
                    let page = self.log.read_after(Seq(self.cursor), usize::MAX, usize::MAX);
                    for event in &page.events {
                        self.got_event(event.seq.0, &String::from_utf8_lossy(&event.payload));
                    }
                    drop(self.core.caught_up(self.reader, Seq(self.cursor), 0));
                }
                TakeOutcome::Close(_) => return self.resume(),
                TakeOutcome::End | TakeOutcome::Nothing => return,
            }
        }
    }

    fn receive(&mut self, chunk: &[u8]) {
        let mut blocks = Vec::new();
        self.decoder
            .feed(chunk, |block| blocks.push(block))
            .expect("no block exceeds the decoder's limit");
        for block in blocks {
            if let Some(id) = &block.id {
                let (_, seq) = id.split_once('-').expect("an event id");
                self.got_event(
                    seq.parse().expect("a number"),
                    block.data.as_deref().unwrap_or_default(),
                );
            }
        }
    }

    fn got_event(&mut self, seq: u64, data: &str) {
        if seq > 0 {
            assert_eq!(seq, self.cursor + 1, "an event is missing or repeated");
            self.cursor = seq;
        }
        assert!(self.got.insert(seq, data.to_owned()).is_none());
        let page = self.log.read_after(Seq(seq.saturating_sub(1)), 1, usize::MAX);
        if seq > 0 {
            assert_eq!(
                page.events[0].payload,
                data.as_bytes(),
                "event {seq} is not stored with this payload"
            );
        }
    }
}
