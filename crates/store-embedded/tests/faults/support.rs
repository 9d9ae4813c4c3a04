//! Helpers of every fault test: a seed, a folder, a child process, and the store as the tests open it.

pub(crate) use crate::rng::{Rng, mix};
use rethread_store::Retention;
use rethread_store_embedded::{EmbeddedStore, Limits, Options, Sync};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A folder that goes when the test ends well, and stays to be looked at when it does not.
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
            eprintln!("left behind: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// This test binary once more, as the child `name`. Its stderr goes to a file.
pub(crate) fn child(name: &str, stderr: &Path) -> Command {
    // Not by its name: it may be built anew while it runs.
    let mut command = Command::new(format!("/proc/{}/exe", std::process::id()));
    command
        .args(["--ignored", "--exact", name, "--nocapture", "--test-threads=1"])
        .env("FAULTS_CHILD", name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(stderr).unwrap());
    command
}

/// Whether this process is the child `name`: the hidden tests do nothing when a person runs them.
pub(crate) fn is_child(name: &str) -> bool {
    std::env::var("FAULTS_CHILD").is_ok_and(|child| child == name)
}

/// A setting that the parent gave.
pub(crate) fn given(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("the parent sets {name}"))
}

/// Waits until something is so, and fails if it takes too long.
#[track_caller]
pub(crate) fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Small, so that streams are trimmed in every test.
pub(crate) const KEPT: Retention = Retention::new(60, 64 << 20, Duration::from_secs(3600));

pub(crate) fn options(sync: Sync) -> Options {
    let limits = Limits::default().with_stream(KEPT);
    // Small, so that segments are rolled, compacted and deleted within the short lives of the writers here.
    Options::default().sync(sync).limits(limits).segment_size(256 << 10)
}

/// How often `Sync::Interval` syncs here.
pub(crate) const INTERVAL: Duration = Duration::from_millis(40);

pub(crate) fn sync_named(name: &str) -> Sync {
    match name {
        "always" => Sync::Always,
        "interval" => Sync::Interval(INTERVAL),
        "os" => Sync::Os,
        other => panic!("no such way to sync: {other}"),
    }
}

/// Opens the store, which must work.
#[track_caller]
pub(crate) fn open(path: &Path, sync: Sync) -> EmbeddedStore {
    match options(sync).open(path) {
        Ok(store) => store,
        Err(error) => panic!("{} does not open: {}", path.display(), chain(&error)),
    }
}

/// An error and its causes.
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
