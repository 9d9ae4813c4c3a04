//! The stored part of a session: its record and the time of its last use (D9).

use super::persistence::{PendingEnd, RecordChange, UnsavedChanges};
use super::view::wait_for_views;
use super::{Session, Transport};
use rethread_proto::LogLevel;
use rethread_proto::clock::Mono;
use rethread_store::{SessionRecord, StoreError, StoreFuture, Updated};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    pub(crate) fn record(&self) -> SessionRecord {
        let initialized = self.push.has_begun();
        let state = self.state.lock();
        let mut record = SessionRecord::new(self.version(), self.initialize_params().clone()).with_epoch(self.epoch);
        record.declared = self.declared_json();
        record.initialized = initialized;
        record.log_level = state.log_level.map(|level| level.as_str().into());
        record.subscriptions = state.subscriptions.clone();
        record
    }

    /// Whether the store has a record of the session. In a cluster it also has one of an HTTP+SSE session, so that other nodes
    /// find the node of its connection.
    fn has_record(&self) -> bool {
        self.is_kept() || (self.transport == Transport::HttpSse && self.node.cluster().is_some())
    }

    /// Whether the session is stored. A connection-bound session is not, because no client can return to it.
    pub(crate) fn is_kept(&self) -> bool {
        self.transport == Transport::Streamable
    }

    /// Takes over the settings of a record, and the changes that it lacks.
    pub(super) fn apply_record(&self, record: &SessionRecord) {
        let mut record = record.clone();
        let initialized = {
            let mut state = self.state.lock();
            self.persistence.unsaved.lock().apply(&mut record);
            state.log_level = record.log_level.as_deref().and_then(LogLevel::parse);
            state.subscriptions = record.subscriptions;
            record.initialized
        };
        if initialized && !self.push.has_begun() {
            self.begin_push();
        }
    }

    /// Writes a change of the record before the client gets the response to it. If the store fails or the client leaves
    /// first, the session continues, and the record is written later.
    pub(super) async fn save(&self, change: RecordChange) {
        if self.is_kept() {
            self.persistence.unsaved.lock().add(change);
            let change = self.persistence.changes.fetch_add(1, Ordering::AcqRel) + 1;
            self.save_up_to(change).await;
        }
    }

    /// Whether the store lacks a change of the record, or a write is in flight.
    pub(super) fn lacks_record_changes(&self) -> bool {
        let changes = self.persistence.changes.load(Ordering::Acquire);
        !self.persistence.saved.try_lock().is_ok_and(|saved| *saved >= changes)
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
        let expected = self.expect_acknowledgements();
        let result = self.write_record().await;
        if let Ok(updated) = &result {
            *saved = changes;
            self.persistence.set_revision(updated.revision);
            if self.persistence.changes.load(Ordering::Acquire) == changes {
                *self.persistence.unsaved.lock() = UnsavedChanges::default();
            }
        }
        self.store_answered(&result);
        drop(saved);
        if let Ok(updated) = result {
            wait_for_views(&self.node, expected, &updated.views, updated.revision).await;
        }
    }

    /// Replaces the stored record. In a cluster another node may have changed it meanwhile: then the changes of this node
    /// are applied to the newer record.
    async fn write_record(&self) -> Result<Updated, StoreError> {
        let store = &self.node.store;
        let mut revision = self.persistence.revision();
        loop {
            let written = store.update(&self.key, revision, self.record()).await;
            if !matches!(written, Err(StoreError::Conflict { .. })) || store.cluster().is_none() {
                return written;
            }
            let stored = store.load(&self.key).await?;
            revision = stored.revision;
            self.apply_newer_record(revision, &stored.record);
        }
    }

    /// Touches the session in the store, if that is due.
    pub(crate) fn keep_up(&self, now: Mono) -> Option<StoreFuture<Result<(), StoreError>>> {
        if !self.has_record() || self.has_ended() {
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
    pub(crate) fn store_answered<T>(&self, result: &Result<T, StoreError>) {
        let has_one_member = self.node.store.cluster().is_none();
        match result {
            Err(StoreError::SessionGone) => self.persistence.gone.store(true, Ordering::Relaxed),
            // In a store with one member only the next owner of the session can have ended a stream that its writer did not
            // end, or have a later epoch. In a cluster both concern one stream.
            Err(StoreError::Sealed) if has_one_member => self.persistence.gone.store(true, Ordering::Relaxed),
            Err(StoreError::Conflict { epoch, .. }) if has_one_member && *epoch > self.epoch => {
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
        PendingEnd(self.has_record().then(|| (Arc::clone(&self.node), self.key.clone())))
    }
}
