//! Concurrent writers, readers and watches, and a session that ends during appends.

use super::Harness;
use super::fixture::*;
use rethread_store::{
    EventStore as _, Ordinal, ReadLimit, Seq, SessionStore as _, Store, StoreError, StreamKey, Watch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Writers with different epochs compete for one stream. Each number has one winner, the log has no gap, and the stored
/// event is the winner's.
pub async fn concurrent_writers_get_distinct_numbers<H: Harness>(harness: &H) {
    const WRITERS: u64 = 4;
    const NUMBERS: u64 = 60;
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    let mut writers = Vec::new();
    for id in 0..WRITERS {
        let (store, key) = (harness.peer(&fixture.store).await, key.clone());
        writers.push(spawn_thread(async move {
            let (mut epoch, mut next, mut won) = (1, 1, Vec::new());
            while next <= NUMBERS {
                // Each writer has its own epochs, as each restored session does.
                let own_epoch = epoch + (WRITERS - epoch % WRITERS + id) % WRITERS;
                let mut proposed = batch(next..next + 1).with_epoch(own_epoch);
                proposed.info = None;
                proposed.events[0].payload = format!("{own_epoch}").into();
                match store.append(&key, proposed).await {
                    Ok(_) => {
                        won.push((next, own_epoch));
                        (epoch, next) = (own_epoch, next + 1);
                    }
                    Err(StoreError::Conflict { epoch: theirs, last }) => {
                        (epoch, next) = (theirs, last.map_or(0, |last| last.0 + 1));
                    }
                    Err(other) => panic!("expected a conflict: {other:?}"),
                }
                tokio::task::yield_now().await;
            }
            won
        }));
    }
    let mut won: Vec<_> = join_all(writers).await.concat();
    won.sort_unstable();
    let stored = fixture.page(&key, 0).await;
    let stored: Vec<_> = stored
        .events
        .iter()
        .map(|event| (event.seq.0, event.payload.clone()))
        .collect();
    let expected: Vec<_> = won
        .iter()
        .map(|(seq, epoch)| (*seq, epoch.to_string().into()))
        .collect();
    assert_eq!(stored, expected);
    assert_eq!(
        won.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (1..=NUMBERS).collect::<Vec<_>>()
    );
}

/// A reader that is concurrent with a writer sees a prefix of the stream, in order, each event once.
pub async fn concurrent_reader_sees_an_ordered_prefix<H: Harness>(harness: &H) {
    const EVENTS: u64 = 400;
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    let mut readers = Vec::new();
    for size in [1, 3, 50, 1000] {
        let (store, key) = (harness.peer(&fixture.store).await, key.clone());
        readers.push(spawn_thread(async move {
            let (mut cursor, mut sealed) = (0, false);
            while !sealed || cursor < EVENTS {
                let page = store.read_after(&key, Seq(cursor), ReadLimit::new(size, 1 << 20)).await;
                let page = page.expect("the stream is known");
                let until = cursor + page.events.len() as u64;
                assert_eq!(sequence(&page), (cursor + 1..=until).collect::<Vec<_>>());
                assert!(
                    page.status.last.is_some_and(|last| last.0 >= until),
                    "the page is not newer than its status"
                );
                assert!(!page.events.is_empty() || !sealed, "a sealed stream is complete");
                (cursor, sealed) = (until, page.status.sealed);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut next = 1;
    while next <= EVENTS {
        let until = (next + 1 + next % 4).min(EVENTS + 1);
        let ends = until > EVENTS;
        fixture
            .append(
                &key,
                if ends {
                    last_batch(next..until)
                } else {
                    batch(next..until)
                },
            )
            .await;
        next = until;
        tokio::task::yield_now().await;
    }
    join_all(readers).await;
}

/// A reader on another node that relies on wake-ups alone reaches the end of every stream.
pub async fn watch_never_misses_the_last_append<H: Harness>(harness: &H) {
    const STREAMS: u64 = 50;
    let fixture = StoreFixture::open(harness).await;
    let peer = harness.peer(&fixture.store).await;
    for ordinal in (1..).step_by(2).take(STREAMS as usize) {
        let key = fixture.stream(Ordinal(ordinal));
        fixture.append(&key, batch(0..1)).await;
        let progress = Arc::new(AtomicU64::new(0));
        // Watch before the first read. Otherwise an append between the two is missed.
        let watch = peer.watch(&key);
        let reader = spawn_thread(follow(peer.clone(), key.clone(), watch, Arc::clone(&progress)));
        for n in 1..6 {
            fixture.append(&key, batch(n..n + 1)).await;
        }
        // In every other round the reader is already waiting; otherwise it is still reading.
        let deadline = Instant::now() + STEP_TIMEOUT;
        while ordinal % 4 == 1 && progress.load(Ordering::SeqCst) < 5 {
            assert!(Instant::now() < deadline, "the reader is woken while the stream grows");
            sleep(Duration::from_millis(1)).await;
        }
        fixture.append(&key, last_batch(6..7)).await;
        let seen = timeout(STEP_TIMEOUT, reader).await;
        assert_eq!(
            seen.expect("the reader is woken for the last append"),
            [1, 2, 3, 4, 5, 6]
        );
    }
}

/// Reads a stream to its end and waits on its watch.
async fn follow<S: Store>(store: S, key: StreamKey, mut watch: Watch, progress: Arc<AtomicU64>) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        let after = Seq(seen.last().copied().unwrap_or(0));
        let page = store
            .read_after(&key, after, UNLIMITED_READ)
            .await
            .expect("the stream is known");
        seen.extend(sequence(&page));
        if page.status.sealed {
            return seen;
        }
        progress.store(seen.last().copied().unwrap_or(0), Ordering::SeqCst);
        assert!(watch.changed().await, "an open stream can always grow");
    }
}

/// Watches created at different times all wake.
pub async fn every_watch_wakes<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let peer = harness.peer(&fixture.store).await;
    let key = fixture.first_call_stream();
    let mut watches = Vec::new();
    for n in 0..5 {
        fixture.append(&key, batch(n..n + 1)).await;
        watches.push(fixture.store.watch(&key));
        watches.push(peer.watch(&key));
        watches.push(watches[0].clone());
    }
    fixture.append(&key, batch(5..6)).await;
    for watch in &mut watches {
        let woken = timeout(STEP_TIMEOUT, watch.changed()).await.expect("every watch wakes");
        assert!(woken, "an open stream can always grow");
    }
}

/// A watch of a forgotten or unwritten stream wakes, so that no reader waits for ever.
pub async fn watch_of_unknown_stream_wakes<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    let mut forgotten = fixture.store.watch(&key);
    let waiting = spawn_thread(async move { forgotten.changed().await });
    tokio::task::yield_now().await;
    fixture.store.forget_stream(&key).await.expect("forgotten");
    timeout(STEP_TIMEOUT, waiting)
        .await
        .expect("a forgotten stream wakes its watch");
    let mut never = fixture.store.watch(&fixture.stream(Ordinal(99)));
    timeout(STEP_TIMEOUT, never.changed())
        .await
        .expect("an unwritten stream wakes its watch");
}

/// A session ends while its streams are written. Acknowledged events are removed too, and no stream reappears.
pub async fn session_may_end_during_appends<H: Harness>(harness: &H) {
    for round in 0..10 {
        let fixture = StoreFixture::open(harness).await;
        let mut writers = Vec::new();
        for ordinal in [1, 3, 5] {
            let (store, key) = (harness.peer(&fixture.store).await, fixture.stream(Ordinal(ordinal)));
            writers.push(spawn_thread(async move {
                for n in 0.. {
                    match store.append(&key, batch(n..n + 1)).await {
                        Ok(_) => tokio::task::yield_now().await,
                        Err(StoreError::SessionGone) => return,
                        Err(other) => panic!("expected SessionGone: {other:?}"),
                    }
                }
            }));
        }
        for _ in 0..round * 3 {
            tokio::task::yield_now().await;
        }
        fixture.store.end(&fixture.session).await.expect("ended");
        fixture.store.forget_session(&fixture.session).await.expect("forgotten");
        timeout(STEP_TIMEOUT, join_all(writers))
            .await
            .expect("every writer gets SessionGone");
        for ordinal in [1, 3, 5] {
            fixture.assert_unknown(&fixture.stream(Ordinal(ordinal))).await;
        }
    }
}
