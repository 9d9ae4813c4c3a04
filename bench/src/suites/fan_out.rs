//! Thousands of open streams: their memory while idle, the latency of a broadcast, and a reconnect storm.

use super::{Case, Environment, RunningServer, Scale, ServerKind, Setup, Suite, run_load};
use crate::load::{Conn, Dialect, Session, Target};
use crate::measure::{Metric, Sample, Stopwatch, grouped, median, percentile};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// Broadcasts per measurement.
const BROADCASTS: usize = 5;
/// Streams opened before the memory is measured, to exclude one-time allocations.
const WARMUP_STREAMS: usize = 16;
/// Streams that are opened concurrently.
const MAX_CONCURRENT_OPENS: usize = 64;

/// Broadcasts to GET streams.
pub(super) fn push(scale: Scale) -> Suite {
    Suite {
        name: "push",
        title: "Fan-out to GET streams",
        unit: "delivery",
        about: "Each session holds a GET stream. Memory is per stream and includes the connection. p50 and p99 are the times \
                until a broadcast has reached 50 % and 99 % of the streams.",
        metrics: &[Metric::Memory, Metric::P50, Metric::P99, Metric::Cpu],
        cases: sizes(
            scale,
            &[
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadEmbedded,
                ServerKind::Rmcp,
            ],
            StreamKind::Push,
        ),
    }
}

/// Broadcasts to subscriptions of 2026-07-28.
pub(super) fn listen(scale: Scale) -> Suite {
    Suite {
        name: "listen",
        title: "Fan-out to subscriptions (2026-07-28)",
        unit: "delivery",
        about: "Each client holds a `subscriptions/listen` stream and is notified of a tool change. Metrics as for GET \
                streams.",
        metrics: &[Metric::Memory, Metric::P50, Metric::P99, Metric::Cpu],
        cases: sizes(
            scale,
            &[ServerKind::BareHyper, ServerKind::Rethread, ServerKind::Rmcp],
            StreamKind::Listen,
        ),
    }
}

/// All clients reconnect at once.
pub(super) fn storm(scale: Scale) -> Suite {
    let streams = if scale.quick { 500 } else { 5000 };
    Suite {
        name: "storm",
        title: "Reconnect storm",
        unit: "resumed stream",
        about: "All GET streams disconnect at once. The server sends a message to every session. Then all clients resume at once \
                with their last event ids, and each gets the message once.",
        metrics: &[Metric::Rate, Metric::Cpu, Metric::P99],
        cases: vec![Case {
            name: format!("{} streams", grouped(streams as f64)),
            servers: vec![
                ServerKind::BareHyper,
                ServerKind::Rethread,
                ServerKind::RethreadEmbedded,
                ServerKind::Rmcp,
            ],
            run: Box::new(move |environment, server| {
                let running = StreamKind::Push.setup().start(environment, server)?;
                run_load(measure_storm(&running, streams))
            }),
        }],
    }
}

fn sizes(scale: Scale, servers: &[ServerKind], kind: StreamKind) -> Vec<Case> {
    let sizes: &[usize] = if scale.quick { &[100, 1000] } else { &[1000, 10_000] };
    let case = |&streams: &usize| Case {
        name: format!("{} streams", grouped(streams as f64)),
        servers: servers.to_vec(),
        run: Box::new(move |environment: &Environment, server| {
            let running = kind.setup().start(environment, server)?;
            run_load(measure_fan_out(&running, kind, streams))
        }),
    };
    sizes.iter().map(case).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Push,
    Listen,
}

impl StreamKind {
    fn setup(self) -> Setup {
        let (path, dialect) = match self {
            StreamKind::Push => ("/push", Dialect::Legacy),
            StreamKind::Listen => ("/listen", Dialect::Modern),
        };
        Setup {
            canned_path: path.to_owned(),
            dialect,
            stream_at_once: false,
            rmcp_json: self == StreamKind::Listen,
        }
    }

    /// Whether a message is the broadcast.
    fn is_broadcast(self, message: &Value) -> bool {
        match self {
            StreamKind::Push => message["method"] == "notifications/message" && message["params"]["data"] == "hello",
            StreamKind::Listen => message["method"] == "notifications/tools/list_changed",
        }
    }
}

/// A client with an open stream.
struct StreamClient {
    nth: usize,
    conn: Conn,
    session: Session,
    cursor: String,
}

impl StreamClient {
    /// Opens a stream and waits for its first event, so that the server has attached it.
    async fn open(target: &Target, kind: StreamKind, nth: usize) -> Result<StreamClient> {
        let mut conn = Conn::open_nth(nth, target.address).await?;
        let session = target.open(&mut conn).await?;
        let mut stream = StreamClient {
            nth,
            conn,
            session,
            cursor: String::new(),
        };
        match kind {
            StreamKind::Push => stream.conn.send(&target.get(&stream.session, None)).await?,
            StreamKind::Listen => {
                let params = json!({ "notifications": { "toolsListChanged": true } });
                let mut request = target.request(&stream.session, "subscriptions/listen", params);
                stream.conn.send(request.next().0).await?;
            }
        }
        stream.conn.expect_stream().await?;
        if let Some(event) = stream.conn.event().await? {
            stream.cursor = std::str::from_utf8(event.id)?.to_owned();
        }
        Ok(stream)
    }

    /// Waits for the next message, which must be the broadcast. The first one is parsed; all others must be the same bytes.
    async fn next_broadcast(&mut self, kind: StreamKind, expected: &OnceCell<Vec<u8>>) -> Result<()> {
        loop {
            let event = self.conn.event().await?.context("the stream ended")?;
            if event.data.is_empty() {
                continue;
            }
            if expected.get().is_none() {
                let message: Value = serde_json::from_slice(event.data)?;
                ensure!(kind.is_broadcast(&message), "not the broadcast: {message}");
            }
            let expected = expected.get_or_init(|| event.data.to_vec());
            ensure!(
                event.data == expected,
                "not the broadcast: {}",
                String::from_utf8_lossy(event.data)
            );
            return Ok(());
        }
    }
}

async fn open_all(target: &Target, kind: StreamKind, range: std::ops::Range<usize>) -> Result<Vec<StreamClient>> {
    let permits = Rc::new(Semaphore::new(MAX_CONCURRENT_OPENS));
    let mut tasks = JoinSet::new();
    for nth in range {
        let (target, permits) = (target.clone(), Rc::clone(&permits));
        tasks.spawn_local(async move {
            let _permit = permits.acquire().await?;
            StreamClient::open(&target, kind, nth).await
        });
    }
    let mut streams = Vec::new();
    while let Some(stream) = tasks.join_next().await {
        streams.push(stream??);
    }
    Ok(streams)
}

/// Records when each stream received a broadcast.
struct DeliveryLog {
    sent_at: Cell<Instant>,
    /// The bytes of the broadcast.
    expected: OnceCell<Vec<u8>>,
    /// Milliseconds since `sent_at`, one entry per delivery.
    latencies: RefCell<Vec<f64>>,
    streams: usize,
    complete: Notify,
}

impl DeliveryLog {
    fn new(streams: usize) -> Rc<DeliveryLog> {
        Rc::new(DeliveryLog {
            sent_at: Cell::new(Instant::now()),
            expected: OnceCell::new(),
            latencies: RefCell::default(),
            streams,
            complete: Notify::new(),
        })
    }

    fn record(&self) {
        let mut latencies = self.latencies.borrow_mut();
        latencies.push(self.sent_at.get().elapsed().as_secs_f64() * 1000.0);
        if latencies.len() == self.streams {
            self.complete.notify_one();
        }
    }

    /// Takes the latencies and returns p50 and p99 in milliseconds.
    fn take_percentiles(&self) -> (f64, f64) {
        let mut latencies = std::mem::take(&mut *self.latencies.borrow_mut());
        latencies.sort_by(f64::total_cmp);
        (percentile(&latencies, 0.5), percentile(&latencies, 0.99))
    }
}

async fn measure_fan_out(running: &RunningServer, kind: StreamKind, streams: usize) -> Result<Sample> {
    let mut broadcaster = Broadcaster::open(&running.target, kind).await?;
    let warmup = open_all(&running.target, kind, 0..WARMUP_STREAMS).await?;
    let before = running.wait_until_idle().await?;
    let measured = open_all(&running.target, kind, WARMUP_STREAMS..WARMUP_STREAMS + streams).await?;
    let after = running.wait_until_idle().await?;

    let all = warmup.len() + measured.len();
    let log = DeliveryLog::new(all);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for mut stream in warmup.into_iter().chain(measured) {
        let log = Rc::clone(&log);
        tasks.spawn_local(async move {
            loop {
                stream.next_broadcast(kind, &log.expected).await?;
                log.record();
            }
        });
    }
    broadcaster.broadcast().await?; // unmeasured: buffers grow and pages are touched
    wait_for_all(&log, &mut tasks).await?;
    log.take_percentiles();
    let watch = Stopwatch::start(running.processes())?;
    let (mut p50s, mut p99s) = (Vec::new(), Vec::new());
    for _ in 0..BROADCASTS {
        log.sent_at.set(Instant::now());
        broadcaster.broadcast().await?;
        wait_for_all(&log, &mut tasks).await?;
        let (p50, p99) = log.take_percentiles();
        p50s.push(p50);
        p99s.push(p99);
    }
    let sample = watch.stop((BROADCASTS * all) as u64)?;
    Ok(sample
        .with(Metric::Memory, (after as f64 - before as f64) / streams as f64)
        .with(Metric::P50, median(p50s).unwrap_or(f64::NAN))
        .with(Metric::P99, median(p99s).unwrap_or(f64::NAN)))
}

/// Waits for all deliveries, unless a stream fails.
async fn wait_for_all(log: &DeliveryLog, tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    tokio::select! {
        () = log.complete.notified() => Ok(()),
        Some(ended) = tasks.join_next() => {
            ended??;
            bail!("a stream ended")
        }
    }
}

async fn measure_storm(running: &RunningServer, streams: usize) -> Result<Sample> {
    let kind = StreamKind::Push;
    let mut broadcaster = Broadcaster::open(&running.target, kind).await?;
    let open = open_all(&running.target, kind, 0..streams).await?;
    let cut: Vec<_> = open
        .into_iter()
        .map(|stream| (stream.nth, stream.session, stream.cursor))
        .collect();
    running.wait_until_idle().await?; // the server has noticed the disconnects
    broadcaster.broadcast().await?;
    let target = Target {
        path: if running.target.canned {
            "/missed".to_owned()
        } else {
            running.target.path.clone()
        },
        ..running.target.clone()
    };
    let log = DeliveryLog::new(streams);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let watch = Stopwatch::start(running.processes())?;
    for (nth, session, cursor) in cut {
        let (log, target) = (Rc::clone(&log), target.clone());
        tasks.spawn_local(async move {
            let mut conn = Conn::open_nth(nth, target.address).await?;
            conn.send(&target.get(&session, Some(&cursor))).await?;
            let mut stream = StreamClient {
                nth,
                conn,
                session,
                cursor,
            };
            stream.conn.expect_stream().await?;
            stream.next_broadcast(kind, &log.expected).await?;
            log.record();
            match stream.next_broadcast(kind, &log.expected).await {
                Ok(()) => bail!("the message arrived twice"),
                Err(error) => Err(error),
            }
        });
    }
    wait_for_all(&log, &mut tasks).await?;
    let sample = watch.stop(streams as u64)?;
    Ok(sample.with(Metric::P99, log.take_percentiles().1))
}

/// A client that makes the server broadcast.
struct Broadcaster {
    conn: Conn,
    request: crate::load::Request,
}

impl Broadcaster {
    async fn open(target: &Target, kind: StreamKind) -> Result<Broadcaster> {
        let mut target = target.clone();
        if target.canned {
            "/broadcast".clone_into(&mut target.path);
        }
        let mut conn = Conn::open(target.address).await?;
        let session = target.open(&mut conn).await?;
        let tool = match kind {
            StreamKind::Push => "broadcast",
            StreamKind::Listen => "change_tools",
        };
        let request = target.call(&session, tool, &json!({ "message": "hello" }), false);
        Ok(Broadcaster { conn, request })
    }

    async fn broadcast(&mut self) -> Result<()> {
        self.conn.send(self.request.next().0).await?;
        let head = self.conn.head().await?;
        ensure!(head.status == 200, "status {}", head.status);
        if head.is_stream {
            while self.conn.event().await?.is_some() {}
        } else {
            self.conn.whole(&head).await?;
        }
        Ok(())
    }
}
