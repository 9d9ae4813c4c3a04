//! The background thread: syncs, checkpoints, compaction, deletion of segments, expiry of ended streams, and recovery
//! after a failure. No caller waits for these.

use crate::checkpoint;
use crate::commit::{Core, Failure, State, is_storage_full};
use crate::compaction::Compaction;
use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::{OpenError, chain};
use crate::log::Log;
use crate::op::Op;
use crate::options::Sync;
use crate::recovery::{self, LastCheckpoint};
use rethread_store::StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Period of the checks of the clock and of the directory.
const TICK: Duration = Duration::from_secs(1);
/// Delays between attempts to reopen the log.
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(2);
/// Ticks without a new segment after which the spare segments are deleted.
const SPARE_TICKS: u32 = 10;
/// Slices of compaction per round.
const SLICES: usize = 16;

/// Wakes the upkeep thread.
#[derive(Default)]
pub(crate) struct Signal {
    thread: OnceLock<Thread>,
    closed: AtomicBool,
}

impl Signal {
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }
}

pub(crate) struct Upkeep {
    core: Arc<Core>,
    next_sync: Instant,
    next_tick: Instant,
    checkpoint: LastCheckpoint,
    /// The segment of the last attempt to write a checkpoint.
    tried: u32,
    compaction: Option<Compaction>,
    /// The head of the log at the last tick, and the ticks since it was new.
    head: (u32, u32),
    outage: Option<Outage>,
}

struct Outage {
    since: Instant,
    retry: Instant,
    wait: Duration,
}

impl Upkeep {
    /// The upkeep of a store that was recovered from `checkpoint`.
    pub(crate) fn new(core: Arc<Core>, checkpoint: LastCheckpoint) -> Self {
        let now = Instant::now();
        Upkeep {
            core,
            next_sync: now,
            next_tick: now + TICK,
            tried: checkpoint.segment,
            checkpoint,
            compaction: None,
            head: (0, 0),
            outage: None,
        }
    }

    /// Runs until the store is closed.
    pub(crate) fn run(mut self) {
        let core = Arc::clone(&self.core);
        core.upkeep.thread.get_or_init(thread::current);
        loop {
            let busy = self.round();
            if !busy && !core.upkeep.closed.load(Ordering::SeqCst) {
                thread::park_timeout(self.deadline().saturating_duration_since(Instant::now()));
            }
            if core.upkeep.closed.load(Ordering::SeqCst) {
                return self.close();
            }
        }
    }

    /// Does upkeep, or tries to reopen the log. True if more work is due at once.
    fn round(&mut self) -> bool {
        let Some(log) = self.log() else {
            self.reopen();
            return false;
        };
        self.work(&log).unwrap_or_else(|failure| {
            self.core.fail(&log, &failure);
            false
        })
    }

    fn log(&self) -> Option<Arc<Log>> {
        self.core.read(|_, log| Arc::clone(log)).ok()
    }

    fn deadline(&self) -> Instant {
        if let Some(outage) = &self.outage {
            return outage.retry;
        }
        let syncs = matches!(self.core.options.sync, Sync::Interval(_)) && self.log().is_some_and(|log| log.is_dirty());
        if syncs {
            self.next_sync.min(self.next_tick)
        } else {
            self.next_tick
        }
    }

    /// One round of upkeep. True if more work is due at once.
    fn work(&mut self, log: &Arc<Log>) -> Result<bool, Failure> {
        self.outage = None;
        let now = Instant::now();
        if !log.dir.is_there() {
            return Err(Failure::Gone); // upkeep deletes files by name, which must be those of this store
        }
        if let Sync::Interval(interval) = self.core.options.sync
            && now >= self.next_sync
            && log.is_dirty()
        {
            self.next_sync = now + interval;
            log.sync().map_err(Failure::Sync)?;
        }
        if let Err(error) = log.prepare() {
            // The commit that needs the segment tries again and reports the error.
            tracing::debug!(reason = %error, "the next segment of the store cannot be prepared");
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            while self.core.commit_alone(&Op::Sweep).is_ok_and(|forgotten| forgotten > 0) {}
            self.release_spares(log);
        }
        if self.checkpoint_is_due() {
            self.make_checkpoint(log)?;
        }
        self.retire_dead_segments(log);
        Ok(self.compact(log))
    }

    /// A checkpoint is due when the log has grown by a segment, and by at least the size of the last checkpoint. The
    /// new segment must have a group: then the checkpoint ends in it, and older segments can be deleted.
    fn checkpoint_is_due(&self) -> bool {
        let Ok(end) = self.core.read(|engine, _| engine.end) else {
            return false;
        };
        let grown = u64::from(end.segment.saturating_sub(self.checkpoint.segment));
        end.offset > 0 && end.segment > self.tried && grown * self.core.options.segment_bytes() >= self.checkpoint.bytes
    }

    /// Writes a checkpoint of the current state. Syncs the log first: a checkpoint must not be durable before its
    /// groups.
    fn make_checkpoint(&mut self, log: &Log) -> Result<(), Failure> {
        let encoded = self.core.while_leading(|| {
            self.core.read(|engine, _| {
                let end = engine.checkpoint_end();
                let bytes = checkpoint::encode(&engine.index, log.dir.store(), engine.commit, end);
                (bytes, engine.commit, end.segment, engine.end.segment)
            })
        });
        let Ok((bytes, commit, segment, head)) = encoded else {
            return Ok(()); // the store is down
        };
        self.tried = head; // a failed attempt is repeated with the next segment
        if commit == self.checkpoint.commit {
            return Ok(());
        }
        log.sync().map_err(Failure::Sync)?;
        match checkpoint::write(log.dir.log(), commit, &bytes, self.checkpoint.commit) {
            Ok(()) => {
                self.checkpoint = LastCheckpoint {
                    commit,
                    segment,
                    bytes: bytes.len() as u64,
                };
            }
            Err(error) => tracing::warn!(
                dir = %self.core.dir.display(),
                reason = %error,
                "a checkpoint of the store cannot be written; old segments stay"
            ),
        }
        Ok(())
    }

    /// Retires segments without references, once that is durable and no replay begins in them.
    fn retire_dead_segments(&self, log: &Log) {
        let (first_needed, durable) = (self.checkpoint.segment, log.durable());
        let dead = self.core.read(|engine, _| {
            let segments = engine.index.segments.iter();
            let is_dead = segments.filter(|(number, used)| {
                *number < first_needed && used.live == 0 && used.dead_since <= durable && *number != engine.end.segment
            });
            is_dead.map(|(number, _)| number).collect::<Vec<_>>()
        });
        for number in dead.unwrap_or_default() {
            if let Err(error) = log.retire(number) {
                tracing::warn!(segment = number, reason = %error, "a segment of the store cannot be deleted");
                return;
            }
            if let State::Up { engine, .. } = &mut *self.core.state.lock() {
                engine.index.segments.remove(number);
            }
        }
    }

    /// Frees the space of the spare segments when the log grows slowly.
    fn release_spares(&mut self, log: &Log) {
        let (head, ticks) = self.head;
        let ticks = if head == log.head() { ticks + 1 } else { 0 };
        self.head = (log.head(), ticks);
        if ticks >= SPARE_TICKS
            && let Err(error) = log.delete_spares()
        {
            tracing::warn!(reason = %error, "a spare segment of the store cannot be deleted");
        }
    }

    /// Runs up to `SLICES` slices of compaction. True if more remain.
    fn compact(&mut self, log: &Log) -> bool {
        for _ in 0..SLICES {
            let compaction = match self.compaction.take() {
                Some(compaction) => Some(compaction),
                None => Compaction::choose(&self.core, log),
            };
            let Some(mut compaction) = compaction else {
                return false;
            };
            if compaction.slice(&self.core, log) {
                self.compaction = Some(compaction);
            }
        }
        true
    }

    /// Tries to reopen the log when a retry is due.
    fn reopen(&mut self) {
        let outage = self.outage.get_or_insert_with(Outage::new);
        if Instant::now() < outage.retry {
            return;
        }
        let (core, since) = (Arc::clone(&self.core), outage.since);
        match core.while_leading(|| open_again(&core)) {
            Ok(checkpoint) => {
                tracing::info!(
                    dir = %core.dir.display(),
                    outage_ms = since.elapsed().as_millis() as u64,
                    "the embedded store works again"
                );
                *self = Upkeep::new(core, checkpoint);
            }
            Err(error) => {
                if let State::Down { reason, .. } = &mut *core.state.lock() {
                    *reason = error;
                }
                if let Some(outage) = &mut self.outage {
                    outage.wait = (outage.wait * 2).min(MAX_RETRY);
                    outage.retry = Instant::now() + outage.wait;
                }
            }
        }
    }

    /// Syncs the log and writes a checkpoint, so that the next start replays nothing.
    fn close(mut self) {
        let Some(log) = self.log() else { return };
        let closed = match log.sync() {
            Ok(()) if log.dir.is_there() => self.make_checkpoint(&log),
            Ok(()) => Err(Failure::Gone),
            Err(error) => Err(Failure::Sync(error)),
        };
        if let Err(failure) = closed {
            tracing::error!(
                dir = %self.core.dir.display(),
                reason = %chain(&failure),
                "the embedded store could not be synced when it was closed"
            );
        }
    }
}

impl Outage {
    fn new() -> Self {
        let now = Instant::now();
        Outage {
            since: now,
            retry: now + MIN_RETRY,
            wait: MIN_RETRY,
        }
    }
}

/// Reopens the log of a store that is down. Returns its checkpoint.
fn open_again(core: &Core) -> Result<LastCheckpoint, StoreError> {
    let told = |error: OpenError| match &error {
        OpenError::Io { source, .. } if is_storage_full(source) => StoreError::Full,
        _ => StoreError::unavailable(chain(&error)),
    };
    let locked = match &mut *core.state.lock() {
        State::Down { locked, .. } => locked.take(),
        State::Up { .. } => return Err(StoreError::unavailable("the embedded store is open")),
    };
    let dir = match locked.filter(|dir| dir.is_there()) {
        Some(dir) => dir,
        // Never create a missing directory: its disk may be unmounted. A directory that is back may be empty.
        None => Arc::new(DataDir::lock(&core.dir, false).map_err(told)?),
    };
    let probed = dir.probe().map_err(|error| dir.io("it cannot be written", error));
    let recovered = match probed.and_then(|()| recovery::recover(&dir)) {
        Ok(recovered) => recovered,
        Err(error) => {
            if let State::Down { locked, .. } = &mut *core.state.lock() {
                *locked = Some(dir); // until the next attempt
            }
            return Err(told(error));
        }
    };
    let checkpoint = recovered.checkpoint;
    let (mut engine, log) = Engine::open(Arc::clone(&core.options), dir, recovered);
    let mut state = core.state.lock();
    if let State::Down { watches, .. } = &mut *state {
        for (key, watches) in watches.drain() {
            watches.wake();
            if let Some(recovered) = engine.index.watches(&key) {
                *recovered = watches;
            }
        }
    }
    *state = State::Up {
        engine: Box::new(engine),
        log: Arc::new(log),
    };
    Ok(checkpoint)
}

#[cfg(test)]
mod power_cut;
#[cfg(test)]
mod reuse;
