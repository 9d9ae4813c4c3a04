//! Large payloads and many streams.

use super::Harness;
use super::fixture::*;
use bytes::Bytes;
use rethread_store::{Event, EventStore as _, Ordinal, ReadLimit, Retention, Seq, SessionStore as _, StreamKey};

/// 1 MiB each.
pub async fn large_payloads_read_back<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    let payload = |n: u64| Bytes::from((0..1 << 20).map(|at: u64| (at * 31 + n * 7) as u8).collect::<Vec<_>>());
    let events = |range: std::ops::Range<u64>| range.map(|n| Event::new(Seq(n), payload(n))).collect();
    fixture.append(&key, batch(1..2).with_events(events(1..2))).await;
    fixture.append(&key, last_batch(2..4).with_events(events(2..4))).await;
    let mut after = Seq(0);
    for n in 1..4 {
        let page = fixture
            .store
            .read_after(&key, after, ReadLimit::default())
            .await
            .expect("known");
        assert_eq!(sequence(&page), [n], "one such event is a page");
        assert!(page.events[0].payload == payload(n), "event {n} came back changed");
        after = Seq(n);
    }
}

/// A batch of many events is atomic.
pub async fn large_batch_is_one_append<H: Harness>(harness: &H) {
    let fixture = StoreFixture::open(harness).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..2000)).await;
    fixture.append(&key, batch(0..2000)).await;
    assert_eq!(sequence(&fixture.page(&key, 0).await), (1..2000).collect::<Vec<_>>());
}

/// In 100 sessions, written by several tasks at once. Each stream reads back its own events.
pub async fn ten_thousand_streams_stay_separate<H: Harness>(harness: &H) {
    const SESSIONS: u64 = 100;
    const STREAMS: u64 = 100;
    let store = harness.fresh(Retention::default()).await;
    let sessions: Vec<_> = (0..SESSIONS).map(|_| fresh_session(principal())).collect();
    let text = |session: u64, ordinal: u64| Bytes::from(format!("session {session}, stream {ordinal}"));
    let mut writers = Vec::new();
    let numbered: Vec<_> = (0..).zip(sessions.clone()).collect();
    for share in numbered.chunks(sessions.len() / 4) {
        let (store, share) = (store.clone(), share.to_vec());
        writers.push(spawn_thread(async move {
            for (number, session) in share {
                store
                    .create(&session, record(), false)
                    .await
                    .expect("a session can be created");
                for ordinal in 1..=STREAMS {
                    let key = StreamKey {
                        session: session.clone(),
                        ordinal: Ordinal(ordinal),
                    };
                    let event = Event::new(Seq(1), text(number, ordinal));
                    let seals = ordinal % 2 == 0;
                    let mut first = batch(1..2).with_events(vec![event]);
                    first.seals = seals;
                    store.append(&key, first).await.expect("the store accepts small events");
                }
            }
        }));
    }
    join_all(writers).await;
    for (number, session) in (0..).zip(&sessions) {
        for ordinal in 1..=STREAMS {
            let key = StreamKey {
                session: session.clone(),
                ordinal: Ordinal(ordinal),
            };
            let page = store
                .read_after(&key, Seq(0), UNLIMITED_READ)
                .await
                .expect("every stream is known");
            assert_eq!(page.events.len(), 1);
            assert_eq!(page.events[0].payload, text(number, ordinal));
            assert_eq!(page.status.sealed, ordinal % 2 == 0);
        }
    }
}
