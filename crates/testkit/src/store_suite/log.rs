//! Appending and reading.

use super::Harness;
use super::scene::*;
use bytes::Bytes;
use rethread_proto::{RequestId, StreamKind};
use rethread_store::{Batch, Event, EventStore as _, Ordinal, ReadLimit, Retain, Seq, StoreError, StreamInfo};

/// What was appended is read back, byte for byte, with its pins and info.
pub async fn what_is_appended_is_read_back<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut written = batch(0..4);
    written.events[1].payload = Bytes::from(every_byte);
    written.events[2].retain = Retain::Question;
    written.events[3].retain = Retain::Answer;
    scene.append(&key, written.clone()).await;
    scene.append(&key, batch(4..6)).await;

    let page = scene.page(&key, 0).await;
    assert_eq!(page.events, [&written.events[1..], &batch(4..6).events].concat());
    let status = scene.status(&key).await;
    assert_eq!(status, page.status, "a page tells how the stream stood");
    assert_eq!((status.info.clone(), status.epoch), (info(), 1));
    assert_eq!((status.last, status.purged), (Some(Seq(5)), None));
    assert!(!status.sealed && !status.answers_lost);

    scene.append(&key, last_batch(6..7)).await;
    assert!(scene.page(&key, 6).await.status.sealed && scene.status(&key).await.sealed);
}

/// The info of every kind of stream come back.
pub async fn facts_come_back<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let long = "x".repeat(3000);
    let calls = [
        &[][..],
        &[1.into()],
        &[RequestId::from(""), i64::MIN.into(), long.as_str().into()],
    ];
    for (ordinal, calls) in (1..).zip(calls) {
        let key = scene.stream(Ordinal(ordinal));
        let info = StreamInfo {
            kind: if calls.is_empty() {
                StreamKind::Push
            } else {
                StreamKind::Call
            },
            calls: calls.to_vec(),
            node: "".into(),
        };
        let first = Batch {
            info: Some(info.clone()),
            ..batch(0..1)
        };
        scene.append(&key, first).await;
        assert_eq!(scene.status(&key).await.info, info);
    }
}

/// A cursor reads what comes after it, from anywhere; behind the end there is nothing.
pub async fn a_cursor_reads_what_comes_after_it<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..11)).await;
    for after in 0..=10 {
        let page = scene.page(&key, after).await;
        assert_eq!(sequence(&page), (after + 1..11).collect::<Vec<_>>());
        assert!(!page.has_gap_after(Seq(after)));
    }
    for after in [11, 1000, i64::MAX as u64, u64::MAX] {
        assert!(scene.page(&key, after).await.events.is_empty(), "after {after}");
    }
}

/// STO-03: the priming event has a number, and no cursor ever reads it.
pub async fn the_priming_event_counts_but_is_not_read<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..1)).await;
    assert_eq!(scene.status(&key).await.last, Some(Seq(0)));
    assert!(scene.page(&key, 0).await.events.is_empty());
    scene.append(&key, batch(1..3)).await;
    assert_eq!(sequence(&scene.page(&key, 0).await), [1, 2]);
}

/// A stream without a priming event starts with 1; one that starts later is refused and leaves nothing behind.
pub async fn a_stream_starts_with_its_first_number<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let (key, other) = (scene.first(), scene.stream(Ordinal(3)));
    scene.append(&key, batch(1..3)).await;
    assert_eq!(sequence(&scene.page(&key, 0).await), [1, 2]);
    let late = Batch {
        info: Some(info()),
        ..batch(2..3)
    };
    let refused = scene.store.append(&other, late).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict { last: None, .. })),
        "{refused:?}"
    );
    scene.assert_unknown(&other).await;
}

/// A page is bounded by events and by bytes, and a large event still makes progress.
pub async fn pages_are_bounded<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    let mut written = batch(0..30);
    for event in &mut written.events[1..] {
        event.payload = Bytes::from(vec![b'x'; 100]);
    }
    scene.append(&key, written).await;
    let read = async |after, events, bytes| {
        let page = scene
            .store
            .read_after(&key, Seq(after), ReadLimit { events, bytes })
            .await;
        sequence(&page.expect("the stream is known"))
    };
    assert_eq!(read(10, 3, 1 << 20).await, [11, 12, 13]);
    assert_eq!(read(10, 100, 250).await, [11, 12]);
    assert_eq!(read(10, 100, 200).await, [11, 12]);
    assert_eq!(
        read(10, 100, 10).await,
        [11],
        "the first event comes however large it is"
    );
    assert_eq!(read(29, 100, 10).await, [0; 0]);
    let page = scene
        .store
        .read_after(&key, Seq(10), ReadLimit { events: 1, bytes: 1 })
        .await;
    assert_eq!(
        page.expect("known").status.last,
        Some(Seq(29)),
        "the status is of the whole stream"
    );
}

/// Reading in pages of any size sees every event once, in order.
pub async fn pages_join_without_a_seam<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    for n in 0..20 {
        scene.append(&key, batch(n * 5..n * 5 + 5)).await;
    }
    for events in [1, 7, 33, 99, 100] {
        let (mut after, mut seen) = (Seq(0), Vec::new());
        loop {
            let page = scene
                .store
                .read_after(&key, after, ReadLimit { events, bytes: 1 << 20 })
                .await;
            let page = page.expect("the stream is known");
            let Some(last) = page.events.last() else { break };
            assert!(last.seq > after, "a page makes progress");
            after = last.seq;
            seen.extend(sequence(&page));
        }
        assert_eq!(seen, (1..100).collect::<Vec<_>>(), "pages of {events}");
    }
}

/// What was never written is unknown.
pub async fn a_stream_that_never_was_is_unknown<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    scene.append(&scene.first(), batch(0..3)).await;
    scene.assert_unknown(&scene.stream(Ordinal(3))).await;
    let elsewhere = Scene {
        session: fresh_session(principal()),
        ..scene
    };
    elsewhere.assert_unknown(&elsewhere.first()).await;
}

/// A batch without events can end a stream, and release questions; a stream can be born ended.
pub async fn a_stream_can_end_without_an_event<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    let key = scene.first();
    scene.append(&key, batch(0..3)).await;
    let end = Batch {
        info: None,
        events: Vec::new(),
        seals: true,
        ..batch(0..1)
    };
    scene.append(&key, end).await;
    let page = scene.page(&key, 0).await;
    assert_eq!((sequence(&page), page.status.sealed), (vec![1, 2], true));

    let born_ended = scene.stream(Ordinal(3));
    scene.append(&born_ended, last_batch(1..2)).await;
    assert!(scene.status(&born_ended).await.sealed);
}

/// What an event is called in one stream it may be called in another.
pub async fn streams_of_a_session_count_apart<H: Harness>(harness: &H) {
    let scene = Scene::open(harness).await;
    for ordinal in [1, 2, 3, u64::from(u32::MAX) + 1, i64::MAX as u64] {
        let key = scene.stream(Ordinal(ordinal));
        let event = Event::new(Seq(1), Bytes::from(ordinal.to_string()));
        scene
            .append(
                &key,
                Batch {
                    events: vec![event],
                    ..batch(1..2)
                },
            )
            .await;
    }
    for ordinal in [1, 2, 3, u64::from(u32::MAX) + 1, i64::MAX as u64] {
        let page = scene.page(&scene.stream(Ordinal(ordinal)), 0).await;
        assert_eq!(page.events[0].payload, ordinal.to_string());
        assert_eq!(page.events.len(), 1);
    }
}
