//! The oracle: every cursor sees its own stream, in order, once, without gaps, under random interleavings of emit, cut,
//! resume, takeover, push, purge and restart.

use crate::support::{CallScript, ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25};
use proptest::prelude::*;
use rethread::{MemoryLimits, MemoryStore, Retention};
use rethread_testkit::client::{Events, ReceivedMessage, Session};
use rethread_testkit::flaky::FlakyStore;
use serde_json::json;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The call emits an event.
    Emit(usize),
    /// The server pushes a message to the session.
    Push,
    /// The client reads the available events.
    Read(usize),
    /// The connection breaks. The client keeps its cursor.
    Cut(usize),
    /// The client resumes. Its previous connection may still be open.
    Resume(usize),
    /// A second client resumes from an older cursor.
    Rewind(usize, u8),
    /// The call ends.
    Finish(usize),
    /// Another process replaces this one, with all its calls, on the same store.
    Restart,
}

const CALLS: usize = 3;
/// The calls and the push stream, which is the last one.
const STREAMS: usize = CALLS + 1;

fn ops(restarts: u32) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..CALLS).prop_map(Op::Emit),
        2 => Just(Op::Push),
        3 => (0..STREAMS).prop_map(Op::Read),
        2 => (0..STREAMS).prop_map(Op::Cut),
        3 => (0..STREAMS).prop_map(Op::Resume),
        1 => (0..STREAMS, any::<u8>()).prop_map(|(s, n)| Op::Rewind(s, n)),
        1 => (0..CALLS).prop_map(Op::Finish),
        restarts => Just(Op::Restart),
    ];
    proptest::collection::vec(op, 1..80)
}

/// When the store executes and acknowledges an append.
#[derive(Clone, Copy, Debug)]
enum StoreTiming {
    Instant,
    Slow,
    LateToTell,
}

fn store_timing() -> impl Strategy<Value = StoreTiming> {
    prop_oneof![
        Just(StoreTiming::Instant),
        Just(StoreTiming::Slow),
        Just(StoreTiming::LateToTell)
    ]
}

/// The client's view of one stream.
struct Reader {
    events: Option<Events>,
    cursor: Option<String>,
    seen: Vec<ReceivedMessage>,
    /// Whether a gap was reported. Numbers may then be missing, but never repeated or out of order.
    gap: bool,
    ended: bool,
}

impl Reader {
    fn new(events: Events) -> Self {
        Reader {
            events: Some(events),
            cursor: None,
            seen: Vec::new(),
            gap: false,
            ended: false,
        }
    }

    /// Reads until no event arrives for a short time.
    async fn read(&mut self) {
        let Some(events) = &mut self.events else { return };
        loop {
            match tokio::time::timeout(Duration::from_millis(400), events.block()).await {
                Err(_) => return,
                Ok(None) => {
                    self.events = None;
                    self.ended = self.seen.last().is_some_and(|m| m.data.get("method").is_none());
                    return;
                }
                Ok(Some(block)) => {
                    if let Some(id) = &block.id {
                        self.cursor = Some(id.clone());
                    }
                    if let Some(data) = block.data.filter(|data| !data.is_empty()) {
                        let data = serde_json::from_str(&data).unwrap();
                        let message = ReceivedMessage::new(block.id, data);
                        if message.id.is_some() {
                            self.seen.push(message); // a refresh has no ids and is not in the log
                        }
                    }
                }
            }
        }
    }

    async fn resume(&mut self, session: &Session, cursor: &str) {
        let reply = session.get(Some(cursor)).await;
        if reply.status == 400 {
            assert!(self.ended || self.gap || self.seen.last().is_some_and(|m| m.id.as_deref() == Some(cursor)));
            self.events = None;
            return;
        }
        assert_eq!(reply.status, 200);
        self.gap |= reply.header("rethread-gap").is_some();
        self.events = Some(reply.events());
    }
}

fn number(id: &str) -> (u64, u64) {
    let (ordinal, seq) = id.split_once('-').unwrap();
    (ordinal.parse().unwrap(), seq.parse().unwrap())
}

struct OracleRun {
    handler: ScriptedHandler,
    store: FlakyStore<MemoryStore>,
    restarts: usize,
    session: Session,
    script: Vec<Option<CallScript>>,
    readers: Vec<Reader>,
    emitted: Vec<u64>,
    pushed: u64,
}

impl OracleRun {
    async fn new(version: &str, keep: usize, store_timing: StoreTiming) -> Self {
        let handler = ScriptedHandler::new();
        let store = MemoryStore::new(MemoryLimits::default().with_stream(Retention::default().with_events(keep)));
        let store = FlakyStore::new(store);
        match store_timing {
            StoreTiming::Instant => {}
            StoreTiming::Slow => store.switches().delay_appends(Duration::from_millis(7)),
            StoreTiming::LateToTell => store.switches().delay_acknowledgements(Duration::from_millis(7)),
        }
        let (_, client) = handler.serve_with(|b| b.store(store.clone()));
        let session = client.open(version).await;
        let (mut script, mut readers) = (Vec::new(), Vec::new());
        for call in 0..CALLS {
            let name = format!("call{call}");
            let held = handler.script(&name);
            let (reply, ()) = tokio::join!(session.tool(call, &name, json!({})), held.progress(1));
            script.push(Some(held));
            readers.push(Reader::new(reply.events()));
        }
        readers.push(Reader::new(session.get(None).await.events()));
        for reader in &mut readers {
            reader.read().await; // every stream has a cursor from here on
        }
        OracleRun {
            handler,
            store,
            restarts: 0,
            session,
            script,
            readers,
            emitted: vec![1; CALLS],
            pushed: 0,
        }
    }

    async fn push(&mut self) {
        self.pushed += 1;
        let script = self.handler.script("pusher");
        let call = self.session.call("pusher", "tools/call", json!({ "name": "pusher" }));
        let n = self.pushed;
        tokio::join!(call, async {
            script.push(n).await;
            script.finish("x").await;
        });
    }

    /// Abandons the old process without stopping it. The store must fence its later writes.
    fn restart(&mut self) {
        self.restarts += 1;
        let (_, client) = self.handler.serve_with(|b| b.store(self.store.clone()));
        self.session = self.session.with_client(&client);
        for reader in &mut self.readers {
            reader.events = None;
        }
        for script in &mut self.script {
            *script = None;
        }
    }

    async fn finish(&mut self, call: usize) {
        if let Some(script) = self.script[call].take() {
            script.finish("done").await;
        }
    }

    async fn step(&mut self, op: Op) {
        match op {
            Op::Emit(call) => {
                if let Some(script) = &self.script[call] {
                    self.emitted[call] += 1;
                    script.progress(self.emitted[call]).await;
                }
            }
            Op::Push => self.push().await,
            Op::Read(stream) => self.readers[stream].read().await,
            Op::Cut(stream) => self.readers[stream].events = None,
            Op::Resume(stream) => self.resume(stream).await,
            Op::Rewind(stream, back) => self.rewind(stream, back).await,
            Op::Finish(call) => self.finish(call).await,
            Op::Restart => self.restart(),
        }
    }

    /// Resumes after the cursor. Without one, opens a new GET stream.
    async fn resume(&mut self, stream: usize) {
        let reader = &mut self.readers[stream];
        match reader.cursor.clone() {
            Some(cursor) => reader.resume(&self.session, &cursor).await,
            None => reader.events = Some(self.session.get(None).await.events()),
        }
    }

    /// A second reader from an older cursor sees the same retained events as the first.
    async fn rewind(&mut self, stream: usize, back: u8) {
        self.readers[stream].read().await;
        let seen = &self.readers[stream].seen;
        if seen.is_empty() || self.readers[stream].cursor.is_none() {
            return;
        }
        let at = usize::from(back) % seen.len();
        let from = seen[at].id.clone().unwrap();
        let reply = self.session.get(Some(&from)).await;
        self.readers[stream].events = None; // displaced
        if reply.status == 400 {
            return; // the cursor was at the end
        }
        let gap = reply.header("rethread-gap").is_some();
        let mut second = Reader::new(reply.events());
        second.read().await;
        let seen = &self.readers[stream].seen;
        let place = |m: &ReceivedMessage| number(m.id.as_deref().unwrap());
        let last = seen.iter().map(place).max();
        let (again, more): (Vec<_>, Vec<_>) = second.seen.into_iter().partition(|m| Some(place(m)) <= last);
        if gap {
            assert!(
                again.iter().all(|m| seen[at + 1..].contains(m)),
                "some of the same events"
            );
        } else {
            assert_eq!(again, seen[at + 1..], "the same events under the same ids");
        }
        // The second reader replaces the first.
        let reader = &mut self.readers[stream];
        reader.seen.extend(more);
        reader.events = second.events;
        reader.ended |= second.ended;
        reader.gap |= gap;
        reader.cursor = second.cursor.or(reader.cursor.take());
    }

    /// Finishes all calls, resumes cut streams and checks the oracle.
    async fn conclude(mut self, keep: usize) {
        for call in 0..CALLS {
            self.finish(call).await;
        }
        for stream in 0..STREAMS {
            self.readers[stream].read().await;
            if !self.readers[stream].ended {
                self.resume(stream).await;
                self.readers[stream].read().await;
            }
        }
        for (stream, reader) in self.readers.iter().enumerate() {
            let ids: Vec<_> = reader.seen.iter().map(|m| number(m.id.as_deref().unwrap())).collect();
            assert!(
                ids.windows(2).all(|pair| pair[0].0 == pair[1].0),
                "one stream only: {ids:?}"
            );
            assert!(
                ids.windows(2).all(|pair| pair[0].1 < pair[1].1),
                "in order, none twice: {ids:?}"
            );
            if !reader.gap {
                assert!(
                    ids.windows(2).all(|pair| pair[0].1 + 1 == pair[1].1),
                    "no gap untold: {ids:?}"
                );
            }
            if stream < CALLS {
                let last = &reader.seen.last().expect("at least one event").data;
                assert_eq!(last["id"], stream, "its own answer, at the end: {last}");
                let received = crate::support::progress_values(&reader.seen);
                let restarted = last["error"]["data"]["reason"] == "restarted";
                assert!(self.restarts > 0 || !restarted);
                if !reader.gap {
                    // Events that the old process had not stored are lost.
                    let emitted = if restarted {
                        received.len() as u64
                    } else {
                        self.emitted[stream]
                    };
                    assert!(emitted <= self.emitted[stream]);
                    assert_eq!(received, (1..=emitted).collect::<Vec<_>>());
                }
            } else {
                let data = |m: &ReceivedMessage| m.data["params"]["data"].as_u64();
                let pushed: Vec<_> = reader.seen.iter().filter_map(data).collect();
                assert!(pushed.windows(2).all(|pair| pair[0] < pair[1]), "{pushed:?}");
                if !reader.gap && self.pushed as usize <= keep && self.restarts == 0 {
                    assert_eq!(pushed, (1..=self.pushed).collect::<Vec<_>>());
                }
            }
        }
    }
}

fn run(ops: Vec<Op>, version: &'static str, keep: usize, store_timing: StoreTiming) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut world = OracleRun::new(version, keep, store_timing).await;
        for op in ops {
            world.step(op).await;
        }
        world.conclude(keep).await;
    });
}

proptest! {
    /// RES-03, RES-05, RES-06.
    #[test]
    fn oracle_every_cursor_sees_its_own_stream_in_order_once_without_gaps(
        ops in ops(0), version in prop_oneof![Just(V2025_03_26), Just(V2025_06_18), Just(V2025_11_25)], store_timing in store_timing(),
    ) {
        run(ops, version, 4096, store_timing);
    }

    /// RST-02, RST-03: the same with restarts.
    #[test]
    fn oracle_cursors_survive_restarts(
        ops in ops(2), version in prop_oneof![Just(V2025_03_26), Just(V2025_06_18), Just(V2025_11_25)], store_timing in store_timing(),
    ) {
        run(ops, version, 4096, store_timing);
    }

    /// RES-07, RES-08: every missing event was reported.
    #[test]
    fn oracle_eviction_is_never_silent(ops in ops(1), keep in 4usize..12, store_timing in store_timing()) {
        run(ops, V2025_11_25, keep, store_timing);
    }
}
