//! Fencing of writers; ended sessions and forgotten streams stay that way (D2).

use super::Harness;
use super::fixture::*;
use rethread_store::{
    Appended, Batch, EventStore as _, Ordinal, Seq, SessionStore as _, Store, StoreError, StreamInfo, StreamKey,
};

#[track_caller]
fn assert_conflict(refused: &Result<Appended, StoreError>, stored: (u64, u64)) {
    let (epoch, last) = stored;
    let fits = matches!(refused, Err(StoreError::Conflict { epoch: e, last: Some(Seq(l)) }) if (*e, *l) == stored);
    assert!(
        fits,
        "expected a conflict with epoch {epoch}, last {last}, not {refused:?}"
    );
}

fn in_epoch(epoch: u64, batch: Batch) -> Batch {
    batch.with_epoch(epoch)
}

/// A refusal reports the stored state, and no event of a refused batch is stored.
pub async fn append_with_a_wrong_number_is_refused<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..4)).await;
    for wrong in [0..1, 0..3, 1..2, 2..3, 2..6, 3..5, 5..6, 100..101] {
        assert_conflict(&fixture.store.append(&key, batch(wrong)).await, (1, 3));
    }
    let holed = batch(4..5).with_events(vec![event(4), event(6)]);
    assert_conflict(&fixture.store.append(&key, holed).await, (1, 3));
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2, 3]);
    fixture.append(&key, batch(4..5)).await;
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2, 3, 4]);
}

/// STO-01: a writer that lost an acknowledgement sends the batch again. It is stored once.
pub async fn sto_01_repeated_append_is_idempotent<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    for repeated in [batch(0..3), batch(3..4), question(4), last_batch(5..7)] {
        for _ in 0..3 {
            fixture.append(&key, repeated.clone()).await;
        }
    }
    let page = fixture.page(&key, 0).await;
    assert_eq!(sequence(&page), [1, 2, 3, 4, 5, 6]);
    assert!(page.status.sealed);
}

/// The same holds for a batch that only seals.
pub async fn repeated_seal_is_idempotent<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..3)).await;
    let end = Batch::new(1, Vec::new()).sealing();
    for _ in 0..2 {
        fixture.append(&key, end.clone()).await;
    }
}

/// Not even a later epoch may append.
pub async fn sealed_stream_refuses_appends<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, last_batch(0..3)).await;
    for more in [
        batch(3..4),
        last_batch(3..4),
        in_epoch(2, batch(3..4)),
        in_epoch(2, last_batch(3..4)),
    ] {
        let refused = fixture.store.append(&key, more).await;
        assert!(matches!(refused, Err(StoreError::Sealed)), "{refused:?}");
    }
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2]);
}

/// The earlier writer is refused from then on, even with its own last batch.
pub async fn later_epoch_fences_earlier_writer<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..2)).await;
    fixture.append(&key, in_epoch(5, batch(2..3))).await;
    for late in [batch(2..3), batch(3..4), in_epoch(4, batch(3..4)), last_batch(3..4)] {
        assert_conflict(&fixture.store.append(&key, late).await, (5, 2));
    }
    fixture.append(&key, in_epoch(5, batch(3..4))).await;
    assert_eq!(fixture.status(&key).await.epoch, 5);
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2, 3]);
}

/// A batch without events claims a stream for its epoch and changes nothing else. A restored session uses this to fence
/// the previous process before it reads.
pub async fn empty_batch_of_later_epoch_fences<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..3)).await;
    let fence = || batch(0..0).with_epoch(2);
    fixture.append(&key, fence()).await;
    fixture.append(&key, fence()).await;
    let status = fixture.status(&key).await;
    assert_eq!((status.epoch, status.last, status.sealed), (2, Some(Seq(2)), false));
    let late = fixture.store.append(&key, batch(3..4)).await;
    assert!(
        matches!(
            late,
            Err(StoreError::Conflict {
                epoch: 2,
                last: Some(Seq(2))
            })
        ),
        "{late:?}"
    );
    let next = batch(3..4).with_epoch(2);
    fixture.append(&key, next).await;
    let unknown = fixture
        .store
        .append(&fixture.stream(Ordinal(9)), Batch::new(2, Vec::new()))
        .await;
    assert!(matches!(unknown, Err(StoreError::UnknownStream)), "{unknown:?}");
}

/// A later epoch must continue after the stored events.
pub async fn later_epoch_cannot_overwrite<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..4)).await;
    for wrong in [batch(0..4), batch(3..4), batch(0..1)] {
        assert_conflict(&fixture.store.append(&key, in_epoch(2, wrong)).await, (1, 3));
    }
    fixture.append(&key, batch(4..5)).await; // the refused takeover changed nothing
}

/// Without `StreamInfo` the first append is refused.
pub async fn first_append_needs_stream_info<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    for first in [0..1, 1..2, 3..4] {
        let mut without_info = batch(first);
        without_info.info = None;
        let refused = fixture.store.append(&key, without_info).await;
        assert!(matches!(refused, Err(StoreError::UnknownStream)), "{refused:?}");
    }
    fixture.assert_unknown(&key).await;
}

/// `StreamInfo` in a later batch is ignored.
pub async fn stream_info_is_set_once<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    let mut others = StreamInfo::clone(&info());
    others.calls.clear();
    fixture.append(&key, batch(1..2).with_info(others)).await;
    assert_eq!(fixture.status(&key).await.info, info());
}

/// No session was ever created.
pub async fn session_without_record_refuses_appends<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let stranger = StoreFixture {
        session: fresh_session(principal()),
        ..fixture
    };
    assert_gone(&stranger, &stranger.first_call_stream()).await;
}

/// Once `end` has returned, appends to existing and new streams are refused.
pub async fn ended_session_refuses_appends<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..2)).await;
    for _ in 0..2 {
        fixture
            .store
            .end(&fixture.session)
            .await
            .expect("a repeated end is not an error");
        for late in [batch(2..3), last_batch(2..3), in_epoch(9, batch(2..3))] {
            let refused = fixture.store.append(&key, late).await;
            assert!(matches!(refused, Err(StoreError::SessionGone)), "{refused:?}");
        }
        assert_gone(&fixture, &fixture.stream(Ordinal(3))).await;
    }
}

/// After `end` and `forget_session`, in either order, no part of the session reappears.
pub async fn ended_session_stays_ended<H: Harness>(harness: &H) {
    for end_first in [true, false] {
        let fixture = StoreFixture::open(harness).await;
        for ordinal in 1..6 {
            fixture.append(&fixture.stream(Ordinal(ordinal)), batch(0..3)).await;
        }
        fixture.append(&fixture.first_call_stream(), last_batch(3..4)).await;
        if end_first {
            fixture.store.end(&fixture.session).await.expect("ended");
            fixture.store.forget_session(&fixture.session).await.expect("forgotten");
        } else {
            fixture.store.forget_session(&fixture.session).await.expect("forgotten");
            fixture.store.end(&fixture.session).await.expect("ended");
        }
        for ordinal in 1..8 {
            let key = fixture.stream(Ordinal(ordinal));
            assert_gone(&fixture, &key).await;
            fixture.assert_unknown(&key).await;
        }
        let loaded = fixture.store.load(&fixture.session).await;
        assert!(matches!(loaded, Err(StoreError::SessionGone)), "{loaded:?}");
    }
}

/// Other streams stay, and forgetting it again is not an error.
pub async fn forgotten_stream_is_unknown<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let (open, ended, other) = (
        fixture.first_call_stream(),
        fixture.stream(Ordinal(3)),
        fixture.stream(Ordinal(5)),
    );
    fixture.append(&open, batch(0..3)).await;
    fixture.append(&ended, last_batch(0..3)).await;
    fixture.append(&other, batch(0..3)).await;
    for key in [&open, &ended, &open, &fixture.stream(Ordinal(7))] {
        fixture.store.forget_stream(key).await.expect("forgotten");
        fixture.assert_unknown(key).await;
    }
    let late = fixture.store.append(&open, batch(3..4)).await;
    assert!(matches!(late, Err(StoreError::UnknownStream)), "{late:?}");
    assert_eq!(sequence(&fixture.page(&other, 0).await), [1, 2]);
}

/// Forgetting the streams of an open session leaves the session open.
pub async fn session_survives_forgetting_its_streams<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    fixture.append(&fixture.first_call_stream(), last_batch(0..3)).await;
    fixture.store.forget_session(&fixture.session).await.expect("forgotten");
    fixture.assert_unknown(&fixture.first_call_stream()).await;
    assert_eq!(
        fixture
            .store
            .load(&fixture.session)
            .await
            .expect("the record stays")
            .record,
        record()
    );
    fixture.append(&fixture.stream(Ordinal(3)), batch(0..3)).await;
    let unknown = fresh_session(principal());
    fixture
        .store
        .forget_session(&unknown)
        .await
        .expect("forgetting an unknown session is not an error");
}

async fn assert_gone<S: Store>(fixture: &StoreFixture<S>, key: &StreamKey) {
    for first in [batch(0..1), batch(1..2), last_batch(1..2)] {
        let refused = fixture.store.append(key, first).await;
        assert!(matches!(refused, Err(StoreError::SessionGone)), "{refused:?}");
    }
}
