//! Append and read.

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use rethread_proto::{RequestId, StreamKind};
use rethread_store::{Batch, Event, EventStore as _, Ordinal, ReadLimit, Retain, Seq, StoreError, StreamInfo};

/// Payloads, retention marks and stream info are unchanged.
pub async fn append_reads_back<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut written = batch(0..4);
    written.events[1].payload = Bytes::from(every_byte);
    written.events[2].retain = Retain::Question;
    written.events[3].retain = Retain::Answer;
    fixture.append(&key, written.clone()).await;
    fixture.append(&key, batch(4..6)).await;

    let page = fixture.page(&key, 0).await;
    assert_eq!(page.events, [&written.events[1..], &batch(4..6).events].concat());
    let status = fixture.status(&key).await;
    assert_eq!(status, page.status, "the status of the page");
    assert_eq!((status.info.clone(), status.epoch), (info(), 1));
    assert_eq!((status.last, status.purged), (Some(Seq(5)), None));
    assert!(!status.sealed && !status.answers_lost);

    fixture.append(&key, last_batch(6..7)).await;
    assert!(fixture.page(&key, 6).await.status.sealed && fixture.status(&key).await.sealed);
}

/// For every kind of stream.
pub async fn stream_info_reads_back<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let long = "x".repeat(3000);
    let calls = [
        &[][..],
        &[1.into()],
        &[RequestId::from(""), i64::MIN.into(), long.as_str().into()],
    ];
    for (ordinal, calls) in (1..).zip(calls) {
        let key = fixture.stream(Ordinal(ordinal));
        let info = StreamInfo::new(
            if calls.is_empty() {
                StreamKind::Push
            } else {
                StreamKind::Call
            },
            calls.to_vec(),
            "",
        );
        let first = batch(0..1).with_info(info.clone());
        fixture.append(&key, first).await;
        assert_eq!(*fixture.status(&key).await.info, info);
    }
}

/// After the last event there is nothing.
pub async fn read_starts_after_the_cursor<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..11)).await;
    for after in 0..=10 {
        let page = fixture.page(&key, after).await;
        assert_eq!(sequence(&page), (after + 1..11).collect::<Vec<_>>());
        assert!(!page.has_gap_after(Seq(after)));
    }
    for after in [11, 1000, i64::MAX as u64, u64::MAX] {
        assert!(fixture.page(&key, after).await.events.is_empty(), "after {after}");
    }
}

/// STO-03: the priming event takes a number, but no read returns it.
pub async fn sto_03_priming_event_is_never_read<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..1)).await;
    assert_eq!(fixture.status(&key).await.last, Some(Seq(0)));
    assert!(fixture.page(&key, 0).await.events.is_empty());
    fixture.append(&key, batch(1..3)).await;
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2]);
}

/// A stream without a priming event starts at 1. A later start is refused and creates nothing.
pub async fn stream_starts_at_zero_or_one<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let (key, other) = (fixture.first_call_stream(), fixture.stream(Ordinal(3)));
    fixture.append(&key, batch(1..3)).await;
    assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2]);
    let late = batch(2..3).with_info(info());
    let refused = fixture.store.append(&other, late).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict { last: None, .. })),
        "{refused:?}"
    );
    fixture.assert_unknown(&other).await;
}

/// Events and bytes bound a page, but a page always holds at least one event.
pub async fn page_size_is_bounded<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    let mut written = batch(0..30);
    for event in &mut written.events[1..] {
        event.payload = Bytes::from(vec![b'x'; 100]);
    }
    fixture.append(&key, written).await;
    let read = async |after, events, bytes| {
        let page = fixture
            .store
            .read_after(&key, Seq(after), ReadLimit::new(events, bytes))
            .await;
        sequence(&page.expect("the stream is known"))
    };
    assert_eq!(read(10, 3, 1 << 20).await, [11, 12, 13]);
    assert_eq!(read(10, 100, 250).await, [11, 12]);
    assert_eq!(read(10, 100, 200).await, [11, 12]);
    assert_eq!(read(10, 100, 10).await, [11], "a page holds at least one event");
    assert_eq!(read(29, 100, 10).await, [0; 0]);
    let page = fixture.store.read_after(&key, Seq(10), ReadLimit::new(1, 1)).await;
    assert_eq!(
        page.expect("known").status.last,
        Some(Seq(29)),
        "the status is of the whole stream"
    );
}

/// For any page size, in order.
pub async fn pages_cover_every_event_once<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    for n in 0..20 {
        fixture.append(&key, batch(n * 5..n * 5 + 5)).await;
    }
    for events in [1, 7, 33, 99, 100] {
        let (mut after, mut seen) = (Seq(0), Vec::new());
        loop {
            let page = fixture
                .store
                .read_after(&key, after, ReadLimit::new(events, 1 << 20))
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

/// A read of it and a status of it both fail.
pub async fn unwritten_stream_is_unknown<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    fixture.append(&fixture.first_call_stream(), batch(0..3)).await;
    fixture.assert_unknown(&fixture.stream(Ordinal(3))).await;
    let elsewhere = StoreFixture {
        session: fresh_session(principal()),
        ..fixture
    };
    elsewhere.assert_unknown(&elsewhere.first_call_stream()).await;
}

/// A batch without events can seal a stream and release questions. A stream can be sealed by its first batch.
pub async fn empty_batch_can_seal<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..3)).await;
    let end = Batch::new(1, Vec::new()).sealing();
    fixture.append(&key, end).await;
    let page = fixture.page(&key, 0).await;
    assert_eq!((sequence(&page), page.status.sealed), (vec![1, 2], true));

    let born_ended = fixture.stream(Ordinal(3));
    fixture.append(&born_ended, last_batch(1..2)).await;
    assert!(fixture.status(&born_ended).await.sealed);
}

/// Two streams may use the same sequence numbers.
pub async fn streams_number_independently<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    for ordinal in [1, 2, 3, u64::from(u32::MAX) + 1, i64::MAX as u64] {
        let key = fixture.stream(Ordinal(ordinal));
        let event = Event::new(Seq(1), Bytes::from(ordinal.to_string()));
        fixture.append(&key, batch(1..2).with_events(vec![event])).await;
    }
    for ordinal in [1, 2, 3, u64::from(u32::MAX) + 1, i64::MAX as u64] {
        let page = fixture.page(&fixture.stream(Ordinal(ordinal)), 0).await;
        assert_eq!(page.events[0].payload, ordinal.to_string());
        assert_eq!(page.events.len(), 1);
    }
}
