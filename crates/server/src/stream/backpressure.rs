//! Emitters that wait for the reader, or for the store.

use super::Stream;
use rethread_proto::stream::{Framing, Room};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest wait of an emitter between two checks for room.
const MIN_WAIT_STEP: Duration = Duration::from_millis(1);

impl Stream {
    /// Whether an emitter may continue at once.
    pub(crate) fn has_room(&self) -> bool {
        self.room_now() == Room::Free
    }

    fn room_now(&self) -> Room {
        self.core.lock().room(&self.params)
    }

    /// Waits until the reader is less than a retained window behind, so that eviction does not overtake it. The wait is
    /// bounded: a reader that takes nothing for [`Timing::stall`](crate::Timing::stall) is detached, and may resume (SSE-14).
    /// A slow store gets the same time, and then the emitter continues.
    ///
    /// While other calls of the session run, their messages may come from the same source and wait too (GW-12). Then the
    /// reader has [`Timing::shared_stall`](crate::Timing::shared_stall) in total until it has caught up.
    ///
    /// Before that, the emitter yields once when half of the live buffer is full. A reader that is ready to run then need not
    /// catch up from the store.
    pub(crate) async fn wait_for_room(self: &Arc<Self>) {
        if self.room_now() != Room::Free {
            tokio::task::yield_now().await;
        }
        let timing = &self.node.timing;
        let shared_stall = timing.shared_stall.min(timing.stall);
        let mut waited = Duration::ZERO;
        loop {
            let room_freed = self.room.notified();
            tokio::pin!(room_freed);
            let can_resume = {
                let mut core = self.core.lock();
                let room = core.room(&self.params);
                if matches!(room, Room::Free | Room::YieldOnce) {
                    return;
                }
                room_freed.as_mut().enable();
                let effects = core.wake();
                // A slow store is not the reader's fault, and a reader cannot resume without a log.
                let can_resume = room == Room::WaitForReader && !core.is_unlogged();
                let is_remote = can_resume && core.has_remote_reader();
                drop(core);
                self.notify(effects);
                if is_remote {
                    self.refresh_remote_reader();
                }
                can_resume
            };
            // Another call may start at any time, so this is checked again after every step.
            let delays_others = can_resume && self.delays_other_calls();
            if delays_others && self.delay_caused() >= shared_stall {
                return self.detach_stalled_reader();
            }
            let step = shared_stall.max(MIN_WAIT_STEP);
            let step = step.min(timing.stall.saturating_sub(waited));
            let began = Instant::now();
            let was_freed = tokio::time::timeout(step, room_freed).await.is_ok();
            if delays_others {
                // The sum counts: a reader that takes a few events now and then also delays the other calls.
                let millis = began.elapsed().as_millis() as u64;
                self.delay_caused.fetch_add(millis, Ordering::Relaxed);
            }
            if was_freed {
                waited = Duration::ZERO;
                continue;
            }
            waited += step;
            if waited >= timing.stall {
                return self.detach_stalled_reader();
            }
        }
    }

    fn delay_caused(&self) -> Duration {
        Duration::from_millis(self.delay_caused.load(Ordering::Relaxed))
    }

    /// Whether calls run in the session whose answers go to other streams.
    fn delays_other_calls(&self) -> bool {
        let observer = self.observer.upgrade();
        self.params.framing == Framing::Numbered
            && observer.is_some_and(|session| session.runs_other_calls(&self.params.info.calls))
    }

    fn detach_stalled_reader(&self) {
        let effects = self.core.lock().reader_stalled(&self.params);
        self.notify(effects);
    }
}
