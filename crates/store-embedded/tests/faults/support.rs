//! Helpers of the fault tests: directories, child processes, and the options of the store.

pub(crate) use crate::rng::{Rng, mix};
use rethread_store::Retention;
use rethread_store_embedded::{EmbeddedStore, Limits, Options, Sync};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that is removed when the test passes and kept when it fails.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "{name}-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for inspection: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A command that runs the ignored test `name` of this binary in a child process. Its stderr goes to a file.
pub(crate) fn child(name: &str, stderr: &Path) -> Command {
    // A path through `/proc`, because a build may replace the file during the test.
    let mut command = Command::new(format!("/proc/{}/exe", std::process::id()));
    command
        .args(["--ignored", "--exact", name, "--nocapture", "--test-threads=1"])
        .env("FAULTS_CHILD", name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(stderr).unwrap());
    command
}

/// Whether this process is the child `name`. Child tests do nothing under `cargo test -- --ignored`.
pub(crate) fn is_child(name: &str) -> bool {
    std::env::var("FAULTS_CHILD").is_ok_and(|child| child == name)
}

/// An environment variable that the parent sets.
pub(crate) fn env_var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("the parent sets {name}"))
}

/// Waits for a condition and panics after `limit`.
#[track_caller]
pub(crate) fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Small, so that every test evicts events.
pub(crate) const RETENTION: Retention = Retention::new(60, 64 << 20, Duration::from_secs(3600));

pub(crate) fn options(sync: Sync) -> Options {
    let limits = Limits::default().with_stream(RETENTION);
    // Small, so that short runs already roll, compact and delete segments.
    Options::default().sync(sync).limits(limits).segment_size(256 << 10)
}

/// The period of `Sync::Interval`.
pub(crate) const INTERVAL: Duration = Duration::from_millis(40);

pub(crate) fn sync_named(name: &str) -> Sync {
    match name {
        "always" => Sync::Always,
        "interval" => Sync::Interval(INTERVAL),
        "os" => Sync::Os,
        other => panic!("unknown sync mode: {other}"),
    }
}

/// Opens the store and panics if that fails.
#[track_caller]
pub(crate) fn open(path: &Path, sync: Sync) -> EmbeddedStore {
    match options(sync).open(path) {
        Ok(store) => store,
        Err(error) => panic!("{} does not open: {}", path.display(), chain(&error)),
    }
}

/// The messages of an error and of its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}
