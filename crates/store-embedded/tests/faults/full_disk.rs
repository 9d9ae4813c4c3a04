//! A disk without room, and a disk that is gone. The store says that it is in trouble, and goes on when it can.

use crate::disk::{copy_folder, shim};
use crate::ledger::{History, Ledger, Promise, session_key, session_record, stream_key};
use crate::load::batch;
use crate::support::{Folder, Rng, child, given, is_child, open, runtime};
use rethread_store::{EventStore, SessionStore, StoreError};
use rethread_store_embedded::{EmbeddedStore, Sync};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the store may take to notice that it can write again.
const RECOVERY: Duration = Duration::from_secs(10);
/// An append that takes longer hangs.
const APPEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A file system of its own.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where one may not mount.
    fn new(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&at);
        let output = mount.output().ok()?;
        output.status.success().then_some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a child that hangs must not keep the mount for ever.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn run(scenario: &str, home: &Path, set: impl FnOnce(&mut Command)) {
    let stderr = home.join("stderr");
    let mut command = child(scenario, &stderr);
    command
        .env("LEDGER", home.join("ledger"))
        .env("SEED", Rng::seeded(scenario).next().to_string());
    set(&mut command);
    let status = command.status().unwrap();
    let said = fs::read_to_string(stderr).unwrap();
    eprintln!("{said}");
    assert!(status.success(), "{said}");
}

#[test]
fn a_full_disk_is_an_outage_that_ends() {
    let home = Folder::new("full");
    let Some(disk) = Mounted::new(home.path().join("disk"), "96m") else {
        eprintln!("SKIPPED: a real full disk, for this process may not mount one; the shim plays one in another test");
        return;
    };
    run("full_disk::scenario", home.path(), |command| {
        command
            .env("DATA", disk.0.join("data"))
            .env("BALLAST", disk.0.join("ballast"));
    });
}

#[test]
fn a_disk_that_says_it_is_full_is_an_outage_that_ends() {
    let home = Folder::new("said-full");
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    run("full_disk::scenario", home.path(), |command| {
        command
            .env("DATA", disk.join("data"))
            .env("LD_PRELOAD", shim())
            .env("SHIM_ROOT", &disk)
            .env("SHIM_FULL", home.path().join("full"));
    });
}

#[test]
fn a_folder_that_is_taken_away_is_an_outage_that_ends() {
    let home = Folder::new("gone");
    let data = home.path().join("data");
    run("full_disk::taken_away", home.path(), |command| {
        command.env("DATA", data);
    });
}

/// Fills the disk, and empties it again.
struct Ballast;

impl Ballast {
    fn fill(rng: &mut Rng) -> Self {
        if let Ok(flag) = std::env::var("SHIM_FULL") {
            fs::write(flag, "").unwrap();
            return Ballast;
        }
        let mut file = File::create(given("BALLAST")).unwrap();
        // Down to the last page, or to a little room that the next commits take.
        let mut chunk = 1 << 20;
        while chunk >= 4096 {
            if file.write_all(&vec![1; chunk]).is_err() {
                chunk /= 2;
            }
        }
        let room = rng.below(30) * 4096;
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(room)).unwrap();
        Ballast
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let path = std::env::var("SHIM_FULL").unwrap_or_else(|_| given("BALLAST"));
        fs::remove_file(path).unwrap();
    }
}

/// A few streams of one session, written one after the other.
struct Writer {
    ledger: Ledger,
    next: [u64; 6],
    turn: usize,
}

const SESSION: u64 = 1;

impl Writer {
    /// The next batch of the next stream. The next call repeats it if it failed.
    async fn write(&mut self, store: &EmbeddedStore) -> Result<(), StoreError> {
        let stream = self.turn % self.next.len();
        let (ordinal, first) = (stream as u64 + 1, self.next[stream]);
        let last = first + self.turn as u64 % 4;
        self.ledger.send(SESSION, ordinal, first, last, false);
        let batch = batch(SESSION, ordinal, 1, first, last, false);
        let append = store.append(&stream_key(SESSION, ordinal), batch);
        let appended = tokio::time::timeout(APPEND_TIMEOUT, append).await;
        appended.expect("an append ends, with or without success")?;
        self.ledger.sent(SESSION, ordinal, last);
        self.next[stream] = last + 1;
        self.turn += 1;
        Ok(())
    }

    /// Writes until the store refuses; says how often it did not.
    async fn until_refused(&mut self, store: &EmbeddedStore, limit: usize) -> Result<usize, StoreError> {
        for written in 0..limit {
            if let Err(error) = self.write(store).await {
                assert!(error.is_outage(), "it is an outage, not {error:?}");
                return Ok(written);
            }
        }
        panic!("{limit} batches were acknowledged");
    }

    async fn until_accepted(&mut self, store: &EmbeddedStore) -> Duration {
        let start = Instant::now();
        loop {
            match self.write(store).await {
                Ok(()) => return start.elapsed(),
                Err(error) => assert!(error.is_outage(), "it is an outage, not {error:?}"),
            }
            assert!(start.elapsed() < RECOVERY, "no append for {RECOVERY:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn start(store: &EmbeddedStore) -> Self {
        let ledger = Ledger::open(Path::new(&given("LEDGER")));
        ledger.create(SESSION, false);
        store
            .create(&session_key(SESSION), session_record(1), false)
            .await
            .unwrap();
        ledger.create(SESSION, true);
        Writer {
            ledger,
            next: [1; 6],
            turn: 0,
        }
    }

    async fn write_some(&mut self, store: &EmbeddedStore, count: usize) {
        for _ in 0..count {
            self.write(store).await.unwrap();
        }
    }
}

async fn check(store: &EmbeddedStore) -> Result<(), String> {
    let mut history = History::of(Path::new(&given("LEDGER")));
    history.check(store, Promise::All).await.map(drop)
}

#[test]
#[ignore = "the child of the tests in this file"]
fn scenario() {
    if !is_child("full_disk::scenario") {
        return;
    }
    let mut rng = Rng::new(given("SEED").parse().unwrap());
    let data = PathBuf::from(given("DATA"));
    let runtime = runtime();
    let store = open(&data, Sync::Always);
    runtime.block_on(async {
        let mut writer = Writer::start(&store).await;
        for round in 0..4 {
            writer.write_some(&store, 200).await;
            let ballast = Ballast::fill(&mut rng);
            let taken = writer.until_refused(&store, 100_000).await.unwrap();
            for _ in 0..rng.below(40) {
                let refused = writer.write(&store).await;
                assert!(refused.is_err_and(|error| error.is_outage()), "there is no room");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let readable = check(&store).await;
            drop(ballast);
            let pause = writer.until_accepted(&store).await;
            check(&store).await.unwrap();
            eprintln!(
                "round {round}: {taken} batches until full, readable while full: {}, back after {pause:?}",
                readable
                    .as_ref()
                    .map_or_else(|error| &error[..error.len().min(200)], |()| "yes"),
            );
        }
        writer.write_some(&store, 200).await;
        check(&store).await.unwrap();
    });
    drop(store);
    let store = open(&data, Sync::Always);
    runtime.block_on(check(&store)).unwrap();
}

#[test]
#[ignore = "the child of a test in this file"]
fn taken_away() {
    if !is_child("full_disk::taken_away") {
        return;
    }
    let data = PathBuf::from(given("DATA"));
    let aside = data.with_extension("aside");
    let runtime = runtime();
    let store = open(&data, Sync::Always);
    runtime.block_on(async {
        let mut writer = Writer::start(&store).await;
        writer.write_some(&store, 200).await;

        // Restored from what was there, as a backup would be.
        copy_folder(&data, &aside);
        while fs::remove_dir_all(&data).is_err() {} // the store may create a file meanwhile
        let taken = writer.until_refused(&store, 1).await;
        eprintln!("removed: {taken:?}");
        for _ in 0..20 {
            assert!(writer.write(&store).await.is_err(), "there is no folder");
        }
        fs::rename(&aside, &data).unwrap();
        let pause = writer.until_accepted(&store).await;
        eprintln!("back after {pause:?}");
        check(&store).await.unwrap();
        writer.write_some(&store, 200).await;
        check(&store).await.unwrap();

        // Moved and moved back: the open files are the same all the time.
        fs::rename(&data, &aside).unwrap();
        writer.until_refused(&store, 1).await.unwrap();
        fs::rename(&aside, &data).unwrap();
        let pause = writer.until_accepted(&store).await;
        eprintln!("moved back: after {pause:?}");
        check(&store).await.unwrap();
    });
    drop(store);
    runtime.block_on(check(&open(&data, Sync::Always))).unwrap();
}
