//! Stores in temporary directories, with a clock that tests advance.
#![allow(dead_code, reason = "each test binary uses a subset")]

use rethread_proto::clock::Wall;
use rethread_store::Retention;
use rethread_store_embedded::{EmbeddedStore, Limits, OpenError, Options, Sync};
use rethread_testkit::store_suite::Harness;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long another process may have an inherited file lock.
const MAX_FORK_TIME: Duration = Duration::from_secs(1);

/// A temporary directory and the clock of the store in it.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    now: Arc<AtomicU64>,
}

impl Default for Home {
    fn default() -> Self {
        Home {
            dir: tempfile::tempdir().expect("tempdir"),
            now: Arc::new(AtomicU64::new(1_700_000_000_000)),
        }
    }
}

impl Home {
    pub(crate) fn options(&self) -> Options {
        let now = Arc::clone(&self.now);
        EmbeddedStore::builder().clock(move || Wall::from_millis(now.load(Ordering::SeqCst)))
    }

    /// Opens or reopens the store. A process that another test starts has the file lock between its fork and its exec.
    pub(crate) fn open(&self, limits: Limits) -> EmbeddedStore {
        let end = Instant::now() + MAX_FORK_TIME;
        loop {
            match self.options().limits(limits).open(self.dir.path()) {
                Err(OpenError::InUse { .. }) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                opened => return opened.expect("the store opens"),
            }
        }
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.now.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

/// Held bytes of a session without streams.
pub(crate) fn one_session() -> usize {
    512 + rethread_testkit::store_suite::record().to_bytes().len()
}

/// The embedded store as a backend of the store suite.
pub(crate) struct Embedded {
    home: Home,
    sync: Sync,
    made: AtomicU64,
}

impl Embedded {
    pub(crate) fn with(sync: Sync) -> Self {
        Embedded {
            home: Home::default(),
            sync,
            made: AtomicU64::new(0),
        }
    }
}

impl Harness for Embedded {
    type Store = EmbeddedStore;

    async fn fresh(&self, stream: Retention) -> EmbeddedStore {
        let name = self.made.fetch_add(1, Ordering::SeqCst).to_string();
        let limits = Limits::default().with_stream(stream);
        let options = self.home.options().limits(limits).sync(self.sync);
        let store = options.open(self.home.dir.path().join(name));
        store.expect("the store opens")
    }

    fn advance(&self, _: &EmbeddedStore, by: Duration) -> bool {
        self.home.advance(by);
        true
    }
}
