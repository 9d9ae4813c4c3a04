//! Streams of events: live, read again, and cut in the middle. Every stream must be whole, in order, without repeats.

use super::call::{Shared, wait};
use super::{Bench, Case, Contender, Running, Setup, Suite, load};
use crate::load::{Conn, Dialect, Expected, Request, Session, Target};
use crate::measure::{Metric, Sample, Stopwatch};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const EVENTS: u32 = 100;
const METRICS: &[Metric] = &[Metric::Rate, Metric::Cpu, Metric::Busy, Metric::Bytes];
/// Replay: sessions that come back at once, and what each has missed.
const RETURNING: usize = 32;
const MISSED: u32 = 500;
/// Resume: how far a client reads before its connection is cut.
const CUT_AFTER: u32 = 50;
/// How soon a client comes back to a stream that ended too early.
const POLL: Duration = Duration::from_millis(1);

/// Live streams, with events in memory or not kept at all.
pub(super) fn stream() -> Suite {
    Suite {
        name: "stream",
        unit: "event",
        about: "A call that reports progress 100 times, without waiting in between, and answers; 16 clients. All events are kept for a \
                resume.",
        metrics: METRICS,
        cases: sizes(&[
            Contender::Limit,
            Contender::Memory,
            Contender::Rmcp,
            Contender::RmcpStore,
        ]),
    }
}

/// The same with events on disk.
pub(super) fn durable() -> Suite {
    Suite {
        name: "durable",
        unit: "event",
        about: "As `stream`, with every event in the embedded store before it is sent, synced every 50 ms.",
        metrics: METRICS,
        cases: sizes(&[Contender::Limit, Contender::Embedded]),
    }
}

fn sizes(contenders: &[Contender]) -> Vec<Case> {
    let sizes = [(64, "64 B"), (1024, "1 KB"), (16_384, "16 KB")];
    let case = |(bytes, name): (usize, &str)| Case {
        name: name.to_owned(),
        contenders: contenders.to_vec(),
        run: Box::new(move |bench, contender| {
            let running = setup(format!("/burst/{EVENTS}/{bytes}")).start(bench, contender)?;
            load(async {
                let readers = open(&running, CLIENTS, EVENTS, bytes).await?;
                steady(bench, &running, readers).await
            })
        }),
    };
    sizes.map(case).into()
}

/// What was missed, read again.
pub(super) fn replay() -> Suite {
    Suite {
        name: "replay",
        unit: "event",
        about: "500 events of 64 B that 32 clients have missed, read by all of them at once from their last event id, again \
                and again.",
        metrics: METRICS,
        cases: vec![Case {
            name: "500 missed, 32 sessions".to_owned(),
            contenders: vec![
                Contender::Limit,
                Contender::Memory,
                Contender::Embedded,
                Contender::Rmcp,
                Contender::RmcpStore,
            ],
            run: Box::new(|bench, contender| {
                let running = setup(format!("/replay/{MISSED}/64")).start(bench, contender)?;
                load(async {
                    let mut returning = Vec::new();
                    for reader in open(&running, RETURNING, MISSED, 64).await? {
                        returning.push(Returning(reader.leave().await?));
                    }
                    running.settle().await?; // the calls are over, and all that they said waits
                    steady(bench, &running, returning).await
                })
            }),
        }],
    }
}

/// A connection that breaks in the middle of a stream.
pub(super) fn resume() -> Suite {
    Suite {
        name: "resume",
        unit: "call with a cut",
        about: "As `stream` with 64 B, but after 50 events the client's connection is cut; the rest comes over a new one. One \
                operation is such a call: two connections, two requests, 100 events and the answer.",
        metrics: METRICS,
        cases: vec![Case {
            name: "cut after 50 of 100".to_owned(),
            contenders: vec![
                Contender::Limit,
                Contender::Memory,
                Contender::Embedded,
                Contender::Rmcp,
                Contender::RmcpStore,
            ],
            run: Box::new(|bench, contender| {
                let running = setup(format!("/burst/{EVENTS}/64")).start(bench, contender)?;
                let polls = !contender.is_ours();
                load(async {
                    let readers = open(&running, CLIENTS, EVENTS, 64).await?;
                    let cut = readers.into_iter().map(|reader| Cut { reader, polls });
                    steady(bench, &running, cut.collect()).await
                })
            }),
        }],
    }
}

fn setup(limit: String) -> Setup {
    Setup {
        limit,
        dialect: Dialect::Legacy,
        streams: false,
        rmcp_json: false,
    }
}

/// What a client does over and over.
trait Repeat {
    /// Counts what it does.
    async fn once(&mut self, shared: &Shared) -> Result<()>;
    fn conn(&mut self) -> &mut Conn;
}

async fn open(running: &Running, clients: usize, events: u32, bytes: usize) -> Result<Vec<Reader>> {
    let mut readers = Vec::new();
    for _ in 0..clients {
        readers.push(Reader::open(&running.target, events, bytes).await?);
    }
    Ok(readers)
}

/// Clients that repeat themselves without a pause, measured while all are at it.
async fn steady<C: Repeat + 'static>(bench: &Bench, running: &Running, clients: Vec<C>) -> Result<Sample> {
    let shared = Rc::new(Shared::default());
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for mut client in clients {
        let shared = Rc::clone(&shared);
        client.conn().received = 0;
        tasks.spawn_local(async move {
            while !shared.stop.get() {
                client.once(&shared).await?;
            }
            Ok(())
        });
    }
    wait(bench.scale.warm, &mut tasks).await?;
    let (done, received) = (shared.done.get(), shared.received.get());
    let watch = Stopwatch::start(&running.server)?;
    wait(bench.scale.window, &mut tasks).await?;
    let (done, received) = (shared.done.get() - done, shared.received.get() - received);
    let sample = watch.stop(done)?;
    shared.stop.set(true);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(sample.with(Metric::Bytes, received as f64 / done as f64))
}

/// A client that calls `burst`.
struct Reader {
    target: Target,
    session: Session,
    conn: Conn,
    request: Request,
    events: u32,
    /// One for each message of the stream: learnt from the first one, byte for byte after that.
    expected: Vec<Expected>,
    /// The last event id that was seen.
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

    /// Sends the call; returns its id.
    async fn start(&mut self) -> Result<u32> {
        let (request, id) = self.request.next();
        self.conn.send(request).await?;
        self.expect_stream().await?;
        Ok(id)
    }

    async fn expect_stream(&mut self) -> Result<()> {
        let head = self.conn.head().await?;
        if head.status != 200 || !head.is_stream {
            let body = String::from_utf8_lossy(self.conn.whole(&head).await?).into_owned();
            bail!("no stream: {} {body}", head.status);
        }
        Ok(())
    }

    /// Reads messages `from..to` of the stream (the answer is the last of all) and nothing else; tells how far it came if
    /// the stream ends before.
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
                    let judge = |message: &Value| judge(message, at, events);
                    self.expected.push(Expected::learn(event.data, id, canned, judge)?);
                }
            }
            each();
        }
        Ok(to)
    }

    /// Reads messages `from..` and the orderly end; counts each.
    async fn read_to_end(&mut self, id: u32, from: u32, shared: &Shared) -> Result<()> {
        let to = self.events + 1;
        let came = self.read(id, from, to, || shared.count(1, 0)).await?;
        ensure!(came == to, "the stream ends before message {} of {to}", came + 1);
        self.end().await?;
        shared.count(0, std::mem::take(&mut self.conn.received));
        Ok(())
    }

    /// The stream must be over.
    async fn end(&mut self) -> Result<()> {
        match self.conn.event().await? {
            None => Ok(()),
            Some(event) => bail!("more than was to come: {}", String::from_utf8_lossy(event.data)),
        }
    }

    /// Goes away as soon as there is a cursor, and waits until the call is over: its messages wait for a return.
    async fn leave(mut self) -> Result<Left> {
        let id = self.start().await?;
        let mut seen = 0;
        while !self.target.canned {
            let event = self.conn.event().await?.context("the stream has no event")?;
            if !event.data.is_empty() {
                self.expected.push(Expected::learn(event.data, id, false, |message| {
                    judge(message, 0, self.events)
                })?);
                seen = 1;
            }
            if !event.id.is_empty() {
                self.cursor = std::str::from_utf8(event.id)?.to_owned();
                break;
            }
        }
        self.conn = Conn::open(self.target.address).await?;
        Ok(Left { reader: self, id, seen })
    }

    /// Continues after the cursor.
    async fn come_back(&mut self) -> Result<()> {
        let request = self.target.get(&self.session, Some(&self.cursor));
        self.conn.send(&request).await?;
        self.expect_stream().await
    }
}

/// What a message of a burst must be.
fn judge(message: &Value, at: u32, events: u32) -> Result<()> {
    if at < events {
        let params = &message["params"];
        let right = message["method"] == "notifications/progress"
            && params["progress"].as_f64() == Some(f64::from(at + 1))
            && params["progressToken"] == "p";
        ensure!(right, "message {} is not the one that is due", at + 1);
    } else {
        ensure!(
            message["result"]["content"][0]["text"] == "done",
            "no answer at the end"
        );
    }
    Ok(())
}

impl Repeat for Reader {
    async fn once(&mut self, shared: &Shared) -> Result<()> {
        let id = self.start().await?;
        self.read_to_end(id, 0, shared).await
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

/// A client that left a stream after its first event id.
struct Left {
    reader: Reader,
    id: u32,
    seen: u32,
}

struct Returning(Left);

impl Repeat for Returning {
    async fn once(&mut self, shared: &Shared) -> Result<()> {
        let Left { reader, id, seen } = &mut self.0;
        let cursor = reader.cursor.clone();
        reader.come_back().await?;
        reader.read_to_end(*id, *seen, shared).await?;
        reader.cursor = cursor;
        Ok(())
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.0.reader.conn
    }
}

struct Cut {
    reader: Reader,
    /// The server ends a resumed stream before the call is over: the client has to come back until it is.
    polls: bool,
}

impl Repeat for Cut {
    async fn once(&mut self, shared: &Shared) -> Result<()> {
        let reader = &mut self.reader;
        let id = reader.start().await?;
        let came = reader.read(id, 0, CUT_AFTER, || ()).await?;
        ensure!(came == CUT_AFTER, "the stream ends after {came} messages");
        let mut received = reader.conn.received;
        reader.conn = Conn::open(reader.target.address).await?;
        if reader.target.canned {
            reader.rest_of_canned().await?;
        } else {
            let mut at = CUT_AFTER;
            loop {
                reader.come_back().await?;
                at = reader.read(id, at, EVENTS + 1, || ()).await?;
                if at == EVENTS + 1 || !self.polls {
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
            ensure!(at == EVENTS + 1, "the stream ends after {at} messages");
            reader.end().await?;
        }
        received += std::mem::take(&mut reader.conn.received);
        shared.count(1, received);
        Ok(())
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.reader.conn
    }
}

impl Reader {
    /// The limit has a path of its own for what is left, whose messages are numbered from 1 again.
    async fn rest_of_canned(&mut self) -> Result<()> {
        let whole = std::mem::replace(&mut self.target.path, format!("/replay/{}/64", EVENTS - CUT_AFTER));
        let came_back = self.come_back().await;
        self.target.path = whole;
        came_back?;
        let mut messages = 0;
        while let Some(event) = self.conn.event().await? {
            messages += u32::from(!event.data.is_empty());
        }
        ensure!(messages == EVENTS - CUT_AFTER + 1, "{messages} messages");
        Ok(())
    }
}
