//! The cost of durability. `cargo bench -p rethread-store-embedded --bench durable`; `-- --quick` is shorter.
//!
//! Prints Markdown. The baseline of appends is a plain file with group commit: one thread, one queue, one write and one
//! sync for all waiting appends. The difference is the cost of streams, sessions and retention. Both run in each round,
//! because the speed of a disk varies. The figures are medians.

use bytes::Bytes;
use rethread_store::{
    Batch, Event, EventStore, Ordinal, Principal, ReadLimit, Retention, Seq, SessionId, SessionKey, SessionStore,
    StreamKey,
};
use rethread_store_embedded::{EmbeddedStore, Limits, Options, Sync};
use rethread_testkit::store_suite::{info, record};
use std::fs::{self, File};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

const STREAMS: u64 = 1000;
const STREAMS_PER_SESSION: u64 = 10;
const EVENT_BYTES: usize = 300;

#[derive(Clone, Copy)]
struct Scale {
    rounds: usize,
    round: Duration,
    events: u64,
}

fn main() {
    if let Ok(part) = std::env::var("DURABLE_CHILD") {
        return child(&part);
    }
    let scale = if std::env::args().any(|argument| argument == "--quick") {
        Scale {
            rounds: 3,
            round: Duration::from_millis(500),
            events: 100_000,
        }
    } else {
        Scale {
            rounds: 7,
            round: Duration::from_secs(2),
            events: 1_000_000,
        }
    };
    let runtime = runtime();
    appends(&runtime, scale);
    replay(&runtime, scale);
    latency(&runtime, scale);
    sessions(&runtime);
    reopen(scale);
}

/// Measures the memory per session with one ended stream.
fn sessions(runtime: &tokio::runtime::Runtime) {
    const SESSIONS: u64 = 10_000;
    let folder = folder();
    let store = open(&folder.path().join("data"), Sync::default(), Retention::default());
    let before = resident_bytes();
    runtime.block_on(async {
        create_sessions(&store, 0..SESSIONS).await;
        for number in 0..SESSIONS {
            let key = StreamKey {
                session: session_key(number),
                ordinal: Ordinal(1),
            };
            let appended = store.append(&key, batch(1..=2).sealing()).await;
            appended.expect("append");
        }
    });
    let each = resident_bytes().saturating_sub(before) / SESSIONS;
    println!("\n## Memory of {SESSIONS} sessions with one ended stream each\n\n{each} bytes each. Goal: 1 kB.");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("tokio runtime")
}

/// A log under test. `append` returns when the event is acknowledged.
trait Target: Clone + Send + 'static {
    fn append(&self, stream: u64, seq: u64) -> impl Future<Output = ()> + Send;
}

#[derive(Clone)]
struct Embedded(EmbeddedStore);

impl Target for Embedded {
    async fn append(&self, stream: u64, seq: u64) {
        let batch = batch(seq..=seq);
        let appended = self.0.append(&stream_key(stream), batch).await;
        appended.expect("append");
    }
}

/// The baseline: group commit over a plain file.
#[derive(Clone)]
struct Plain(mpsc::Sender<(u64, u64, Bytes, oneshot::Sender<()>)>);

impl Plain {
    fn open(path: &Path, sync: bool) -> Self {
        let mut file = File::create_new(path).expect("the file can be created");
        let (send, queue) = mpsc::channel::<(u64, u64, Bytes, oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            let (mut bytes, mut waiting) = (Vec::new(), Vec::new());
            while let Ok(first) = queue.recv() {
                let rest = std::iter::from_fn(|| queue.try_recv().ok()).take(2047);
                for (stream, seq, payload, done) in std::iter::once(first).chain(rest) {
                    bytes.extend_from_slice(&stream.to_le_bytes());
                    bytes.extend_from_slice(&seq.to_le_bytes());
                    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
                    bytes.extend_from_slice(&payload);
                    waiting.push(done);
                }
                file.write_all(&bytes).expect("write");
                if sync {
                    file.sync_data().expect("sync");
                }
                bytes.clear();
                for done in waiting.drain(..) {
                    let _ = done.send(());
                }
            }
        });
        Plain(send)
    }
}

impl Target for Plain {
    async fn append(&self, stream: u64, seq: u64) {
        let (done, wait) = oneshot::channel();
        self.0
            .send((stream, seq, payload(), done))
            .expect("the writer thread runs");
        wait.await.expect("the writer thread acknowledges");
    }
}

fn payload() -> Bytes {
    Bytes::from(vec![b'x'; EVENT_BYTES])
}

fn batch(events: std::ops::RangeInclusive<u64>) -> Batch {
    let is_first = *events.start() <= 1;
    let mut batch = Batch::new(1, events.map(|seq| Event::new(Seq(seq), payload())).collect());
    batch.info = is_first.then(info);
    batch
}

fn session_key(number: u64) -> SessionKey {
    let mut bits = [0; 18];
    bits[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bits[8..16].copy_from_slice(&number.to_be_bytes());
    SessionKey {
        principal: Principal::new("https://issuer.example", "alice"),
        session: SessionId::from_random(bits),
    }
}

fn stream_key(stream: u64) -> StreamKey {
    StreamKey {
        session: session_key(stream / STREAMS_PER_SESSION),
        ordinal: Ordinal(stream % STREAMS_PER_SESSION + 1),
    }
}

async fn create_sessions(store: &EmbeddedStore, sessions: std::ops::Range<u64>) {
    let all: Vec<_> = sessions
        .map(|number| store.create(&session_key(number), record(), false))
        .collect();
    for created in all {
        created.await.expect("create");
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir")
}

fn open(path: &Path, sync: Sync, stream: Retention) -> EmbeddedStore {
    let limits = Limits::default().with_stream(stream);
    let opened = Options::default().sync(sync).limits(limits).open(path);
    opened.unwrap_or_else(|error| panic!("the store does not open: {error}"))
}

/// Runs `writers` tasks that append single events to their own streams. Returns the rate per second and all latencies.
async fn drive(target: &impl Target, next: &[AtomicU64], writers: u64, time: Duration) -> (f64, Vec<Duration>) {
    let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let mut mine: Vec<(u64, u64)> = (writer..STREAMS)
            .step_by(writers as usize)
            .map(|stream| (stream, next[stream as usize].load(Ordering::Relaxed)))
            .collect();
        let (target, stop) = (target.clone(), stop.clone());
        tasks.spawn(async move {
            let mut took = Vec::new();
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                let count = mine.len();
                let (stream, seq) = &mut mine[turn % count];
                let begun = Instant::now();
                target.append(*stream, *seq).await;
                took.push(begun.elapsed());
                *seq += 1;
                turn += 1;
            }
            (mine, took)
        });
    }
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (mine, took) = done.expect("no writer panics");
        for (stream, seq) in mine {
            next[stream as usize].store(seq, Ordering::Relaxed);
        }
        all.extend(took);
    }
    (all.len() as f64 / start.elapsed().as_secs_f64(), all)
}

fn first_numbers() -> Vec<AtomicU64> {
    (0..STREAMS).map(|_| AtomicU64::new(1)).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn appends(runtime: &tokio::runtime::Runtime, scale: Scale) {
    println!("\n## Appends per second, {EVENT_BYTES}-byte events over {STREAMS} streams\n");
    println!("| acknowledged | writers | store | plain file | ratio |\n|---|---|---|---|---|");
    for (name, sync) in [
        ("on the disk (Always)", Sync::Always),
        ("in the page cache (Interval)", Sync::default()),
    ] {
        for writers in [1, 64, 512] {
            let (mut store_rates, mut file_rates) = (Vec::new(), Vec::new());
            let folder = folder();
            let store = open(&folder.path().join("data"), sync, Retention::default());
            runtime.block_on(create_sessions(&store, 0..STREAMS / STREAMS_PER_SESSION));
            let file = Plain::open(&folder.path().join("file"), sync == Sync::Always);
            let (store, store_next, file_next) = (Embedded(store), first_numbers(), first_numbers());
            for _ in 0..scale.rounds {
                store_rates.push(runtime.block_on(drive(&store, &store_next, writers, scale.round)).0);
                file_rates.push(runtime.block_on(drive(&file, &file_next, writers, scale.round)).0);
            }
            let (store, file) = (median(store_rates), median(file_rates));
            println!("| {name} | {writers} | {store:.0} | {file:.0} | {:.2} |", store / file);
        }
    }
    println!("\nGoals: 0.8 and 0.65 on the disk, 0.75 and 0.5 in the page cache, with 64 and 512 writers.");
}

fn replay(runtime: &tokio::runtime::Runtime, scale: Scale) {
    let folder = folder();
    let store = open(&folder.path().join("data"), Sync::Os, Retention::default());
    runtime.block_on(async {
        create_sessions(&store, 0..STREAMS / STREAMS_PER_SESSION).await;
        fill(&store, scale.events / 2).await;
    });
    println!("\n## Replay, {} events, pages of 256\n", scale.events / 2);
    println!("| readers | events per second |\n|---|---|");
    for readers in [1, 8] {
        let rates = (0..scale.rounds).map(|_| {
            let start = Instant::now();
            let events = runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for reader in 0..readers {
                    let store = store.clone();
                    tasks.spawn(async move {
                        let mut events = 0;
                        for stream in (reader..STREAMS).step_by(readers as usize) {
                            events += read(&store, stream).await;
                        }
                        events
                    });
                }
                tasks.join_all().await.into_iter().sum::<u64>()
            });
            assert_eq!(events, scale.events / 2 / STREAMS * STREAMS);
            events as f64 / start.elapsed().as_secs_f64()
        });
        println!("| {readers} | {:.0} |", median(rates.collect()));
    }
}

async fn read(store: &EmbeddedStore, stream: u64) -> u64 {
    let (mut cursor, mut events) = (Seq(0), 0);
    loop {
        let page = store
            .read_after(&stream_key(stream), cursor, ReadLimit::default())
            .await;
        let page = page.expect("read");
        let Some(last) = page.events.last() else {
            return events;
        };
        cursor = last.seq;
        events += page.events.len() as u64;
    }
}

/// Appends `events` events, the same number to each stream.
async fn fill(store: &EmbeddedStore, events: u64) {
    let each = events / STREAMS;
    let mut tasks = JoinSet::new();
    for writer in 0..64 {
        let store = store.clone();
        tasks.spawn(async move {
            for first in (1..=each).step_by(10) {
                for stream in (writer..STREAMS).step_by(64) {
                    let batch = batch(first..=each.min(first + 9));
                    let appended = store.append(&stream_key(stream), batch).await;
                    appended.expect("append");
                }
            }
        });
    }
    tasks.join_all().await;
}

fn latency(runtime: &tokio::runtime::Runtime, scale: Scale) {
    println!("\n## Latency of an append, 64 writers\n");
    println!("| sync | background load | p50 | p99 | p99.9 | per second |\n|---|---|---|---|---|---|");
    let trimmed = Retention::default().with_events(20);
    for (name, sync) in [("Always", Sync::Always), ("Interval", Sync::default())] {
        for (background, retention) in [("none", Retention::default()), ("eviction, sessions that end", trimmed)] {
            let folder = folder();
            let store = open(&folder.path().join("data"), sync, retention);
            runtime.block_on(create_sessions(&store, 0..STREAMS / STREAMS_PER_SESSION));
            let stop = Arc::new(AtomicBool::new(false));
            let ending = (background != "none").then(|| runtime.spawn(end_sessions(store.clone(), stop.clone())));
            let (rate, mut took) = runtime.block_on(async {
                let (target, next) = (Embedded(store.clone()), first_numbers());
                drive(&target, &next, 64, scale.round).await; // fills every stream up to its limit
                drive(&target, &next, 64, scale.round * 3).await
            });
            stop.store(true, Ordering::Relaxed);
            if let Some(ending) = ending {
                runtime.block_on(ending).expect("the background task succeeds");
            }
            took.sort();
            let at = |share: f64| format!("{:.2?}", took[(took.len() as f64 * share) as usize]);
            println!(
                "| {name} | {background} | {} | {} | {} | {rate:.0} |",
                at(0.5),
                at(0.99),
                at(0.999)
            );
        }
    }
}

/// Background load: creates sessions of 20 streams with 20 events each, ends them and sweeps.
async fn end_sessions(store: EmbeddedStore, stop: Arc<AtomicBool>) {
    let mut number = 1_000_000;
    while !stop.load(Ordering::Relaxed) {
        create_sessions(&store, number..number + 1).await;
        let session = session_key(number);
        let appends: Vec<_> = (1..=20)
            .map(|ordinal| {
                let key = StreamKey {
                    session: session.clone(),
                    ordinal: Ordinal(ordinal),
                };
                let mut batch = batch(1..=20);
                batch.seals = ordinal % 2 == 0;
                store.append(&key, batch)
            })
            .collect();
        for append in appends {
            append.await.expect("append");
        }
        store.end(&session).await.expect("end");
        store.forget_session(&session).await.expect("forget_session");
        store.sweep().await.expect("sweep");
        number += 1;
    }
}

fn reopen(scale: Scale) {
    let folder = folder();
    let data = folder.path().join("data");
    let ready = folder.path().join("ready");
    let run = |part: &str| {
        let mut command = Command::new(std::env::current_exe().expect("current_exe"));
        command
            .env("DURABLE_CHILD", part)
            .env("DURABLE_DATA", &data)
            .env("DURABLE_READY", &ready)
            .env("DURABLE_EVENTS", scale.events.to_string())
            .stdout(Stdio::piped());
        command
    };
    let mut writer = run("fill").spawn().expect("spawn");
    while !ready.exists() {
        let exit = writer.try_wait().expect("try_wait");
        assert!(exit.is_none(), "the child exited early: {exit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    writer.kill().and_then(|()| writer.wait()).expect("kill");
    let after_kill = disk_bytes(&data);
    println!("\n## Opening {} events after kill -9\n", scale.events);
    println!("| run | open | resident | after reading all | peak | on disk |\n|---|---|---|---|---|---|");
    for run_number in 1..=3 {
        let output = run("open").output().expect("spawn");
        assert!(output.status.success(), "the child failed: {}", output.status);
        let text = String::from_utf8(output.stdout).expect("the child prints UTF-8");
        let disk = disk_bytes(&data);
        println!("| {run_number} | {} | {} MiB |", text.trim(), disk >> 20);
    }
    println!(
        "\nOn disk right after the kill: {} MiB. Payload: {} MiB.",
        after_kill >> 20,
        (scale.events * EVENT_BYTES as u64) >> 20
    );
    println!("Goals for a million events: opens within 0.5 s, resident below 60 MB.");
}

/// Allocated bytes of the files, without holes.
fn disk_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).expect("read_dir");
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(|entry| size(entry.expect("read_dir"))).sum()
}

fn child(part: &str) {
    let env_var = |name: &str| std::env::var(name).expect("the parent sets it");
    let data = PathBuf::from(env_var("DURABLE_DATA"));
    let runtime = runtime();
    let start = Instant::now();
    let store = open(&data, Sync::default(), Retention::default());
    let opened = start.elapsed();
    if part == "fill" {
        let events = env_var("DURABLE_EVENTS").parse().expect("a number");
        runtime.block_on(async {
            create_sessions(&store, 0..STREAMS / STREAMS_PER_SESSION).await;
            fill(&store, events).await;
        });
        fs::write(env_var("DURABLE_READY"), "").expect("write");
        std::thread::sleep(Duration::from_secs(600)); // the parent kills this process
    }
    std::thread::sleep(Duration::from_millis(500));
    let idle = memory("VmRSS:");
    let events = runtime.block_on(async {
        let mut events = 0;
        for stream in 0..STREAMS {
            events += read(&store, stream).await;
        }
        events
    });
    let expected: u64 = env_var("DURABLE_EVENTS").parse().expect("a number");
    assert_eq!(events, expected / STREAMS * STREAMS);
    println!(
        "{opened:.2?} | {idle} MiB | {} MiB | {} MiB",
        memory("VmRSS:"),
        memory("VmHWM:")
    );
}

fn resident_bytes() -> u64 {
    memory("VmRSS:") << 20
}

/// A field of `/proc/self/status`, in MiB.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .map_or(0, |kib: u64| kib >> 10)
}
