//! Time as a value. Two types, so that a deadline cannot be compared with a date.

use std::time::Duration;

/// A moment on the monotonic clock of one process, for deadlines and idle times. It has no meaning in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(Duration);

impl Mono {
    /// The moment `since_start` after the clock's start.
    pub const fn from_start(since_start: Duration) -> Self {
        Mono(since_start)
    }

    /// The time since `earlier`. Zero if this moment is not later.
    pub const fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds since the clock's start, for atomics.
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

/// A moment on the wall clock in milliseconds since the Unix epoch, for expiry and leases across processes.
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

    /// The time since `earlier`. Zero if this moment is not later.
    pub const fn since(self, earlier: Wall) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Wall {
    type Output = Wall;

    fn add(self, later: Duration) -> Wall {
        let millis = u64::try_from(later.as_millis()).unwrap_or(u64::MAX);
        Wall(self.0.saturating_add(millis))
    }
}
