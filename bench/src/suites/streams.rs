//! Event streams: live, replayed and resumed. Every stream must be complete, in order and without repeats.

use super::call::{LoadCounters, measure_load};
use super::{Case, Environment, RunningServer, ServerKind, Setup, Suite, run_load};
use crate::load::{Conn, Dialect, Expected, Request, Session, Target};
use crate::measure::{Metric, Sample};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const EVENTS: u32 = 100;
const METRICS: &[Metric] = &[Metric::Rate, Metric::Cpu, Metric::CoreUse, Metric::WireBytes];
/// Replay: concurrent clients, and missed events per client.
const REPLAY_CLIENTS: usize = 32;
const REPLAY_EVENTS: u32 = 500;
/// Resume: events before the disconnect.
const EVENTS_BEFORE_CUT: u32 = 50;
/// Pause before a client resumes a stream that ended too early.
const RESUME_INTERVAL: Duration = Duration::from_millis(1);

pub(super) fn stream() -> Suite {
    Suite {
        name: "stream",
        title: "Streaming 100 events, memory store",
        unit: "event",
        about: "16 clients make calls. Each call reports progress 100 times without a pause and then returns. All events are \
                stored for a resume.",
        metrics: METRICS,
        cases: sizes(&[
            ServerKind::BareHyper,
            ServerKind::Rethread,
            ServerKind::Rmcp,
            ServerKind::RmcpStore,
        ]),
    }
}

pub(super) fn durable() -> Suite {
    Suite {
        name: "durable",
        title: "Streaming 100 events, embedded store",
        unit: "event",
        about: "As above, but every event is in the embedded store before it is sent. The store syncs to disk every 50 ms.",
        metrics: METRICS,
        cases: sizes(&[ServerKind::BareHyper, ServerKind::RethreadEmbedded]),
    }
}

pub(super) fn stores() -> Suite {
    Suite {
        name: "stores",
        title: "Streaming 100 events, by store",
        unit: "event",
        about: "As above, with each store in the same rounds. Redis runs with `appendfsync everysec` on the core of the load, \
                so its CPU time is not in that of the server, and it slows down the load.",
        metrics: &[
            Metric::Rate,
            Metric::Cpu,
            Metric::CoreUse,
            Metric::RedisCpu,
            Metric::RedisScripts,
            Metric::WireBytes,
        ],
        cases: sizes(&[
            ServerKind::BareHyper,
            ServerKind::Rethread,
            ServerKind::RethreadEmbedded,
            ServerKind::RethreadRedis,
        ]),
    }
}

fn sizes(servers: &[ServerKind]) -> Vec<Case> {
    let sizes = [(64, "64 B"), (1024, "1 KB"), (16_384, "16 KB")];
    let case = |(bytes, name): (usize, &str)| Case {
        name: name.to_owned(),
        servers: servers.to_vec(),
        run: Box::new(move |environment, kind| {
            let running = setup(format!("/burst/{EVENTS}/{bytes}")).start(environment, kind)?;
            run_load(async {
                let readers = open_readers(&running, CLIENTS, EVENTS, bytes).await?;
                measure_clients(environment, &running, readers).await
            })
        }),
    };
    sizes.map(case).into()
}

pub(super) fn replay() -> Suite {
    Suite {
        name: "replay",
        title: "Replay of missed events",
        unit: "event",
        about: "32 clients have each missed 500 events of 64 B. All resume at once from their last event id, repeatedly. Rethread \
                writes many stored events at once, while bare hyper writes one frame per event. Rethread can therefore be faster.",
        metrics: METRICS,
        cases: vec![Case {
            name: "500 events, 32 clients".to_owned(),
            servers: vec![
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadEmbedded,
                ServerKind::Rmcp,
                ServerKind::RmcpStore,
            ],
            run: Box::new(|environment, kind| {
                let running = setup(format!("/replay/{REPLAY_EVENTS}/64")).start(environment, kind)?;
                run_load(async {
                    let mut clients = Vec::new();
                    for reader in open_readers(&running, REPLAY_CLIENTS, REPLAY_EVENTS, 64).await? {
                        clients.push(ReplayClient(reader.disconnect().await?));
                    }
                    running.wait_until_idle().await?; // the calls have ended
                    measure_clients(environment, &running, clients).await
                })
            }),
        }],
    }
}

pub(super) fn resume() -> Suite {
    Suite {
        name: "resume",
        title: "Call with a disconnect and a resume",
        unit: "call with a disconnect",
        about: "Calls with 100 events of 64 B. After 50 events the client disconnects and reads the rest on a new connection. One \
                operation is two connections, two requests, 100 events and the result.",
        metrics: METRICS,
        cases: vec![Case {
            name: "disconnect after 50 of 100".to_owned(),
            servers: vec![
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadEmbedded,
                ServerKind::Rmcp,
                ServerKind::RmcpStore,
            ],
            run: Box::new(|environment, kind| {
                let running = setup(format!("/burst/{EVENTS}/64")).start(environment, kind)?;
                let polls = !kind.is_own_server();
                run_load(async {
                    let readers = open_readers(&running, CLIENTS, EVENTS, 64).await?;
                    let clients = readers.into_iter().map(|reader| ResumeClient { reader, polls });
                    measure_clients(environment, &running, clients.collect()).await
                })
            }),
        }],
    }
}

fn setup(canned_path: String) -> Setup {
    Setup {
        canned_path,
        dialect: Dialect::Legacy,
        stream_at_once: false,
        rmcp_json: false,
    }
}

/// A client that repeats its work.
trait LoadClient {
    /// Runs once and counts its operations.
    async fn run_once(&mut self, counters: &LoadCounters) -> Result<()>;
    fn conn(&mut self) -> &mut Conn;
}

async fn open_readers(running: &RunningServer, clients: usize, events: u32, bytes: usize) -> Result<Vec<Reader>> {
    let mut readers = Vec::new();
    for _ in 0..clients {
        readers.push(Reader::open(&running.target, events, bytes).await?);
    }
    Ok(readers)
}

/// Clients that run without a pause.
async fn measure_clients<C: LoadClient + 'static>(
    environment: &Environment,
    running: &RunningServer,
    clients: Vec<C>,
) -> Result<Sample> {
    let counters = Rc::new(LoadCounters::default());
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for mut client in clients {
        let counters = Rc::clone(&counters);
        client.conn().received = 0;
        tasks.spawn_local(async move {
            while !counters.stop.get() {
                client.run_once(&counters).await?;
            }
            Ok(())
        });
    }
    let (sample, _) = measure_load(environment, running, &counters, tasks).await?;
    Ok(sample)
}

/// A client that calls `burst`.
struct Reader {
    target: Target,
    session: Session,
    conn: Conn,
    request: Request,
    events: u32,
    /// One per message of the stream, learned from the first run.
    expected: Vec<Expected>,
    /// The last event id.
    cursor: String,
}

impl Reader {
    async fn open(target: &Target, events: u32, bytes: usize) -> Result<Reader> {
        let mut conn = Conn::open(target.address).await?;
        let session = target.open(&mut conn).await?;
        let arguments = json!({ "events": events, "bytes": bytes });
        Ok(Reader {
            request: target.call(&session, "burst", &arguments, true),
            target: target.clone(),
            session,
            conn,
            events,
            expected: Vec::new(),
            cursor: String::new(),
        })
    }

    /// Sends the call and returns its id.
    async fn start(&mut self) -> Result<u32> {
        let (request, id) = self.request.next();
        self.conn.send(request).await?;
        self.conn.expect_stream().await?;
        Ok(id)
    }

    /// Reads messages `from..to` of the stream, of which the result is the last. Returns the position where it stopped.
    async fn read(&mut self, id: u32, from: u32, to: u32, mut each: impl FnMut()) -> Result<u32> {
        for at in from..to {
            let event = loop {
                let Some(event) = self.conn.event().await? else {
                    return Ok(at);
                };
                if !event.id.is_empty() {
                    self.cursor.clear();
                    self.cursor.push_str(std::str::from_utf8(event.id)?);
                }
                if !event.data.is_empty() {
                    break event;
                }
            };
            let (events, canned) = (self.events, self.target.canned);
            match self.expected.get(at as usize) {
                Some(expected) => expected.check(event.data, id)?,
                None => {
                    let check_message = |message: &Value| check_message(message, at, events);
                    self.expected
                        .push(Expected::learn(event.data, id, canned, check_message)?);
                }
            }
            each();
        }
        Ok(to)
    }

    /// Reads and counts messages `from..` and the end of the stream.
    async fn read_to_end(&mut self, id: u32, from: u32, counters: &LoadCounters) -> Result<()> {
        let to = self.events + 1;
        let at = self.read(id, from, to, || counters.add(1, 0)).await?;
        ensure!(at == to, "the stream ends before message {} of {to}", at + 1);
        self.expect_end().await?;
        counters.add(0, std::mem::take(&mut self.conn.received));
        Ok(())
    }

    /// Asserts the end of the stream.
    async fn expect_end(&mut self) -> Result<()> {
        match self.conn.event().await? {
            None => Ok(()),
            Some(event) => bail!("unexpected message: {}", String::from_utf8_lossy(event.data)),
        }
    }

    /// Disconnects as soon as there is a cursor.
    async fn disconnect(mut self) -> Result<Disconnected> {
        let id = self.start().await?;
        let mut seen = 0;
        while !self.target.canned {
            let event = self.conn.event().await?.context("the stream has no event")?;
            if !event.data.is_empty() {
                self.expected.push(Expected::learn(event.data, id, false, |message| {
                    check_message(message, 0, self.events)
                })?);
                seen = 1;
            }
            if !event.id.is_empty() {
                self.cursor = std::str::from_utf8(event.id)?.to_owned();
                break;
            }
        }
        self.conn = Conn::open(self.target.address).await?;
        Ok(Disconnected { reader: self, id, seen })
    }

    /// Resumes after the cursor.
    async fn resume(&mut self) -> Result<()> {
        let request = self.target.get(&self.session, Some(&self.cursor));
        self.conn.send(&request).await?;
        self.conn.expect_stream().await
    }
}

/// Checks a message of a burst.
fn check_message(message: &Value, at: u32, events: u32) -> Result<()> {
    if at < events {
        let params = &message["params"];
        let right = message["method"] == "notifications/progress"
            && params["progress"].as_f64() == Some(f64::from(at + 1))
            && params["progressToken"] == "p";
        ensure!(right, "message {} is not the expected one", at + 1);
    } else {
        ensure!(
            message["result"]["content"][0]["text"] == "done",
            "no result at the end"
        );
    }
    Ok(())
}

impl LoadClient for Reader {
    async fn run_once(&mut self, counters: &LoadCounters) -> Result<()> {
        let id = self.start().await?;
        self.read_to_end(id, 0, counters).await
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

/// A client that disconnected after the first event id.
struct Disconnected {
    reader: Reader,
    id: u32,
    seen: u32,
}

struct ReplayClient(Disconnected);

impl LoadClient for ReplayClient {
    async fn run_once(&mut self, counters: &LoadCounters) -> Result<()> {
        let Disconnected { reader, id, seen } = &mut self.0;
        let cursor = reader.cursor.clone();
        reader.resume().await?;
        reader.read_to_end(*id, *seen, counters).await?;
        reader.cursor = cursor;
        Ok(())
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.0.reader.conn
    }
}

struct ResumeClient {
    reader: Reader,
    /// Whether the client resumes repeatedly, for servers that end a resumed stream before the call ends.
    polls: bool,
}

impl LoadClient for ResumeClient {
    async fn run_once(&mut self, counters: &LoadCounters) -> Result<()> {
        let reader = &mut self.reader;
        let id = reader.start().await?;
        let at = reader.read(id, 0, EVENTS_BEFORE_CUT, || ()).await?;
        ensure!(at == EVENTS_BEFORE_CUT, "the stream ends after {at} messages");
        let mut received = reader.conn.received;
        reader.conn = Conn::open(reader.target.address).await?;
        if reader.target.canned {
            reader.read_canned_rest().await?;
        } else {
            let mut at = EVENTS_BEFORE_CUT;
            loop {
                reader.resume().await?;
                at = reader.read(id, at, EVENTS + 1, || ()).await?;
                if at == EVENTS + 1 || !self.polls {
                    break;
                }
                tokio::time::sleep(RESUME_INTERVAL).await;
            }
            ensure!(at == EVENTS + 1, "the stream ends after {at} messages");
            reader.expect_end().await?;
        }
        received += std::mem::take(&mut reader.conn.received);
        counters.add(1, received);
        Ok(())
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.reader.conn
    }
}

impl Reader {
    /// Bare hyper has a separate path for the rest, with messages numbered from 1.
    async fn read_canned_rest(&mut self) -> Result<()> {
        let path = std::mem::replace(
            &mut self.target.path,
            format!("/replay/{}/64", EVENTS - EVENTS_BEFORE_CUT),
        );
        let resumed = self.resume().await;
        self.target.path = path;
        resumed?;
        let mut messages = 0;
        while let Some(event) = self.conn.event().await? {
            messages += u32::from(!event.data.is_empty());
        }
        ensure!(messages == EVENTS - EVENTS_BEFORE_CUT + 1, "{messages} messages");
        Ok(())
    }
}
