//! What waits for the writer.

use crate::options::Sync;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rethread_store::{
    Batch, Event, QueueUpdate, Queued, SessionKey, SessionRecord, StoreError, StoreFuture, StreamInfo, StreamKey,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// So many commands may wait, of which large ones count several times: one more for each so many bytes, so that no more
/// than 64 MiB wait. Who comes then waits for room in the queue.
const DEPTH: u32 = 4096;
const BYTES_PER_PLACE: usize = 16 << 10;
/// What one commit takes together at most, unless one command alone is more.
const GROUP_COMMANDS: usize = 2048;
const GROUP_BYTES: usize = 4 << 20;

/// A change.
#[derive(Debug)]
pub(crate) enum Op {
    Append(StreamKey, Batch),
    ForgetStream(StreamKey),
    ForgetSession(SessionKey),
    Create(SessionKey, SessionRecord),
    Update(SessionKey, u64, SessionRecord),
    UpdateQueue(SessionKey, QueueUpdate),
    Touch(SessionKey),
    End(SessionKey),
    /// Ends the session if it still is as idle as that.
    Expire(SessionKey, Duration),
    /// Forgets what is past its age, and answers when that is done.
    Sweep,
}

impl Op {
    fn bytes(&self) -> usize {
        match self {
            Op::Append(_, batch) => {
                let info = batch.info.as_ref().map_or(0, StreamInfo::cost);
                info + batch.events.iter().map(Event::cost).sum::<usize>()
            }
            Op::UpdateQueue(_, update) => update.messages.iter().map(Queued::cost).sum(),
            Op::Create(_, record) | Op::Update(_, _, record) => record.cost(),
            _ => 0,
        }
    }

    /// How many places it takes in the queue.
    fn places(&self) -> u32 {
        let more = u32::try_from(self.bytes() / BYTES_PER_PLACE).unwrap_or(DEPTH);
        more.saturating_add(1).min(DEPTH)
    }
}

/// What became of it; how many sessions it ended.
pub(crate) type Outcome = Result<usize, StoreError>;

pub(crate) struct Command {
    pub(crate) op: Op,
    pub(crate) reply: oneshot::Sender<Outcome>,
    _room: OwnedSemaphorePermit,
}

#[derive(Default)]
struct State {
    commands: VecDeque<Command>,
    nudged: bool,
    closed: bool,
    trouble: Option<std::io::Error>,
}

pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Arc<Semaphore>,
}

/// What the writer finds.
pub(crate) struct Taken {
    pub(crate) commands: Vec<Command>,
    /// Whether more is waiting.
    pub(crate) more: bool,
    /// Nothing will come after these.
    pub(crate) closed: bool,
    /// The disk failed behind the writer's back.
    pub(crate) trouble: Option<std::io::Error>,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            state: Mutex::default(),
            wake: Condvar::new(),
            room: Arc::new(Semaphore::new(DEPTH as usize)),
        }
    }
}

impl Queue {
    /// Hands a change to the writer. It is in the queue when this returns, if there is room: then the calls of one caller
    /// are served in their order, and a future that is dropped changes nothing.
    pub(crate) fn send(self: &Arc<Self>, op: Op) -> StoreFuture<Outcome> {
        let (reply, outcome) = oneshot::channel();
        let places = op.places();
        match Arc::clone(&self.room).try_acquire_many_owned(places) {
            Ok(room) => {
                self.push(Command { op, reply, _room: room });
                StoreFuture::later(async move { outcome.await.unwrap_or_else(|_| Err(closed())) })
            }
            Err(_) => {
                let queue = Arc::clone(self);
                StoreFuture::later(async move {
                    let Ok(room) = Arc::clone(&queue.room).acquire_many_owned(places).await else {
                        return Err(closed());
                    };
                    queue.push(Command { op, reply, _room: room });
                    outcome.await.unwrap_or_else(|_| Err(closed()))
                })
            }
        }
    }

    fn push(&self, command: Command) {
        let mut state = self.state.lock();
        if state.closed {
            return; // the caller is told by the reply that is dropped
        }
        state.commands.push_back(command);
        if state.commands.len() == 1 {
            self.wake.notify_one();
        }
    }

    /// Lets the writer look around, though there is no command.
    pub(crate) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.wake.notify_one();
    }

    /// Lets the writer know that the disk failed.
    pub(crate) fn trouble(&self, error: std::io::Error) {
        self.state.lock().trouble = Some(error);
        self.wake.notify_one();
    }

    /// No more commands are taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Waits for something to do, until `deadline`, and takes as much as one commit should hold.
    pub(crate) fn take(&self, deadline: Instant) -> Taken {
        let mut state = self.state.lock();
        while state.commands.is_empty() && !state.nudged && !state.closed && state.trouble.is_none() {
            if self.wake.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        if !state.commands.is_empty() {
            // Who woke this thread may have more to say, and on a busy machine waits for this very processor.
            MutexGuard::unlocked(&mut state, std::thread::yield_now);
        }
        state.nudged = false;
        let (mut commands, mut bytes) = (Vec::new(), 0);
        while commands.len() < GROUP_COMMANDS
            && let Some(next) = state.commands.front()
        {
            bytes += next.op.bytes();
            if bytes > GROUP_BYTES && !commands.is_empty() {
                break;
            }
            commands.extend(state.commands.pop_front());
        }
        Taken {
            commands,
            more: !state.commands.is_empty(),
            closed: state.closed && state.commands.is_empty(),
            trouble: state.trouble.take(),
        }
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::unavailable("the store was closed")
}

impl Sync {
    /// Whether a commit is acknowledged only when it is on the disk.
    pub(crate) fn waits(self) -> bool {
        self == Sync::Always
    }
}
