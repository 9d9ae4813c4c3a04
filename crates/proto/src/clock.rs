//! Time as a value: two types, so that a deadline can never be compared with a date.

use std::time::Duration;

/// A moment on the monotonic clock of one process, for deadlines and idle times. Means nothing to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(Duration);

impl Mono {
    /// The moment `since_start` after the clock's start.
    pub const fn from_start(since_start: Duration) -> Self {
        Mono(since_start)
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds since the clock's start: how a moment fits into an atomic.
    pub const fn as_millis(self) -> u64 {
        self.0.as_millis() as u64
    }

    /// The moment `millis` after the clock's start.
    pub const fn from_millis(millis: u64) -> Self {
        Mono(Duration::from_millis(millis))
    }
}

impl std::ops::Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, later: Duration) -> Mono {
        Mono(self.0.saturating_add(later))
    }
}

/// A moment on the wall clock in milliseconds since the Unix epoch, for expiry and leases that other processes judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Wall(u64);

impl Wall {
    /// The moment `millis` after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Wall(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn since(self, earlier: Wall) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
