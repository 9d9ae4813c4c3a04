//! The stored part of a session: its record and the time of its last use (design D9).

use super::persistence::PendingEnd;
use super::{Session, Transport};
use rethread_proto::clock::Mono;
use rethread_store::{SessionRecord, StoreError, StoreFuture};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    pub(crate) fn record(&self) -> SessionRecord {
        let initialized = self.push.has_begun();
        let state = self.state.lock();
        let mut record = SessionRecord::new(self.version(), self.initialize_params().clone()).with_epoch(self.epoch);
        record.initialized = initialized;
        record.log_level = state.log_level.map(|level| level.as_str().into());
        record.subscriptions = state.subscriptions.clone();
        record
    }

    /// Whether the session is stored. A connection-bound session is not, because no client can return to it.
    fn is_kept(&self) -> bool {
        self.transport == Transport::Streamable
    }

    /// Writes the record before the client gets the response to its change. If the store fails or the client leaves first,
    /// the session continues, and the record is written later.
    pub(super) async fn save(&self) {
        if self.is_kept() {
            let change = self.persistence.changes.fetch_add(1, Ordering::AcqRel) + 1;
            self.save_up_to(change).await;
        }
    }

    /// Whether the store lacks a change of the record, and no write is in flight.
    pub(crate) fn is_behind(&self) -> bool {
        let changes = self.persistence.changes.load(Ordering::Acquire);
        !self.has_ended() && self.persistence.saved.try_lock().is_ok_and(|saved| *saved < changes)
    }

    /// Writes the changes of the record that the store lacks.
    pub(crate) async fn catch_up(&self) {
        self.save_up_to(self.persistence.changes.load(Ordering::Acquire)).await;
    }

    /// Writes the record, unless the store has this change of it already.
    async fn save_up_to(&self, change: u64) {
        let mut saved = self.persistence.saved.lock().await;
        if *saved >= change {
            return;
        }
        let changes = self.persistence.changes.load(Ordering::Acquire); // the record has at least these changes
        let result = self.node.store.update(&self.key, self.epoch, self.record()).await;
        if result.is_ok() {
            *saved = changes;
        }
        self.store_answered(&result);
    }

    /// Touches the session in the store, if that is due.
    pub(crate) fn keep_up(&self, now: Mono) -> Option<StoreFuture<Result<(), StoreError>>> {
        if !self.is_kept() || self.has_ended() {
            return None;
        }
        let touched = Mono::from_millis(self.persistence.touched.load(Ordering::Relaxed));
        let used = Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        let in_use = self.uses.load(Ordering::Relaxed) > 0 || used > touched;
        if !in_use || now.since(touched) < self.node.timing.touch_every() {
            return None;
        }
        self.persistence.touched.store(now.as_millis(), Ordering::Relaxed);
        Some(self.node.store.touch(&self.key))
    }

    /// Records the result of a write of the record or of an append.
    pub(crate) fn store_answered(&self, result: &Result<(), StoreError>) {
        match result {
            // Only the next owner of the session can have ended a stream that its writer did not end.
            Err(StoreError::SessionGone | StoreError::Sealed) => self.persistence.gone.store(true, Ordering::Relaxed),
            Err(StoreError::Conflict { epoch, .. }) if *epoch > self.epoch => {
                self.persistence.gone.store(true, Ordering::Relaxed);
            }
            // The next sweep touches the session again.
            Err(error) if error.is_outage() => self.persistence.touched.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Whether the store has reported that this process no longer owns the session.
    pub(crate) fn is_gone(&self) -> bool {
        self.persistence.gone.load(Ordering::Relaxed)
    }

    pub(super) fn part(&self) -> PendingEnd {
        PendingEnd(self.is_kept().then(|| (Arc::clone(&self.node), self.key.clone())))
    }
}
