//! What is kept, what goes first, and that every gap is told (design D4, RES-08).

use super::Harness;
use super::scene::*;
use bytes::Bytes;
use rethread_store::{Batch, EventStore as _, Ordinal, Page, Retention, Seq, Store, StreamKey};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const KEEP_TEN: Retention = Retention {
    events: 10,
    bytes: 8 << 20,
    age: Duration::from_secs(600),
};

/// A backend may evict later than in the append: waits until at most `most` events are kept.
async fn settled<S: Store>(scene: &Scene<S>, key: &StreamKey, most: usize) -> Page {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = scene.page(key, 0).await;
        if page.events.len() <= most {
            return page;
        }
        assert!(
            Instant::now() < deadline,
            "{} events are kept, not {most}",
            page.events.len()
        );
        scene.store.sweep().await.expect("a sweep does not fail");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The oldest events go, the newest stay, and the status tells how far the gap reaches.
pub async fn eviction_takes_the_oldest_and_tells<H: Harness>(harness: &H) {
    let scene = Scene::keeping(harness, KEEP_TEN).await;
    assert_eq!(scene.store.retention().events, 10, "a writer asks how much is kept");
    let key = scene.first();
    for n in 0..50 {
        scene.append(&key, batch(n..n + 1)).await;
        let page = scene.page(&key, 0).await;
        assert!(
            n == 0 || page.events.last().is_some_and(|last| last.seq == Seq(n)),
            "the newest is kept"
        );
    }
    let page = settled(&scene, &key, 10).await;
    let kept = sequence(&page);
    let oldest = kept[0];
    assert_eq!(kept, (oldest..50).collect::<Vec<_>>(), "what is kept has no holes");
    assert_eq!(page.status.first_kept, Some(Seq(oldest)));
    assert_eq!(page.status.purged, Some(Seq(oldest - 1)));
    assert_eq!(page.status.last, Some(Seq(49)));
    assert!(page.has_gap_after(Seq(0)) && page.has_gap_after(Seq(oldest - 2)) && !page.has_gap_after(Seq(oldest - 1)));
    assert!(!page.status.answers_lost && !page.status.sealed);
    // Eviction changes nothing about who may write what.
    scene.append(&key, batch(49..50)).await;
    scene.append(&key, batch(50..51)).await;
}

/// As long as nothing had to go, nothing went.
pub async fn what_fits_is_kept<H: Harness>(harness: &H) {
    let scene = Scene::keeping(harness, KEEP_TEN).await;
    let key = scene.first();
    scene.append(&key, last_batch(1..11)).await;
    scene.store.sweep().await.expect("a sweep does not fail");
    let page = scene.page(&key, 0).await;
    assert_eq!(sequence(&page), (1..11).collect::<Vec<_>>());
    assert_eq!(page.status.purged, None);
}

/// The loss of the priming event is no gap: it says nothing.
pub async fn a_lost_priming_event_is_no_gap<H: Harness>(harness: &H) {
    let scene = Scene::keeping(harness, KEEP_TEN).await;
    let key = scene.first();
    scene.append(&key, batch(0..11)).await;
    scene.store.sweep().await.expect("a sweep does not fail");
    let page = scene.page(&key, 0).await;
    assert_eq!(sequence(&page), (1..11).collect::<Vec<_>>());
    assert_eq!(page.status.purged, None);
}

/// An answer outlasts everything around it.
pub async fn eviction_passes_over_an_answer<H: Harness>(harness: &H) {
    let scene = Scene::keeping(harness, KEEP_TEN).await;
    let key = scene.first();
    scene.append(&key, batch(0..2)).await;
    scene.append(&key, answer(2)).await;
    for n in 3..40 {
        scene.append(&key, batch(n..n + 1)).await;
    }
    scene.append(&key, last_batch(40..41)).await;
    let page = settled(&scene, &key, 10).await;
    let kept = sequence(&page);
    assert_eq!((kept[0], kept.last()), (2, Some(&40)));
    assert_eq!(kept[1..], (kept[1]..41).collect::<Vec<_>>());
    assert_eq!(page.status.purged, Some(Seq(kept[1] - 1)));
    assert!(!page.status.answers_lost);
}

/// A question is kept until it is released, or the stream ends.
pub async fn eviction_passes_over_an_open_question<H: Harness>(harness: &H) {
    let scene = Scene::keeping(harness, KEEP_TEN).await;
    for by_sealing in [false, true] {
        let key = scene.stream(Ordinal(if by_sealing { 3 } else { 1 }));
        scene.append(&key, batch(0..1)).await;
        scene.append(&key, question(1)).await;
        scene.append(&key, question(2)).await;
        for n in 3..40 {
            scene.append(&key, batch(n..n + 1)).await;
        }
        let kept = sequence(&settled(&scene, &key, 10).await);
        assert_eq!(kept[..2], [1, 2]);
        let next = if by_sealing {
            last_batch(40..41)
        } else {
            Batch {
                released: vec![Seq(1), Seq(999)],
                ..batch(40..41)
            }
        };
        scene.append(&key, next).await;
        for n in 41..60 {
            if !by_sealing {
                scene.append(&key, batch(n..n + 1)).await;
            }
        }
        let page = settled(&scene, &key, 10).await;
        assert!(
            !sequence(&page).contains(&1),
            "a settled question goes like any other event"
        );
        assert!(
            by_sealing || sequence(&page).contains(&2),
            "the other one is still open"
        );
        assert!(page.has_gap_after(Seq(0)) && !page.status.answers_lost);
    }
}

/// Bytes are bounded as events are, and the newest event is kept however large it is.
pub async fn eviction_by_bytes_keeps_the_newest<H: Harness>(harness: &H) {
    let retention = Retention {
        bytes: 32 << 10,
        ..Retention::default()
    };
    let scene = Scene::keeping(harness, retention).await;
    let key = scene.first();
    let large = |seq, size| {
        let mut large = batch(seq..seq + 1);
        large.events[0].payload = Bytes::from(vec![b'x'; size]);
        large
    };
    for n in 1..100 {
        scene.append(&key, large(n, 1 << 10)).await;
    }
    let page = settled(&scene, &key, 32).await;
    let kept = sequence(&page);
    assert!(kept.len() >= 8, "far too much was evicted: {kept:?}");
    assert_eq!(kept, (kept[0]..100).collect::<Vec<_>>());
    assert_eq!(page.status.purged, Some(Seq(kept[0] - 1)));
    scene.append(&key, large(100, 100 << 10)).await;
    assert_eq!(sequence(&settled(&scene, &key, 1).await), [100]);
}

/// A sealed stream is forgotten when its time has come, an open one is not. Asked only of a backend whose clock can be
/// moved.
pub async fn a_sealed_stream_is_forgotten_in_time<H: Harness>(harness: &H) {
    let retention = Retention {
        age: Duration::from_secs(60),
        ..Retention::default()
    };
    let scene = Scene::keeping(harness, retention).await;
    let (open, early, late) = (scene.first(), scene.stream(Ordinal(3)), scene.stream(Ordinal(5)));
    scene.append(&open, batch(0..3)).await;
    scene.append(&late, batch(0..3)).await;
    scene.append(&early, last_batch(0..3)).await;
    if !harness.advance(&scene.store, Duration::from_secs(40)) {
        return;
    }
    scene.store.sweep().await.expect("a sweep does not fail");
    assert_eq!(sequence(&scene.page(&early, 0).await), [1, 2], "not before its time");
    scene.append(&late, last_batch(3..4)).await;
    assert!(harness.advance(&scene.store, Duration::from_secs(30)));
    scene.store.sweep().await.expect("a sweep does not fail");
    scene.assert_unknown(&early).await;
    assert_eq!(
        sequence(&scene.page(&late, 0).await),
        [1, 2, 3],
        "the age counts from the end of the stream"
    );
    assert!(harness.advance(&scene.store, Duration::from_secs(3600)));
    scene.store.sweep().await.expect("a sweep does not fail");
    scene.assert_unknown(&late).await;
    assert_eq!(
        sequence(&scene.page(&open, 0).await),
        [1, 2],
        "an open stream does not age"
    );
}
