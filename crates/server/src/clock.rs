//! The process's monotonic clock. Tokio's, so that tests may pause it.

use rethread_proto::clock::Mono;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Clock(Instant::now())
    }

    pub(crate) fn now(&self) -> Mono {
        Mono::from_start(self.0.elapsed())
    }
}
