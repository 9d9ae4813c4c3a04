//! Acknowledged operations survive SIGKILL, and with `Sync::Always` also a power cut.

use crate::disk::{Cut, Disk};
use crate::ledger::{Guarantee, History, Ledger, StoredItems, session_key, session_record, stream_key};
use crate::load::{Load, batch};
use crate::support::{Folder, Rng, child, env_var, is_child, open, runtime, sync_named, wait_for};
use rethread_store::{EventStore, SessionStore};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

/// The child process: appends until it is killed or all batches are written.
#[test]
#[ignore = "runs as a child process of the tests in this file"]
fn writer() {
    if !is_child("power_cut::writer") {
        return;
    }
    let number = |name: &str| env_var(name).parse::<u64>().unwrap();
    let mut rng = Rng::new(number("SEED"));
    let sessions = env_var("OPEN");
    let open_sessions = sessions.split(' ').filter_map(|id| id.parse().ok()).collect();
    let load = Arc::new(Load {
        store: open(Path::new(&env_var("DATA")), sync_named(&env_var("SYNC"))),
        ledger: Ledger::open(Path::new(&env_var("LEDGER"))),
        fresh: number("FRESH").into(),
        epoch: number("EPOCH"),
        batches: (number("BATCHES") as i64).into(),
    });
    runtime().block_on(load.run(8, open_sessions, &mut rng)).unwrap();
    std::process::exit(0); // skips destructors, so that the store is not closed cleanly
}

/// A series of writer processes over one data directory, and the history of their operations.
pub(crate) struct Trial {
    sync: &'static str,
    pub(crate) history: History,
    /// Writer processes so far.
    runs: u64,
    rng: Rng,
}

impl Trial {
    pub(crate) fn new(sync: &'static str, rng: &Rng) -> Self {
        Trial {
            sync,
            history: History::default(),
            runs: 0,
            rng: rng.clone(),
        }
    }

    /// Sets the sync mode of the next writers.
    pub(crate) fn set_sync(&mut self, sync: &'static str) {
        self.sync = sync;
    }

    /// The command of the next writer process, which appends `batches` batches.
    fn writer(&mut self, data: &Path, home: &Path, batches: i64) -> Command {
        self.runs += 1;
        let open: Vec<String> = self.history.open_sessions().iter().map(u64::to_string).collect();
        let mut command = child("power_cut::writer", &home.join("stderr"));
        command
            .env("DATA", data)
            .env("LEDGER", home.join("ledger"))
            .env("SYNC", self.sync)
            .env("BATCHES", batches.to_string())
            .env("SEED", self.rng.next().to_string())
            .env("OPEN", open.join(" "))
            .env("FRESH", self.history.fresh().to_string())
            .env("EPOCH", (self.runs + 1).to_string());
        let _ = fs::remove_file(home.join("ledger"));
        command
    }

    /// Runs a writer until it has appended `batches` batches. It exits without closing the store.
    pub(crate) fn run_to_exit(&mut self, data: &Path, home: &Path, batches: i64) {
        let status = self.writer(data, home, batches).status().unwrap();
        assert!(status.success(), "{}", child_stderr(home));
        self.history.add_ledger(&home.join("ledger"));
    }

    /// Runs a writer until the condition holds, then kills it.
    pub(crate) fn run_until(&mut self, data: &Path, home: &Path, condition: impl FnMut() -> bool) {
        let writer = KillOnDrop(self.writer(data, home, i64::MAX).spawn().unwrap());
        wait_for("the condition of the test", Duration::from_secs(120), condition);
        drop(writer);
        self.history.add_ledger(&home.join("ledger"));
    }

    /// Runs a writer for a random time and kills it.
    fn run_and_kill(&mut self, data: &Path, home: &Path, disk: Option<&Disk>) {
        let mut command = self.writer(data, home, i64::MAX);
        if let Some(disk) = disk {
            disk.attach_shim(&mut command);
        }
        let mut writer = KillOnDrop(command.spawn().unwrap());
        if let Some(disk) = disk {
            disk.wait_for_shim();
        }
        // Some writers are killed while they open the store, most long after.
        if self.rng.chance(85) {
            wait_for("the writer writes", Duration::from_secs(60), || {
                let ended = writer.0.try_wait().unwrap();
                assert!(ended.is_none(), "the writer exited: {}", child_stderr(home));
                fs::metadata(home.join("ledger")).is_ok_and(|file| file.len() > 2000)
            });
            std::thread::sleep(Duration::from_millis(self.rng.below(1000)));
        } else {
            std::thread::sleep(Duration::from_millis(self.rng.below(60)));
        }
        drop(writer);
        assert!(
            !child_stderr(home).contains("panicked"),
            "a thread panicked: {}",
            child_stderr(home)
        );
        self.history.add_ledger(&home.join("ledger"));
    }

    fn check(&mut self, data: &Path, guarantee: Guarantee) -> StoredItems {
        let store = open(data, sync_named(self.sync));
        let checked = runtime().block_on(self.history.check(&store, guarantee));
        checked.unwrap_or_else(|error| panic!("run {}, {}: {error}", self.runs, self.sync))
    }
}

/// The stderr of the latest child process.
fn child_stderr(home: &Path) -> String {
    fs::read_to_string(home.join("stderr")).unwrap_or_default()
}

/// A child process that ends by SIGKILL.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn power_cuts(sync: &'static str, guarantee: Guarantee, chains: usize, random_pages: bool) {
    let mut rng = Rng::seeded(&format!("power cuts, sync {sync}, random pages {random_pages}"));
    for chain in 0..chains {
        let disk = Disk::new("power");
        let data = disk.root().join("data");
        let mut trial = Trial::new(sync, &Rng::new(rng.next()));
        // Each run starts from the state after the previous power cut.
        for run in 0..4 {
            trial.run_and_kill(&data, disk.home(), Some(&disk));
            disk.cut(if random_pages {
                Cut::RandomPages(&mut rng)
            } else {
                Cut::OnlySynced
            });
            let found = trial.check(&data, guarantee);
            eprintln!("chain {chain}, run {run}: {found:?}");
        }
    }
}

#[test]
fn sync_always_survives_a_power_cut() {
    power_cuts("always", Guarantee::All, 1, false);
}

#[test]
fn sync_always_survives_a_power_cut_that_leaves_random_pages() {
    power_cuts("always", Guarantee::All, 2, true);
}

#[test]
fn sync_interval_loses_only_the_end_in_a_power_cut() {
    power_cuts("interval", Guarantee::Prefix, 1, false);
}

#[test]
fn sync_interval_loses_only_the_end_in_a_power_cut_that_leaves_random_pages() {
    power_cuts("interval", Guarantee::Prefix, 2, true);
}

fn kills(sync: &'static str) {
    let rng = Rng::seeded(&format!("kill -9, sync {sync}"));
    let home = Folder::new("kill");
    let data = home.path().join("data");
    let mut trial = Trial::new(sync, &rng);
    for run in 0..5 {
        trial.run_and_kill(&data, home.path(), None);
        let found = trial.check(&data, Guarantee::All);
        eprintln!("run {run}: {found:?}");
    }
}

#[test]
fn sync_interval_survives_kill_9() {
    kills("interval");
}

#[test]
fn sync_os_survives_kill_9() {
    kills("os");
}

/// The child process of `shim_keeps_exactly_the_synced_state`.
#[test]
#[ignore = "runs as a child process of a test in this file"]
fn plain_files() {
    if !is_child("power_cut::plain_files") {
        return;
    }
    let root = PathBuf::from(env_var("ROOT"));
    let file = |name: &str, text: &str| {
        let mut file = File::create(root.join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    };
    let sync_folder = |path: &Path| File::open(path).unwrap().sync_all().unwrap();

    let mut longer = file("longer", "synced");
    longer.sync_data().unwrap();
    longer.write_all(b", and not").unwrap();
    let mut over = file("over", "old old old");
    over.sync_all().unwrap();
    let shorter = file("shorter", "all of it");
    shorter.sync_all().unwrap();
    file("moved", "moved").sync_all().unwrap();
    file("replaced", "before").sync_all().unwrap();
    file("replacing", "after").sync_all().unwrap();
    file("removed", "still here").sync_all().unwrap();
    file("never", "a name and no content");
    let sparse = file("sparse", "start");
    sparse.set_len(64 << 20).unwrap();
    sparse.sync_all().unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    sync_folder(&root);

    over.seek(SeekFrom::Start(4)).unwrap();
    over.write_all(b"new").unwrap();
    shorter.set_len(3).unwrap();
    fs::rename(root.join("moved"), root.join("folder/moved")).unwrap();
    fs::rename(root.join("replacing"), root.join("replaced")).unwrap();
    fs::remove_file(root.join("removed")).unwrap();
    file("nameless", "content and no name").sync_all().unwrap();
    file("removed", "the second of this name").sync_all().unwrap();
    (&sparse).write_all(b" and more").unwrap();
    sparse.sync_data().unwrap();
    (&sparse).write_all(b", lost").unwrap();

    fs::write(env_var("READY"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

/// The power cut tests depend on the shim.
#[test]
fn shim_keeps_exactly_the_synced_state() {
    let disk = Disk::new("plain");
    let ready = disk.home().join("ready");
    fs::write(disk.root().join("before"), "was there").unwrap();
    let mut command = child("power_cut::plain_files", &disk.home().join("stderr"));
    command.env("ROOT", disk.root()).env("READY", &ready);
    disk.attach_shim(&mut command);
    let writer = KillOnDrop(command.spawn().unwrap());
    wait_for("the files are written", Duration::from_secs(20), || ready.exists());
    drop(writer);
    disk.cut(Cut::OnlySynced);

    let text = |name: &str| fs::read_to_string(disk.root().join(name)).unwrap();
    for (name, expected) in [
        ("before", "was there"),
        ("longer", "synced"),
        ("over", "old old old"),
        ("shorter", "all of it"),
        ("moved", "moved"),
        ("replaced", "before"),
        ("replacing", "after"),
        ("removed", "still here"),
        ("never", ""),
    ] {
        assert_eq!(text(name), expected, "{name}");
    }
    let sparse = fs::read(disk.root().join("sparse")).unwrap();
    assert_eq!(sparse.len(), 64 << 20);
    assert_eq!(sparse[..20], *b"start and more\0\0\0\0\0\0");
    let left = fs::read_dir(disk.root()).unwrap().count();
    assert_eq!(left, 11, "no other file exists");
    assert_eq!(fs::read_dir(disk.root().join("folder")).unwrap().count(), 0);
}

/// The power cut tests depend on the check.
#[test]
fn check_reports_each_kind_of_fault() {
    let mut rng = Rng::seeded("the check");
    let home = Folder::new("check");
    let ledger = home.path().join("ledger");
    let store = open(&home.path().join("data"), sync_named("os"));
    let load = Arc::new(Load {
        store: store.clone(),
        ledger: Ledger::open(&ledger),
        fresh: 1.into(),
        epoch: 2,
        batches: 2000.into(),
    });
    let read_ledger = || History::of(&ledger);
    runtime().block_on(async {
        load.run(8, Vec::new(), &mut rng).await.unwrap();
        let found = read_ledger().check(&store, Guarantee::All).await.unwrap();
        assert!(
            found.events > 1000 && found.sessions > 20 && found.lost == 0,
            "{found:?}"
        );
        let open = read_ledger().open_sessions();
        let session = *rng.pick(&open);

        // A session exists although the ledger says that it has ended.
        store
            .create(&session_key(u64::MAX), session_record(1), false)
            .await
            .unwrap();
        let mut history = read_ledger();
        load.ledger.create(u64::MAX, false);
        load.ledger.create(u64::MAX, true);
        load.ledger.end(u64::MAX, false);
        load.ledger.end(u64::MAX, true);
        let back = read_ledger().check(&store, Guarantee::All).await.unwrap_err();
        assert!(back.contains("is back"), "{back}");
        history.check(&store, Guarantee::All).await.unwrap();
        store.end(&session_key(u64::MAX)).await.unwrap();

        // An acknowledged batch is missing. `Prefix` allows that until a later operation is stored.
        load.ledger.send(session, 999, 1, 1, false);
        load.ledger.sent(session, 999, 1);
        let lost = read_ledger().check(&store, Guarantee::All).await.unwrap_err();
        assert!(lost.contains("acknowledged"), "{lost}");
        read_ledger().check(&store, Guarantee::Prefix).await.unwrap();
        load.ledger.send(session, 1000, 1, 1, false);
        let late = batch(session, 1000, 2, 1, 1, false);
        store.append(&stream_key(session, 1000), late).await.unwrap();
        let hole = read_ledger().check(&store, Guarantee::Prefix).await.unwrap_err();
        assert!(hole.contains("acknowledged"), "{hole}");

        // An event has a wrong payload.
        load.ledger.send(session, 1000, 2, 2, false);
        let wrong = batch(session, 7, 2, 2, 2, false);
        store.append(&stream_key(session, 1000), wrong).await.unwrap();
        let wrong = read_ledger().check_damaged(&store).await.unwrap_err();
        assert!(wrong.contains("another payload"), "{wrong}");
    });
}
