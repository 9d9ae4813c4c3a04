//! One call, one answer, again and again on kept connections.

use super::{Bench, Case, Contender, Running, Setup, Suite, load};
use crate::load::{Conn, Dialect, Expected};
use crate::measure::{Metric, Sample, Stopwatch};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::cell::Cell;
use std::rc::Rc;
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const METRICS: &[Metric] = &[Metric::Rate, Metric::Cpu, Metric::Busy, Metric::Bytes];

pub(super) fn json() -> Suite {
    Suite {
        name: "json",
        unit: "call",
        about: "`echo` called in a session, answered as one JSON object; 16 clients, each with a session and a connection. \
                rmcp answers in JSON only when it keeps no sessions.",
        metrics: METRICS,
        cases: case(
            &[
                Contender::Limit,
                Contender::Memory,
                Contender::Embedded,
                Contender::Adapter,
                Contender::Rmcp,
            ],
            || Setup {
                limit: "/json".to_owned(),
                dialect: Dialect::Legacy,
                streams: false,
                rmcp_json: true,
            },
        ),
    }
}

pub(super) fn sse() -> Suite {
    Suite {
        name: "sse",
        unit: "call",
        about: "`echo` called in a session, answered as a stream that can be resumed from its first byte: a priming event, \
                then the answer. rmcp without an event store keeps what it sent for a while, too.",
        metrics: METRICS,
        cases: case(
            &[
                Contender::Limit,
                Contender::Memory,
                Contender::Embedded,
                Contender::Adapter,
                Contender::Rmcp,
                Contender::RmcpStore,
            ],
            || Setup {
                limit: "/sse".to_owned(),
                dialect: Dialect::Legacy,
                streams: true,
                rmcp_json: false,
            },
        ),
    }
}

pub(super) fn modern() -> Suite {
    Suite {
        name: "modern",
        unit: "call",
        about: "`echo` called on 2026-07-28, without a session, answered as one JSON object.",
        metrics: METRICS,
        cases: case(
            &[Contender::Limit, Contender::Memory, Contender::Adapter, Contender::Rmcp],
            || Setup {
                limit: "/modern".to_owned(),
                dialect: Dialect::Modern,
                streams: false,
                rmcp_json: true,
            },
        ),
    }
}

fn case(contenders: &[Contender], setup: impl Fn() -> Setup + 'static) -> Vec<Case> {
    vec![Case {
        name: format!("{CLIENTS} clients"),
        contenders: contenders.to_vec(),
        run: Box::new(move |bench, contender| {
            let running = setup().start(bench, contender)?;
            load(steady(bench, &running, CLIENTS, &mut Vec::new()))
        }),
    }]
}

/// What all clients of a measurement share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) done: Cell<u64>,
    pub(super) received: Cell<u64>,
    pub(super) stop: Cell<bool>,
}

impl Shared {
    pub(super) fn count(&self, done: u64, received: u64) {
        self.done.set(self.done.get() + done);
        self.received.set(self.received.get() + received);
    }
}

/// Clients that call `echo` without a pause, measured while all are at it. They stay connected in `kept`.
pub(super) async fn steady(bench: &Bench, running: &Running, clients: usize, kept: &mut Vec<Client>) -> Result<Sample> {
    let shared = Rc::new(Shared::default());
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let mut client = Client::connect(running).await?;
        let shared = Rc::clone(&shared);
        client.conn.received = 0;
        tasks.spawn_local(async move {
            while !shared.stop.get() {
                client.call().await?;
                shared.done.set(shared.done.get() + 1);
                shared
                    .received
                    .set(shared.received.get() + std::mem::take(&mut client.conn.received));
            }
            anyhow::Ok(client)
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
        kept.push(ended??);
    }
    Ok(sample.with(Metric::Bytes, received as f64 / done as f64))
}

/// Waits, unless a client fails.
pub(super) async fn wait<T: 'static>(time: std::time::Duration, tasks: &mut JoinSet<Result<T>>) -> Result<()> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        Some(ended) = tasks.join_next() => {
            ended??;
            anyhow::bail!("a client stopped by itself")
        }
    }
}

/// A client that calls `echo`.
pub(super) struct Client {
    conn: Conn,
    request: crate::load::Request,
    expected: Option<Expected>,
    canned: bool,
}

impl Client {
    pub(super) async fn connect(running: &Running) -> Result<Client> {
        let target = &running.target;
        let mut conn = Conn::open(target.address).await?;
        let session = target.open(&mut conn).await?;
        Ok(Client {
            conn,
            request: target.call(&session, "echo", &json!({ "message": "hello" }), false),
            expected: None,
            canned: target.canned,
        })
    }

    pub(super) async fn call(&mut self) -> Result<()> {
        let (request, id) = self.request.next();
        self.conn.send(request).await?;
        answer(&mut self.conn, &mut self.expected, id, self.canned).await
    }
}

/// Reads the answer to `echo`: one message, in whatever form, and nothing after it.
pub(super) async fn answer(conn: &mut Conn, expected: &mut Option<Expected>, id: u32, canned: bool) -> Result<()> {
    let head = conn.head().await?;
    ensure!(head.status == 200, "status {}", head.status);
    if !head.is_stream {
        return check(expected, conn.whole(&head).await?, id, canned);
    }
    let mut answers = 0;
    while let Some(event) = conn.event().await? {
        if !event.data.is_empty() {
            check(expected, event.data, id, canned)?;
            answers += 1;
        }
    }
    ensure!(answers == 1, "{answers} answers");
    Ok(())
}

fn check(expected: &mut Option<Expected>, payload: &[u8], id: u32, canned: bool) -> Result<()> {
    if let Some(expected) = expected {
        return expected.check(payload, id);
    }
    *expected = Some(Expected::learn(payload, id, canned, |answer: &Value| {
        ensure!(answer["result"]["content"][0]["text"] == "hello", "not what was said");
        Ok(())
    })?);
    Ok(())
}
