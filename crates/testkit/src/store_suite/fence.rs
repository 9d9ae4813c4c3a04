//! Who may write, and what stays ended (design D2).

use super::Harness;
use super::scene::*;
use rethread_store::{Batch, EventStore as _, Ordinal, Seq, SessionStore as _, Store, StoreError, StreamKey};

#[track_caller]
fn assert_conflict(refused: &Result<(), StoreError>, stored: (u64, u64)) {
    let (epoch, last) = stored;
    let fits = matches!(refused, Err(StoreError::Conflict { epoch: e, last: Some(Seq(l)) }) if (*e, *l) == stored);
    assert!(
        fits,
        "expected a conflict with epoch {epoch}, last {last}, not {refused:?}"
    );
}

fn in_epoch(epoch: u64, batch: Batch) -> Batch {
    Batch { epoch, ..batch }
}

/// Numbers follow without a gap or a repeat; a refusal tells what is stored, and nothing of a refused batch is.
pub async fn numbers_must_follow<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..4)).await;
    for wrong in [0..1, 0..3, 1..2, 2..3, 2..6, 3..5, 5..6, 100..101] {
        assert_conflict(&scene.store.append(&key, batch(wrong)).await, (1, 3));
    }
    let holed = Batch {
        events: vec![event(4), event(6)],
        ..batch(4..5)
    };
    assert_conflict(&scene.store.append(&key, holed).await, (1, 3));
    assert_eq!(sequence(&scene.page(&key, 0).await), [1, 2, 3]);
    scene.append(&key, batch(4..5)).await;
    assert_eq!(sequence(&scene.page(&key, 0).await), [1, 2, 3, 4]);
}

/// STO-01: a batch whose acknowledgement was lost is sent again, and stored once.
pub async fn a_repeated_append_is_harmless<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    for repeated in [batch(0..3), batch(3..4), question(4), last_batch(5..7)] {
        for _ in 0..3 {
            scene.append(&key, repeated.clone()).await;
        }
    }
    let page = scene.page(&key, 0).await;
    assert_eq!(sequence(&page), [1, 2, 3, 4, 5, 6]);
    assert!(page.status.sealed);
}

/// A batch that only ends a stream can be sent again too.
pub async fn a_repeated_end_is_harmless<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..3)).await;
    let end = Batch {
        info: None,
        events: Vec::new(),
        seals: true,
        ..batch(0..1)
    };
    for _ in 0..2 {
        scene.append(&key, end.clone()).await;
    }
}

/// A sealed stream takes no more, not even from a later epoch.
pub async fn a_sealed_stream_takes_no_more<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, last_batch(0..3)).await;
    for more in [
        batch(3..4),
        last_batch(3..4),
        in_epoch(2, batch(3..4)),
        in_epoch(2, last_batch(3..4)),
    ] {
        let refused = scene.store.append(&key, more).await;
        assert!(matches!(refused, Err(StoreError::Sealed)), "{refused:?}");
    }
    assert_eq!(sequence(&scene.page(&key, 0).await), [1, 2]);
}

/// A later epoch takes a stream over; the earlier writer is refused from then on, even with its own last batch.
pub async fn a_later_epoch_fences_the_earlier<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..2)).await;
    scene.append(&key, in_epoch(5, batch(2..3))).await;
    for late in [batch(2..3), batch(3..4), in_epoch(4, batch(3..4)), last_batch(3..4)] {
        assert_conflict(&scene.store.append(&key, late).await, (5, 2));
    }
    scene.append(&key, in_epoch(5, batch(3..4))).await;
    assert_eq!(scene.status(&key).await.epoch, 5);
    assert_eq!(sequence(&scene.page(&key, 0).await), [1, 2, 3]);
}

/// A batch without events takes a stream for its epoch and changes nothing else: the next life of a session shuts out the
/// one before, then looks.
pub async fn an_empty_batch_of_a_later_epoch_fences<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..3)).await;
    let fence = || Batch {
        epoch: 2,
        ..batch(0..0)
    };
    scene.append(&key, fence()).await;
    scene.append(&key, fence()).await;
    let status = scene.status(&key).await;
    assert_eq!((status.epoch, status.last, status.sealed), (2, Some(Seq(2)), false));
    let late = scene.store.append(&key, batch(3..4)).await;
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
    let next = Batch {
        epoch: 2,
        ..batch(3..4)
    };
    scene.append(&key, next).await;
    let unknown = scene
        .store
        .append(&scene.stream(Ordinal(9)), Batch { info: None, ..fence() })
        .await;
    assert!(matches!(unknown, Err(StoreError::UnknownStream)), "{unknown:?}");
}

/// A later epoch must still know what is stored: numbers that were taken are not taken again.
pub async fn a_later_epoch_does_not_overwrite<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..4)).await;
    for wrong in [batch(0..4), batch(3..4), batch(0..1)] {
        assert_conflict(&scene.store.append(&key, in_epoch(2, wrong)).await, (1, 3));
    }
    scene.append(&key, batch(4..5)).await; // a refused takeover is none
}

/// The first append brings the info, or there is no stream.
pub async fn a_stream_without_facts_is_not_made<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    for first in [0..1, 1..2, 3..4] {
        let refused = scene
            .store
            .append(
                &key,
                Batch {
                    info: None,
                    ..batch(first)
                },
            )
            .await;
        assert!(matches!(refused, Err(StoreError::UnknownStream)), "{refused:?}");
    }
    scene.assert_unknown(&key).await;
}

/// The info are settled by the first append; a later batch that brings others changes nothing.
pub async fn facts_are_settled_once<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..1)).await;
    let mut others = info();
    others.calls.clear();
    scene
        .append(
            &key,
            Batch {
                info: Some(others),
                ..batch(1..2)
            },
        )
        .await;
    assert_eq!(scene.status(&key).await.info, info());
}

/// A session that was never opened takes nothing.
pub async fn a_session_without_a_record_takes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let stranger = Scene {
        session: fresh_session(principal()),
        ..scene
    };
    assert_gone(&stranger, &stranger.first()).await;
}

/// Once `end` has returned, no append is taken: not to a stream that exists, not to a new one.
pub async fn an_ended_session_takes_nothing<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..2)).await;
    for _ in 0..2 {
        scene
            .store
            .end(&scene.session)
            .await
            .expect("ending what has ended is no error");
        for late in [batch(2..3), last_batch(2..3), in_epoch(9, batch(2..3))] {
            let refused = scene.store.append(&key, late).await;
            assert!(matches!(refused, Err(StoreError::SessionGone)), "{refused:?}");
        }
        assert_gone(&scene, &scene.stream(Ordinal(3))).await;
    }
}

/// After `end` and `forget_session`, in either order, nothing of the session comes back to life.
pub async fn nothing_comes_back_to_life<H: Harness>(harness: &H) {
    for end_first in [true, false] {
        let scene = Scene::open(harness).await;
        for ordinal in 1..6 {
            scene.append(&scene.stream(Ordinal(ordinal)), batch(0..3)).await;
        }
        scene.append(&scene.first(), last_batch(3..4)).await;
        if end_first {
            scene.store.end(&scene.session).await.expect("it can be ended");
            scene
                .store
                .forget_session(&scene.session)
                .await
                .expect("it can be forgotten");
        } else {
            scene
                .store
                .forget_session(&scene.session)
                .await
                .expect("it can be forgotten");
            scene.store.end(&scene.session).await.expect("it can be ended");
        }
        for ordinal in 1..8 {
            let key = scene.stream(Ordinal(ordinal));
            assert_gone(&scene, &key).await;
            scene.assert_unknown(&key).await;
        }
        let loaded = scene.store.load(&scene.session).await;
        assert!(matches!(loaded, Err(StoreError::SessionGone)), "{loaded:?}");
    }
}

/// A forgotten stream is unknown, the others stay, and forgetting it again is no error.
pub async fn a_forgotten_stream_is_unknown<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let (open, ended, other) = (scene.first(), scene.stream(Ordinal(3)), scene.stream(Ordinal(5)));
    scene.append(&open, batch(0..3)).await;
    scene.append(&ended, last_batch(0..3)).await;
    scene.append(&other, batch(0..3)).await;
    for key in [&open, &ended, &open, &scene.stream(Ordinal(7))] {
        scene.store.forget_stream(key).await.expect("forgetting is no error");
        scene.assert_unknown(key).await;
    }
    let late = scene.store.append(&open, batch(3..4)).await;
    assert!(matches!(late, Err(StoreError::UnknownStream)), "{late:?}");
    assert_eq!(sequence(&scene.page(&other, 0).await), [1, 2]);
}

/// Forgetting the streams of an open session leaves the session open.
pub async fn a_session_can_forget_its_streams_and_go_on<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    scene.append(&scene.first(), last_batch(0..3)).await;
    scene
        .store
        .forget_session(&scene.session)
        .await
        .expect("it can be forgotten");
    scene.assert_unknown(&scene.first()).await;
    assert_eq!(
        scene.store.load(&scene.session).await.expect("the record stays").record,
        record()
    );
    scene.append(&scene.stream(Ordinal(3)), batch(0..3)).await;
    let nobody = fresh_session(principal());
    scene
        .store
        .forget_session(&nobody)
        .await
        .expect("forgetting what is not there is no error");
}

async fn assert_gone<S: Store>(scene: &Scene<S>, key: &StreamKey) {
    for first in [batch(0..1), batch(1..2), last_batch(1..2)] {
        let refused = scene.store.append(key, first).await;
        assert!(matches!(refused, Err(StoreError::SessionGone)), "{refused:?}");
    }
}
