//! Commits: operations become groups of the log, one group at a time.
//!
//! One thread at a time holds the *lead*: it builds and writes groups. With [`Sync::Interval`] and [`Sync::Os`] a caller takes the lead and
//! commits its own operation on its own thread. Operations that arrive meanwhile wait in the queue, and the leader commits
//! them together afterwards. With [`Sync::Always`] one thread leads for ever: every group waits for the disk, and all
//! operations that arrived during the wait share the next one.
//!
//! A write into the page cache takes microseconds, unless the system is short of clean pages. Then every write can take much
//! longer, and must not block threads of the async runtime: after several slow writes the thread leads for a while in every
//! mode. One slow write alone says nothing, because a thread can lose its processor at any moment.

use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::chain;
use crate::group::GroupBuffer;
use crate::log::Log;
use crate::op::{Op, Outcome};
use crate::options::{Options, Sync};
use crate::upkeep::Signal;
use crate::watches::Watches;
use parking_lot::{Condvar, Mutex};
use rethread_store::{BroadcastId, Seq, Signal as BusSignal, StoreError, StoreFuture, StreamKey};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, oneshot};

/// Operations that may wait. Beyond: a caller waits for room.
const MAX_QUEUED_OPS: u32 = 4096;
/// A large operation counts as several: one more for each of these. So 64 MiB may wait.
const BYTES_PER_PLACE: usize = 16 << 10;
/// Operations in one group.
const MAX_GROUP_OPS: usize = 2048;
/// Bytes in one group, unless one operation alone is larger.
const MAX_GROUP_BYTES: usize = 4 << 20;
/// Groups that a caller commits for others before it hands over to the thread.
const MAX_FOREIGN_GROUPS: usize = 4;
/// A write that takes longer blocks a thread of the runtime noticeably.
const SLOW_WRITE: Duration = Duration::from_millis(5);
/// Slow writes that are too many. Each is forgiven after `FAST_WRITES` others.
const SLOW_WRITES: u32 = 3;
const FAST_WRITES: u32 = 16;
/// How long the thread leads after too many slow writes.
const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// Signals that wait for one subscriber of the bus.
const MAX_QUEUED_SIGNALS: usize = 1024;
/// A spare buffer that is larger is dropped.
const MAX_SPARE_BYTES: u64 = 1 << 20;

/// Everything that the handles and the threads of a store share.
pub(crate) struct Core {
    pub(crate) options: Arc<Options>,
    pub(crate) dir: PathBuf,
    pub(crate) state: Mutex<State>,
    queue: Mutex<Queue>,
    /// Wakes the thread, which leads when operations wait and nobody else leads.
    wake: Condvar,
    /// Wakes [`Core::while_leading`].
    lead_is_free: Condvar,
    room: Arc<Semaphore>,
    spare: Mutex<Option<GroupBuffer>>,
    /// Grows with slow writes.
    slow_score: AtomicU32,
    pub(crate) watches: Watches,
    pub(crate) bus: broadcast::Sender<(BroadcastId, BusSignal)>,
    pub(crate) upkeep: Signal,
    /// Reads and replays that found a damaged stream.
    pub(crate) damaged: AtomicU64,
}

/// The log of the store, if it works.
pub(crate) enum State {
    Up {
        engine: Box<Engine>,
        log: Arc<Log>,
    },
    Down {
        reason: StoreError,
        /// The directory stays locked, unless it is gone.
        locked: Option<Arc<DataDir>>,
    },
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether somebody leads.
    led: bool,
    /// Callers of [`Core::while_leading`] that wait.
    leaders: usize,
    /// Until then only the thread leads.
    slow_until: Option<Instant>,
    closed: bool,
}

struct Waiting {
    op: Op,
    reply: oneshot::Sender<Outcome>,
    _room: OwnedSemaphorePermit,
}

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the log cannot be written")]
    Write(#[source] io::Error),
    #[error("the log cannot be synced")]
    Sync(#[source] io::Error),
    #[error("the data directory is gone")]
    Gone,
}

impl Core {
    pub(crate) fn new(options: Arc<Options>, dir: PathBuf, engine: Engine, log: Log) -> Self {
        Core {
            options,
            dir,
            state: Mutex::new(State::Up {
                engine: Box::new(engine),
                log: Arc::new(log),
            }),
            queue: Mutex::default(),
            wake: Condvar::new(),
            lead_is_free: Condvar::new(),
            room: Arc::new(Semaphore::new(MAX_QUEUED_OPS as usize)),
            spare: Mutex::default(),
            slow_score: AtomicU32::new(0),
            watches: Watches::default(),
            bus: broadcast::Sender::new(MAX_QUEUED_SIGNALS),
            upkeep: Signal::default(),
            damaged: AtomicU64::new(0),
        }
    }

    /// Commits an operation. It is done or in the queue when this returns, if there is room. So the operations of one caller
    /// are done in order, and dropping the future changes nothing.
    pub(crate) fn submit(self: &Arc<Self>, op: Op) -> StoreFuture<Outcome> {
        let mut queue = self.queue.lock();
        if self.options.sync != Sync::Always && !queue.led && queue.waiting.is_empty() && !queue.is_slow() {
            queue.led = true;
            drop(queue);
            return StoreFuture::ready(self.lead(&op));
        }
        let (reply, outcome) = oneshot::channel();
        let places = u32::try_from(op.bytes() / BYTES_PER_PLACE).unwrap_or(MAX_QUEUED_OPS);
        let places = places.saturating_add(1).min(MAX_QUEUED_OPS);
        let received = |outcome: Result<Outcome, _>| outcome.unwrap_or_else(|_| Err(closed()));
        match Arc::clone(&self.room).try_acquire_many_owned(places) {
            Ok(room) => {
                self.push(&mut queue, Waiting { op, reply, _room: room });
                StoreFuture::later(async move { received(outcome.await) })
            }
            Err(_) => {
                drop(queue);
                let core = Arc::clone(self);
                StoreFuture::later(async move {
                    let Ok(room) = Arc::clone(&core.room).acquire_many_owned(places).await else {
                        return Err(closed());
                    };
                    core.push(&mut core.queue.lock(), Waiting { op, reply, _room: room });
                    drop(core); // a store can be closed while this waits
                    received(outcome.await)
                })
            }
        }
    }

    fn push(&self, queue: &mut Queue, waiting: Waiting) {
        if queue.closed {
            let _ = waiting.reply.send(Err(closed()));
            return;
        }
        queue.waiting.push_back(waiting);
        if !queue.led {
            self.wake.notify_one();
        }
    }

    /// Commits an operation, and some of those that arrive meanwhile.
    fn lead(&self, op: &Op) -> Outcome {
        let mut outcome = Err(closed());
        let committed = self.commit(|engine| outcome = engine.run(op));
        for _ in 0..MAX_FOREIGN_GROUPS {
            let Some(group) = self.next_group() else {
                return committed.and(outcome);
            };
            self.commit_group(group);
        }
        self.release_lead(&mut self.queue.lock());
        committed.and(outcome)
    }

    /// The operations of the next group. Gives the lead up if none waits.
    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
            self.release_lead(&mut queue);
            return None;
        }
        Some(queue.take_group())
    }

    /// Gives the lead up. Wakes a thread only if it has something to do: most commits find nobody waiting.
    fn release_lead(&self, queue: &mut Queue) {
        queue.led = false;
        if queue.leaders > 0 {
            self.lead_is_free.notify_one();
        } else if !queue.waiting.is_empty() || queue.closed {
            self.wake.notify_one();
        }
    }

    fn commit_group(&self, group: Vec<Waiting>) {
        let mut outcomes = Vec::with_capacity(group.len());
        let committed = self.commit(|engine| outcomes.extend(group.iter().map(|waiting| engine.run(&waiting.op))));
        if committed.is_err() {
            outcomes.clear();
        }
        let outcomes = outcomes.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for (waiting, outcome) in group.into_iter().zip(outcomes) {
            let failed = || committed.clone().map(|()| 0);
            let _ = waiting.reply.send(outcome.unwrap_or_else(failed)); // a caller that has gone needs no answer
        }
    }

    /// Leads when nobody else does and operations wait, until the store is closed.
    pub(crate) fn run(&self) {
        loop {
            let mut queue = self.queue.lock();
            while queue.led || queue.leaders > 0 || (queue.waiting.is_empty() && !queue.closed) {
                self.wake.wait(&mut queue);
            }
            if queue.waiting.is_empty() {
                return;
            }
            queue.led = true;
            let group = queue.take_group();
            drop(queue);
            self.commit_group(group);
            self.release_lead(&mut self.queue.lock());
        }
    }

    /// Runs `work` while nobody commits.
    pub(crate) fn while_leading<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut queue = self.queue.lock();
        queue.leaders += 1;
        while queue.led {
            self.lead_is_free.wait(&mut queue);
        }
        queue.leaders -= 1;
        queue.led = true;
        drop(queue);
        let done = work();
        self.release_lead(&mut self.queue.lock());
        done
    }

    /// Commits an operation on this thread, between the groups of callers.
    pub(crate) fn commit_alone(&self, op: &Op) -> Outcome {
        self.while_leading(|| {
            let mut outcome = Err(closed());
            let committed = self.commit(|engine| outcome = engine.run(op));
            committed.and(outcome)
        })
    }

    /// Refuses new operations. The queued ones are still committed.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
    }

    /// Builds a group, writes it, and acknowledges it. Only the leader calls this.
    fn commit(&self, build: impl FnOnce(&mut Engine)) -> Result<(), StoreError> {
        let (log, group, effects, commit, is_full) = {
            let mut state = self.state.lock();
            let (engine, log) = match &mut *state {
                State::Up { engine, log } => (engine, log),
                State::Down { reason, .. } => return Err(reason.clone()),
            };
            let spare = self.spare.lock().take();
            let spare = spare.unwrap_or_else(|| GroupBuffer::new(log.dir.store()));
            engine.begin_group(self.watches.any());
            build(engine);
            let (group, effects) = engine.finish_group(log.durable(), spare);
            let is_full = u64::from(engine.end.offset) >= self.options.segment_bytes();
            (Arc::clone(log), group, effects, engine.commit, is_full)
        };
        if let Some(group) = group {
            let written = self.write(&log, &group, commit);
            let rolled = written.and_then(|()| if is_full { self.roll(&log) } else { Ok(()) });
            rolled.map_err(|failure| self.fail(&log, &failure))?;
            if group.len() <= MAX_SPARE_BYTES {
                *self.spare.lock() = Some(group);
            }
        }
        if log.has_failed() {
            return Err(self.reason());
        }
        log.publish(commit);
        self.watches.publish(&effects);
        Ok(())
    }

    fn write(&self, log: &Log, group: &GroupBuffer, commit: u64) -> Result<(), Failure> {
        if !log.dir.is_there() {
            return Err(Failure::Gone);
        }
        let start = Instant::now();
        let first = log.write(group, commit).map_err(Failure::Write)?;
        match self.options.sync {
            Sync::Always => log.sync().map_err(Failure::Sync)?,
            Sync::Interval(_) | Sync::Os => {
                if self.count_slow(start.elapsed() > SLOW_WRITE) {
                    tracing::debug!("writes to the log are slow");
                    self.queue.lock().slow_until = Some(Instant::now() + SLOW_PERIOD);
                }
                if first {
                    self.upkeep.wake();
                }
            }
        }
        Ok(())
    }

    /// Counts a write. True if there were too many slow ones.
    fn count_slow(&self, is_slow: bool) -> bool {
        let score = self.slow_score.load(Ordering::Relaxed); // only the leader changes it
        let score = match is_slow {
            true => score + FAST_WRITES,
            false => score.saturating_sub(1),
        };
        let too_many = score > (SLOW_WRITES - 1) * FAST_WRITES;
        self.slow_score
            .store(if too_many { 0 } else { score }, Ordering::Relaxed);
        too_many
    }

    /// Continues with the next segment.
    fn roll(&self, log: &Log) -> Result<(), Failure> {
        let segment = log.roll().map_err(Failure::Write)?;
        if let State::Up { engine, .. } = &mut *self.state.lock() {
            engine.roll(log.dir.store(), segment);
        }
        self.upkeep.wake();
        Ok(())
    }

    /// Takes the store down until upkeep opens it again. Nothing of the current group was acknowledged.
    pub(crate) fn fail(&self, failed: &Arc<Log>, failure: &Failure) -> StoreError {
        let is_full = match failure {
            Failure::Write(error) | Failure::Sync(error) => is_storage_full(error),
            Failure::Gone => false,
        };
        let reason = match is_full {
            true => StoreError::Full,
            false => StoreError::unavailable(chain(failure)),
        };
        let mut state = self.state.lock();
        if let State::Up { log, .. } = &*state
            && Arc::ptr_eq(log, failed)
        {
            tracing::error!(
                dir = %self.dir.display(),
                reason = %chain(failure),
                "the embedded store failed: nothing is stored until it works again"
            );
            failed.fail();
            let locked = (!matches!(failure, Failure::Gone)).then(|| Arc::clone(&failed.dir));
            *state = State::Down {
                reason: reason.clone(),
                locked,
            };
            self.upkeep.wake();
        }
        reason
    }

    /// Why the store is down.
    pub(crate) fn reason(&self) -> StoreError {
        match &*self.state.lock() {
            State::Down { reason, .. } => reason.clone(),
            State::Up { .. } => StoreError::unavailable("the embedded store was opened again meanwhile"),
        }
    }

    /// Reads the index. Fails if the store is down.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Engine, &Arc<Log>) -> T) -> Result<T, StoreError> {
        match &*self.state.lock() {
            State::Up { engine, log } => Ok(read(engine, log)),
            State::Down { reason, .. } => Err(reason.clone()),
        }
    }

    /// Remembers damaged events of a stream, so that it accepts no append.
    pub(crate) fn mark_damaged(&self, key: &StreamKey, damaged: &[Seq]) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        if let State::Up { engine, .. } = &mut *self.state.lock()
            && let Some(session) = engine.index.session_number(&key.session)
        {
            for seq in damaged {
                engine.index.mark_damaged(session, key.ordinal, *seq);
            }
        }
    }

    /// Excludes a segment from compaction.
    pub(crate) fn exclude_segment(&self, segment: u32) {
        if let State::Up { engine, .. } = &mut *self.state.lock() {
            engine.index.segments.set_damaged(segment);
        }
    }
}

impl Queue {
    fn is_slow(&mut self) -> bool {
        if self.slow_until.is_some_and(|until| Instant::now() >= until) {
            self.slow_until = None;
        }
        self.slow_until.is_some()
    }

    fn take_group(&mut self) -> Vec<Waiting> {
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            bytes += waiting.op.bytes();
            bytes <= MAX_GROUP_BYTES
        };
        let count = self.waiting.iter().take(MAX_GROUP_OPS).take_while(fits).count();
        self.waiting.drain(..count.max(1)).collect()
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::unavailable("the embedded store is closed")
}

pub(crate) fn is_storage_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery;

    /// The thread is told to end while somebody else leads, and must notice it afterwards.
    #[test]
    fn thread_ends_when_the_store_is_closed_under_another_lead() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Arc::new(DataDir::lock(folder.path(), true).unwrap());
        let recovered = recovery::recover(&dir).unwrap();
        let options = Arc::new(Options::default());
        let (engine, log) = Engine::open(Arc::clone(&options), dir, recovered);
        let core = Arc::new(Core::new(options, folder.path().to_owned(), engine, log));
        let (ended, has_ended) = std::sync::mpsc::channel();
        let thread = Arc::clone(&core);
        std::thread::spawn(move || {
            thread.run();
            let _ = ended.send(());
        });
        core.while_leading(|| {
            core.close();
            assert!(
                has_ended.recv_timeout(Duration::from_millis(50)).is_err(),
                "nobody else leads meanwhile"
            );
        });
        assert!(
            has_ended.recv_timeout(Duration::from_secs(10)).is_ok(),
            "the thread ends"
        );
    }
}
