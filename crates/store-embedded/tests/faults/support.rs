//! What every fault needs: a seed, a folder, a child process, and the store as the tests open it.

use rethread_store::Retention;
use rethread_store_embedded::{EmbeddedStore, Limits, Options, Sync};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Numbers that a seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// From `FAULTS_SEED` to repeat a failure, from the clock otherwise. Printed, so that it can be repeated.
    pub(crate) fn seeded(test: &str) -> Self {
        let seed = match std::env::var("FAULTS_SEED") {
            Ok(seed) => seed.parse().expect("FAULTS_SEED is a number"),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_nanos() as u64 % 1_000_000_007),
        };
        eprintln!("{test}: FAULTS_SEED={seed}");
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Spreads the bits of a number (the last step of splitmix64).
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

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

/// This test binary once more, as the child `name`. What it says on stderr goes to a file.
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
