//! A full disk and a removed data directory. The store reports an outage and recovers when the cause is gone.

use crate::disk::{copy_folder, shim};
use crate::ledger::{Guarantee, History, Ledger, session_key, session_record, stream_key};
use crate::load::batch;
use crate::support::{Folder, Rng, child, env_var, is_child, open, runtime};
use rethread_store::{EventStore, SessionStore, StoreError};
use rethread_store_embedded::{EmbeddedStore, Sync};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The store must accept appends this soon after the outage ends.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer append counts as a hang.
const APPEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A mounted tmpfs.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` if this process may not mount.
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
        // A lazy unmount succeeds even if a child hangs.
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
    let stderr_text = fs::read_to_string(stderr).unwrap();
    eprintln!("{stderr_text}");
    assert!(status.success(), "{stderr_text}");
}

#[test]
fn store_recovers_from_a_full_tmpfs() {
    let home = Folder::new("full");
    let Some(disk) = Mounted::new(home.path().join("disk"), "96m") else {
        eprintln!("SKIPPED: this process may not mount a tmpfs; another test simulates a full disk with the shim");
        return;
    };
    run("full_disk::scenario", home.path(), |command| {
        command
            .env("DATA", disk.0.join("data"))
            .env("BALLAST", disk.0.join("ballast"));
    });
}

#[test]
fn store_recovers_from_simulated_enospc() {
    let home = Folder::new("shim-full");
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
fn store_recovers_when_its_removed_directory_is_restored() {
    let home = Folder::new("gone");
    let data = home.path().join("data");
    run("full_disk::taken_away", home.path(), |command| {
        command.env("DATA", data);
    });
}

/// Fills the disk until it is dropped.
struct Ballast;

impl Ballast {
    fn fill(rng: &mut Rng) -> Self {
        if let Ok(flag) = std::env::var("SHIM_FULL") {
            fs::write(flag, "").unwrap();
            return Ballast;
        }
        let mut file = File::create(env_var("BALLAST")).unwrap();
        // Fill the last page, then free up to 29 pages for the next commits.
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
        let path = std::env::var("SHIM_FULL").unwrap_or_else(|_| env_var("BALLAST"));
        fs::remove_file(path).unwrap();
    }
}

/// Appends to six streams of one session in turn.
struct Writer {
    ledger: Ledger,
    next: [u64; 6],
    turn: usize,
}

const SESSION: u64 = 1;

impl Writer {
    /// Appends the next batch to the next stream. After a failure the next call repeats the batch.
    async fn write(&mut self, store: &EmbeddedStore) -> Result<(), StoreError> {
        let stream = self.turn % self.next.len();
        let (ordinal, first) = (stream as u64 + 1, self.next[stream]);
        let last = first + self.turn as u64 % 4;
        self.ledger.send(SESSION, ordinal, first, last, false);
        let batch = batch(SESSION, ordinal, 1, first, last, false);
        let append = store.append(&stream_key(SESSION, ordinal), batch);
        let appended = tokio::time::timeout(APPEND_TIMEOUT, append).await;
        appended.expect("the append completes")?;
        self.ledger.sent(SESSION, ordinal, last);
        self.next[stream] = last + 1;
        self.turn += 1;
        Ok(())
    }

    /// Appends until the store reports an outage. Returns the number of accepted batches.
    async fn until_refused(&mut self, store: &EmbeddedStore, limit: usize) -> Result<usize, StoreError> {
        for written in 0..limit {
            if let Err(error) = self.write(store).await {
                assert!(error.is_outage(), "expected an outage: {error:?}");
                return Ok(written);
            }
        }
        panic!("the store accepted {limit} batches and reported no outage");
    }

    async fn until_accepted(&mut self, store: &EmbeddedStore) -> Duration {
        let start = Instant::now();
        loop {
            match self.write(store).await {
                Ok(()) => return start.elapsed(),
                Err(error) => assert!(error.is_outage(), "expected an outage: {error:?}"),
            }
            assert!(
                start.elapsed() < RECOVERY_TIMEOUT,
                "no append succeeded for {RECOVERY_TIMEOUT:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn start(store: &EmbeddedStore) -> Self {
        let ledger = Ledger::open(Path::new(&env_var("LEDGER")));
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
    let mut history = History::of(Path::new(&env_var("LEDGER")));
    history.check(store, Guarantee::All).await.map(drop)
}

#[test]
#[ignore = "runs as a child process of the tests in this file"]
fn scenario() {
    if !is_child("full_disk::scenario") {
        return;
    }
    let mut rng = Rng::new(env_var("SEED").parse().unwrap());
    let data = PathBuf::from(env_var("DATA"));
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
                assert!(refused.is_err_and(|error| error.is_outage()), "the disk is full");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let readable = check(&store).await;
            drop(ballast);
            let pause = writer.until_accepted(&store).await;
            check(&store).await.unwrap();
            eprintln!(
                "round {round}: {taken} batches until full, readable while full: {}, recovered after {pause:?}",
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
#[ignore = "runs as a child process of a test in this file"]
fn taken_away() {
    if !is_child("full_disk::taken_away") {
        return;
    }
    let data = PathBuf::from(env_var("DATA"));
    let aside = data.with_extension("aside");
    let runtime = runtime();
    let store = open(&data, Sync::Always);
    runtime.block_on(async {
        let mut writer = Writer::start(&store).await;
        writer.write_some(&store, 200).await;

        // Restored from a copy, as from a backup.
        while copy_folder(&data, &aside).is_err() {
            fs::remove_dir_all(&aside).unwrap(); // the store may replace a file during the copy
        }
        while fs::remove_dir_all(&data).is_err() {} // the store may create a file during the removal
        let taken = writer.until_refused(&store, 1).await;
        eprintln!("removed: {taken:?}");
        for _ in 0..20 {
            assert!(writer.write(&store).await.is_err(), "the directory is gone");
        }
        fs::rename(&aside, &data).unwrap();
        let pause = writer.until_accepted(&store).await;
        eprintln!("recovered after {pause:?}");
        check(&store).await.unwrap();
        writer.write_some(&store, 200).await;
        check(&store).await.unwrap();

        // Moved away and back: the store's open files stay valid.
        fs::rename(&data, &aside).unwrap();
        writer.until_refused(&store, 1).await.unwrap();
        fs::rename(&aside, &data).unwrap();
        let pause = writer.until_accepted(&store).await;
        eprintln!("recovered from the move after {pause:?}");
        check(&store).await.unwrap();
    });
    drop(store);
    runtime.block_on(check(&open(&data, Sync::Always))).unwrap();
}
