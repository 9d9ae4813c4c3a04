//! Thousands of open streams: what each costs while nothing happens, how long news takes to reach all of them, and what it
//! takes when all connections break at once.

use super::{Bench, Case, Contender, Running, Scale, Setup, Suite, load};
use crate::load::{Conn, Dialect, Session, Target};
use crate::measure::{Metric, Sample, Stopwatch, median, percentile};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// How often news is sent in one measurement.
const NEWS: usize = 5;
/// Opened before memory is counted, so that what a server makes once is not counted.
const EARLY: usize = 16;
/// Clients that knock at once when all are let in.
const AT_ONCE: usize = 64;

/// GET streams of sessions.
pub(super) fn push(scale: Scale) -> Suite {
    Suite {
        name: "push",
        unit: "delivery",
        about: "Sessions that each hold a GET stream: memory of the server for each (connection included), and the time until a \
                message for all has reached half and 99 of 100 of them.",
        metrics: &[Metric::Resident, Metric::Median, Metric::P99, Metric::Cpu],
        cases: sizes(
            scale,
            &[
                Contender::Limit,
                Contender::Memory,
                Contender::Embedded,
                Contender::Rmcp,
            ],
            Kind::Push,
        ),
    }
}

/// Subscriptions of 2026-07-28.
pub(super) fn listen(scale: Scale) -> Suite {
    Suite {
        name: "listen",
        unit: "delivery",
        about: "Clients of 2026-07-28 that hold a `subscriptions/listen` stream and hear that the tools have changed: the same \
                figures.",
        metrics: &[Metric::Resident, Metric::Median, Metric::P99, Metric::Cpu],
        cases: sizes(
            scale,
            &[Contender::Limit, Contender::Memory, Contender::Rmcp],
            Kind::Listen,
        ),
    }
}

/// A reconnect storm.
pub(super) fn storm(scale: Scale) -> Suite {
    let streams = if scale.quick { 500 } else { 5000 };
    Suite {
        name: "storm",
        unit: "resumed stream",
        about: "All GET streams are cut at once, a message is sent to every session, and all clients come back at once with \
                their last event ids. Each must get the message, once.",
        metrics: &[Metric::Rate, Metric::Cpu, Metric::P99],
        cases: vec![Case {
            name: format!("{streams} streams"),
            contenders: vec![
                Contender::Limit,
                Contender::Memory,
                Contender::Embedded,
                Contender::Rmcp,
            ],
            run: Box::new(move |bench, contender| {
                let running = Kind::Push.setup().start(bench, contender)?;
                load(cut_and_resume(&running, streams))
            }),
        }],
    }
}

fn sizes(scale: Scale, contenders: &[Contender], kind: Kind) -> Vec<Case> {
    let sizes: &[usize] = if scale.quick { &[100, 1000] } else { &[1000, 10_000] };
    let case = |&streams: &usize| Case {
        name: format!("{streams} streams"),
        contenders: contenders.to_vec(),
        run: Box::new(move |bench: &Bench, contender| {
            let running = kind.setup().start(bench, contender)?;
            load(hold_and_tell(&running, kind, streams))
        }),
    };
    sizes.iter().map(case).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Push,
    Listen,
}

impl Kind {
    fn setup(self) -> Setup {
        let (limit, dialect) = match self {
            Kind::Push => ("/push", Dialect::Legacy),
            Kind::Listen => ("/listen", Dialect::Modern),
        };
        Setup {
            limit: limit.to_owned(),
            dialect,
            streams: false,
            rmcp_json: self == Kind::Listen,
        }
    }

    /// Whether a message is the news.
    fn is_news(self, message: &Value) -> bool {
        match self {
            Kind::Push => message["method"] == "notifications/message" && message["params"]["data"] == "hello",
            Kind::Listen => message["method"] == "notifications/tools/list_changed",
        }
    }
}

/// One client with an open stream.
struct Stream {
    nth: usize,
    conn: Conn,
    session: Session,
    cursor: String,
}

impl Stream {
    /// Opens a stream and waits until it is certain that the server knows of it.
    async fn open(target: &Target, kind: Kind, nth: usize) -> Result<Stream> {
        let mut conn = Conn::open_nth(nth, target.address).await?;
        let session = target.open(&mut conn).await?;
        let mut stream = Stream {
            nth,
            conn,
            session,
            cursor: String::new(),
        };
        match kind {
            Kind::Push => stream.conn.send(&target.get(&stream.session, None)).await?,
            Kind::Listen => {
                let params = json!({ "notifications": { "toolsListChanged": true } });
                let mut request = target.request(&stream.session, "subscriptions/listen", params);
                stream.conn.send(request.next().0).await?;
            }
        }
        stream.expect_stream().await?;
        if let Some(event) = stream.conn.event().await? {
            stream.cursor = std::str::from_utf8(event.id)?.to_owned();
        }
        Ok(stream)
    }

    async fn expect_stream(&mut self) -> Result<()> {
        let head = self.conn.head().await?;
        if head.status != 200 || !head.is_stream {
            let body = String::from_utf8_lossy(self.conn.whole(&head).await?).into_owned();
            bail!("no stream: {} {body}", head.status);
        }
        Ok(())
    }

    /// Waits for the next message, which must be the news. The first one is judged by its meaning; it is the same for all.
    async fn news(&mut self, kind: Kind, news: &OnceCell<Vec<u8>>) -> Result<()> {
        loop {
            let event = self.conn.event().await?.context("the stream ended")?;
            if event.data.is_empty() {
                continue;
            }
            if news.get().is_none() {
                let message: Value = serde_json::from_slice(event.data)?;
                ensure!(kind.is_news(&message), "not the news: {message}");
            }
            let news = news.get_or_init(|| event.data.to_vec());
            ensure!(
                event.data == news,
                "not the news: {}",
                String::from_utf8_lossy(event.data)
            );
            return Ok(());
        }
    }
}

async fn open_all(target: &Target, kind: Kind, range: std::ops::Range<usize>) -> Result<Vec<Stream>> {
    let doors = Rc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for nth in range {
        let (target, doors) = (target.clone(), Rc::clone(&doors));
        tasks.spawn_local(async move {
            let _in = doors.acquire().await?;
            Stream::open(&target, kind, nth).await
        });
    }
    let mut streams = Vec::new();
    while let Some(stream) = tasks.join_next().await {
        streams.push(stream??);
    }
    Ok(streams)
}

/// What those who wait for news share.
struct Board {
    told: Cell<Instant>,
    news: OnceCell<Vec<u8>>,
    heard: RefCell<Vec<f64>>,
    all: usize,
    complete: Notify,
}

impl Board {
    fn new(all: usize) -> Rc<Board> {
        Rc::new(Board {
            told: Cell::new(Instant::now()),
            news: OnceCell::new(),
            heard: RefCell::default(),
            all,
            complete: Notify::new(),
        })
    }

    fn heard(&self) {
        let mut heard = self.heard.borrow_mut();
        heard.push(self.told.get().elapsed().as_secs_f64() * 1000.0);
        if heard.len() == self.all {
            self.complete.notify_one();
        }
    }

    /// The times until half and until 99 of 100 had heard.
    fn times(&self) -> (f64, f64) {
        let mut heard = std::mem::take(&mut *self.heard.borrow_mut());
        heard.sort_by(f64::total_cmp);
        (percentile(&heard, 0.5), percentile(&heard, 0.99))
    }
}

async fn hold_and_tell(running: &Running, kind: Kind, streams: usize) -> Result<Sample> {
    let mut teller = Teller::open(&running.target, kind).await?;
    let early = open_all(&running.target, kind, 0..EARLY).await?;
    let before = running.settle().await?;
    let late = open_all(&running.target, kind, EARLY..EARLY + streams).await?;
    let after = running.settle().await?;

    let all = early.len() + late.len();
    let board = Board::new(all);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for mut stream in early.into_iter().chain(late) {
        let board = Rc::clone(&board);
        tasks.spawn_local(async move {
            loop {
                stream.news(kind, &board.news).await?;
                board.heard();
            }
        });
    }
    teller.tell().await?; // once without a clock: buffers grow, pages are touched
    complete(&board, &mut tasks).await?;
    board.times();
    let watch = Stopwatch::start(&running.server)?;
    let (mut halves, mut most) = (Vec::new(), Vec::new());
    for _ in 0..NEWS {
        board.told.set(Instant::now());
        teller.tell().await?;
        complete(&board, &mut tasks).await?;
        let (half, p99) = board.times();
        halves.push(half);
        most.push(p99);
    }
    let sample = watch.stop((NEWS * all) as u64)?;
    Ok(sample
        .with(Metric::Resident, (after as f64 - before as f64) / streams as f64)
        .with(Metric::Median, median(halves).unwrap_or(f64::NAN))
        .with(Metric::P99, median(most).unwrap_or(f64::NAN)))
}

/// Waits until all have heard, unless a stream fails.
async fn complete(board: &Board, tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    tokio::select! {
        () = board.complete.notified() => Ok(()),
        Some(ended) = tasks.join_next() => {
            ended??;
            bail!("a stream stopped by itself")
        }
    }
}

async fn cut_and_resume(running: &Running, streams: usize) -> Result<Sample> {
    let kind = Kind::Push;
    let mut teller = Teller::open(&running.target, kind).await?;
    let open = open_all(&running.target, kind, 0..streams).await?;
    let cut: Vec<_> = open
        .into_iter()
        .map(|stream| (stream.nth, stream.session, stream.cursor))
        .collect();
    running.settle().await?; // it has seen that they are gone
    teller.tell().await?;
    let target = Target {
        path: if running.target.canned {
            "/missed".to_owned()
        } else {
            running.target.path.clone()
        },
        ..running.target.clone()
    };
    let board = Board::new(streams);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let watch = Stopwatch::start(&running.server)?;
    for (nth, session, cursor) in cut {
        let (board, target) = (Rc::clone(&board), target.clone());
        tasks.spawn_local(async move {
            let mut conn = Conn::open_nth(nth, target.address).await?;
            conn.send(&target.get(&session, Some(&cursor))).await?;
            let mut stream = Stream {
                nth,
                conn,
                session,
                cursor,
            };
            stream.expect_stream().await?;
            stream.news(kind, &board.news).await?;
            board.heard();
            match stream.news(kind, &board.news).await {
                Ok(()) => bail!("the message came twice"),
                Err(error) => Err(error),
            }
        });
    }
    complete(&board, &mut tasks).await?;
    let sample = watch.stop(streams as u64)?;
    Ok(sample.with(Metric::P99, board.times().1))
}

/// A client that has the server tell everybody.
struct Teller {
    conn: Conn,
    request: crate::load::Request,
}

impl Teller {
    async fn open(target: &Target, kind: Kind) -> Result<Teller> {
        let mut target = target.clone();
        if target.canned {
            "/news".clone_into(&mut target.path);
        }
        let mut conn = Conn::open(target.address).await?;
        let session = target.open(&mut conn).await?;
        let tool = match kind {
            Kind::Push => "fan",
            Kind::Listen => "changed",
        };
        let request = target.call(&session, tool, &json!({ "message": "hello" }), false);
        Ok(Teller { conn, request })
    }

    async fn tell(&mut self) -> Result<()> {
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
