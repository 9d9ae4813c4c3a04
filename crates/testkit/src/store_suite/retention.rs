//! Retention, eviction order and reported gaps (D4, RES-08).

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use rethread_store::{EventStore as _, Ordinal, Page, Retention, Seq, Store, StreamKey};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const KEEP_TEN: Retention = Retention::new(10, 8 << 20, Duration::from_secs(600));

/// Reads the stream once at most `most` events are retained. A backend may evict after the append.
async fn read_after_eviction<S: Store>(fixture: &StoreFixture<S>, key: &StreamKey, most: usize) -> Page {
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        let page = fixture.page(key, 0).await;
        if page.events.len() <= most {
            return page;
        }
        assert!(
            Instant::now() < deadline,
            "{} events are retained, not {most}",
            page.events.len()
        );
        fixture.store.sweep().await.expect("a sweep does not fail");
        sleep(Duration::from_millis(20)).await;
    }
}

/// RES-08: the newest events stay, and the status reports the end of the gap.
pub async fn res_08_eviction_removes_the_oldest_and_reports_the_gap<H: Harness>(harness: &H) {
    let fixture = StoreFixture::with_retention(harness, KEEP_TEN).await;
    assert_eq!(fixture.store.retention().events, 10, "the store reports its retention");
    let key = fixture.first_call_stream();
    for n in 0..50 {
        fixture.append(&key, batch(n..n + 1)).await;
        let page = fixture.page(&key, 0).await;
        assert!(
            n == 0 || page.events.last().is_some_and(|last| last.seq == Seq(n)),
            "the newest is retained"
        );
    }
    let page = read_after_eviction(&fixture, &key, 10).await;
    let retained = sequence(&page);
    let oldest = retained[0];
    assert_eq!(
        retained,
        (oldest..50).collect::<Vec<_>>(),
        "retained events are contiguous"
    );
    assert_eq!(page.status.first_kept, Some(Seq(oldest)));
    assert_eq!(page.status.purged, Some(Seq(oldest - 1)));
    assert_eq!(page.status.last, Some(Seq(49)));
    assert!(page.has_gap_after(Seq(0)) && page.has_gap_after(Seq(oldest - 2)) && !page.has_gap_after(Seq(oldest - 1)));
    assert!(!page.status.answers_lost && !page.status.sealed);
    // Eviction does not affect fencing or numbering.
    fixture.append(&key, batch(49..50)).await;
    fixture.append(&key, batch(50..51)).await;
}

/// Nothing is evicted below the limits.
pub async fn events_within_limits_are_retained<H: Harness>(harness: &H) {
    let fixture = StoreFixture::with_retention(harness, KEEP_TEN).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, last_batch(1..11)).await;
    fixture.store.sweep().await.expect("a sweep does not fail");
    let page = fixture.page(&key, 0).await;
    assert_eq!(sequence(&page), (1..11).collect::<Vec<_>>());
    assert_eq!(page.status.purged, None);
}

/// Appends of several events: the newest events within the limits are always retained. Backpressure relies on that.
pub async fn eviction_spares_the_whole_window<H: Harness>(harness: &H) {
    let fixture = StoreFixture::with_retention(harness, KEEP_TEN).await;
    for size in [2, 3, 4, 7, 15] {
        let key = fixture.stream(Ordinal(1 + size));
        for at in 0..12 {
            let (first, last) = (1 + at * size, (at + 1) * size);
            fixture.append(&key, batch(first..last + 1)).await;
            fixture.store.sweep().await.expect("a sweep does not fail");
            let retained = sequence(&fixture.page(&key, 0).await);
            let window = last.saturating_sub(10) + 1;
            assert!(retained[0] <= window, "{window} of {size} is gone: {retained:?}");
            assert_eq!(retained, (retained[0]..=last).collect::<Vec<_>>());
            assert!(retained.len() as u64 <= 10 + size, "{retained:?}");
        }
    }
}

/// The priming event has no content, so its loss is not a gap.
pub async fn evicted_priming_event_is_not_a_gap<H: Harness>(harness: &H) {
    let fixture = StoreFixture::with_retention(harness, KEEP_TEN).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..11)).await;
    fixture.store.sweep().await.expect("a sweep does not fail");
    let page = fixture.page(&key, 0).await;
    assert_eq!(sequence(&page), (1..11).collect::<Vec<_>>());
    assert_eq!(page.status.purged, None);
}

/// An answer outlives the events around it.
pub async fn eviction_spares_answers<H: Harness>(harness: &H) {
    let fixture = StoreFixture::with_retention(harness, KEEP_TEN).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..2)).await;
    fixture.append(&key, answer(2)).await;
    for n in 3..40 {
        fixture.append(&key, batch(n..n + 1)).await;
    }
    fixture.append(&key, last_batch(40..41)).await;
    let page = read_after_eviction(&fixture, &key, 10).await;
    let retained = sequence(&page);
    assert_eq!((retained[0], retained.last()), (2, Some(&40)));
    assert_eq!(retained[1..], (retained[1]..41).collect::<Vec<_>>());
    assert_eq!(page.status.purged, Some(Seq(retained[1] - 1)));
    assert!(!page.status.answers_lost);
}

/// A question stays until it is released or the stream is sealed.
pub async fn eviction_spares_open_questions<H: Harness>(harness: &H) {
    let fixture = StoreFixture::with_retention(harness, KEEP_TEN).await;
    for by_sealing in [false, true] {
        let key = fixture.stream(Ordinal(if by_sealing { 3 } else { 1 }));
        fixture.append(&key, batch(0..1)).await;
        fixture.append(&key, question(1)).await;
        fixture.append(&key, question(2)).await;
        for n in 3..40 {
            fixture.append(&key, batch(n..n + 1)).await;
        }
        let retained = sequence(&read_after_eviction(&fixture, &key, 10).await);
        assert_eq!(retained[..2], [1, 2]);
        let next = if by_sealing {
            last_batch(40..41)
        } else {
            batch(40..41).with_released(vec![Seq(1), Seq(999)])
        };
        fixture.append(&key, next).await;
        for n in 41..60 {
            if !by_sealing {
                fixture.append(&key, batch(n..n + 1)).await;
            }
        }
        let page = read_after_eviction(&fixture, &key, 10).await;
        assert!(
            !sequence(&page).contains(&1),
            "a settled question is evicted like any event"
        );
        assert!(
            by_sealing || sequence(&page).contains(&2),
            "the other one is still open"
        );
        assert!(page.has_gap_after(Seq(0)) && !page.status.answers_lost);
    }
}

/// The newest event is retained, independent of its size.
pub async fn eviction_by_bytes_spares_the_newest<H: Harness>(harness: &H) {
    let retention = Retention::default().with_bytes(32 << 10);
    let fixture = StoreFixture::with_retention(harness, retention).await;
    let key = fixture.first_call_stream();
    let large = |seq, size| {
        let mut large = batch(seq..seq + 1);
        large.events[0].payload = Bytes::from(vec![b'x'; size]);
        large
    };
    for n in 1..100 {
        fixture.append(&key, large(n, 1 << 10)).await;
    }
    let page = read_after_eviction(&fixture, &key, 32).await;
    let retained = sequence(&page);
    assert!(retained.len() >= 8, "far too much was evicted: {retained:?}");
    assert_eq!(retained, (retained[0]..100).collect::<Vec<_>>());
    assert_eq!(page.status.purged, Some(Seq(retained[0] - 1)));
    fixture.append(&key, large(100, 100 << 10)).await;
    assert_eq!(sequence(&read_after_eviction(&fixture, &key, 1).await), [100]);
}

/// An open stream does not expire. Runs only with a harness whose clock can be moved.
pub async fn sealed_stream_expires<H: Harness>(harness: &H) {
    let retention = Retention::default().with_age(Duration::from_secs(60));
    let fixture = StoreFixture::with_retention(harness, retention).await;
    let (open, early, late) = (
        fixture.first_call_stream(),
        fixture.stream(Ordinal(3)),
        fixture.stream(Ordinal(5)),
    );
    fixture.append(&open, batch(0..3)).await;
    fixture.append(&late, batch(0..3)).await;
    fixture.append(&early, last_batch(0..3)).await;
    if !harness.advance(&fixture.store, Duration::from_secs(40)) {
        return;
    }
    fixture.store.sweep().await.expect("a sweep does not fail");
    assert_eq!(sequence(&fixture.page(&early, 0).await), [1, 2], "not expired yet");
    fixture.append(&late, last_batch(3..4)).await;
    assert!(harness.advance(&fixture.store, Duration::from_secs(30)));
    fixture.store.sweep().await.expect("a sweep does not fail");
    fixture.assert_unknown(&early).await;
    assert_eq!(
        sequence(&fixture.page(&late, 0).await),
        [1, 2, 3],
        "the age counts from the seal"
    );
    assert!(harness.advance(&fixture.store, Duration::from_secs(3600)));
    fixture.store.sweep().await.expect("a sweep does not fail");
    fixture.assert_unknown(&late).await;
    assert_eq!(
        sequence(&fixture.page(&open, 0).await),
        [1, 2],
        "an open stream does not expire"
    );
}
