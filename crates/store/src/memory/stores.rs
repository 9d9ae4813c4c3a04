//! The store traits of the memory backend.

use super::{MemoryStore, Slot};
use crate::{
    Appended, Batch, BroadcastId, Bus, EventStore, Incarnation, IsLive, Page, PushQueueStore, QueueUpdate, ReadLimit,
    Retention, Seq, SessionKey, SessionRecord, SessionStore, SessionView, Signal, Store, StoreError, StoreFuture,
    StoredQueue, StoredSession, StreamKey, StreamStatus, Subscription, Updated, Watch,
};
use parking_lot::Mutex;
use rethread_proto::Ordinal;
use rethread_proto::stream::Log;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

impl EventStore for MemoryStore {
    fn append(&self, key: &StreamKey, batch: Batch) -> StoreFuture<Result<Appended, StoreError>> {
        StoreFuture::ready(self.0.append(key, batch).map(|()| Appended::default()))
    }

    fn read_after(&self, key: &StreamKey, after: Seq, limit: ReadLimit) -> StoreFuture<Result<Page, StoreError>> {
        StoreFuture::ready(
            self.0
                .with_stream(key, |log| log.read_after(after, limit.events, limit.bytes)),
        )
    }

    fn status(&self, key: &StreamKey) -> StoreFuture<Result<StreamStatus, StoreError>> {
        StoreFuture::ready(self.0.with_stream(key, Log::status))
    }

    fn open_streams(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Ordinal>, StoreError>> {
        let open = |slot: Arc<Mutex<Slot>>| {
            let slot = slot.lock();
            let open = slot.streams.iter().filter(|(_, entry)| !entry.log.is_sealed());
            open.map(|(ordinal, _)| *ordinal).collect()
        };
        StoreFuture::ready(Ok(self.0.slot(key).map(open).unwrap_or_default()))
    }

    fn forget_stream(&self, key: &StreamKey) -> StoreFuture<Result<(), StoreError>> {
        if let Some(slot) = self.0.slot(&key.session) {
            slot.lock().forget(key.ordinal, &self.0.held);
        }
        StoreFuture::ready(Ok(()))
    }

    fn forget_session(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        self.0.forget_session(key);
        StoreFuture::ready(Ok(()))
    }

    fn watch(&self, key: &StreamKey) -> Watch {
        let dead = || watch::channel(0).1;
        let Some(slot) = self.0.slot(&key.session) else {
            return Watch::new(dead());
        };
        let mut slot = slot.lock();
        let Some(entry) = slot.entry(key.ordinal) else {
            return Watch::new(dead());
        };
        let sender = entry.watch.get_or_insert_with(|| watch::Sender::new(0));
        Watch::new(sender.subscribe())
    }

    fn retention(&self) -> Retention {
        self.0.limits.stream
    }

    fn retained_bytes(&self) -> Option<usize> {
        Some(self.held_bytes())
    }

    fn sweep(&self) -> StoreFuture<Result<(), StoreError>> {
        self.0.forget_aged();
        StoreFuture::ready(Ok(()))
    }
}

impl SessionStore for MemoryStore {
    fn create(
        &self,
        key: &SessionKey,
        record: SessionRecord,
        _owned: bool,
    ) -> StoreFuture<Result<SessionView, StoreError>> {
        let view = SessionView::first(record.clone());
        let cost = record.cost();
        if !self.0.make_room(cost) {
            return StoreFuture::ready(Err(StoreError::Full));
        }
        self.0.held.fetch_add(cost, Ordering::Relaxed);
        let slot = Arc::new(Mutex::new(Slot::new(record, (self.0.clock)())));
        let replaced = self.0.shard(key).write().insert(key.clone(), slot);
        if let Some(replaced) = replaced {
            let mut replaced = replaced.lock();
            replaced.close(&self.0.held);
            replaced.forget_all(&self.0);
        }
        StoreFuture::ready(Ok(view))
    }

    fn open(&self, key: &SessionKey) -> StoreFuture<Result<SessionView, StoreError>> {
        let open = |slot: Arc<Mutex<Slot>>| {
            let mut slot = slot.lock();
            slot.record.epoch += u64::from(slot.open);
            self.0.stored(&slot).map(SessionView::restored)
        };
        StoreFuture::ready(self.0.slot(key).and_then(open).ok_or(StoreError::SessionGone))
    }

    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>> {
        let load = |slot: Arc<Mutex<Slot>>| self.0.stored(&slot.lock());
        StoreFuture::ready(self.0.slot(key).and_then(load).ok_or(StoreError::SessionGone))
    }

    fn update(
        &self,
        key: &SessionKey,
        revision: u64,
        record: SessionRecord,
    ) -> StoreFuture<Result<Updated, StoreError>> {
        let Some(slot) = self.0.slot(key) else {
            return StoreFuture::ready(Err(StoreError::SessionGone));
        };
        let growth = record.cost().saturating_sub(slot.lock().record.cost());
        let fits = growth == 0 || self.0.make_room(growth);
        let mut slot = slot.lock();
        StoreFuture::ready(if !slot.open {
            Err(StoreError::SessionGone)
        } else if slot.record.epoch != revision {
            let epoch = slot.record.epoch;
            Err(StoreError::Conflict { epoch, last: None })
        } else if !fits {
            Err(StoreError::Full)
        } else {
            slot.set_record(record.with_epoch(revision), &self.0.held);
            slot.touched = (self.0.clock)();
            Ok(Updated::new(revision, Vec::new()))
        })
    }

    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>> {
        let touch = |slot: Arc<Mutex<Slot>>| {
            let mut slot = slot.lock();
            slot.touched = (self.0.clock)();
            slot.open.then_some(())
        };
        StoreFuture::ready(self.0.slot(key).and_then(touch).ok_or(StoreError::SessionGone))
    }

    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>> {
        StoreFuture::ready(Ok(self.0.expire(idle, &is_live)))
    }

    fn end(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Incarnation>, StoreError>> {
        if let Some(slot) = self.0.slot(key) {
            let mut slot = slot.lock();
            slot.close(&self.0.held);
            slot.forget_queue(&self.0);
            if slot.streams.is_empty() {
                drop(slot);
                self.0.shard(key).write().remove(key);
            }
        }
        StoreFuture::ready(Ok(Vec::new()))
    }
}

impl Store for MemoryStore {
    fn push_queues(&self) -> Option<&dyn PushQueueStore> {
        Some(self)
    }
}

impl PushQueueStore for MemoryStore {
    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> StoreFuture<Result<(), StoreError>> {
        StoreFuture::ready(self.0.update_queue(key, update))
    }

    fn queue(&self, key: &SessionKey) -> StoreFuture<Result<StoredQueue, StoreError>> {
        let queue = |slot: Arc<Mutex<Slot>>| {
            let slot = slot.lock();
            slot.open.then(|| slot.queue.clone())
        };
        StoreFuture::ready(self.0.slot(key).and_then(queue).ok_or(StoreError::SessionGone))
    }
}

impl Bus for MemoryStore {
    fn publish(&self, signal: Signal) -> StoreFuture<Result<(), StoreError>> {
        // Fails only without subscribers.
        let _ = self.0.bus.send((BroadcastId::default(), signal));
        StoreFuture::ready(Ok(()))
    }

    fn subscribe(&self) -> Subscription {
        Subscription::new(self.0.bus.subscribe())
    }
}
