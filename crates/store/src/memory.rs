//! A store in the memory of this process: the default, and the reference for every other backend.

mod pressure;
mod slot;
mod stores;

use crate::{
    Batch, BroadcastId, Event, IsLive, QueueUpdate, Queued, Retention, SessionKey, Signal, StoreError, StoredSession,
    StreamKey,
};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use rethread_proto::clock::Wall;
use rethread_proto::stream::Log;
use rethread_proto::stream::retention::STREAM_OVERHEAD_BYTES;
use slot::Slot;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;

/// Limits of the memory backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryLimits {
    /// Limits of each stream.
    pub stream: Retention,
    /// Ended streams of one session. Beyond this, the stream that ended first is forgotten.
    pub ended_streams_per_session: usize,
    /// Bytes of all streams, push queues and session records together. Beyond this, the streams that ended first become
    /// tombstones.
    pub total_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        MemoryLimits {
            stream: Retention::default(),
            ended_streams_per_session: 1024,
            total_bytes: 256 << 20,
        }
    }
}

impl MemoryLimits {
    /// The same limits with another retention of streams.
    #[must_use]
    pub const fn with_stream(mut self, stream: Retention) -> Self {
        self.stream = stream;
        self
    }

    /// The same limits with another number of ended streams per session.
    #[must_use]
    pub const fn with_ended_streams_per_session(mut self, streams: usize) -> Self {
        self.ended_streams_per_session = streams;
        self
    }

    /// The same limits with another number of bytes in total.
    #[must_use]
    pub const fn with_total_bytes(mut self, bytes: usize) -> Self {
        self.total_bytes = bytes;
        self
    }
}

/// The memory backend. Clones are cheap and share all data, as nodes share a database.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    shards: [RwLock<Shard>; SHARDS],
    /// Held while one caller evicts for all.
    making_room: Mutex<()>,
    held: AtomicUsize,
    /// The part of `held` that belongs to push queues.
    queued: AtomicUsize,
    limits: MemoryLimits,
    clock: fn() -> Wall,
    bus: broadcast::Sender<(BroadcastId, Signal)>,
}

/// Locks of the table of sessions. Calls for sessions in the same shard may wait for each other.
const SHARDS: usize = 64;
/// Signals in the buffer of a subscriber. Beyond this, it gets [`BusEvent::Lagged`](crate::BusEvent::Lagged).
const MAX_QUEUED_SIGNALS: usize = 1024;

type Shard = HashMap<SessionKey, Arc<Mutex<Slot>>, RandomState>;

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new(MemoryLimits::default())
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new(limits: MemoryLimits) -> Self {
        MemoryStore::with_clock(limits, || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Wall::from_millis(since.as_millis() as u64)
        })
    }

    /// An empty store with a clock of the caller, for tests.
    pub fn with_clock(limits: MemoryLimits, clock: fn() -> Wall) -> Self {
        MemoryStore(Arc::new(Inner {
            shards: std::array::from_fn(|_| RwLock::default()),
            making_room: Mutex::default(),
            held: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            limits,
            clock,
            bus: broadcast::Sender::new(MAX_QUEUED_SIGNALS),
        }))
    }

    /// Bytes of events with their bookkeeping, and of session records.
    pub fn held_bytes(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Number of known streams, including tombstones.
    pub fn streams(&self) -> usize {
        let slots = |shard: &RwLock<Shard>| shard.read().values().map(|s| s.lock().streams.len()).sum::<usize>();
        self.0.shards.iter().map(slots).sum()
    }

    /// Number of known sessions.
    pub fn sessions(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.read().len()).sum()
    }
}

impl Inner {
    /// The session of a slot, if it has not ended.
    fn stored(&self, slot: &Slot) -> Option<StoredSession> {
        let idle = (self.clock)().since(slot.touched);
        slot.open
            .then(|| StoredSession::new(slot.record.clone(), slot.high_water, idle))
    }

    fn shard(&self, key: &SessionKey) -> &RwLock<Shard> {
        // The end of an id is random or counted. The table of the shard hashes the whole id.
        let id = key.session.as_bytes();
        let [.., tens, ones] = id else { return &self.shards[0] };
        &self.shards[(usize::from(*tens) * 16 + usize::from(*ones)) % SHARDS]
    }

    fn slot(&self, key: &SessionKey) -> Option<Arc<Mutex<Slot>>> {
        self.shard(key).read().get(key).cloned()
    }

    fn append(&self, key: &StreamKey, batch: Batch) -> Result<(), StoreError> {
        let slot = self.slot(&key.session).ok_or(StoreError::SessionGone)?;
        let fresh = STREAM_OVERHEAD_BYTES + batch.info.as_ref().map_or(0, |info| info.cost());
        let mut size = fresh + batch.events.iter().map(Event::cost).sum::<usize>();
        let fits = self.has_room(size) || {
            if slot.lock().find(key.ordinal).is_ok() {
                size -= fresh;
            }
            self.make_room(size)
        };
        let mut slot = slot.lock();
        if !slot.open {
            return Err(StoreError::SessionGone);
        }
        if !fits && !slot.make_room(key.ordinal, size, self) {
            return Err(StoreError::Full);
        }
        slot.append(key.ordinal, batch, self)
    }

    fn update_queue(&self, key: &SessionKey, update: QueueUpdate) -> Result<(), StoreError> {
        let slot = self.slot(key).ok_or(StoreError::SessionGone)?;
        let size = update.messages.iter().map(Queued::cost).sum();
        if self.queues_have_room(size) {
            self.make_room(size);
        }
        let mut slot = slot.lock();
        if !slot.open {
            return Err(StoreError::SessionGone);
        }
        slot.update_queue(update, self)
    }

    fn has_room(&self, size: usize) -> bool {
        self.held.load(Ordering::Relaxed) + size <= self.limits.total_bytes
    }

    /// Push queues may use a quarter of the total, so that messages without a reader do not displace streams.
    fn queues_have_room(&self, size: usize) -> bool {
        self.queued.load(Ordering::Relaxed) + size <= self.limits.total_bytes / 4
    }

    fn forget_session(&self, key: &SessionKey) {
        let Some(slot) = self.slot(key) else { return };
        let mut slot = slot.lock();
        slot.forget_all(self);
        let open = slot.open;
        drop(slot);
        if !open {
            self.shard(key).write().remove(key);
        }
    }

    /// Ends the sessions that were idle for `idle`. Touches those that live in this process instead.
    fn expire(&self, idle: Duration, is_live: &IsLive) -> usize {
        let now = (self.clock)();
        let mut expired = 0;
        for shard in &self.shards {
            let sessions: Vec<_> = shard.read().iter().map(|(k, s)| (k.clone(), Arc::clone(s))).collect();
            for (key, slot) in sessions {
                let is_idle = {
                    let mut slot = slot.lock();
                    slot.touched = slot.touched.min(now); // the clock may have been set back
                    slot.is_idle(now, idle)
                };
                if !is_idle {
                    continue;
                }
                let live = is_live(&key); // called without a lock
                let mut slot = slot.lock();
                if !slot.is_idle(now, idle) {
                    continue; // touched concurrently
                }
                if live {
                    slot.touched = now;
                    continue;
                }
                slot.close(&self.held);
                drop(slot);
                self.forget_session(&key);
                expired += 1;
            }
        }
        expired
    }

    fn forget_aged(&self) {
        let now = (self.clock)();
        for slot in self.slots() {
            slot.lock().forget_aged(now, self.limits.stream.age, &self.held);
        }
    }

    /// The slots of all sessions. No lock is held between them.
    fn slots(&self) -> impl Iterator<Item = Arc<Mutex<Slot>>> {
        let shard = |shard: &RwLock<Shard>| shard.read().values().cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(shard)
    }

    fn with_stream<T>(&self, key: &StreamKey, read: impl FnOnce(&Log) -> T) -> Result<T, StoreError> {
        let slot = self.slot(&key.session).ok_or(StoreError::UnknownStream)?;
        let mut slot = slot.lock();
        slot.entry(key.ordinal)
            .map(|entry| read(&entry.log))
            .ok_or(StoreError::UnknownStream)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.sessions())
            .field("held_bytes", &self.held_bytes())
            .finish()
    }
}
