//! The monotonic clock of the process. It uses tokio's, so that tests can pause it.

use rethread_proto::clock::{Mono, Wall};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The time of the day, for expiries that others have chosen.
pub(crate) fn wall_now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// The time of the last sweep, in milliseconds. Precise enough for idle times of minutes, and cheap to read.
    coarse: AtomicU64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock {
            start: Instant::now(),
            coarse: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Mono {
        Mono::from_start(self.start.elapsed())
    }

    /// The time of the last sweep.
    pub(crate) fn coarse_millis(&self) -> u64 {
        self.coarse.load(Ordering::Relaxed)
    }

    /// The time now. Also stores it as the coarse time.
    pub(crate) fn tick(&self) -> Mono {
        let now = self.now();
        self.coarse.store(now.as_millis(), Ordering::Relaxed);
        now
    }
}
