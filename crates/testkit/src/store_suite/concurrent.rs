//! Many at once: writers, readers, wake-ups, and a session that ends in the middle.

use super::Harness;
use super::scene::*;
use rethread_store::{
    Batch, EventStore as _, Ordinal, ReadLimit, Seq, SessionStore as _, Store, StoreError, StreamKey, Watch,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Several writers, each in epochs of its own, fight for one stream: for every number exactly one wins, the log has no
/// gap, and what a winner wrote is what is stored.
pub async fn one_writer_wins_each_number<H: Harness>(harness: &H) {
    const WRITERS: u64 = 4;
    const NUMBERS: u64 = 60;
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..1)).await;
    let mut writers = Vec::new();
    for id in 0..WRITERS {
        let (store, key) = (harness.peer(&scene.store).await, key.clone());
        writers.push(beside(async move {
            let (mut epoch, mut next, mut won) = (1, 1, Vec::new());
            while next <= NUMBERS {
                // An epoch belongs to one writer, as it does to one restored session.
                let mine = epoch + (WRITERS - epoch % WRITERS + id) % WRITERS;
                let mut proposed = Batch {
                    epoch: mine,
                    info: None,
                    ..batch(next..next + 1)
                };
                proposed.events[0].payload = format!("{mine}").into();
                match store.append(&key, proposed).await {
                    Ok(()) => {
                        won.push((next, mine));
                        (epoch, next) = (mine, next + 1);
                    }
                    Err(StoreError::Conflict { epoch: theirs, last }) => {
                        (epoch, next) = (theirs, last.map_or(0, |last| last.0 + 1));
                    }
                    Err(other) => panic!("a race is a conflict, not {other:?}"),
                }
                tokio::task::yield_now().await;
            }
            won
        }));
    }
    let mut won: Vec<_> = everyone(writers).await.concat();
    won.sort_unstable();
    let stored = scene.page(&key, 0).await;
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

/// Readers that read while a writer writes see a prefix, in order, each event once.
pub async fn readers_see_a_prefix_in_order<H: Harness>(harness: &H) {
    const EVENTS: u64 = 400;
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..1)).await;
    let mut readers = Vec::new();
    for size in [1, 3, 50, 1000] {
        let (store, key) = (harness.peer(&scene.store).await, key.clone());
        readers.push(beside(async move {
            let (mut cursor, mut sealed) = (0, false);
            while !sealed || cursor < EVENTS {
                let page = store
                    .read_after(
                        &key,
                        Seq(cursor),
                        ReadLimit {
                            events: size,
                            bytes: 1 << 20,
                        },
                    )
                    .await;
                let page = page.expect("the stream is known");
                let until = cursor + page.events.len() as u64;
                assert_eq!(sequence(&page), (cursor + 1..=until).collect::<Vec<_>>());
                assert!(
                    page.status.last.is_some_and(|last| last.0 >= until),
                    "a page is no newer than its status"
                );
                assert!(!page.events.is_empty() || !sealed, "what is sealed is all there");
                (cursor, sealed) = (until, page.status.sealed);
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut next = 1;
    while next <= EVENTS {
        let until = (next + 1 + next % 4).min(EVENTS + 1);
        let ends = until > EVENTS;
        scene
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
    everyone(readers).await;
}

/// A reader that waits for wake-ups alone, on its own node, gets to the end of every stream: no last append is missed.
pub async fn a_watch_never_misses_the_last_append<H: Harness>(harness: &H) {
    const STREAMS: u64 = 50;
    let scene = Scene::open(harness).await;
    let peer = harness.peer(&scene.store).await;
    for ordinal in (1..).step_by(2).take(STREAMS as usize) {
        let key = scene.stream(Ordinal(ordinal));
        scene.append(&key, batch(0..1)).await;
        let progress = Arc::new(AtomicU64::new(0));
        // Before the first read, or an append between the two is missed.
        let watch = peer.watch(&key);
        let reader = beside(follow(peer.clone(), key.clone(), watch, Arc::clone(&progress)));
        for n in 1..6 {
            scene.append(&key, batch(n..n + 1)).await;
        }
        // Every other time the reader has read all and waits; else it is somewhere on its way.
        let deadline = Instant::now() + PATIENCE;
        while ordinal % 4 == 1 && progress.load(Ordering::SeqCst) < 5 {
            assert!(Instant::now() < deadline, "the reader is woken while the stream grows");
            sleep(Duration::from_millis(1)).await;
        }
        scene.append(&key, last_batch(6..7)).await;
        let seen = timeout(PATIENCE, reader).await;
        assert_eq!(
            seen.expect("the reader is woken for the last append"),
            [1, 2, 3, 4, 5, 6]
        );
    }
}

/// Reads a stream to its end, waiting for hints.
async fn follow<S: Store>(store: S, key: StreamKey, mut watch: Watch, progress: Arc<AtomicU64>) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        let after = Seq(seen.last().copied().unwrap_or(0));
        let page = store.read_after(&key, after, ALL).await.expect("the stream is known");
        seen.extend(sequence(&page));
        if page.status.sealed {
            return seen;
        }
        progress.store(seen.last().copied().unwrap_or(0), Ordering::SeqCst);
        assert!(watch.changed().await, "an open stream can always grow");
    }
}

/// Several watches of one stream, made at different times, all wake.
pub async fn every_watch_wakes<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let peer = harness.peer(&scene.store).await;
    let key = scene.first();
    let mut watches = Vec::new();
    for n in 0..5 {
        scene.append(&key, batch(n..n + 1)).await;
        watches.push(scene.store.watch(&key));
        watches.push(peer.watch(&key));
        watches.push(watches[0].clone());
    }
    scene.append(&key, batch(5..6)).await;
    for watch in &mut watches {
        let woken = timeout(PATIENCE, watch.changed()).await.expect("every watch wakes");
        assert!(woken, "an open stream can always grow");
    }
}

/// A watch over a stream that is forgotten wakes, so that nobody waits for ever; so does one over a stream that never
/// was.
pub async fn a_watch_over_nothing_wakes_once<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..1)).await;
    let mut forgotten = scene.store.watch(&key);
    let waiting = beside(async move { forgotten.changed().await });
    tokio::task::yield_now().await;
    scene.store.forget_stream(&key).await.expect("it can be forgotten");
    timeout(PATIENCE, waiting)
        .await
        .expect("it wakes when its stream is forgotten");
    let mut never = scene.store.watch(&scene.stream(Ordinal(99)));
    timeout(PATIENCE, never.changed())
        .await
        .expect("it wakes though there is no stream");
}

/// A session ends while its streams are written: what was acknowledged before is gone too, and nothing comes back.
pub async fn a_session_can_end_under_its_writers<H: Harness>(harness: &H) {
    for round in 0..10 {
        let scene = Scene::open(harness).await;
        let mut writers = Vec::new();
        for ordinal in [1, 3, 5] {
            let (store, key) = (harness.peer(&scene.store).await, scene.stream(Ordinal(ordinal)));
            writers.push(beside(async move {
                for n in 0.. {
                    match store.append(&key, batch(n..n + 1)).await {
                        Ok(()) => tokio::task::yield_now().await,
                        Err(StoreError::SessionGone) => return,
                        Err(other) => panic!("the session is gone, not {other:?}"),
                    }
                }
            }));
        }
        for _ in 0..round * 3 {
            tokio::task::yield_now().await;
        }
        scene.store.end(&scene.session).await.expect("it can be ended");
        scene
            .store
            .forget_session(&scene.session)
            .await
            .expect("it can be forgotten");
        timeout(PATIENCE, everyone(writers))
            .await
            .expect("every writer learns that the session has ended");
        for ordinal in [1, 3, 5] {
            scene.assert_unknown(&scene.stream(Ordinal(ordinal))).await;
        }
    }
}
