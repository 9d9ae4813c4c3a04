//! Opening directories: accepted, refused, and the error messages.

#![allow(clippy::unwrap_used)]

mod common;

use common::Home;
use rethread_store::{EventStore, ReadLimit, Seq, SessionStore, StoreError};
use rethread_store_embedded::{EmbeddedStore, Limits, OpenError, Sync};
use rethread_testkit::store_suite::{StoreFixture, batch, last_batch, sequence};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn refused(dir: &Path) -> OpenError {
    match EmbeddedStore::open(dir) {
        Ok(_) => panic!("{} should not open", dir.display()),
        Err(refused) => refused,
    }
}

/// The non-empty segments of a store, oldest first. The preallocated next segment is empty.
fn segments(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.dir.path().join("log")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    segments.retain(|path| fs::metadata(path).unwrap().len() > 0);
    segments.sort();
    segments
}

fn remove_checkpoints(home: &Home) {
    for entry in fs::read_dir(home.dir.path().join("log")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "checkpoint") {
            fs::remove_file(path).unwrap();
        }
    }
}

/// Applies a change to the only segment of a store.
fn tamper(home: &Home, change: impl FnOnce(&mut Vec<u8>)) {
    let [segment] = &segments(home)[..] else {
        panic!("expected one segment: {:?}", segments(home));
    };
    let mut bytes = fs::read(segment).unwrap();
    change(&mut bytes);
    fs::write(segment, bytes).unwrap();
}

/// The offsets of the groups in a segment.
fn groups(segment: &[u8]) -> Vec<usize> {
    let starts = segment.windows(4).enumerate().filter(|(_, bytes)| bytes == b"rgrp");
    starts.map(|(at, _)| at).collect()
}

#[test]
fn open_creates_the_directory_and_can_be_repeated() {
    let home = Home::default();
    let dir = home.dir.path().join("a/b/c");
    for _ in 0..5 {
        drop(EmbeddedStore::open(&dir).unwrap());
    }
    assert!(dir.join("rethread.json").exists());
}

#[test]
fn directory_in_use_is_refused() {
    let home = Home::default();
    let store = home.open(Limits::default());
    let second = refused(home.dir.path());
    let expected = format!(
        "the data directory {} is in use by another process; each server needs its own",
        home.dir.path().display()
    );
    assert_eq!(second.to_string(), expected);
    let clone = store.clone();
    drop(store);
    assert!(
        matches!(refused(home.dir.path()), OpenError::InUse { .. }),
        "a clone keeps the directory open"
    );
    drop(clone);
    home.open(Limits::default());
}

#[test]
fn other_format_version_is_refused_unchanged() {
    let home = Home::default();
    drop(home.open(Limits::default()));
    let marker = home.dir.path().join("rethread.json");
    fs::write(&marker, r#"{"format":8,"more":true}"#).unwrap();
    let text = refused(home.dir.path()).to_string();
    assert!(
        text.contains("was written by a newer Rethread (format 8, this one knows up to 7)"),
        "{text}"
    );
    assert_eq!(fs::read_to_string(&marker).unwrap(), r#"{"format":8,"more":true}"#);
    fs::write(&marker, r#"{"format":6}"#).unwrap();
    let text = refused(home.dir.path()).to_string();
    assert!(
        text.contains("was written by an older Rethread (format 6, this one reads 7)"),
        "{text}"
    );
}

#[tokio::test]
async fn segments_of_another_store_are_refused() {
    let (home, other) = (Home::default(), Home::default());
    for home in [&home, &other] {
        let fixture = StoreFixture::new(home.open(Limits::default())).await;
        fixture.append(&fixture.first_call_stream(), batch(0..3)).await;
    }
    fs::copy(&segments(&other)[0], &segments(&home)[0]).unwrap();
    let text = refused(home.dir.path()).to_string();
    assert!(text.contains("segment 1 belongs to another store"), "{text}");
}

#[test]
fn foreign_directory_is_refused_unchanged() {
    let home = Home::default();
    for name in ["notes.txt", "log"] {
        let dir = home.dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(name), "mine").unwrap();
        let text = refused(&dir).to_string();
        assert!(
            text.contains(&format!(
                "is not empty and holds no Rethread data ({name} is in it); nothing was touched"
            )),
            "{text}"
        );
        let names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [name]);
    }
    let mounted = home.dir.path().join("mounted");
    fs::create_dir_all(mounted.join("lost+found")).unwrap();
    EmbeddedStore::open(&mounted).expect("lost+found does not count as content");
}

#[test]
fn path_of_a_file_is_refused() {
    let home = Home::default();
    let file = home.dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = refused(&file);
    let text = error.to_string();
    assert!(text.ends_with("file cannot be used: it cannot be made"), "{text}");
    assert!(error.source().is_some());
    assert!(matches!(refused(&file.join("below")), OpenError::Io { .. }));
}

#[test]
fn open_completes_an_interrupted_creation() {
    let home = Home::default();
    let (marker, log) = (home.dir.path().join("rethread.json"), home.dir.path().join("log"));
    fs::write(&marker, "").unwrap();
    drop(home.open(Limits::default()));
    // The states that a kill during the creation of the log can leave.
    for left in [&[][..], &["0000000001.log"], &["0000000001.log", "checkpoint.tmp"]] {
        let crc = crc32c::crc32c(b"7 7 false");
        fs::write(&marker, format!(r#"{{"format":7,"store":7,"made":false,"crc":{crc}}}"#)).unwrap();
        fs::remove_dir_all(&log).unwrap();
        fs::create_dir(&log).unwrap();
        for name in left {
            fs::write(log.join(name), "").unwrap();
        }
        drop(home.open(Limits::default()));
    }
}

#[tokio::test]
async fn damage_is_reported_with_advice() {
    let advice = "; restore the directory from a copy, or move it away to start empty";
    let broken = async |change: fn(&Path)| {
        let home = Home::default();
        let fixture = StoreFixture::new(home.open(Limits::default())).await;
        fixture.append(&fixture.first_call_stream(), batch(0..3)).await;
        drop(fixture);
        change(home.dir.path());
        let text = refused(home.dir.path()).to_string();
        assert!(text.contains("is damaged: ") && text.ends_with(advice), "{text}");
        text
    };
    let segment = "log/0000000001.log";
    let text = broken(|dir| fs::write(dir.join("rethread.json"), "{").unwrap()).await;
    assert!(text.contains("rethread.json is garbled"), "{text}");
    let text = broken(|dir| {
        let marker = dir.join("rethread.json");
        let text = fs::read_to_string(&marker).unwrap();
        fs::write(&marker, text.replace("store", "stare")).unwrap();
    });
    let text = text.await;
    assert!(text.contains("rethread.json is garbled"), "{text}");
    let text = broken(|dir| fs::remove_dir_all(dir.join("log")).unwrap()).await;
    assert!(text.contains("log is missing"), "{text}");
    let text = broken(|dir| fs::remove_file(dir.join("log/0000000001.log")).unwrap()).await;
    assert!(text.contains("segment 1 is missing"), "{text}");
    let text = broken(|dir| {
        for entry in fs::read_dir(dir.join("log")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    });
    let text = text.await;
    assert!(text.contains("the log has no segment"), "{text}");
    let text = broken(|dir| fs::write(dir.join("log/0000000001.log"), "short").unwrap()).await;
    assert!(
        text.contains("segment 1 is shorter than its checkpoint"),
        "{text}: {segment}"
    );
    let text = broken(|dir| fs::write(dir.join("log/0000000004.log"), "").unwrap()).await;
    assert!(
        text.contains("segment 2 is missing") || text.contains("segment 3 is missing"),
        "{text}"
    );
}

/// Appends `count` batches of one event, one commit each.
async fn one_by_one(home: &Home, sync: Sync, count: u64) -> rethread_store::SessionKey {
    let store = home.options().sync(sync).open(home.dir.path()).unwrap();
    let fixture = StoreFixture::new(store).await;
    for n in 0..count {
        fixture.append(&fixture.first_call_stream(), batch(n..n + 1)).await;
    }
    fixture.session.clone()
}

#[tokio::test]
async fn damaged_durable_group_is_refused() {
    let home = Home::default();
    one_by_one(&home, Sync::Always, 20).await;
    remove_checkpoints(&home);
    tamper(&home, |bytes| {
        let group = groups(bytes)[5];
        bytes[group + 12] ^= 1;
    });
    let text = refused(home.dir.path()).to_string();
    assert!(
        text.contains("segment 1 from byte ") && text.contains("commits 6 to 20 were durable and cannot be read"),
        "{text}"
    );
}

#[tokio::test]
async fn truncated_log_opens_without_its_last_commit() {
    let home = Home::default();
    let session = one_by_one(&home, Sync::Always, 20).await;
    remove_checkpoints(&home);
    tamper(&home, |bytes| bytes.truncate(bytes.len() - 3));
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    assert_eq!(
        sequence(&fixture.page(&fixture.first_call_stream(), 0).await),
        (1..19).collect::<Vec<_>>()
    );
    fixture.append(&fixture.first_call_stream(), batch(19..20)).await;
}

#[tokio::test]
async fn without_a_checkpoint_the_whole_log_is_read() {
    let home = Home::default();
    let options = || home.options().segment_size(1024);
    let store = options().open(home.dir.path()).unwrap();
    let fixture = StoreFixture::new(store).await;
    for n in 0..50 {
        fixture.append(&fixture.first_call_stream(), batch(n..n + 1)).await;
    }
    let session = fixture.session.clone();
    drop(fixture);
    assert!(segments(&home).len() > 2, "{:?}", segments(&home));
    remove_checkpoints(&home);
    let store = options().open(home.dir.path()).unwrap();
    let fixture = StoreFixture { store, session };
    assert_eq!(
        sequence(&fixture.page(&fixture.first_call_stream(), 0).await),
        (1..50).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn read_of_a_stream_with_a_hole_fails() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let (open, ended, whole) = (
        fixture.first_call_stream(),
        fixture.stream(rethread_store::Ordinal(3)),
        fixture.stream(rethread_store::Ordinal(5)),
    );
    let marked = |mut batch: rethread_store::Batch, name: &str| {
        for event in &mut batch.events {
            event.payload = format!("{name} {}!", event.seq.0).into();
        }
        batch
    };
    for n in 0..10 {
        fixture.append(&open, marked(batch(n..n + 1), "open")).await;
    }
    for n in 1..9 {
        fixture.append(&ended, marked(batch(n..n + 1), "ended")).await;
    }
    fixture.append(&ended, marked(last_batch(9..10), "ended")).await;
    fixture.append(&whole, batch(1..10)).await;
    let session = fixture.session.clone();
    drop(fixture);
    tamper(&home, |bytes| {
        for payload in ["open 4!", "open 5!", "open 6!", "ended 9!"] {
            let at = bytes
                .windows(payload.len())
                .position(|found| found == payload.as_bytes());
            bytes[at.expect("the payload is there")] ^= 1;
        }
    });
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    let short = fixture.session.session.short();
    let told = |error: Option<StoreError>, text: &str| {
        let error = error.expect("the store reports the hole");
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(error.is_outage() && source == text.replace('$', short), "{source}");
    };
    let read = async |key, after| {
        fixture
            .store
            .read_after(key, Seq(after), ReadLimit::new(6, 1 << 20))
            .await
    };
    let first = "stream 1 of session $… is damaged: events 4 to 6 are missing";
    told(read(&open, 0).await.err(), first);
    told(fixture.store.append(&open, batch(10..11)).await.err(), first);
    assert_eq!(
        sequence(&read(&open, 6).await.unwrap()),
        [7, 8, 9],
        "events after the hole are readable"
    );
    told(
        read(&ended, 5).await.err(),
        "stream 3 of session $… is damaged: event 9 is missing",
    );
    assert_eq!(read(&whole, 0).await.unwrap().events.len(), 6);
    assert!(fixture.store.usage().damaged >= 2);
    assert!(fixture.store.load(&fixture.session).await.is_ok());
}

/// Recovery finds the damage: the group is durable, so it is not the torn end of the log.
#[tokio::test]
async fn read_of_a_damaged_payload_fails() {
    let home = Home::default();
    let store = home.options().sync(Sync::Always).open(home.dir.path()).unwrap();
    let fixture = StoreFixture::new(store).await;
    let (broken, whole) = (fixture.first_call_stream(), fixture.stream(rethread_store::Ordinal(3)));
    for (key, byte) in [(&broken, b'b'), (&whole, b'w')] {
        let mut batch = batch(1..4);
        for event in &mut batch.events {
            event.payload = vec![byte; 4096].into();
        }
        fixture.append(key, batch).await;
    }
    fixture.append(&whole, batch(4..5)).await;
    let session = fixture.session.clone();
    drop(fixture);
    remove_checkpoints(&home);
    tamper(&home, |bytes| {
        let at = bytes.windows(9).position(|found| found == b"bbbbbbbbb").unwrap() + 5000;
        bytes[at] ^= 1;
    });
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    let read = fixture.store.read_after(&broken, Seq(0), ReadLimit::default()).await;
    let error = read.expect_err("the store reports the damaged payload");
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let short = fixture.session.session.short();
    assert_eq!(
        source,
        format!("stream 1 of session {short}… is damaged: event 2 is missing")
    );
    assert_eq!(fixture.page(&whole, 0).await.events.len(), 4);
}

/// The permissions of `path` and of everything below it.
#[cfg(unix)]
fn modes(path: &Path) -> Vec<(std::path::PathBuf, bool, u32)> {
    use std::os::unix::fs::PermissionsExt as _;
    let data = fs::metadata(path).expect("the path exists");
    let mut all = vec![(path.to_owned(), data.is_dir(), data.permissions().mode() & 0o777)];
    if data.is_dir() {
        for entry in fs::read_dir(path).expect("the directory is readable") {
            all.extend(modes(&entry.expect("the entry is readable").path()));
        }
    }
    all
}

/// SEC-06: the directory contains session ids and payloads.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn sec_06_data_directory_is_readable_by_its_owner_alone() {
    let home = Home::default();
    let dir = home.dir.path().join("state/rethread");
    let fixture = StoreFixture::new(home.options().open(&dir).unwrap()).await;
    fixture.append(&fixture.first_call_stream(), batch(1..64)).await;
    let assert_private = |when: &str| {
        for (path, is_dir, mode) in modes(&home.dir.path().join("state")) {
            let expected = if is_dir { 0o700 } else { 0o600 };
            assert_eq!(mode, expected, "{when}: {} has {mode:03o}", path.display());
        }
    };
    assert_private("open");
    drop(fixture);
    assert_private("closed");
}

/// SEC-06: the store does not override permissions that an administrator chose.
#[cfg(unix)]
#[test]
fn sec_06_permissions_of_an_existing_data_directory_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::default();
    fs::set_permissions(home.dir.path(), fs::Permissions::from_mode(0o750)).unwrap();
    drop(home.open(Limits::default()));
    assert_eq!(modes(home.dir.path())[0].2, 0o750);
}

#[test]
fn inspect_reports_the_errors_of_open_and_changes_nothing() {
    let home = Home::default();
    let dir = home.dir.path().join("a");
    EmbeddedStore::inspect(&dir).unwrap();
    assert!(!dir.exists());
    let store = EmbeddedStore::open(&dir).unwrap();
    let inspected = EmbeddedStore::inspect(&dir);
    assert!(matches!(inspected, Err(OpenError::InUse { .. })), "{inspected:?}");
    drop(store);
    EmbeddedStore::inspect(&dir).unwrap();
    fs::write(dir.join("rethread.json"), r#"{"format":99,"made":true}"#).unwrap();
    let inspected = EmbeddedStore::inspect(&dir);
    assert!(matches!(inspected, Err(OpenError::Newer { .. })), "{inspected:?}");
    let foreign = EmbeddedStore::inspect(home.dir.path());
    assert!(matches!(foreign, Err(OpenError::Foreign { .. })), "{foreign:?}");
}

/// A power cut can keep the names of segment files and lose their content. Recovery deletes the files and reuses their
/// numbers.
#[tokio::test]
async fn segment_files_of_lost_commits_do_not_block_appends() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let session = fixture.session.clone();
    drop(fixture);
    let log = home.dir.path().join("log");
    let leftovers: Vec<_> = (2..=33).map(|number| log.join(format!("{number:010}.log"))).collect();
    for leftover in &leftovers {
        fs::write(leftover, "not a segment header").unwrap();
    }
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    let mut large = batch(0..2);
    large.events[1].payload = vec![7; 64 << 10].into();
    fixture.append(&fixture.first_call_stream(), large).await;
    assert_eq!(sequence(&fixture.page(&fixture.first_call_stream(), 0).await), [1]);
    assert!(
        leftovers[1..].iter().all(|leftover| !leftover.exists()),
        "the files are deleted"
    );
}
