//! What is opened, what is not, and what is said then.

mod common;

use common::Home;
use fjall::{Database, KeyspaceCreateOptions};
use rethread_store::{EventStore, ReadLimit, Seq, SessionStore, StoreError};
use rethread_store_embedded::{EmbeddedStore, Limits, OpenError};
use rethread_testkit::store_suite::{StoreFixture, batch, last_batch, sequence};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn refused(dir: &Path) -> OpenError {
    match EmbeddedStore::open(dir) {
        Ok(_) => panic!("{} should not open", dir.display()),
        Err(refused) => refused,
    }
}

/// Changes the database behind the store's back.
fn tamper(home: &Home, change: impl FnOnce(&fjall::Keyspace)) {
    let database = Database::builder(home.dir.path().join("db"))
        .open()
        .expect("the database opens");
    let keyspace = database
        .keyspace("rethread", KeyspaceCreateOptions::default)
        .expect("the keyspace is there");
    change(&keyspace);
    database.persist(fjall::PersistMode::SyncAll).expect("the disk works");
}

#[test]
fn a_directory_is_made_and_can_be_opened_again_at_once() {
    let home = Home::default();
    let dir = home.dir.path().join("a/b/c");
    for _ in 0..5 {
        drop(EmbeddedStore::open(&dir).unwrap());
    }
    assert!(dir.join("rethread.json").exists());
}

#[test]
fn a_directory_has_one_store() {
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
        "a clone has it open"
    );
    drop(clone);
    home.open(Limits::default());
}

#[test]
fn another_format_is_not_touched() {
    let home = Home::default();
    drop(home.open(Limits::default()));
    let marker = home.dir.path().join("rethread.json");
    fs::write(&marker, r#"{"format":4,"more":true}"#).unwrap();
    let text = refused(home.dir.path()).to_string();
    assert!(
        text.contains("was written by a newer Rethread (format 4, this one knows up to 3)"),
        "{text}"
    );
    assert_eq!(fs::read_to_string(&marker).unwrap(), r#"{"format":4,"more":true}"#);
    fs::write(&marker, r#"{"format":2}"#).unwrap();
    let text = refused(home.dir.path()).to_string();
    assert!(
        text.contains("was written by an older Rethread (format 2, this one reads 3)"),
        "{text}"
    );
    fs::write(&marker, r#"{"format":3}"#).unwrap();
    tamper(&home, |keyspace| {
        keyspace.insert("mformat", 7u64.to_le_bytes()).unwrap();
    });
    assert!(matches!(
        refused(home.dir.path()),
        OpenError::Newer { found: 7, known: 3, .. }
    ));
}

#[test]
fn somebody_elses_directory_is_not_touched() {
    let home = Home::default();
    for name in ["notes.txt", "db"] {
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
    EmbeddedStore::open(&mounted).expect("a fresh file system is empty");
}

#[test]
fn what_cannot_be_a_directory_is_told() {
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
fn what_was_never_finished_is_made_anew() {
    let home = Home::default();
    let (marker, database) = (home.dir.path().join("rethread.json"), home.dir.path().join("db"));
    fs::write(&marker, "").unwrap();
    drop(home.open(Limits::default()));
    // As if the process had been killed while it made the database.
    for left in [&["lock"][..], &["lock", "0.jnl"]] {
        fs::write(&marker, r#"{"format":3}"#).unwrap();
        fs::remove_dir_all(&database).unwrap();
        fs::create_dir_all(database.join("keyspaces")).unwrap();
        for name in left {
            fs::write(database.join(name), "").unwrap();
        }
        drop(home.open(Limits::default()));
    }
}

#[test]
fn damage_is_told_with_what_to_do() {
    let advice = "; restore the directory from a copy, or move it away to start empty";
    let broken = |change: fn(&Path)| {
        let home = Home::default();
        drop(home.open(Limits::default()));
        change(home.dir.path());
        let text = refused(home.dir.path()).to_string();
        assert!(text.contains("is damaged: ") && text.ends_with(advice), "{text}");
        text
    };
    let text = broken(|dir| fs::write(dir.join("rethread.json"), "{").unwrap());
    assert!(text.contains("rethread.json is garbled"), "{text}");
    let text = broken(|dir| fs::remove_file(dir.join("db/version")).unwrap());
    assert!(text.contains("db/version is missing"), "{text}");
    let text = broken(|dir| fs::remove_dir_all(dir.join("db")).unwrap());
    assert!(text.contains("db is missing"), "{text}");
    let text = broken(|dir| fs::remove_file(dir.join("db/0.jnl")).unwrap());
    assert!(text.contains("db holds no journal"), "{text}");
    let text = broken(|dir| fs::remove_dir_all(dir.join("db/keyspaces/1")).unwrap());
    assert!(text.contains("the database is empty, and it was not"), "{text}");
    let text = broken(|dir| fs::remove_dir_all(dir.join("events")).unwrap());
    assert!(text.contains("events is missing"), "{text}");
    let text = broken(|dir| fs::write(dir.join("db/version"), "what is this").unwrap());
    assert!(text.contains("the database does not open"), "{text}");
    let text = broken(|dir| fs::write(dir.join("db/copy of 0.jnl"), "").unwrap());
    assert!(text.contains("holds copy of 0.jnl"), "{text}");
    let text = broken(|dir| fs::create_dir(dir.join("db/keyspaces/old")).unwrap());
    assert!(text.contains("holds old"), "{text}");
}

#[tokio::test]
async fn a_hole_in_the_journal_is_found() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    for n in 0..20 {
        fixture.append(&fixture.first_call_stream(), batch(n..n + 1)).await;
    }
    drop(fixture);
    tamper(&home, |keyspace| {
        for n in 5..9u64 {
            keyspace.remove([&b"c"[..], &n.to_be_bytes()].concat()).unwrap();
        }
    });
    let text = refused(home.dir.path()).to_string();
    assert!(
        text.contains("commits 5 to 8 are missing, though later ones are there"),
        "{text}"
    );
}

#[tokio::test]
async fn a_journal_that_was_cut_short_opens_as_it_was_before() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    for n in 0..20 {
        fixture.append(&fixture.first_call_stream(), batch(n..n + 1)).await;
    }
    let session = fixture.session.clone();
    drop(fixture);
    let journal = home.dir.path().join("db/0.jnl");
    // Journals are made larger than what is in them.
    let bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    fs::File::options()
        .write(true)
        .open(&journal)
        .unwrap()
        .set_len(end as u64 - 3)
        .unwrap();
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    assert_eq!(
        sequence(&fixture.page(&fixture.first_call_stream(), 0).await),
        (1..19).collect::<Vec<_>>()
    );
    fixture.append(&fixture.first_call_stream(), batch(19..20)).await;
}

#[tokio::test]
async fn a_stream_with_a_hole_is_not_served() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let (open, ended, whole) = (
        fixture.first_call_stream(),
        fixture.stream(rethread_store::Ordinal(3)),
        fixture.stream(rethread_store::Ordinal(5)),
    );
    for n in 0..10 {
        fixture.append(&open, batch(n..n + 1)).await; // each is a row of its own
    }
    for n in 1..9 {
        fixture.append(&ended, batch(n..n + 1)).await;
    }
    fixture.append(&ended, last_batch(9..10)).await;
    fixture.append(&whole, batch(1..10)).await;
    let session = fixture.session.clone();
    drop(fixture);
    tamper(&home, |keyspace| {
        let events: Vec<_> = keyspace.prefix("v").map(|guard| guard.key().unwrap()).collect();
        for at in [4, 5, 6, 18] {
            keyspace.remove(events[at].clone()).unwrap(); // 4 to 6 of the first stream, the last of the second
        }
    });
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    let short = fixture.session.session.short();
    let told = |error: Option<StoreError>, text: &str| {
        let error = error.expect("a hole is not served");
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(error.is_outage() && source == text.replace('$', short), "{source}");
    };
    let read = async |key, after| {
        let limit = ReadLimit {
            events: 5,
            bytes: 1 << 20,
        };
        fixture.store.read_after(key, Seq(after), limit).await
    };
    let first = "stream 1 of session $… is damaged: events 4 to 6 are missing";
    told(read(&open, 0).await.err(), first);
    told(fixture.store.append(&open, batch(10..11)).await.err(), first);
    assert_eq!(
        sequence(&read(&open, 6).await.unwrap()),
        [7, 8, 9],
        "what comes after the hole is whole"
    );
    told(
        read(&ended, 5).await.err(),
        "stream 3 of session $… is damaged: event 9 is missing",
    );
    assert_eq!(read(&whole, 0).await.unwrap().events.len(), 5);
    assert!(fixture.store.usage().damaged >= 3);
    assert!(fixture.store.load(&fixture.session).await.is_ok());
}

#[tokio::test]
async fn payloads_that_are_garbled_are_not_served() {
    let home = Home::default();
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let (broken, whole) = (fixture.first_call_stream(), fixture.stream(rethread_store::Ordinal(3)));
    for (key, byte) in [(&broken, b'b'), (&whole, b'w')] {
        let mut batch = batch(1..4);
        for event in &mut batch.events {
            event.payload = vec![byte; 4096].into();
        }
        fixture.append(key, batch).await;
    }
    let session = fixture.session.clone();
    drop(fixture);
    // What is opened is on the disk, and the next commit says so.
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    fixture.append(&whole, batch(4..5)).await;
    let session = fixture.session.clone();
    drop(fixture);
    let segments = fs::read_dir(home.dir.path().join("events")).unwrap();
    let mut segments: Vec<_> = segments.map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| fs::metadata(path).unwrap().len() > 0); // the next one may be there already
    let [segment] = &segments[..] else {
        panic!("one segment, not {segments:?}")
    };
    let mut bytes = fs::read(segment).unwrap();
    let at = bytes.iter().position(|byte| *byte == b'b').unwrap() + 5000;
    bytes[at] ^= 1;
    fs::write(segment, bytes).unwrap();
    let store = home.open(Limits::default());
    let fixture = StoreFixture { store, session };
    let read = fixture.store.read_after(&broken, Seq(0), ReadLimit::default()).await;
    let error = read.expect_err("garbled payloads are not served");
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let short = fixture.session.session.short();
    assert_eq!(
        source,
        format!("stream 1 of session {short}… is damaged: events 1 to 3 are missing")
    );
    assert_eq!(fixture.page(&whole, 0).await.events.len(), 4);
}

/// The permissions of `path` and everything in it.
#[cfg(unix)]
fn modes(path: &Path) -> Vec<(std::path::PathBuf, bool, u32)> {
    use std::os::unix::fs::PermissionsExt as _;
    let data = fs::metadata(path).expect("it is there");
    let mut all = vec![(path.to_owned(), data.is_dir(), data.permissions().mode() & 0o777)];
    if data.is_dir() {
        for entry in fs::read_dir(path).expect("it can be listed") {
            all.extend(modes(&entry.expect("it can be listed").path()));
        }
    }
    all
}

/// SEC-06: the directory holds session ids and payloads, which are nobody else's business.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn sec_06_data_directory_is_readable_by_its_owner_alone() {
    let home = Home::default();
    let dir = home.dir.path().join("state/rethread");
    let fixture = StoreFixture::new(home.options().open(&dir).unwrap()).await;
    fixture.append(&fixture.first_call_stream(), batch(1..64)).await;
    let assert_private = |when: &str, files: bool| {
        for (path, is_dir, mode) in modes(&home.dir.path().join("state")) {
            let expected = if is_dir { 0o700 } else { 0o600 };
            let counts = is_dir || files || !path.starts_with(dir.join("db"));
            assert!(!counts || mode == expected, "{when}: {} has {mode:03o}", path.display());
        }
    };
    assert_private("open", false);
    drop(fixture);
    assert_private("closed", true);
}

/// A directory that is there and lets others in belongs to somebody who may mean it.
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
fn inspect_tells_what_open_would_and_changes_nothing() {
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

/// A power cut can keep the name of a segment file and lose the commit that made it. The numbers of such files are not used
/// again, and the files go.
#[tokio::test]
async fn segment_files_of_lost_commits_do_not_block_appends() {
    let home = Home::default();
    drop(home.open(Limits::default()));
    let events = home.dir.path().join("events");
    let leftovers: Vec<_> = (1..=32)
        .chain([u64::MAX])
        .map(|number| events.join(format!("{number}.seg")))
        .collect();
    for leftover in &leftovers {
        fs::write(leftover, "written by nobody").unwrap();
    }
    let fixture = StoreFixture::new(home.open(Limits::default())).await;
    let mut large = batch(0..2);
    large.events[1].payload = vec![7; 64 << 10].into(); // too large for a row of its own
    let appended = fixture.store.append(&fixture.first_call_stream(), large).await;
    assert!(appended.is_ok(), "{appended:?}");
    assert_eq!(sequence(&fixture.page(&fixture.first_call_stream(), 0).await), [1]);
    for _ in 0..500 {
        if leftovers.iter().all(|leftover| !leftover.exists()) {
            return;
        }
        fixture.store.sweep().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the files are still there");
}
