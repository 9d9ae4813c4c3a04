//! Outages of the disk and recovery from them.

mod common;

use common::Home;
use rethread_store::{EventStore, SessionStore, StoreError};
use rethread_store_embedded::{EmbeddedStore, Limits, Sync};
use rethread_testkit::store_suite::{StoreFixture, batch, sequence};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

async fn wait_for_recovery(fixture: &StoreFixture<EmbeddedStore>) {
    let start = Instant::now();
    while fixture
        .store
        .load(&fixture.session)
        .await
        .is_err_and(|error| error.is_outage())
    {
        assert!(start.elapsed() < Duration::from_secs(20), "the store did not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes until the store notices that its directory is gone: it looks every 5 ms.
async fn until_refused(fixture: &StoreFixture<EmbeddedStore>) -> StoreError {
    let start = Instant::now();
    loop {
        match fixture.store.touch(&fixture.session).await {
            Ok(()) => assert!(start.elapsed() < Duration::from_secs(20), "the outage was not noticed"),
            Err(error) => return error,
        }
    }
}

#[tokio::test]
async fn store_recovers_when_a_moved_directory_is_back() {
    let home = Home::default();
    let (dir, away) = (home.dir.path().join("data"), home.dir.path().join("away"));
    let store = home.options().limits(Limits::default()).open(&dir).unwrap();
    let fixture = StoreFixture::new(store).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..3)).await;
    let mut watch = fixture.store.watch(&key);
    let moved = Instant::now();
    fs::rename(&dir, &away).unwrap();
    let mut next = 3;
    let refused = loop {
        match fixture.store.append(&key, batch(next..next + 1)).await {
            Ok(_) => next += 1,
            Err(error) => break error,
        }
        assert!(moved.elapsed() < Duration::from_secs(20), "the move was not noticed");
    };
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    let refused = fixture
        .store
        .read_after(&key, rethread_store::Seq(0), Default::default())
        .await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!dir.exists(), "the store does not create the directory again");
    fs::rename(&away, &dir).unwrap();
    wait_for_recovery(&fixture).await;
    assert!(
        tokio::time::timeout(Duration::from_secs(5), watch.changed())
            .await
            .unwrap(),
        "recovery wakes the watches"
    );
    let stored = sequence(&fixture.page(&key, 0).await);
    assert_eq!(stored, (1..=stored.len() as u64).collect::<Vec<_>>());
    let acknowledged = next as usize - 1;
    // The refused append may be there: upkeep may have noticed the move after the write.
    assert!((acknowledged..=acknowledged + 1).contains(&stored.len()), "{stored:?}");
    let next = stored.len() as u64 + 1;
    fixture.append(&key, batch(next..next + 1)).await;
    assert_eq!(fixture.page(&key, 0).await.events.len(), stored.len() + 1);
    assert!(
        tokio::time::timeout(Duration::from_secs(5), watch.changed())
            .await
            .unwrap(),
        "a watch goes on after the recovery"
    );

    // An empty directory in its place: the sessions are gone, and new ones can be created.
    fs::remove_dir_all(&dir).unwrap();
    let refused = until_refused(&fixture).await;
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    fs::create_dir(&dir).unwrap();
    wait_for_recovery(&fixture).await;
    let gone = fixture.store.load(&fixture.session).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    while tokio::time::timeout(Duration::from_secs(5), watch.changed())
        .await
        .expect("the watch of a missing stream ends")
    {}
    let fixture = StoreFixture::new(fixture.store).await;
    fixture.append(&fixture.first_call_stream(), batch(0..3)).await;
    let session = fixture.session.clone();
    drop(fixture);
    let store = home.options().open(&dir).unwrap();
    let fixture = StoreFixture { store, session };
    assert_eq!(sequence(&fixture.page(&fixture.first_call_stream(), 0).await), [1, 2]);
}

/// With `always` an acknowledged operation is never in a deleted file.
#[tokio::test]
async fn sync_always_refuses_the_first_append_after_the_directory_is_gone() {
    let home = Home::default();
    let dir = home.dir.path().join("data");
    let store = home.options().sync(Sync::Always).open(&dir).unwrap();
    let fixture = StoreFixture::new(store).await;
    let key = fixture.first_call_stream();
    fixture.append(&key, batch(0..3)).await;
    fs::rename(&dir, home.dir.path().join("away")).unwrap();
    let refused = fixture.store.append(&key, batch(3..4)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
}

/// A watch reads the index, and recovery replaces the index. Neither may deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_recovery_do_not_deadlock() {
    const STREAMS: u64 = 500;
    const OUTAGES: usize = 12;
    let home = Home::default();
    let (dir, away) = (home.dir.path().join("data"), home.dir.path().join("away"));
    let fixture = StoreFixture::new(home.options().open(&dir).unwrap()).await;
    let keys: Vec<_> = (1..=STREAMS)
        .map(|n| fixture.stream(rethread_store::Ordinal(n)))
        .collect();
    for key in &keys {
        fixture.append(key, batch(0..1)).await;
    }
    let _watched: Vec<_> = keys.iter().map(|key| fixture.store.watch(key)).collect();
    let (store, stop) = (fixture.store.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    let watcher = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            keys.iter().for_each(|key| drop(store.watch(key)));
        }
    });
    let outages = async {
        for _ in 0..OUTAGES {
            fs::rename(&dir, &away).unwrap();
            until_refused(&fixture).await;
            fs::rename(&away, &dir).unwrap();
            wait_for_recovery(&fixture).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), outages).await;
    stop.store(true, Ordering::Relaxed);
    assert!(done.is_ok(), "the store did not recover in time");
    watcher.join().unwrap();
}

#[tokio::test]
async fn store_closes_during_an_outage() {
    let home = Home::default();
    let dir = home.dir.path().join("data");
    let fixture = StoreFixture::new(home.options().open(&dir).unwrap()).await;
    fs::remove_dir_all(&dir).unwrap();
    until_refused(&fixture).await;
    let pending: Vec<_> = (0..10).map(|_| fixture.store.touch(&fixture.session)).collect();
    drop(fixture);
    for touched in pending {
        assert!(touched.await.is_err());
    }
    assert!(!dir.exists());
}

/// Ignored because it needs a small file system: `mount -t tmpfs -o size=200m tmpfs DIR`, with DIR in
/// `RETHREAD_SMALL_DISK`.
#[tokio::test]
#[ignore = "needs a small file system"]
async fn full_disk_loses_no_acknowledged_event() {
    const ROUNDS: usize = 3;
    let small = std::env::var_os("RETHREAD_SMALL_DISK").expect("RETHREAD_SMALL_DISK is set");
    let dir = tempfile::tempdir_in(small).unwrap();
    let (data, ballast) = (dir.path().join("data"), dir.path().join("ballast"));
    let home = Home::default();
    let fixture = StoreFixture::new(home.options().open(&data).unwrap()).await;
    let mut written = Vec::new();
    for round in 0..ROUNDS {
        fs::write(&ballast, vec![1; 80 << 20]).unwrap();
        let mut ordinal = 1 + (round as u64) * 100_000;
        let refused = loop {
            let key = fixture.stream(rethread_store::Ordinal(ordinal));
            let mut large = batch(1..9);
            for event in &mut large.events {
                event.payload = vec![b'x'; 8 << 10].into();
            }
            match fixture.store.append(&key, large).await {
                Ok(_) => written.push(key),
                Err(refused) => break refused,
            }
            ordinal += 2;
            assert!(written.len() < 20_000, "the disk did not fill up");
        };
        println!("refused after {} appends: {refused:?}", written.len());
        assert!(refused.is_outage(), "{refused:?}");
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let still = fixture.store.touch(&fixture.session).await;
            println!("{still:?}");
        }
        fs::remove_file(&ballast).unwrap();
        let start = Instant::now();
        while fixture.store.touch(&fixture.session).await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "the store did not recover");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("recovered after {:?}", start.elapsed());
        for key in &written {
            assert_eq!(fixture.page(key, 0).await.events.len(), 8, "{key:?}");
        }
        for key in written.drain(..) {
            fixture.store.forget_stream(&key).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(15)).await;
        println!("{:?}", fixture.store.usage());
    }
}
