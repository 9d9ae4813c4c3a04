use crate::db::MEMTABLE;
use crate::{EmbeddedStore, OpenError};
use rethread_proto::clock::Wall;
use rethread_store::Retention;
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When what was written is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// An append is acknowledged when it is on the disk: nothing that was acknowledged is lost, even if the power fails.
    /// Everything that waits shares one flush of the disk.
    Always,
    /// An append is acknowledged when the operating system has it: a killed process loses nothing, a power failure at
    /// most what came in such a time, and what is left is a state that was.
    Interval(Duration),
    /// As with [`Sync::Interval`], but the operating system decides when it writes: often half a minute later.
    Os,
}

impl Default for Sync {
    fn default() -> Self {
        Sync::Interval(Duration::from_millis(50))
    }
}

/// How much the store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Per stream.
    pub stream: Retention,
    /// How many ended streams of one session; the oldest is forgotten first.
    pub ended_streams_per_session: usize,
    /// All streams and records of sessions together, in bytes of payload and bookkeeping. When it is reached, the streams that ended longest ago
    /// become tombstones. The files may be larger: the journal and what is deleted but not yet cleared away come on top.
    pub total_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            stream: Retention::default(),
            ended_streams_per_session: 1024,
            total_bytes: 1 << 30,
        }
    }
}

/// How to open an [`EmbeddedStore`].
pub struct Options {
    pub(crate) sync: Sync,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) memtable: u64,
}

/// Where the time comes from.
pub(crate) type Clock = Box<dyn Fn() -> Wall + Send + std::marker::Sync>;

impl Default for Options {
    fn default() -> Self {
        Options {
            sync: Sync::default(),
            limits: Limits::default(),
            memtable: MEMTABLE,
            clock: Box::new(|| {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Wall::from_millis(since.as_millis() as u64)
            }),
        }
    }
}

impl Options {
    /// When what was written is safe. Every 50 milliseconds unless told otherwise.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// How much is kept.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Takes the time from `clock`: for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Wall + Send + std::marker::Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Makes a table of what is in memory when it is so many bytes: for tests, which cannot wait for that.
    #[doc(hidden)]
    #[must_use]
    pub fn memtable(mut self, bytes: u64) -> Self {
        self.memtable = bytes;
        self
    }

    /// Opens the store in a directory of its own, which is made if there is none. Blocks while the journal of the last
    /// run is read: up to a second or two.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<EmbeddedStore, OpenError> {
        EmbeddedStore::start(dir.as_ref(), self)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("sync", &self.sync)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
