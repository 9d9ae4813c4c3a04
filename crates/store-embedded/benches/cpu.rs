//! Measures the CPU time per event. `taskset -c 1 cargo bench -p rethread-store-embedded --bench cpu` runs all cases; a
//! name after `--` selects the cases that contain it.
//!
//! Sixteen tasks each append to one stream after another: a priming event, 100 events and an answer. The CPU time is
//! user and system time of all threads, from before the first append until the store is closed.

use bytes::Bytes;
use rethread_store::{
    Batch, Event, EventStore, Ordinal, Principal, Retain, Seq, SessionId, SessionKey, SessionStore, StreamKey,
};
use rethread_store_embedded::{EmbeddedStore, Limits};
use rethread_testkit::store_suite::{info, record};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const WRITERS: u64 = 16;
/// Events per stream, without the priming event and the answer.
const EVENTS: u64 = 100;

struct Case {
    name: &'static str,
    size: usize,
    events_per_batch: u64,
}

const CASES: [Case; 6] = [
    Case {
        name: "64 B in batches",
        size: 64,
        events_per_batch: 101,
    },
    Case {
        name: "1 KB in batches",
        size: 1 << 10,
        events_per_batch: 64,
    },
    Case {
        name: "16 KB in batches",
        size: 16 << 10,
        events_per_batch: 4,
    },
    Case {
        name: "64 B one by one",
        size: 64,
        events_per_batch: 1,
    },
    Case {
        name: "1 KB one by one",
        size: 1 << 10,
        events_per_batch: 1,
    },
    Case {
        name: "16 KB one by one",
        size: 16 << 10,
        events_per_batch: 1,
    },
];

fn main() {
    if std::env::args().any(|argument| argument == "--lone") {
        return lone_writer();
    }
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(4.0));
    println!("| batches | CPU time per event | events per second | held | on disk |\n|---|---|---|---|---|");
    for case in &CASES {
        if wanted.as_ref().is_none_or(|wanted| case.name.contains(wanted.as_str())) {
            measure(case, time);
        }
    }
}

fn measure(case: &Case, time: Duration) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("tokio runtime");
    let limits = Limits::default();
    let store = EmbeddedStore::builder()
        .limits(limits)
        .open(folder.path())
        .unwrap_or_else(|error| panic!("the store does not open: {error}"));
    let payload = Bytes::from(vec![b'x'; case.size]);
    let (begun, before) = (Instant::now(), cpu_time());
    let events: u64 = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            tasks.spawn(write(
                store.clone(),
                writer,
                payload.clone(),
                case.events_per_batch,
                begun + time,
            ));
        }
        tasks.join_all().await.into_iter().sum()
    });
    let (took, usage) = (begun.elapsed(), store.usage());
    drop(store);
    let spent = cpu_time() - before;
    println!(
        "| {} | {:.2} µs | {:.0} | {} MiB | {} MiB |",
        case.name,
        spent.as_secs_f64() * 1e6 / events as f64,
        events as f64 / took.as_secs_f64(),
        usage.held_bytes >> 20,
        usage.disk_bytes >> 20
    );
}

/// One writer appends single events of 300 bytes, then complete streams: a priming event and an answer. Most of these make a
/// session forget its oldest stream. For comparison, the same thread writes the same bytes to a file.
fn lone_writer() {
    const ROUNDS: usize = 7;
    const APPENDS: u64 = 50_000;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("tempdir");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("tokio runtime");
    let store = EmbeddedStore::open(folder.path().join("data"))
        .unwrap_or_else(|error| panic!("the store does not open: {error}"));
    let mut file = std::fs::File::create(folder.path().join("file")).expect("the file can be created");
    let payload = Bytes::from(vec![b'x'; 300]);
    let session = SessionKey {
        principal: Principal::new("https://issuer.example", "alice"),
        session: SessionId::from_random([1; 18]),
    };
    runtime
        .block_on(store.create(&session, record(), false))
        .expect("create");
    let key = StreamKey {
        session,
        ordinal: Ordinal(1),
    };
    println!("| round | store: CPU time per append | complete stream | plain file |\n|---|---|---|---|");
    let (mut seq, mut streams) = (0, 1);
    for round in 1..=ROUNDS {
        let before = cpu_time();
        runtime.block_on(async {
            for _ in 0..APPENDS {
                let batch = Batch::new(1, vec![Event::new(Seq(seq), payload.clone())]);
                let batch = if seq == 0 { batch.with_info(info()) } else { batch };
                store.append(&key, batch).await.expect("append");
                seq += 1;
            }
        });
        let appended = cpu_time();
        runtime.block_on(async {
            for _ in 0..APPENDS {
                streams += 1;
                let key = StreamKey {
                    session: key.session.clone(),
                    ordinal: Ordinal(streams),
                };
                let answer = Event::new(Seq(1), payload.clone()).with_retain(Retain::Answer);
                let mut batch = Batch::new(1, vec![Event::new(Seq(0), Bytes::new()), answer]).with_info(info());
                batch.seals = true;
                store.append(&key, batch).await.expect("append");
            }
        });
        let completed = cpu_time();
        for _ in 0..APPENDS {
            std::io::Write::write_all(&mut file, &payload).expect("write");
        }
        let each = |time: Duration| time.as_secs_f64() * 1e6 / APPENDS as f64;
        println!(
            "| {round} | {:.2} µs | {:.2} µs | {:.2} µs |",
            each(appended - before),
            each(completed - appended),
            each(cpu_time() - completed)
        );
    }
}

/// Appends to one stream of a session after another until the deadline. Returns the number of events.
async fn write(store: EmbeddedStore, writer: u64, payload: Bytes, batch: u64, until: Instant) -> u64 {
    let mut bits = [7; 18];
    bits[..8].copy_from_slice(&writer.to_be_bytes());
    let session = SessionKey {
        principal: Principal::new("https://issuer.example", "alice"),
        session: SessionId::from_random(bits),
    };
    store.create(&session, record(), false).await.expect("create");
    let mut written = 0;
    for ordinal in 1.. {
        if Instant::now() >= until {
            break;
        }
        let key = StreamKey {
            session: session.clone(),
            ordinal: Ordinal(ordinal),
        };
        let last = EVENTS + 1;
        let mut next = 0;
        while next <= last {
            let end = (next + batch).min(last + 1);
            let mut batch = Batch::new(
                1,
                (next..end).map(|seq| Event::new(Seq(seq), payload.clone())).collect(),
            );
            batch.info = (next == 0).then(info);
            batch.seals = end == last + 1;
            store.append(&key, batch).await.expect("append");
            written += end - next;
            next = end;
        }
    }
    written
}

/// User and system time of all threads of this process so far.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc/self/stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap_or(0))
        .sum();
    Duration::from_millis(ticks * 10) // USER_HZ is 100
}
