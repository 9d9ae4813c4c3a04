//! Commits: turns operations into groups of the log, one group at a time.
//!
//! One thread at a time is the *leader*: it builds and writes groups. With [`Sync::Interval`] and [`Sync::Os`] a caller
//! becomes the leader and commits its operation on its own thread. Operations that arrive during that commit wait in
//! the queue, and the leader commits them together afterwards. With [`Sync::Always`] the commit thread always leads:
//! every group waits for a sync, and all operations that arrive during the sync share the next group.
//!
//! A write into the page cache takes microseconds, unless the system is short of clean pages. Slow writes must not
//! block threads of the async runtime, so after several of them the commit thread leads for a while in every mode. A
//! single slow write does not count, because the scheduler can suspend a thread at any moment.

use crate::data_dir::DataDir;
use crate::engine::Engine;
use crate::error::chain;
use crate::group::GroupBuffer;
use crate::log::Log;
use crate::op::{Op, Outcome};
use crate::options::{Options, Sync};
use crate::record::Item;
use crate::upkeep::Signal;
use crate::watches::Watches;
use parking_lot::{Condvar, Mutex};
use rethread_store::{BroadcastId, Seq, Signal as BusSignal, StoreError, StoreFuture, StreamKey};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, oneshot};

/// Operations in the queue. Further callers wait for a permit.
const MAX_QUEUED_OPS: u32 = 4096;
/// An operation takes one more permit for each of these, which bounds the queue to 64 MiB.
const BYTES_PER_PERMIT: usize = 16 << 10;
/// Operations in one group.
const MAX_GROUP_OPS: usize = 2048;
/// Bytes in one group, unless one operation alone is larger.
const MAX_GROUP_BYTES: usize = 4 << 20;
/// Groups that a caller commits for others before the commit thread becomes the leader.
const MAX_FOREIGN_GROUPS: usize = 4;
/// How long a commit trusts the last look at the path of the directory. A look costs as much as a small write. It is
/// never longer than the interval of syncs, so a directory that disappears costs no more than a power cut.
const MAX_LOOK_AGE: Duration = Duration::from_millis(5);
/// A longer write counts as slow.
const SLOW_WRITE: Duration = Duration::from_millis(5);
/// Slow writes that make the commit thread lead. `FAST_WRITES` fast ones cancel one slow one.
const SLOW_WRITES: u32 = 3;
const FAST_WRITES: u32 = 16;
/// How long the commit thread leads after too many slow writes.
const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// Signals in the buffer of one subscriber of the bus.
const MAX_QUEUED_SIGNALS: usize = 1024;
/// A larger buffer is not reused.
const MAX_SPARE_BYTES: u64 = 1 << 20;

/// The state that the handles and the threads of a store share.
pub(crate) struct Core {
    pub(crate) options: Arc<Options>,
    pub(crate) dir: PathBuf,
    pub(crate) state: Mutex<State>,
    queue: Mutex<Queue>,
    /// Wakes the commit thread, which leads when operations wait and nobody else leads.
    wake: Condvar,
    /// Wakes [`Core::while_leading`].
    lead_is_free: Condvar,
    permits: Arc<Semaphore>,
    spare: Mutex<Option<GroupBuffer>>,
    /// Rises by `FAST_WRITES` with each slow write and falls by one with each fast one.
    slow_score: AtomicU32,
    pub(crate) bus: broadcast::Sender<(BroadcastId, BusSignal)>,
    pub(crate) upkeep: Signal,
    /// Reads that found damaged events.
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
        /// The lock of the directory, unless the directory is gone.
        locked: Option<Arc<DataDir>>,
        /// The watches of the streams, which go on after the recovery.
        watches: HashMap<StreamKey, Watches>,
    },
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether a thread leads.
    led: bool,
    /// Waiting callers of [`Core::while_leading`].
    leaders: usize,
    /// Until then only the commit thread leads.
    slow_until: Option<Instant>,
    closed: bool,
}

struct Waiting {
    op: Op,
    reply: oneshot::Sender<Outcome>,
    _permit: OwnedSemaphorePermit,
}

/// Why the store is down.
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
            permits: Arc::new(Semaphore::new(MAX_QUEUED_OPS as usize)),
            spare: Mutex::default(),
            slow_score: AtomicU32::new(0),
            bus: broadcast::Sender::new(MAX_QUEUED_SIGNALS),
            upkeep: Signal::default(),
            damaged: AtomicU64::new(0),
        }
    }

    /// Commits an operation. While the queue has permits, the operation is committed or queued when this returns. So
    /// the operations of one caller keep their order, and dropping the future does not cancel them.
    pub(crate) fn submit(self: &Arc<Self>, op: Op) -> StoreFuture<Outcome> {
        let mut queue = self.queue.lock();
        if self.options.sync != Sync::Always && !queue.led && queue.waiting.is_empty() && !queue.is_slow() {
            queue.led = true;
            drop(queue);
            return StoreFuture::ready(self.lead(&op));
        }
        let (reply, outcome) = oneshot::channel();
        let permits = u32::try_from(op.bytes() / BYTES_PER_PERMIT).unwrap_or(MAX_QUEUED_OPS);
        let permits = permits.saturating_add(1).min(MAX_QUEUED_OPS);
        let received = async move { outcome.await.unwrap_or_else(|_| Err(closed())) };
        match Arc::clone(&self.permits).try_acquire_many_owned(permits) {
            Ok(_permit) => {
                self.push(&mut queue, Waiting { op, reply, _permit });
                StoreFuture::later(received)
            }
            Err(_) => {
                drop(queue);
                let core = Arc::clone(self);
                StoreFuture::later(async move {
                    let permit = Arc::clone(&core.permits).acquire_many_owned(permits).await;
                    let _permit = permit.map_err(|_| closed())?;
                    core.push(&mut core.queue.lock(), Waiting { op, reply, _permit });
                    drop(core); // so that the store can be closed while this waits
                    received.await
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

    /// Commits an operation, and a bounded number of groups that arrive during the commit.
    fn lead(&self, op: &Op) -> Outcome {
        let outcome = self.commit_one(op);
        for _ in 0..MAX_FOREIGN_GROUPS {
            let Some(group) = self.next_group() else {
                return outcome;
            };
            self.commit_group(group);
        }
        self.release_lead(&mut self.queue.lock());
        outcome
    }

    fn commit_one(&self, op: &Op) -> Outcome {
        let mut outcome = None; // an error here would be allocated for every commit
        self.commit(|engine| outcome = Some(engine.run(op)))?;
        outcome.unwrap_or_else(|| Err(closed()))
    }

    /// The operations of the next group. Releases the lead if none waits.
    fn next_group(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
            self.release_lead(&mut queue);
            return None;
        }
        Some(queue.take_group())
    }

    /// Releases the lead. Wakes another thread only if it has work, because most commits find an empty queue.
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
        if let Err(error) = committed {
            outcomes = vec![Err(error); group.len()];
        }
        for (waiting, outcome) in group.into_iter().zip(outcomes) {
            let _ = waiting.reply.send(outcome); // the caller may have dropped its future
        }
    }

    /// The commit thread: leads when operations wait and nobody else leads, until the store is closed.
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

    /// Runs `work` as the leader, so that nothing is committed meanwhile.
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
        self.while_leading(|| self.commit_one(op))
    }

    /// Refuses new operations. The queued ones are still committed.
    pub(crate) fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
    }

    /// Builds a group, writes it, and acknowledges it. Only the leader calls this.
    fn commit(&self, build: impl FnOnce(&mut Engine)) -> Result<(), StoreError> {
        let (log, group, commit, is_full) = {
            let mut state = self.state.lock();
            let (engine, log) = match &mut *state {
                State::Up { engine, log } => (engine, log),
                State::Down { reason, .. } => return Err(reason.clone()),
            };
            let spare = self.spare.lock().take();
            let spare = spare.unwrap_or_else(|| GroupBuffer::new(log.dir.store()));
            engine.begin_group();
            build(engine);
            let group = engine.finish_group(log.durable(), spare);
            let is_full = u64::from(engine.end.offset) >= self.options.segment_bytes();
            (Arc::clone(log), group, engine.commit, is_full)
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
        Ok(())
    }

    fn write(&self, log: &Log, group: &GroupBuffer, commit: u64) -> Result<(), Failure> {
        let start = Instant::now();
        let trusted = match self.options.sync {
            Sync::Always => Duration::ZERO, // an acknowledged group must not be in a deleted file
            Sync::Interval(interval) => MAX_LOOK_AGE.min(interval),
            Sync::Os => MAX_LOOK_AGE,
        };
        if !log.dir.is_there_at(start, trusted) {
            return Err(Failure::Gone);
        }
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

    /// Updates the slow score. True if there were too many slow writes.
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

    /// Marks the store as down until upkeep reopens it. Nothing of the current group was acknowledged.
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
        if let State::Up { engine, log } = &mut *state
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
                watches: engine.index.take_watches(),
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

    /// Marks events of a stream as damaged, so that the stream refuses appends.
    pub(crate) fn mark_damaged(&self, key: &StreamKey, damaged: &[Seq]) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        if let State::Up { engine, .. } = &mut *self.state.lock()
            && let Some(session) = engine.index.session_number(&key.session)
        {
            for seq in damaged {
                engine.index.mark_damaged(Item::Event(session, key.ordinal, *seq));
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

    /// The close arrives while another thread leads. Its release must wake the commit thread.
    #[test]
    fn commit_thread_ends_when_the_store_closes_under_another_leader() {
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
                "the commit thread ended while another thread led"
            );
        });
        assert!(
            has_ended.recv_timeout(Duration::from_secs(10)).is_ok(),
            "the commit thread did not end"
        );
    }
}
