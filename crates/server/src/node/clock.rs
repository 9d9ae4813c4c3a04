//! The monotonic clock of the process. It uses tokio's, so that tests can pause it.

use rethread_proto::clock::Mono;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

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
