use crate::{EmbeddedStore, OpenError};
use rethread_proto::clock::Wall;
use rethread_store::Retention;
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a segment, unless the store is small.
const MAX_SEGMENT_BYTES: u64 = 16 << 20;
const MIN_SEGMENT_BYTES: u64 = 64 << 10;
/// A store at its limit has about this many segments.
const SEGMENTS: u64 = 64;

/// When an acknowledged write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// A write is acknowledged after a sync. No acknowledged write is lost, even if the power fails. All waiting writes
    /// share one sync.
    Always,
    /// A write is acknowledged when the operating system has it, and synced within this time. A killed process loses
    /// nothing. A power failure loses at most the writes of this time. A data directory that is removed loses at most the
    /// writes of 5 milliseconds, or of this time if it is shorter.
    Interval(Duration),
    /// Like [`Sync::Interval`], but the operating system decides when it writes to the disk, often after half a minute.
    Os,
}

impl Default for Sync {
    fn default() -> Self {
        Sync::Interval(Duration::from_millis(50))
    }
}

/// How much the store retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Limits of each stream.
    pub stream: Retention,
    /// Ended streams of one session. Beyond this, the stream that ended first is forgotten.
    pub ended_streams_per_session: usize,
    /// Bytes of all streams, push queues and session records, including bookkeeping. Beyond this, the streams that
    /// ended first become tombstones. The files take up to twice as much, plus four segments.
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

impl Limits {
    /// The same limits with another retention of streams.
    #[must_use]
    pub const fn with_stream(mut self, stream: Retention) -> Self {
        self.stream = stream;
        self
    }

    /// The same limits with another number of ended streams per session.
    #[must_use]
    pub const fn with_ended_streams_per_session(mut self, streams: usize) -> Self {
        self.ended_streams_per_session = streams;
        self
    }

    /// The same limits with another number of bytes in total.
    #[must_use]
    pub const fn with_total_bytes(mut self, bytes: u64) -> Self {
        self.total_bytes = bytes;
        self
    }
}

/// Options to open an [`EmbeddedStore`].
pub struct Options {
    pub(crate) sync: Sync,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    segment_bytes: Option<u64>,
}

/// The source of the time.
pub(crate) type Clock = Box<dyn Fn() -> Wall + Send + std::marker::Sync>;

impl Default for Options {
    fn default() -> Self {
        Options {
            sync: Sync::default(),
            limits: Limits::default(),
            segment_bytes: None,
            clock: Box::new(|| {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Wall::from_millis(since.as_millis() as u64)
            }),
        }
    }
}

impl Options {
    /// When an acknowledged write is durable. The default is [`Sync::Interval`] with 50 milliseconds.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// How much is retained.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Takes the time from `clock`, for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Wall + Send + std::marker::Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Begins a new segment after `bytes` bytes, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn segment_size(mut self, bytes: u64) -> Self {
        self.segment_bytes = Some(bytes);
        self
    }

    /// Bytes after which a new segment begins.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let usual = (self.limits.total_bytes / SEGMENTS).clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
        self.segment_bytes.unwrap_or(usual)
    }

    /// Opens the store in its own directory, which is created if it is missing. Blocks while it reads the last
    /// checkpoint and the log after it, for up to half a second.
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
