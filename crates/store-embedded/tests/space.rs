//! Limits of memory and disk space, eviction and deletion.

mod common;

use bytes::Bytes;
use common::{Home, one_session};
use rethread_proto::RequestId;
use rethread_store::{Batch, EventStore, Ordinal, Retain, Retention, Seq, SessionRecord, SessionStore, StoreError};
use rethread_store_embedded::{EmbeddedStore, Limits};
use rethread_testkit::store_suite::{StoreFixture, batch, info, last_batch, record, sequence};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOTAL: u64 = 64 << 10;

fn small() -> Limits {
    Limits::default().with_total_bytes(TOTAL)
}

/// Replaces the payloads by payloads of `size` bytes.
fn sized(mut batch: Batch, size: usize) -> Batch {
    for event in &mut batch.events {
        event.payload = Bytes::from(vec![b'x'; size]);
    }
    batch
}

async fn is_known(fixture: &StoreFixture<EmbeddedStore>, ordinal: u64) -> bool {
    fixture.store.status(&fixture.stream(Ordinal(ordinal))).await.is_ok()
}

/// Waits for a condition and panics after `limit`.
async fn until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn memory_pressure_turns_the_oldest_ended_streams_into_tombstones() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(small())).await;
    let open = fixture.stream(Ordinal(2));
    fixture.append(&open, sized(batch(1..2), 4096)).await;
    for ordinal in (1..60).step_by(2) {
        let key = fixture.stream(Ordinal(ordinal));
        fixture.append(&key, sized(last_batch(1..2), 4096)).await;
        assert!(fixture.store.usage().held_bytes <= TOTAL, "{:?}", fixture.store.usage());
        let retained = fixture.store.retained_bytes().unwrap();
        assert!((4096..=TOTAL as usize).contains(&retained), "OPS-05: {retained}");
        assert_eq!(
            sequence(&fixture.page(&key, 0).await),
            [1],
            "the newest stream keeps its events"
        );
    }
    let oldest = fixture.page(&fixture.first_call_stream(), 0).await;
    assert!(oldest.events.is_empty() && oldest.has_gap_after(Seq(0)));
    assert!(oldest.status.answers_lost && oldest.status.sealed && oldest.status.first_kept.is_none());
    assert_eq!((oldest.status.info, oldest.status.last), (info(), Some(Seq(1))));
    assert_eq!(
        fixture.store.usage().streams,
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
    // Tombstones survive a restart.
    let session = fixture.session.clone();
    drop(fixture);
    let fixture = StoreFixture {
        store: home.open(small()),
        session,
    };
    let oldest = fixture.status(&fixture.first_call_stream()).await;
    assert!(oldest.answers_lost && oldest.sealed);
    for ordinal in (61..400).step_by(2) {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), sized(last_batch(1..2), 1024))
            .await;
        assert!(fixture.store.usage().held_bytes <= TOTAL, "{:?}", fixture.store.usage());
    }
    let mut known = Vec::new();
    for ordinal in (1..400).step_by(2) {
        known.push(is_known(&fixture, ordinal).await);
    }
    assert!(
        known.is_sorted() && !known[0] && known[199],
        "the oldest are forgotten first: {known:?}"
    );
    assert!(is_known(&fixture, 2).await);
    home.advance(Duration::from_secs(601));
    fixture.store.sweep().await.unwrap();
    assert_eq!(fixture.store.usage().streams, 1, "tombstones expire like other streams");
}

#[tokio::test]
async fn store_is_full_when_it_can_free_nothing() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(small())).await;
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
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
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
    fixture.append(&open[1], sized(batch(2..3), 4096)).await;
    // The end of a session frees its bytes at once, although its streams are deleted later.
    let other = StoreFixture::new(fixture.store.clone()).await;
    fixture.store.end(&fixture.session).await.unwrap();
    for ordinal in 1..12 {
        other
            .append(&other.stream(Ordinal(ordinal)), sized(batch(1..2), 4096))
            .await;
    }
    // A stream evicts its own oldest events for new ones.
    let key = other.first_call_stream();
    for n in 2..60 {
        other.append(&key, sized(batch(n..n + 1), 4096)).await;
    }
    let page = other.page(&key, 0).await;
    assert!(page.has_gap_after(Seq(0)) && page.status.last == Some(Seq(59)));
    assert!(fixture.store.usage().held_bytes <= TOTAL);
}

#[tokio::test]
async fn session_with_1000_streams_ends_within_200_ms() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let other = StoreFixture::new(fixture.store.clone()).await;
    for ordinal in 1..=1000 {
        let of = if ordinal % 2 == 0 {
            batch(0..20)
        } else {
            last_batch(0..20)
        };
        fixture.append(&fixture.stream(Ordinal(ordinal)), of).await;
    }
    let before = fixture.store.usage();
    assert_eq!((before.sessions, before.streams), (2, 1000));
    let start = Instant::now();
    fixture.store.end(&fixture.session).await.unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
    fixture.assert_unknown(&fixture.first_call_stream()).await;
    other.append(&other.first_call_stream(), batch(0..3)).await;
    until("the streams are deleted", Duration::from_secs(20), || {
        fixture.store.usage().streams == 1
    })
    .await;
    let usage = fixture.store.usage();
    assert!(
        usage.held_bytes < 1000 + one_session() as u64 && usage.sessions == 1,
        "{usage:?}"
    );
}

#[tokio::test]
async fn forgotten_streams_hold_no_bytes() {
    let home = Home::default();
    let limits = Limits::default()
        .with_stream(Retention::default().with_events(4))
        .with_ended_streams_per_session(5);
    let store = home.open(limits);
    let mut fixtures = Vec::new();
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
        fixtures.push(fixture);
    }
    // Forget stream by stream, forget the session, create the session again, and end the session.
    for (n, fixture) in fixtures.iter().enumerate() {
        match n {
            0 => {
                for ordinal in 1..20 {
                    store.forget_stream(&fixture.stream(Ordinal(ordinal))).await.unwrap();
                }
            }
            1 => store.forget_session(&fixture.session).await.unwrap(),
            2 => {
                let again = store.create(&fixture.session, rethread_testkit::store_suite::record(), false);
                again.await.unwrap();
            }
            _ => {
                store.end(&fixture.session).await.unwrap();
                store.forget_session(&fixture.session).await.unwrap();
            }
        }
    }
    let three_sessions = 3 * one_session() as u64;
    until("everything is deleted", Duration::from_secs(20), || {
        (store.usage().streams, store.usage().held_bytes) == (0, three_sessions)
    })
    .await;
    assert_eq!(store.usage().sessions, 3, "three were never ended");
    home.advance(Duration::from_secs(3600));
    store.sweep().await.unwrap();
    assert_eq!(
        store.usage().held_bytes,
        three_sessions,
        "no stream is subtracted twice"
    );
}

#[tokio::test]
async fn deleted_streams_free_disk_space() {
    const LARGE: usize = 64 << 10;
    let home = Home::default();
    let store = home.open(Limits::default());
    let size = || {
        let mut size = 0;
        let mut folders = vec![home.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.metadata() {
                    Ok(data) if data.is_dir() => folders.push(entry.path()),
                    Ok(data) => size += data.len(),
                    Err(_) => {}
                }
            }
        }
        size
    };
    let kept = StoreFixture::new(store.clone()).await;
    kept.append(&kept.first_call_stream(), sized(batch(0..20), LARGE)).await;
    let fixture = StoreFixture::new(store.clone()).await;
    for ordinal in 1..100 {
        fixture
            .append(&fixture.stream(Ordinal(ordinal)), sized(batch(0..20), LARGE))
            .await;
    }
    assert!(size() > 60 << 20, "{} bytes for 125 MiB", size());
    store.end(&fixture.session).await.unwrap();
    until("the segments are deleted", Duration::from_secs(40), || {
        size() < 40 << 20
    })
    .await;
    assert_eq!(kept.page(&kept.first_call_stream(), 0).await.events.len(), 19);
}

/// Every segment has a few retained events among evicted ones, so only compaction can free it.
#[tokio::test]
async fn compaction_moves_retained_events() {
    const PART: usize = 8 << 10;
    let home = Home::default();
    let limits = Limits::default()
        .with_total_bytes(64 << 20)
        .with_stream(Retention::default().with_events(160));
    let payload = |seq: Seq| Bytes::from(vec![seq.0 as u8; PART]);
    let size = || {
        let entries = std::fs::read_dir(home.dir.path().join("log")).unwrap();
        let sizes = entries.map(|entry| entry.unwrap().metadata().map_or(0, |data| data.len()));
        sizes.sum::<u64>()
    };
    let store = home.open(limits);
    let (kept, gone) = (
        StoreFixture::new(store.clone()).await,
        StoreFixture::new(store.clone()).await,
    );
    let mut written = 0;
    for n in (1..600).step_by(4) {
        for ordinal in 1..=8 {
            let fixture = if ordinal == 1 { &kept } else { &gone };
            let mut batch = batch(n..n + 4);
            for event in &mut batch.events {
                event.payload = payload(event.seq);
                written += event.payload.len() as u64;
            }
            if ordinal == 1 {
                batch.events[0].retain = Retain::Question;
            }
            fixture.append(&fixture.stream(Ordinal(ordinal)), batch).await;
        }
    }
    store.end(&gone.session).await.unwrap();
    until("the segments are compacted", Duration::from_secs(40), || {
        size() < 20 << 20
    })
    .await;
    assert!(written > 36 << 20, "{written}");
    let session = kept.session.clone();
    let check = async |store: EmbeddedStore| {
        let kept = StoreFixture {
            store,
            session: session.clone(),
        };
        let page = kept.page(&kept.first_call_stream(), 0).await;
        assert!(page.events.iter().all(|event| event.payload == payload(event.seq)));
        let pinned = page.events.iter().filter(|event| event.retain == Retain::Question);
        assert_eq!(pinned.count(), 150, "{:?}", sequence(&page));
        assert_eq!(page.status.last, Some(Seq(600)));
    };
    drop(gone);
    drop(kept);
    check(store.clone()).await;
    drop(store);
    check(home.open(limits)).await;
}

/// D13: the ids of its calls outlive the events of a stream, so they count.
#[tokio::test]
async fn d13_stream_info_counts_against_the_total() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(small())).await;
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
            kept += status.info.calls[0].as_json().len() as u64;
        }
    }
    let held = fixture.store.usage().held_bytes;
    assert!(kept <= TOTAL, "{kept} bytes of ids exceed the limit of {TOTAL}");
    assert!(
        (kept..=TOTAL).contains(&held),
        "{held} bytes are held, {kept} bytes of them are ids"
    );
    fixture.store.end(&fixture.session).await.unwrap();
    until("everything is deleted", Duration::from_secs(20), || {
        fixture.store.usage().held_bytes == 0
    })
    .await;
}

/// D13: session records count against the total, also after a restart. A record that does not fit is refused.
#[tokio::test]
async fn d13_session_records_count_against_the_total() {
    let large = |initialize_params: usize| {
        let params = Bytes::from(vec![b'h'; initialize_params]);
        SessionRecord::new(record().version, params)
    };
    let home = Home::default();
    let mut store = home.open(small());
    let mut sessions = Vec::new();
    let refused = loop {
        let fixture = StoreFixture::new(store.clone()).await;
        if let Err(refused) = store.create(&fixture.session, large(8000), false).await {
            break refused;
        }
        sessions.push(fixture.session);
        assert!(
            sessions.len() as u64 * 8000 <= TOTAL,
            "{} records of 8000 bytes",
            sessions.len()
        );
    };
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    assert!(sessions.len() >= 6, "only {} records of 8000 bytes", sessions.len());
    let grows = store.update(&sessions[0], 1, large(TOTAL as usize)).await;
    assert!(matches!(grows, Err(StoreError::Full)), "{grows:?}");
    let held = store.usage().held_bytes;
    assert!(held <= TOTAL, "{held}");
    drop(store);
    store = home.open(small());
    assert_eq!(store.usage().held_bytes, held);
    store.update(&sessions[0], 1, large(10)).await.unwrap();
    assert_eq!(held - store.usage().held_bytes, 7990);
    home.advance(Duration::from_secs(60));
    assert_eq!(
        store
            .expire(Duration::from_secs(60), Arc::new(|_| false))
            .await
            .unwrap(),
        sessions.len() + 1
    );
    assert_eq!((store.usage().sessions, store.usage().held_bytes), (0, 0));
}

/// D9: a touch is frequent, so its cost must not depend on the size of the record.
#[tokio::test]
async fn d9_touch_does_not_rewrite_the_record() {
    const MARK: &[u8] = b"initialize parameters of a client";
    let home = Home::default();
    let store = home.open(Limits::default());
    let session = StoreFixture::new(store.clone()).await.session;
    let updated = SessionRecord::new(record().version, Bytes::from_static(MARK));
    store.update(&session, 1, updated.clone()).await.unwrap();
    for _ in 0..100 {
        home.advance(Duration::from_secs(60));
        store.touch(&session).await.unwrap();
    }
    assert_eq!(store.load(&session).await.unwrap().idle, Duration::ZERO);
    drop(store);
    let (mut folders, mut found) = (vec![home.dir.path().to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(path).unwrap();
            found += bytes.windows(MARK.len()).filter(|window| *window == MARK).count();
        }
    }
    assert!((1..5).contains(&found), "the record was written {found} times");
    // The idle time survives a restart.
    let store = home.open(Limits::default());
    home.advance(Duration::from_secs(5));
    let loaded = store.load(&session).await.unwrap();
    assert_eq!((loaded.record, loaded.idle), (updated, Duration::from_secs(5)));
    assert_eq!(
        store.expire(Duration::from_secs(6), Arc::new(|_| false)).await.unwrap(),
        0
    );
    store.forget_session(&session).await.unwrap();
    assert_eq!(store.load(&session).await.unwrap().idle, Duration::from_secs(5));
    home.advance(Duration::from_secs(1));
    assert_eq!(
        store.expire(Duration::from_secs(6), Arc::new(|_| false)).await.unwrap(),
        1
    );
    assert!(matches!(store.touch(&session).await, Err(StoreError::SessionGone)));
}
