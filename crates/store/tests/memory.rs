//! Runs the store suite on the memory backend, and tests its limits.

use bytes::Bytes;
use rethread_proto::RequestId;
use rethread_proto::clock::Wall;
use rethread_store::{
    Batch, EventStore, MemoryLimits, MemoryStore, Ordinal, ReadLimit, Retention, Seq, SessionRecord, SessionStore,
    StoreError, StreamKey,
};
use rethread_testkit::store_suite::{Harness, StoreFixture, batch, info, last_batch, record, sequence};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Every test has its own thread and clock.
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
        store(MemoryLimits::default().with_stream(stream))
    }

    fn advance(&self, _: &MemoryStore, by: Duration) -> bool {
        advance(by);
        true
    }
}

rethread_testkit::store_suite!(Memory);

/// The suite with asynchronous appends, as in every other backend.
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

fn small() -> MemoryLimits {
    MemoryLimits::default().with_total_bytes(TOTAL)
}

/// Replaces the payloads by payloads of `size` bytes.
fn sized(mut batch: Batch, size: usize) -> Batch {
    for event in &mut batch.events {
        event.payload = Bytes::from(vec![b'x'; size]);
    }
    batch
}

async fn is_known(fixture: &StoreFixture<MemoryStore>, ordinal: u64) -> bool {
    fixture.store.status(&fixture.stream(Ordinal(ordinal))).await.is_ok()
}

#[tokio::test]
async fn d4_memory_pressure_turns_the_oldest_ended_streams_into_tombstones() {
    let fixture = StoreFixture::new(store(small())).await;
    let open = fixture.stream(Ordinal(2));
    fixture.append(&open, sized(batch(1..2), 4096)).await;
    for ordinal in (1..60).step_by(2) {
        let key = fixture.stream(Ordinal(ordinal));
        fixture.append(&key, sized(last_batch(1..2), 4096)).await;
        assert!(
            fixture.store.held_bytes() <= TOTAL + 1024,
            "held: {}",
            fixture.store.held_bytes()
        );
        assert_eq!(
            sequence(&fixture.page(&key, 0).await),
            [1],
            "the newest stream keeps its events"
        );
    }
    let oldest = fixture.page(&fixture.first_call_stream(), 0).await;
    assert!(oldest.events.is_empty() && oldest.has_gap_after(Seq(0)));
    assert!(oldest.status.answers_lost && oldest.status.sealed);
    assert_eq!((oldest.status.info, oldest.status.last), (info(), Some(Seq(1))));
    assert_eq!(
        fixture.store.streams(),
        31,
        "no stream is forgotten while tombstones free enough"
    );
    assert_eq!(
        sequence(&fixture.page(&open, 0).await),
        [1],
        "an open stream keeps its events"
    );
    let again = fixture
        .store
        .append(&fixture.first_call_stream(), sized(last_batch(1..2), 4096))
        .await;
    assert!(again.is_ok(), "a repeated append to a tombstone succeeds: {again:?}");
    assert!(fixture.page(&fixture.first_call_stream(), 0).await.events.is_empty());
}

#[tokio::test]
async fn d4_oldest_tombstones_are_forgotten_first() {
    let fixture = StoreFixture::new(store(small())).await;
    for ordinal in (1..1000).step_by(2) {
        let key = fixture.stream(Ordinal(ordinal));
        fixture.append(&key, sized(last_batch(1..2), 1024)).await;
        assert!(
            fixture.store.held_bytes() <= TOTAL + 1024,
            "held: {}",
            fixture.store.held_bytes()
        );
    }
    assert!(!is_known(&fixture, 1).await && is_known(&fixture, 999).await);
    let mut known = Vec::new();
    for ordinal in (1..1000).step_by(2) {
        known.push(is_known(&fixture, ordinal).await);
    }
    assert!(known.is_sorted(), "the oldest are forgotten first");
    assert_eq!(fixture.store.streams(), known.iter().filter(|known| **known).count());
}

#[tokio::test]
async fn d13_store_is_full_when_it_can_free_nothing() {
    let fixture = StoreFixture::new(store(small())).await;
    let ended = fixture.stream(Ordinal(99));
    fixture.append(&ended, sized(last_batch(1..2), 4096)).await;
    let mut open = Vec::new();
    let refused = loop {
        let key = fixture.stream(Ordinal(1 + 2 * open.len() as u64));
        match fixture.store.append(&key, sized(batch(1..2), 4096)).await {
            Ok(_) => open.push(key),
            Err(refused) => break refused,
        }
        assert!(
            open.len() < 100,
            "the store accepted {} KiB with a limit of 64",
            open.len() * 4
        );
    };
    assert!(
        matches!(refused, StoreError::Full) && refused.is_outage(),
        "{refused:?}"
    );
    assert!(open.len() >= 12, "the store accepted only {} of 64 KiB", open.len() * 4);
    assert!(
        fixture.store.status(&ended).await.is_err(),
        "the ended stream was not freed"
    );
    for key in &open {
        assert_eq!(
            sequence(&fixture.page(key, 0).await),
            [1],
            "an open stream lost its event"
        );
    }
    fixture.store.forget_stream(&open[0]).await.unwrap();
    fixture.append(&open[1], sized(batch(2..3), 4096)).await; // uses the freed bytes
    assert!(matches!(
        fixture.store.append(&open[3], sized(batch(2..3), 4096)).await,
        Err(StoreError::Full)
    ));
    fixture.append(&open[2], sized(batch(2..3), 0).sealing()).await;
    fixture.append(&open[3], sized(batch(2..3), 4096)).await;
    let given_up = fixture.store.read_after(&open[2], Seq(0), ReadLimit::default()).await;
    let rest = given_up.map_or(0, |page| page.events.len());
    assert_eq!(rest, 0, "an ended session still holds bytes");
}

#[tokio::test]
async fn d13_ended_streams_of_a_session_are_bounded() {
    let limits = MemoryLimits::default().with_ended_streams_per_session(3);
    let store = store(limits);
    let (fixture, other) = (
        StoreFixture::new(store.clone()).await,
        StoreFixture::new(store.clone()).await,
    );
    other.append(&other.first_call_stream(), last_batch(0..3)).await;
    fixture.append(&fixture.stream(Ordinal(2)), batch(0..3)).await;
    for ordinal in [9, 1, 7, 5, 3] {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), last_batch(0..3))
            .await;
    }
    for (ordinal, known) in [(2, true), (9, false), (1, false), (7, true), (5, true), (3, true)] {
        assert_eq!(is_known(&fixture, ordinal).await, known, "stream {ordinal}");
    }
    assert!(is_known(&other, 1).await, "the limit applies per session");
    assert_eq!(store.streams(), 5);
}

#[tokio::test]
async fn d4_tombstones_expire_like_other_streams() {
    let fixture = StoreFixture::new(store(small())).await;
    fixture
        .append(&fixture.first_call_stream(), sized(last_batch(1..2), 4096))
        .await;
    advance(Duration::from_secs(400));
    for ordinal in (3..40).step_by(2) {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), sized(last_batch(1..2), 4096))
            .await;
    }
    assert!(fixture.status(&fixture.first_call_stream()).await.answers_lost);
    fixture.store.sweep().await.unwrap();
    assert!(is_known(&fixture, 1).await, "the stream expired too early");
    advance(Duration::from_secs(200));
    fixture.store.sweep().await.unwrap();
    assert!(!is_known(&fixture, 1).await);
    assert!(
        is_known(&fixture, 3).await && is_known(&fixture, 39).await,
        "the others ended later"
    );
    advance(Duration::from_secs(400));
    fixture.store.sweep().await.unwrap();
    assert_eq!(
        (fixture.store.streams(), fixture.store.held_bytes()),
        (0, record().cost())
    );
}

#[tokio::test]
async fn d13_forgotten_streams_hold_no_bytes() {
    let limits = small()
        .with_stream(Retention::default().with_events(4))
        .with_ended_streams_per_session(5);
    let store = store(limits);
    let mut scenes = Vec::new();
    for n in 0..6 {
        let fixture = StoreFixture::new(store.clone()).await;
        for ordinal in 1..20 {
            let key = fixture.stream(Ordinal(ordinal));
            fixture.append(&key, sized(batch(0..8), 50)).await;
            fixture.append(&key, sized(batch(0..8), 50)).await;
            assert!(store.append(&key, batch(20..21)).await.is_err());
            if ordinal % 3 > 0 {
                fixture.append(&key, sized(last_batch(8..11), 10 + n)).await;
                fixture.append(&key, sized(last_batch(8..11), 10 + n)).await;
            }
        }
        scenes.push(fixture);
    }
    assert!(store.held_bytes() > 0 && store.held_bytes() <= TOTAL);
    // Forget a stream alone, with its session, after the end of the session, and by age.
    for (n, fixture) in scenes.iter().enumerate() {
        match n {
            0 => {
                for ordinal in 1..20 {
                    store.forget_stream(&fixture.stream(Ordinal(ordinal))).await.unwrap();
                }
            }
            1 => store.forget_session(&fixture.session).await.unwrap(),
            _ => {
                store.end(&fixture.session).await.unwrap();
                store.forget_session(&fixture.session).await.unwrap();
            }
        }
    }
    assert_eq!((store.streams(), store.held_bytes()), (0, 2 * record().cost()));
    assert_eq!(store.sessions(), 2, "two were never ended");
    advance(Duration::from_secs(3600));
    store.sweep().await.unwrap();
    assert_eq!(store.held_bytes(), 2 * record().cost(), "no stream is subtracted twice");
}

#[tokio::test]
async fn session_without_streams_is_removed_at_its_end() {
    let store = store(MemoryLimits::default());
    for _ in 0..100 {
        let fixture = StoreFixture::new(store.clone()).await;
        store.end(&fixture.session).await.unwrap();
    }
    assert_eq!(store.sessions(), 0);
}

#[test]
fn concurrent_writes_and_evictions_keep_the_counts_correct() {
    let limits = small().with_ended_streams_per_session(8);
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
        let session = StoreFixture::new(MemoryStore::default()).await.session;
        while store.create(&session, record(), false).await.is_err() {
            std::thread::yield_now(); // the store is full of open streams of other threads
        }
        let store = store.clone();
        let fixture = StoreFixture { store, session };
        let store = &fixture.store;
        for ordinal in 1..12 {
            let key: StreamKey = fixture.stream(Ordinal(ordinal));
            let first = store.append(&key, sized(batch(0..4), 300)).await;
            assert!(matches!(first, Ok(_) | Err(StoreError::Full)), "{first:?}");
            if first.is_ok() && (ordinal + round + thread).is_multiple_of(2) {
                let _ = store.append(&key, sized(last_batch(4..5), 600)).await;
            }
        }
        assert_eq!(
            store.load(&fixture.session).await.expect("memory does not fail").record,
            record()
        );
        store.end(&fixture.session).await.expect("memory does not fail");
        store
            .forget_session(&fixture.session)
            .await
            .expect("memory does not fail");
    }
}

/// D13: the ids of a stream's calls outlive its events, so they count.
#[tokio::test]
async fn d13_stream_infos_count_against_the_total() {
    let fixture = StoreFixture::new(store(small())).await;
    let calls = vec![RequestId::from("i".repeat(3000).as_str())];
    let ordinals = || (1..521).step_by(2);
    for ordinal in ordinals() {
        let mut info = info();
        std::sync::Arc::make_mut(&mut info).calls = calls.clone();
        let batch = last_batch(1..2).with_info(info);
        fixture.append(&fixture.stream(Ordinal(ordinal)), batch).await;
    }
    let mut kept = 0;
    for ordinal in ordinals() {
        if let Ok(status) = fixture.store.status(&fixture.stream(Ordinal(ordinal))).await {
            kept += status.info.calls[0].as_json().len();
        }
    }
    let held = fixture.store.held_bytes();
    assert!(kept <= TOTAL, "{kept} bytes of ids exceed the limit of {TOTAL}");
    assert!(
        (kept..=TOTAL).contains(&held),
        "{held} bytes are held, {kept} bytes of them are ids"
    );
    assert!(is_known(&fixture, 519).await, "the newest stream is whole");
    fixture.store.end(&fixture.session).await.unwrap();
    fixture.store.forget_session(&fixture.session).await.unwrap();
    assert_eq!(fixture.store.held_bytes(), 0);
}

fn large_record(initialize_params: usize) -> SessionRecord {
    let mut record = record();
    record.initialize_params = Bytes::from(vec![b'h'; initialize_params]);
    record
}

/// D13: session records count against the total. A record that does not fit is refused.
#[tokio::test]
async fn d13_records_of_sessions_count_against_the_total() {
    let first = StoreFixture::new(store(small())).await;
    let store = &first.store;
    let (empty, ended) = (store.held_bytes(), first.first_call_stream());
    first.append(&ended, sized(last_batch(1..2), 4096)).await;
    let mut sessions = Vec::new();
    let refused = loop {
        let fixture = StoreFixture::new(store.clone()).await;
        if let Err(refused) = store.create(&fixture.session, large_record(8000), false).await {
            store.end(&fixture.session).await.unwrap();
            break refused;
        }
        sessions.push(fixture.session);
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
        "an ended session still holds bytes"
    );
    assert!(store.held_bytes() <= TOTAL, "{}", store.held_bytes());

    let grown = |bytes: usize| {
        let mut record = large_record(8000);
        record.subscriptions = ["u".repeat(bytes).into()].into();
        record
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
    assert_eq!(store.held_bytes(), empty, "an ended session still holds bytes");
}
