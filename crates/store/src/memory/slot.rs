//! The stored data of one session.

use super::Inner;
use crate::{Batch, QueueUpdate, Queued, SessionRecord, StoreError, StoredQueue};
use bytes::Bytes;
use rethread_proto::Ordinal;
use rethread_proto::clock::Wall;
use rethread_proto::stream::Log;
use rethread_proto::stream::retention::STREAM_OVERHEAD_BYTES;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

pub(super) struct Slot {
    pub(super) record: SessionRecord,
    pub(super) open: bool,
    pub(super) touched: Wall,
    pub(super) high_water: Ordinal,
    /// Sorted by ordinal. Streams are added at the back and mostly forgotten from the front. Boxed, so that an idle
    /// session is small.
    pub(super) streams: VecDeque<(Ordinal, Box<Entry>)>,
    /// The ended streams with the time of their end, oldest first. The first `buried` of them are tombstones.
    ended: VecDeque<(Wall, Ordinal)>,
    buried: usize,
    pub(super) queue: StoredQueue,
}

pub(super) struct Entry {
    pub(super) log: Log,
    pub(super) watch: Option<watch::Sender<u64>>,
    /// The cost without events.
    fixed: usize,
}

impl Entry {
    fn size(&self) -> usize {
        self.log.bytes() + self.fixed
    }
}

impl Slot {
    pub(super) fn new(record: SessionRecord, now: Wall) -> Self {
        Slot {
            record,
            open: true,
            touched: now,
            high_water: Ordinal(0),
            streams: VecDeque::new(),
            ended: VecDeque::new(),
            buried: 0,
            queue: StoredQueue::default(),
        }
    }

    /// Whether the session was not used for `idle`.
    pub(super) fn is_idle(&self, now: Wall, idle: Duration) -> bool {
        self.open && now.since(self.touched) >= idle
    }

    /// Ends the session and drops its record.
    pub(super) fn close(&mut self, held: &AtomicUsize) {
        if std::mem::replace(&mut self.open, false) {
            held.fetch_sub(self.record.cost(), Ordering::Relaxed);
            (self.record.initialize_params, self.record.log_level) = (Bytes::new(), None);
            self.record.subscriptions.clear();
        }
    }

    /// Replaces the record of an open session. The caller has checked that it fits.
    pub(super) fn set_record(&mut self, record: SessionRecord, held: &AtomicUsize) {
        held.fetch_add(record.cost(), Ordering::Relaxed);
        held.fetch_sub(self.record.cost(), Ordering::Relaxed);
        self.record = record;
    }

    pub(super) fn find(&self, ordinal: Ordinal) -> Result<usize, usize> {
        // Most appends go to the newest stream or create the next one. Most forgotten streams are the oldest.
        match (self.streams.back(), self.streams.front()) {
            (Some((newest, _)), _) if *newest == ordinal => Ok(self.streams.len() - 1),
            (Some((newest, _)), _) if *newest < ordinal => Err(self.streams.len()),
            (_, Some((oldest, _))) if *oldest == ordinal => Ok(0),
            _ => self.streams.binary_search_by_key(&ordinal, |(o, _)| *o),
        }
    }

    pub(super) fn entry(&mut self, ordinal: Ordinal) -> Option<&mut Entry> {
        let at = self.find(ordinal).ok()?;
        Some(&mut self.streams[at].1)
    }

    /// The last resort: evicts events of a stream for its own next events.
    pub(super) fn make_room(&mut self, ordinal: Ordinal, size: usize, store: &Inner) -> bool {
        let Some(entry) = self.entry(ordinal) else { return false };
        let before = entry.log.bytes();
        entry
            .log
            .evict(&store.limits.stream.with_bytes(before.saturating_sub(size)));
        store.held.fetch_sub(before - entry.log.bytes(), Ordering::Relaxed);
        store.has_room(size)
    }

    /// Appends a batch, then evicts.
    pub(super) fn append(&mut self, ordinal: Ordinal, mut batch: Batch, store: &Inner) -> Result<(), StoreError> {
        let (limits, held) = (&store.limits, &store.held);
        let taken = batch.taken;
        if taken.is_some() {
            self.check_epoch(batch.epoch)?;
        }
        let found = self.find(ordinal);
        let fresh = match (found, batch.info.take()) {
            (Ok(_), _) => None,
            (Err(_), Some(info)) => Some((STREAM_OVERHEAD_BYTES + info.cost(), Log::new(info, batch.epoch))),
            (Err(_), None) => return Err(StoreError::UnknownStream),
        };
        let (at, before) = match (found, fresh) {
            (Err(at), Some((fixed, mut log))) => {
                log.append(batch)?; // before the insertion, so that a refused batch creates no stream
                let watch = None;
                self.streams
                    .insert(at, (ordinal, Box::new(Entry { log, watch, fixed })));
                self.high_water = self.high_water.max(ordinal);
                (at, 0)
            }
            (Ok(at), _) | (Err(at), None) => {
                let entry = &mut self.streams[at].1;
                if entry.log.is_sealed() {
                    entry.log.append(batch)?;
                    return Ok(()); // a repetition of the last batch: the stream ended before
                }
                let before = entry.size();
                entry.log.append(batch)?;
                (at, before)
            }
        };
        let entry = &mut self.streams[at].1;
        entry.log.evict(&limits.stream);
        let after = entry.size();
        if after >= before {
            held.fetch_add(after - before, Ordering::Relaxed);
        } else {
            held.fetch_sub(before - after, Ordering::Relaxed);
        }
        if let Some(watch) = &entry.watch {
            watch.send_modify(|n| *n += 1);
        }
        let ended = entry.log.is_sealed();
        if let Some(floor) = taken {
            self.change_queue(store, |queue| queue.raise_floor(floor));
        }
        if ended {
            self.ended.push_back(((store.clock)(), ordinal));
            while self.ended.len() > limits.ended_streams_per_session {
                self.forget_oldest(held);
            }
        }
        Ok(())
    }

    /// Forgets a stream.
    pub(super) fn forget(&mut self, ordinal: Ordinal, held: &AtomicUsize) {
        if let Some(at) = self.ended.iter().position(|(_, o)| *o == ordinal) {
            self.ended.remove(at); // cheap: the oldest ended streams are forgotten first
            self.buried -= usize::from(at < self.buried);
        }
        if let Some((_, entry)) = self.find(ordinal).ok().and_then(|at| self.streams.remove(at)) {
            held.fetch_sub(entry.size(), Ordering::Relaxed);
        }
    }

    fn check_epoch(&self, epoch: u64) -> Result<(), StoreError> {
        let stored = self.record.epoch;
        if epoch == stored {
            return Ok(());
        }
        Err(StoreError::Conflict {
            epoch: stored,
            last: None,
        })
    }

    /// Applies an update of the push queue.
    pub(super) fn update_queue(&mut self, update: QueueUpdate, store: &Inner) -> Result<(), StoreError> {
        self.check_epoch(update.epoch)?;
        let size: usize = update.messages.iter().map(Queued::cost).sum();
        if size > 0 {
            let more = size.saturating_sub(self.queue.bytes_up_to(update.floor));
            if !store.has_room(more) || !store.queues_have_room(more) {
                return Err(StoreError::Full);
            }
        }
        self.change_queue(store, |queue| queue.update(update.messages, update.floor));
        Ok(())
    }

    /// Changes the push queue and the byte counts.
    fn change_queue(&mut self, store: &Inner, change: impl FnOnce(&mut StoredQueue)) {
        let before = self.queue.bytes();
        change(&mut self.queue);
        let after = self.queue.bytes();
        for count in [&store.held, &store.queued] {
            count.fetch_add(after, Ordering::Relaxed);
            count.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// Forgets the push queue.
    pub(super) fn forget_queue(&mut self, store: &Inner) {
        self.change_queue(store, |queue| *queue = StoredQueue::default());
    }

    /// Forgets every stream, and the push queue.
    pub(super) fn forget_all(&mut self, store: &Inner) {
        self.forget_queue(store);
        let held = &store.held;
        let freed = self.streams.drain(..).map(|(_, entry)| entry.size()).sum();
        held.fetch_sub(freed, Ordering::Relaxed);
        self.ended = VecDeque::new();
        self.buried = 0;
    }

    /// Forgets the streams that ended more than `age` ago.
    pub(super) fn forget_aged(&mut self, now: Wall, age: Duration, held: &AtomicUsize) {
        while self.ended.front().is_some_and(|(at, _)| now.since(*at) >= age) {
            self.forget_oldest(held);
        }
    }

    /// When the oldest ended stream that still has events ended.
    pub(super) fn oldest_whole(&self) -> Option<Wall> {
        self.ended.get(self.buried).map(|(at, _)| *at)
    }

    /// When the stream of the oldest tombstone ended.
    pub(super) fn oldest_tomb(&self) -> Option<Wall> {
        self.ended.front().filter(|_| self.buried > 0).map(|(at, _)| *at)
    }

    /// Turns the oldest ended stream with events into a tombstone.
    pub(super) fn bury_oldest(&mut self, held: &AtomicUsize) {
        let Some((_, ordinal)) = self.ended.get(self.buried).copied() else {
            return;
        };
        self.buried += 1;
        if let Some(entry) = self.entry(ordinal) {
            let freed = entry.log.bury();
            held.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Forgets the stream that ended first.
    pub(super) fn forget_oldest(&mut self, held: &AtomicUsize) {
        if let Some((_, ordinal)) = self.ended.front().copied() {
            self.forget(ordinal, held);
        }
    }
}
