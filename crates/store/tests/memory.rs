//! The memory backend: the suite that every backend passes, and what only this one promises. The seeds' `EventStore`
//! (`store_event`, `get_events_after`, `clear_session`, `clear_stream`), `StoredEvent` and `InMemoryEventStore`.

use bytes::Bytes;
use rethread_proto::RequestId;
use rethread_proto::clock::Wall;
use rethread_store::{
    Batch, EventStore, MemoryLimits, MemoryStore, Ordinal, ReadLimit, Retention, Seq, SessionRecord, SessionStore,
    StoreError, StreamInfo, StreamKey,
};
use rethread_testkit::store_suite::{Harness, Scene, batch, info, last_batch, record, sequence};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Every test runs on a thread of its own, and has a clock of its own.
    static NOW: Cell<u64> = const { Cell::new(1_700_000_000_000) };
}

fn advance(by: Duration) {
    NOW.set(NOW.get() + by.as_millis() as u64);
}

fn store(limits: MemoryLimits) -> MemoryStore {
    MemoryStore::with_clock(limits, || Wall::from_millis(NOW.get()))
}

struct Memory;

impl Harness for Memory {
    type Store = MemoryStore;

    async fn fresh(&self, stream: Retention) -> MemoryStore {
        store(MemoryLimits {
            stream,
            ..MemoryLimits::default()
        })
    }

    fn advance(&self, _: &MemoryStore, by: Duration) -> bool {
        advance(by);
        true
    }
}

rethread_testkit::store_suite!(Memory);

/// The suite once more, with appends whose results come later, as those of every other backend do.
mod later {
    use super::*;
    use rethread_testkit::flaky::FlakyStore;

    rethread_testkit::store_suite!(|retention: Retention| async move {
        let store = FlakyStore::new(Memory.fresh(retention).await);
        store.switches().delay_appends(Duration::from_micros(1));
        store
    });
}

const TOTAL: usize = 64 << 10;
const SMALL: MemoryLimits = MemoryLimits {
    stream: Retention {
        events: 4096,
        bytes: 8 << 20,
        age: Duration::from_secs(600),
    },
    ended_streams_per_session: 1024,
    total_bytes: TOTAL,
};

/// Batches with payloads of `size` bytes.
fn sized(mut batch: Batch, size: usize) -> Batch {
    for event in &mut batch.events {
        event.payload = Bytes::from(vec![b'x'; size]);
    }
    batch
}

async fn is_known(scene: &Scene<MemoryStore>, ordinal: u64) -> bool {
    scene.store.status(&scene.stream(Ordinal(ordinal))).await.is_ok()
}

#[tokio::test]
async fn d4_under_pressure_the_oldest_ended_streams_become_tombstones() {
    let scene = Scene::over(store(SMALL)).await;
    let open = scene.stream(Ordinal(2));
    scene.append(&open, sized(batch(1..2), 4096)).await;
    for ordinal in (1..60).step_by(2) {
        let key = scene.stream(Ordinal(ordinal));
        scene.append(&key, sized(last_batch(1..2), 4096)).await;
        assert!(
            scene.store.held_bytes() <= TOTAL + 1024,
            "held: {}",
            scene.store.held_bytes()
        );
        assert_eq!(sequence(&scene.page(&key, 0).await), [1], "the newest stream is whole");
    }
    let oldest = scene.page(&scene.first(), 0).await;
    assert!(oldest.events.is_empty() && oldest.has_gap_after(Seq(0)));
    assert!(oldest.status.answers_lost && oldest.status.sealed);
    assert_eq!((oldest.status.info, oldest.status.last), (info(), Some(Seq(1))));
    assert_eq!(
        scene.store.streams(),
        31,
        "no stream is forgotten as long as tombstones make room enough"
    );
    assert_eq!(
        sequence(&scene.page(&open, 0).await),
        [1],
        "what still runs is not given up"
    );
    let again = scene.store.append(&scene.first(), sized(last_batch(1..2), 4096)).await;
    assert!(
        again.is_ok(),
        "a repeated append is harmless even to a tombstone: {again:?}"
    );
    assert!(scene.page(&scene.first(), 0).await.events.is_empty());
}

#[tokio::test]
async fn d4_under_more_pressure_tombstones_are_forgotten_oldest_first() {
    let scene = Scene::over(store(SMALL)).await;
    for ordinal in (1..1000).step_by(2) {
        let key = scene.stream(Ordinal(ordinal));
        scene.append(&key, sized(last_batch(1..2), 1024)).await;
        assert!(
            scene.store.held_bytes() <= TOTAL + 1024,
            "held: {}",
            scene.store.held_bytes()
        );
    }
    assert!(!is_known(&scene, 1).await && is_known(&scene, 999).await);
    let mut known = Vec::new();
    for ordinal in (1..1000).step_by(2) {
        known.push(is_known(&scene, ordinal).await);
    }
    assert!(known.is_sorted(), "the oldest are forgotten first");
    assert_eq!(scene.store.streams(), known.iter().filter(|known| **known).count());
}

#[tokio::test]
async fn d13_when_nothing_can_be_freed_the_store_is_full_until_something_can() {
    let scene = Scene::over(store(SMALL)).await;
    let ended = scene.stream(Ordinal(99));
    scene.append(&ended, sized(last_batch(1..2), 4096)).await;
    let mut open = Vec::new();
    let refused = loop {
        let key = scene.stream(Ordinal(1 + 2 * open.len() as u64));
        match scene.store.append(&key, sized(batch(1..2), 4096)).await {
            Ok(()) => open.push(key),
            Err(refused) => break refused,
        }
        assert!(open.len() < 100, "open streams of {} KiB fit into 64", open.len() * 4);
    };
    assert!(
        matches!(refused, StoreError::Full) && refused.is_outage(),
        "{refused:?}"
    );
    assert!(open.len() >= 12, "only {} KiB fit into 64", open.len() * 4);
    assert!(scene.store.status(&ended).await.is_err(), "what could be freed was");
    for key in &open {
        assert_eq!(sequence(&scene.page(key, 0).await), [1], "nobody lost anything");
    }
    scene.store.forget_stream(&open[0]).await.unwrap();
    scene.append(&open[1], sized(batch(2..3), 4096)).await; // what was freed
    assert!(matches!(
        scene.store.append(&open[3], sized(batch(2..3), 4096)).await,
        Err(StoreError::Full)
    ));
    scene
        .append(
            &open[2],
            Batch {
                seals: true,
                ..sized(batch(2..3), 0)
            },
        )
        .await;
    scene.append(&open[3], sized(batch(2..3), 4096)).await;
    let given_up = scene.store.read_after(&open[2], Seq(0), ReadLimit::default()).await;
    let rest = given_up.map_or(0, |page| page.events.len());
    assert_eq!(rest, 0, "what has ended makes room");
}

#[tokio::test]
async fn d13_a_session_keeps_so_many_ended_streams() {
    let limits = MemoryLimits {
        ended_streams_per_session: 3,
        ..MemoryLimits::default()
    };
    let store = store(limits);
    let (scene, other) = (Scene::over(store.clone()).await, Scene::over(store.clone()).await);
    other.append(&other.first(), last_batch(0..3)).await;
    scene.append(&scene.stream(Ordinal(2)), batch(0..3)).await;
    for ordinal in [9, 1, 7, 5, 3] {
        scene.append(&scene.stream(Ordinal(ordinal)), last_batch(0..3)).await;
    }
    for (ordinal, known) in [(2, true), (9, false), (1, false), (7, true), (5, true), (3, true)] {
        assert_eq!(is_known(&scene, ordinal).await, known, "stream {ordinal}");
    }
    assert!(is_known(&other, 1).await, "another session has its own count");
    assert_eq!(store.streams(), 5);
}

#[tokio::test]
async fn d4_tombstones_age_like_whole_streams() {
    let scene = Scene::over(store(SMALL)).await;
    scene.append(&scene.first(), sized(last_batch(1..2), 4096)).await;
    advance(Duration::from_secs(400));
    for ordinal in (3..40).step_by(2) {
        scene
            .append(&scene.stream(Ordinal(ordinal)), sized(last_batch(1..2), 4096))
            .await;
    }
    assert!(scene.status(&scene.first()).await.answers_lost);
    scene.store.sweep().await.unwrap();
    assert!(is_known(&scene, 1).await, "not before its time");
    advance(Duration::from_secs(200));
    scene.store.sweep().await.unwrap();
    assert!(!is_known(&scene, 1).await);
    assert!(
        is_known(&scene, 3).await && is_known(&scene, 39).await,
        "the others ended later"
    );
    advance(Duration::from_secs(400));
    scene.store.sweep().await.unwrap();
    assert_eq!((scene.store.streams(), scene.store.held_bytes()), (0, record().cost()));
}

#[tokio::test]
async fn d13_what_is_forgotten_costs_nothing() {
    let limits = MemoryLimits {
        stream: Retention {
            events: 4,
            ..Retention::default()
        },
        ended_streams_per_session: 5,
        total_bytes: TOTAL,
    };
    let store = store(limits);
    let mut scenes = Vec::new();
    for n in 0..6 {
        let scene = Scene::over(store.clone()).await;
        for ordinal in 1..20 {
            let key = scene.stream(Ordinal(ordinal));
            scene.append(&key, sized(batch(0..8), 50)).await;
            scene.append(&key, sized(batch(0..8), 50)).await;
            assert!(store.append(&key, batch(20..21)).await.is_err());
            if ordinal % 3 > 0 {
                scene.append(&key, sized(last_batch(8..11), 10 + n)).await;
                scene.append(&key, sized(last_batch(8..11), 10 + n)).await;
            }
        }
        scenes.push(scene);
    }
    assert!(store.held_bytes() > 0 && store.held_bytes() <= TOTAL);
    // Every way to be forgotten: stream by stream, with the session, after the session has ended, and by age.
    for (n, scene) in scenes.iter().enumerate() {
        match n {
            0 => {
                for ordinal in 1..20 {
                    store.forget_stream(&scene.stream(Ordinal(ordinal))).await.unwrap();
                }
            }
            1 => store.forget_session(&scene.session).await.unwrap(),
            _ => {
                store.end(&scene.session).await.unwrap();
                store.forget_session(&scene.session).await.unwrap();
            }
        }
    }
    assert_eq!((store.streams(), store.held_bytes()), (0, 2 * record().cost()));
    assert_eq!(store.sessions(), 2, "two were never ended");
    advance(Duration::from_secs(3600));
    store.sweep().await.unwrap();
    assert_eq!(
        store.held_bytes(),
        2 * record().cost(),
        "what is left of them in the queue of the aged takes nothing away twice"
    );
}

#[tokio::test]
async fn a_session_that_ends_without_streams_is_gone_at_once() {
    let store = store(MemoryLimits::default());
    for _ in 0..100 {
        let scene = Scene::over(store.clone()).await;
        store.end(&scene.session).await.unwrap();
    }
    assert_eq!(store.sessions(), 0);
}

#[test]
fn threads_that_write_end_and_evict_at_once_leave_the_books_balanced() {
    let limits = MemoryLimits {
        ended_streams_per_session: 8,
        ..SMALL
    };
    let store = store(limits);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = store.clone();
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(churn(store, thread));
            });
        }
    });
    assert_eq!((store.sessions(), store.streams(), store.held_bytes()), (0, 0, 0));
}

async fn churn(store: MemoryStore, thread: u64) {
    for round in 0..200 {
        let session = Scene::over(MemoryStore::default()).await.session;
        while store.create(&session, record()).await.is_err() {
            std::thread::yield_now(); // the others' open streams fill the store
        }
        let store = store.clone();
        let scene = Scene { store, session };
        let store = &scene.store;
        for ordinal in 1..12 {
            let key: StreamKey = scene.stream(Ordinal(ordinal));
            let first = store.append(&key, sized(batch(0..4), 300)).await;
            assert!(matches!(first, Ok(()) | Err(StoreError::Full)), "{first:?}");
            if first.is_ok() && (ordinal + round + thread).is_multiple_of(2) {
                let _ = store.append(&key, sized(last_batch(4..5), 600)).await;
            }
        }
        assert_eq!(
            store.load(&scene.session).await.expect("memory does not fail").record,
            record()
        );
        store.end(&scene.session).await.expect("memory does not fail");
        store
            .forget_session(&scene.session)
            .await
            .expect("memory does not fail");
    }
}

/// Design D13: the ids of its calls outlast the events of a stream, so they are counted.
#[tokio::test]
async fn d13_facts_of_streams_count_against_the_total() {
    let scene = Scene::over(store(SMALL)).await;
    let calls = vec![RequestId::from("i".repeat(3000).as_str())];
    let ordinals = || (1..521).step_by(2);
    for ordinal in ordinals() {
        let info = StreamInfo {
            calls: calls.clone(),
            ..info()
        };
        let batch = Batch {
            info: Some(info),
            ..last_batch(1..2)
        };
        scene.append(&scene.stream(Ordinal(ordinal)), batch).await;
    }
    let mut kept = 0;
    for ordinal in ordinals() {
        if let Ok(status) = scene.store.status(&scene.stream(Ordinal(ordinal))).await {
            kept += status.info.calls[0].as_json().len();
        }
    }
    let held = scene.store.held_bytes();
    assert!(kept <= TOTAL, "{kept} bytes of ids are kept of {TOTAL}");
    assert!(
        (kept..=TOTAL).contains(&held),
        "{held} bytes are held, of which ids {kept}"
    );
    assert!(is_known(&scene, 519).await, "the newest stream is whole");
    scene.store.end(&scene.session).await.unwrap();
    scene.store.forget_session(&scene.session).await.unwrap();
    assert_eq!(scene.store.held_bytes(), 0);
}

fn large_record(initialize_params: usize) -> SessionRecord {
    SessionRecord {
        initialize_params: Bytes::from(vec![b'h'; initialize_params]),
        ..record()
    }
}

/// Design D13: records of sessions are counted; when there is no room for one more the store says so.
#[tokio::test]
async fn d13_records_of_sessions_count_against_the_total() {
    let first = Scene::over(store(SMALL)).await;
    let store = &first.store;
    let (empty, ended) = (store.held_bytes(), first.first());
    first.append(&ended, sized(last_batch(1..2), 4096)).await;
    let mut sessions = Vec::new();
    let refused = loop {
        let scene = Scene::over(store.clone()).await;
        if let Err(refused) = store.create(&scene.session, large_record(8000)).await {
            store.end(&scene.session).await.unwrap();
            break refused;
        }
        sessions.push(scene.session);
        assert!(
            sessions.len() * 8000 <= TOTAL,
            "{} records of 8000 bytes",
            sessions.len()
        );
    };
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    assert!(sessions.len() >= 6, "only {} records of 8000 bytes", sessions.len());
    let given_up = store.read_after(&ended, Seq(0), ReadLimit::default()).await;
    assert_eq!(
        given_up.map_or(0, |page| page.events.len()),
        0,
        "what has ended makes room"
    );
    assert!(store.held_bytes() <= TOTAL, "{}", store.held_bytes());

    let grown = |bytes: usize| SessionRecord {
        subscriptions: ["u".repeat(bytes).into()].into(),
        ..large_record(8000)
    };
    let grows = store.update(&sessions[0], 1, grown(TOTAL)).await;
    assert!(matches!(grows, Err(StoreError::Full)), "{grows:?}");
    assert_eq!(store.load(&sessions[0]).await.unwrap().record, large_record(8000));
    let before = store.held_bytes();
    store.update(&sessions[0], 1, large_record(10)).await.unwrap();
    assert_eq!(before - store.held_bytes(), 7990);
    store.update(&sessions[0], 1, grown(100)).await.unwrap();
    for session in &sessions {
        store.end(session).await.unwrap();
        store.end(session).await.unwrap();
    }
    store.forget_session(&first.session).await.unwrap();
    assert_eq!(store.held_bytes(), empty, "what has ended costs nothing");
}
