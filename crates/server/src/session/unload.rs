//! Whether a session that nobody uses leaves the memory, while the store keeps it (GW-23).

use super::Session;
use crate::node::restore_policy::Restore;
use crate::node::unused_sessions::{MemoryOnly, UnusedDecision};
use rethread_proto::clock::Mono;
use std::sync::atomic::Ordering;

impl Session {
    /// The decision of the policy about this session.
    pub(crate) fn unused_decision(&self, now: Mono) -> UnusedDecision {
        let policy = self.node.unused;
        let is_restorable = self.node.restore == Restore::Resume || !policy.unloads();
        if !is_restorable || self.node.is_draining() || self.has_ended() || self.is_gone() {
            return UnusedDecision::Keep;
        }
        let was_used = self.was_used.load(Ordering::Relaxed);
        policy.decide(self.unused_for(now), was_used, || self.memory_only())
    }

    fn memory_only(&self) -> MemoryOnly {
        let questions = self.questions.lock().open();
        let is_queue_behind = if self.has_shared_push() {
            self.has_unstored_push()
        } else {
            !self.push.is_copied()
        };
        let is_record_behind = self.lacks_record_changes();
        let state = self.state.lock();
        MemoryOnly {
            questions,
            subscriptions: state.subscriptions.len(),
            streams: state.streams.len(),
            is_record_behind,
            is_queue_behind,
        }
    }

    /// Stops admitting requests, if none is admitted and the session is still to be unloaded. The caller holds the lock of the
    /// session in `Registry::restoring`, so that requests that are not admitted wait for the result.
    pub(crate) fn begin_unload(&self) -> bool {
        if !self.begin_close() {
            return false;
        }
        // A request that has ended meanwhile was a use.
        let is_unused = self.unused_decision(self.node.clock.now()) == UnusedDecision::Unload;
        if !is_unused {
            self.abort_close();
        }
        is_unused
    }
}
