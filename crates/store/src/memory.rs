//! Everything in this process's memory: the default, and the reference for every other backend.

mod aging;
mod stores;

use crate::{Batch, Event, Retention, SessionKey, SessionRecord, Signal, StoreError, StreamKey};
use aging::Aging;
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use rethread_proto::Ordinal;
use rethread_proto::clock::Wall;
use rethread_proto::session::stream::Log;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{broadcast, watch};

/// How much the memory backend keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Per stream.
    pub stream: Retention,
    /// How many ended streams of one session; the oldest is forgotten first.
    pub ended_streams_per_session: usize,
    /// All streams together, in bytes. When it is reached, the streams that ended longest ago become tombstones.
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

/// The memory backend. Cheap to clone: clones share everything, as nodes share a database.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    shards: [RwLock<Shard>; SHARDS],
    hasher: RandomState,
    aging: Mutex<Aging>,
    held: AtomicUsize,
    limits: MemoryLimits,
    clock: fn() -> Wall,
    bus: broadcast::Sender<Signal>,
}

const SHARDS: usize = 64;
/// What a stream costs beside its events, tombstones included.
const STREAM_OVERHEAD: usize = 512;
/// Signals that a slow listener may be behind before it has to assume that everything changed.
const BUS_DEPTH: usize = 1024;

type Shard = HashMap<SessionKey, Arc<Mutex<Slot>>, RandomState>;

struct Slot {
    record: SessionRecord,
    open: bool,
    touched: Wall,
    high_water: Ordinal,
    /// Sorted by ordinal: streams come at the back and are mostly forgotten from the front, and boxes cost an idle session
    /// next to nothing.
    streams: VecDeque<(Ordinal, Box<Entry>)>,
    ended: VecDeque<Ordinal>,
}

struct Entry {
    log: Log,
    watch: Option<watch::Sender<u64>>,
}

/// What an append led to.
#[derive(Default)]
struct Appended {
    ended: bool,
    forgotten: usize,
}

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

    /// An empty store that takes the time from `clock`: for tests.
    pub fn with_clock(limits: MemoryLimits, clock: fn() -> Wall) -> Self {
        MemoryStore(Arc::new(Inner {
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::default(),
            aging: Mutex::default(),
            held: AtomicUsize::new(0),
            limits,
            clock,
            bus: broadcast::Sender::new(BUS_DEPTH),
        }))
    }

    /// Bytes of payload and bookkeeping held for replay.
    pub fn held_bytes(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Streams known, tombstones included.
    pub fn streams(&self) -> usize {
        let slots = |shard: &RwLock<Shard>| shard.read().values().map(|s| s.lock().streams.len()).sum::<usize>();
        self.0.shards.iter().map(slots).sum()
    }

    /// Sessions known.
    pub fn sessions(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.read().len()).sum()
    }
}

impl Inner {
    fn shard(&self, key: &SessionKey) -> &RwLock<Shard> {
        // The session id alone spreads well enough; the owner is compared, not hashed twice.
        &self.shards[self.hasher.hash_one(&key.session) as usize % SHARDS]
    }

    fn slot(&self, key: &SessionKey) -> Option<Arc<Mutex<Slot>>> {
        self.shard(key).read().get(key).cloned()
    }

    fn append(&self, key: &StreamKey, batch: Batch) -> Result<(), StoreError> {
        let slot = self.slot(&key.session).ok_or(StoreError::SessionGone)?;
        let mut size = STREAM_OVERHEAD + batch.events.iter().map(Event::cost).sum::<usize>();
        let fits = self.has_room(size) || {
            if slot.lock().find(key.ordinal).is_ok() {
                size -= STREAM_OVERHEAD;
            }
            self.make_room(size)
        };
        let appended = {
            let mut slot = slot.lock();
            if !slot.open {
                return Err(StoreError::SessionGone);
            }
            if !fits && !slot.make_room(key.ordinal, size, self) {
                return Err(StoreError::Full);
            }
            slot.append(key.ordinal, batch, &self.limits, &self.held)?
        };
        if appended.ended {
            let mut aging = self.aging.lock();
            aging.ended((self.clock)(), key.clone());
            aging.forgotten(appended.forgotten);
            if aging.wants_compaction() {
                aging.compact(|key| self.with_stream(key, |_| ()).is_ok());
            }
        }
        Ok(())
    }

    fn has_room(&self, size: usize) -> bool {
        self.held.load(Ordering::Relaxed) + size <= self.limits.total_bytes
    }

    /// Frees room for `size` more bytes (design D4): the streams that ended longest ago become tombstones, a sixteenth of
    /// the whole at a time so that this is not done for every append; then, if need be, tombstones are forgotten.
    fn make_room(&self, size: usize) -> bool {
        let total = self.limits.total_bytes;
        if self.has_room(size) || size > total {
            return size <= total;
        }
        while !self.has_room(size + total / 16) {
            let Some((at, key)) = self.aging.lock().pop_whole() else {
                break;
            };
            let Some(slot) = self.slot(&key.session) else { continue };
            let buried = slot.lock().entry(key.ordinal).map(|entry| entry.log.bury());
            if let Some(freed) = buried {
                self.held.fetch_sub(freed, Ordering::Relaxed);
                self.aging.lock().buried(at, key);
            }
        }
        while !self.has_room(size) {
            let Some(key) = self.aging.lock().pop_tomb() else {
                return false;
            };
            if let Some(slot) = self.slot(&key.session) {
                self.forget(&mut slot.lock(), key.ordinal);
            }
        }
        true
    }

    /// Forgets a stream; true if it had ended.
    fn forget(&self, slot: &mut Slot, ordinal: Ordinal) -> bool {
        let ended = slot.ended.iter().position(|o| *o == ordinal);
        if let Some(at) = ended {
            slot.ended.remove(at); // near the front: what ended first is forgotten first
        }
        if let Some(entry) = slot.remove(ordinal) {
            self.held
                .fetch_sub(entry.log.bytes() + STREAM_OVERHEAD, Ordering::Relaxed);
        }
        ended.is_some()
    }

    /// Forgets every stream of a session; returns how many had ended.
    fn forget_all(&self, slot: &mut Slot) -> usize {
        for (_, entry) in slot.streams.drain(..) {
            let freed = entry.log.bytes() + STREAM_OVERHEAD;
            self.held.fetch_sub(freed, Ordering::Relaxed);
        }
        std::mem::take(&mut slot.ended).len()
    }

    fn forget_session(&self, key: &SessionKey) {
        let Some(slot) = self.slot(key) else { return };
        let mut slot = slot.lock();
        let (ended, open) = (self.forget_all(&mut slot), slot.open);
        drop(slot);
        self.aging.lock().forgotten(ended);
        if !open {
            self.shard(key).write().remove(key);
        }
    }

    /// Ends the sessions that nobody used for `idle`.
    fn expire(&self, idle: Duration) -> usize {
        let now = (self.clock)();
        let mut expired = 0;
        for shard in &self.shards {
            let sessions: Vec<_> = shard.read().iter().map(|(k, s)| (k.clone(), Arc::clone(s))).collect();
            for (key, slot) in sessions {
                let mut slot = slot.lock();
                if !slot.open || now.since(slot.touched) < idle {
                    continue;
                }
                slot.open = false;
                drop(slot);
                self.forget_session(&key);
                expired += 1;
            }
        }
        expired
    }

    fn forget_aged(&self) {
        let now = (self.clock)();
        loop {
            let aged = self.aging.lock().pop_aged(now, self.limits.stream.age);
            let Some(key) = aged else { return };
            if let Some(slot) = self.slot(&key.session) {
                self.forget(&mut slot.lock(), key.ordinal);
            }
        }
    }

    fn with_stream<T>(&self, key: &StreamKey, read: impl FnOnce(&Log) -> T) -> Result<T, StoreError> {
        let slot = self.slot(&key.session).ok_or(StoreError::UnknownStream)?;
        let mut slot = slot.lock();
        slot.entry(key.ordinal)
            .map(|entry| read(&entry.log))
            .ok_or(StoreError::UnknownStream)
    }
}

impl Slot {
    fn find(&self, ordinal: Ordinal) -> Result<usize, usize> {
        // Most appends are for the newest stream, or begin the next.
        match self.streams.back() {
            Some((newest, _)) if *newest == ordinal => Ok(self.streams.len() - 1),
            Some((newest, _)) if *newest < ordinal => Err(self.streams.len()),
            _ => self.streams.binary_search_by_key(&ordinal, |(o, _)| *o),
        }
    }

    fn entry(&mut self, ordinal: Ordinal) -> Option<&mut Entry> {
        let at = self.find(ordinal).ok()?;
        Some(&mut self.streams[at].1)
    }

    fn remove(&mut self, ordinal: Ordinal) -> Option<Box<Entry>> {
        let at = self.find(ordinal).ok()?;
        self.streams.remove(at).map(|(_, entry)| entry)
    }

    /// The last resort: a stream makes room for its own next events.
    fn make_room(&mut self, ordinal: Ordinal, size: usize, store: &Inner) -> bool {
        let Some(entry) = self.entry(ordinal) else { return false };
        let before = entry.log.bytes();
        entry.log.evict(&Retention {
            bytes: before.saturating_sub(size),
            ..store.limits.stream
        });
        store.held.fetch_sub(before - entry.log.bytes(), Ordering::Relaxed);
        store.has_room(size)
    }

    /// Appends and evicts.
    fn append(
        &mut self,
        ordinal: Ordinal,
        mut batch: Batch,
        limits: &MemoryLimits,
        held: &AtomicUsize,
    ) -> Result<Appended, StoreError> {
        let found = self.find(ordinal);
        let fresh = match (found, batch.facts.take()) {
            (Ok(_), _) => None,
            (Err(_), Some(facts)) => Some(Log::new(facts, batch.epoch)),
            (Err(_), None) => return Err(StoreError::UnknownStream),
        };
        let at = match (found, fresh) {
            (Err(at), Some(mut log)) => {
                log.append(batch)?; // before it is inserted: what does not fit leaves no empty stream behind
                held.fetch_add(log.bytes() + STREAM_OVERHEAD, Ordering::Relaxed);
                self.streams.insert(at, (ordinal, Box::new(Entry { log, watch: None })));
                self.high_water = self.high_water.max(ordinal);
                at
            }
            (Ok(at), _) | (Err(at), None) => {
                let log = &mut self.streams[at].1.log;
                if log.is_sealed() {
                    log.append(batch)?;
                    return Ok(Appended::default()); // a repeated append of the last batch: it ended before
                }
                let before = log.bytes();
                log.append(batch)?;
                held.fetch_add(log.bytes(), Ordering::Relaxed);
                held.fetch_sub(before, Ordering::Relaxed);
                at
            }
        };
        let entry = &mut self.streams[at].1;
        let before = entry.log.bytes();
        entry.log.evict(&limits.stream);
        held.fetch_sub(before - entry.log.bytes(), Ordering::Relaxed);
        if let Some(watch) = &entry.watch {
            watch.send_modify(|n| *n += 1);
        }
        let ended = entry.log.is_sealed();
        let mut forgotten = 0;
        if ended {
            self.ended.push_back(ordinal);
            while self.ended.len() > limits.ended_streams_per_session {
                let Some(entry) = self.ended.pop_front().and_then(|oldest| self.remove(oldest)) else {
                    continue;
                };
                held.fetch_sub(entry.log.bytes() + STREAM_OVERHEAD, Ordering::Relaxed);
                forgotten += 1;
            }
        }
        Ok(Appended { ended, forgotten })
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
