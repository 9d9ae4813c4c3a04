//! What the store keeps of a session: its record, and that it is in use (design D9).

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

    /// Whether anything of it is stored. A session that is its connection has nothing to come back to.
    fn is_kept(&self) -> bool {
        self.transport == Transport::Streamable
    }

    /// Writes the record before the client hears that something in it has changed. If the store fails, the session goes
    /// on, and the record is written later; likewise if the client leaves before it is written.
    pub(super) async fn save(&self) {
        if self.is_kept() {
            let change = self.persistence.changes.fetch_add(1, Ordering::AcqRel) + 1;
            self.save_up_to(change).await;
        }
    }

    /// Whether the store lacks a change of the record, and nobody is writing it.
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
        let changes = self.persistence.changes.load(Ordering::Acquire); // the record has at least these
        let result = self.node.store.update(&self.key, self.epoch, self.record()).await;
        if result.is_ok() {
            *saved = changes;
        }
        self.heard(&result);
    }

    /// Tells the store that the session is still in use, if it is time to.
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

    /// Takes note of what the store said to a record or an append.
    pub(crate) fn heard(&self, result: &Result<(), StoreError>) {
        match result {
            // A stream that its one writer did not end was ended by the session's next life.
            Err(StoreError::SessionGone | StoreError::Sealed) => self.persistence.gone.store(true, Ordering::Relaxed),
            Err(StoreError::Conflict { epoch, .. }) if *epoch > self.epoch => {
                self.persistence.gone.store(true, Ordering::Relaxed);
            }
            // What was not touched is touched with the next sweep.
            Err(error) if error.is_outage() => self.persistence.touched.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Whether the store has said that the session is not ours any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.persistence.gone.load(Ordering::Relaxed)
    }

    pub(super) fn part(&self) -> PendingEnd {
        PendingEnd(self.is_kept().then(|| (Arc::clone(&self.node), self.key.clone())))
    }
}
