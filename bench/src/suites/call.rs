//! Single calls on keep-alive connections.

use super::{Case, Environment, RunningServer, ServerKind, Setup, Suite, run_load};
use crate::load::{Conn, Dialect, Expected, Session, Target};
use crate::measure::{Metric, Sample, Stopwatch};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::cell::Cell;
use std::rc::Rc;
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const METRICS: &[Metric] = &[Metric::Rate, Metric::Cpu, Metric::CoreUse, Metric::WireBytes];

pub(super) fn json() -> Suite {
    Suite {
        name: "json",
        title: "Call answered with JSON",
        unit: "call",
        about: "16 clients, each with its own session and connection, call `echo`. The response is one JSON object. rmcp answers \
                in JSON only without sessions.",
        metrics: METRICS,
        cases: case(
            &[
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadEmbedded,
                ServerKind::RethreadRedis,
                ServerKind::RethreadRmcp,
                ServerKind::Rmcp,
            ],
            || Setup {
                canned_path: "/json".to_owned(),
                dialect: Dialect::Legacy,
                stream_at_once: false,
                rmcp_json: true,
            },
        ),
    }
}

pub(super) fn sse() -> Suite {
    Suite {
        name: "sse",
        title: "Call answered with a resumable stream",
        unit: "call",
        about: "16 clients call `echo` in a session. The response is a stream with a priming event and the result, which can be \
                resumed from its first byte. rmcp without an event store caches recent events.",
        metrics: METRICS,
        cases: case(
            &[
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadEmbedded,
                ServerKind::RethreadRedis,
                ServerKind::RethreadRmcp,
                ServerKind::Rmcp,
                ServerKind::RmcpStore,
            ],
            || Setup {
                canned_path: "/sse".to_owned(),
                dialect: Dialect::Legacy,
                stream_at_once: true,
                rmcp_json: false,
            },
        ),
    }
}

pub(super) fn modern() -> Suite {
    Suite {
        name: "modern",
        title: "Stateless call (2026-07-28)",
        unit: "call",
        about: "16 clients call `echo` on 2026-07-28 without a session. The response is one JSON object.",
        metrics: METRICS,
        cases: case(
            &[
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadRmcp,
                ServerKind::Rmcp,
            ],
            || Setup {
                canned_path: "/modern".to_owned(),
                dialect: Dialect::Modern,
                stream_at_once: false,
                rmcp_json: true,
            },
        ),
    }
}

pub(super) fn auth() -> Suite {
    Suite {
        name: "auth",
        title: "Call of an authenticated caller",
        unit: "call",
        about: "The suite `modern` with a token that was accepted before: a static one of 46 bytes, or a JWT of 600 bytes. \
                `rethread` is the same call of an anonymous caller. The goal is at most 1.15 times its CPU time.",
        metrics: METRICS,
        cases: case(
            &[
                ServerKind::Rethread,
                ServerKind::RethreadStaticToken,
                ServerKind::RethreadJwt,
            ],
            || Setup {
                canned_path: "/modern".to_owned(),
                dialect: Dialect::Modern,
                stream_at_once: false,
                rmcp_json: true,
            },
        ),
    }
}

fn case(servers: &[ServerKind], setup: impl Fn() -> Setup + 'static) -> Vec<Case> {
    vec![Case {
        name: format!("{CLIENTS} clients"),
        servers: servers.to_vec(),
        run: Box::new(move |environment, kind| {
            let running = setup().start(environment, kind)?;
            run_load(measure_echo(environment, &running, CLIENTS, &mut Vec::new()))
        }),
    }]
}

/// Counters that all clients of a measurement share.
#[derive(Default)]
pub(super) struct LoadCounters {
    pub(super) operations: Cell<u64>,
    pub(super) received_bytes: Cell<u64>,
    pub(super) stop: Cell<bool>,
}

impl LoadCounters {
    pub(super) fn add(&self, operations: u64, received_bytes: u64) {
        self.operations.set(self.operations.get() + operations);
        self.received_bytes.set(self.received_bytes.get() + received_bytes);
    }
}

/// Clients that call `echo` without a pause. They stay connected in `clients_out`.
pub(super) async fn measure_echo(
    environment: &Environment,
    running: &RunningServer,
    clients: usize,
    clients_out: &mut Vec<EchoClient>,
) -> Result<Sample> {
    let counters = Rc::new(LoadCounters::default());
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let mut client = EchoClient::connect(running).await?;
        let counters = Rc::clone(&counters);
        client.take_received();
        tasks.spawn_local(async move {
            while !counters.stop.get() {
                client.call().await?;
                counters.add(1, client.take_received());
            }
            anyhow::Ok(client)
        });
    }
    let (sample, clients) = measure_load(environment, running, &counters, tasks).await?;
    clients_out.extend(clients);
    Ok(sample)
}

/// Measures running clients after the warm-up, then stops them. Also returns the results of their tasks.
pub(super) async fn measure_load<T: 'static>(
    environment: &Environment,
    running: &RunningServer,
    counters: &LoadCounters,
    mut tasks: JoinSet<Result<T>>,
) -> Result<(Sample, Vec<T>)> {
    wait(environment.scale.warmup, &mut tasks).await?;
    let (operations, bytes) = (counters.operations.get(), counters.received_bytes.get());
    let redis = running.redis_use()?;
    let watch = Stopwatch::start(running.processes())?;
    wait(environment.scale.window, &mut tasks).await?;
    let operations = counters.operations.get() - operations;
    let bytes = counters.received_bytes.get() - bytes;
    let mut sample = watch.stop(operations)?;
    if let (Some(before), Some(after)) = (redis, running.redis_use()?) {
        sample = after.add_to(sample, &before, operations);
    }
    if bytes > 0 {
        sample = sample.with(Metric::WireBytes, bytes as f64 / operations as f64);
    }
    counters.stop.set(true);
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        results.push(ended??);
    }
    Ok((sample, results))
}

/// Waits for `time`, unless a client fails.
async fn wait<T: 'static>(time: std::time::Duration, tasks: &mut JoinSet<Result<T>>) -> Result<()> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        Some(ended) = tasks.join_next() => {
            ended??;
            anyhow::bail!("a client ended")
        }
    }
}

/// A client that calls `echo`.
pub(super) struct EchoClient {
    conn: Conn,
    request: crate::load::Request,
    expected: Option<Expected>,
    canned: bool,
}

impl EchoClient {
    pub(super) async fn connect(running: &RunningServer) -> Result<EchoClient> {
        let target = &running.target;
        let mut conn = Conn::open(target.address).await?;
        let session = target.open(&mut conn).await?;
        Ok(EchoClient::in_session(target, conn, &session))
    }

    /// A client of a session that exists.
    pub(super) fn in_session(target: &Target, conn: Conn, session: &Session) -> EchoClient {
        EchoClient {
            conn,
            request: target.call(session, "echo", &json!({ "message": "hello" }), false),
            expected: None,
            canned: target.canned,
        }
    }

    /// Bytes that were received since the last call of this function.
    pub(super) fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.conn.received)
    }

    pub(super) async fn call(&mut self) -> Result<()> {
        let (request, id) = self.request.next();
        self.conn.send(request).await?;
        read_response(&mut self.conn, &mut self.expected, id, self.canned).await
    }
}

/// Reads the response to `echo`: exactly one message, as JSON or as a stream.
pub(super) async fn read_response(
    conn: &mut Conn,
    expected: &mut Option<Expected>,
    id: u32,
    canned: bool,
) -> Result<()> {
    let head = conn.head().await?;
    ensure!(head.status == 200, "status {}", head.status);
    if !head.is_stream {
        return check(expected, conn.whole(&head).await?, id, canned);
    }
    let mut messages = 0;
    while let Some(event) = conn.event().await? {
        if !event.data.is_empty() {
            check(expected, event.data, id, canned)?;
            messages += 1;
        }
    }
    ensure!(messages == 1, "{messages} messages instead of 1");
    Ok(())
}

fn check(expected: &mut Option<Expected>, payload: &[u8], id: u32, canned: bool) -> Result<()> {
    if let Some(expected) = expected {
        return expected.check(payload, id);
    }
    *expected = Some(Expected::learn(payload, id, canned, |answer: &Value| {
        ensure!(answer["result"]["content"][0]["text"] == "hello", "wrong echo");
        Ok(())
    })?);
    Ok(())
}
