//! The state of one stream while a process serves it.
//!
//! Numbering, the append queue, the live buffer and the position of the attached reader change in one critical section,
//! so they are one type. It performs no effects: every input returns [`Effects`], and the caller performs them after it
//! has released its lock. `write.rs` has the inputs of the writer, `read.rs` those of a reader of this process,
//! `remote.rs` those of a reader on another node. `bind.rs` binds messages of a push queue that several nodes share.
//!
//! ```text
//!              flush                    next_append                 appended: stored
//!  Buffering ---------> Ready --------------------------> Appending ------------------> Ready, Buffering or Closed
//!      |                                                      |
//!      +-- full or sealing: next_append --> Appending         +-- appended: store failed --> Unlogged
//! ```

use super::live_buffer::LiveBuffer;
use super::queue::{FrameRun, Queue};
use super::remote::RemoteReader;
use super::{Framing, Numbering, StreamInfo, StreamLimits, StreamStatus};
use crate::cluster::ReaderToken;
use crate::event_id::{IdPrefix, Seq};
use crate::push::QueuePosition;
use std::sync::Arc;

/// The constants of one stream. They need no lock.
#[derive(Debug)]
pub struct StreamParams {
    /// The prefix of its event ids.
    pub prefix: IdPrefix,
    /// How messages are framed on the wire.
    pub framing: Framing,
    /// The epoch of the writer. An adopted stream has its own epoch, not that of its session's view.
    pub epoch: u64,
    /// The stored description of the stream.
    pub info: Arc<StreamInfo>,
    /// Whether the stream begins with a priming event, so that every client has an id from the start.
    pub primed: bool,
    /// The bounds of its buffers.
    pub limits: Arc<StreamLimits>,
}

/// A stream: its writer, and the reader that is attached to it. `W` wakes a reader.
#[derive(Debug)]
pub struct StreamCore<W> {
    pub(super) state: WriterState,
    /// No further message is accepted. The seal is queued or at the store.
    pub(super) sealing: bool,
    /// The store knows the stream. Until then a batch carries the [`StreamInfo`].
    pub(super) in_store: bool,
    pub(super) numbering: Numbering,
    pub(super) queue: Queue,
    /// Questions that were settled since the last append.
    pub(super) released: Vec<Seq>,
    /// Whether an append is due without a message: for released questions, or for the gap.
    pub(super) append_due: bool,
    /// The store may lack events up to this number. Every batch carries it until the store has acknowledged one.
    pub(super) gap: Option<Seq>,
    /// The last queue position among the queued push messages. The next batch removes messages up to it from the queue.
    pub(super) bound: Option<QueuePosition>,
    /// The same for the batch in flight. It is reported when the append completes, in every state.
    pub(super) binding: Option<QueuePosition>,
    /// The last number of the append that failed: the store may have it nevertheless.
    pub(super) in_doubt: Option<Seq>,
    /// The last number that the store was asked to store.
    pub(super) proposed: Seq,
    pub(super) appended: Option<Seq>,
    pub(super) appended_bytes: u64,
    pub(super) reader: Attached<W>,
    /// The reader on another node that was displaced last. Late reports of it are ignored.
    pub(super) displaced: Option<Box<ReaderToken>>,
    pub(super) live: LiveBuffer,
    /// The emptied table of the last append.
    pub(super) spare: Vec<FrameRun>,
}

/// The state of the writer.
#[derive(Debug)]
pub(super) enum WriterState {
    /// No reader can exist yet. Messages wait and are appended together.
    Buffering,
    /// No append is in flight.
    Ready,
    /// One batch is at the store. New messages wait in the queue.
    Appending(InFlight),
    /// The stream continues without ids, for its attached reader only.
    Unlogged(UnloggedCause),
    /// No message is accepted or delivered any more.
    Closed(CloseReason),
}

/// A batch at the store.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    pub(super) runs: Vec<FrameRun>,
    /// The questions that it releases, if it has no events.
    pub(super) released: Vec<Seq>,
    pub(super) seals: bool,
    /// Whether no reader could exist when the batch was taken.
    pub(super) buffering: bool,
    /// The store binds messages of a shared push queue, with numbers from this one on. Messages that are emitted
    /// meanwhile have preliminary numbers.
    pub(super) binds_from: Option<Seq>,
}

/// Why messages of a stream have no ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnloggedCause {
    /// The stream belongs to one connection and is never stored (LEG-02).
    ConnectionBound,
    /// The store failed (STO-02).
    StoreFailed,
}

/// Why a stream has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The store has the end of the stream.
    Sealed,
    /// The store refused an append: the stream has another writer, or its session has ended.
    Fenced,
    /// The session has ended.
    Stopped,
    /// The stream ended without ids, and the store does not have its end.
    Unlogged,
}

/// The one reader of a stream, on all nodes together (RES-06).
#[derive(Debug)]
pub(super) enum Attached<W> {
    None,
    Local(LocalReader<W>),
    Remote(Box<RemoteReader>),
}

impl<W> Attached<W> {
    pub(super) fn local(&self) -> Option<&LocalReader<W>> {
        match self {
            Attached::Local(reader) => Some(reader),
            _ => None,
        }
    }

    pub(super) fn local_mut(&mut self) -> Option<&mut LocalReader<W>> {
        match self {
            Attached::Local(reader) => Some(reader),
            _ => None,
        }
    }
}

/// The connection of this process that reads a stream.
#[derive(Debug)]
pub(super) struct LocalReader<W> {
    pub(super) connection: ConnectionId,
    pub(super) feed: Feed,
    /// The last event that the connection has taken.
    pub(super) taken: Seq,
    pub(super) taken_bytes: u64,
    pub(super) waiter: Option<W>,
    pub(super) close: Option<Close>,
}

/// The source of an attached reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feed {
    /// The live buffer. The reader has taken every appended event, or will find it there.
    Live,
    /// From the store, until it has caught up.
    CatchingUp,
}

/// The id of a connection, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u64);

/// A request to close the connection while the stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The reconnection delay for the client, in milliseconds.
    pub retry: u64,
}

/// The stream accepts no more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamClosed;

/// Actions for the caller after it has released its lock. Needs no allocation.
#[must_use]
#[derive(Debug)]
#[non_exhaustive]
pub struct Effects<W> {
    /// Wake this reader.
    pub wake: Option<W>,
    /// Wake the waiting emitters.
    pub room: bool,
    /// The stream has closed: notify its session.
    pub ended: Option<CloseReason>,
    /// The stream went from logged to unlogged: count it.
    pub store_failed: bool,
    /// A stalled reader was detached: count it.
    pub reader_stalled: bool,
    /// Events that the store has acknowledged.
    pub stored: usize,
    /// Push messages up to this position are settled, and whether they were appended.
    pub settled: Option<(QueuePosition, bool)>,
    /// A connection of this process displaced this reader on another node, or it stalled: notify the store.
    pub displaced: Option<Box<ReaderToken>>,
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Effects {
            wake: None,
            room: false,
            ended: None,
            store_failed: false,
            reader_stalled: false,
            stored: 0,
            settled: None,
            displaced: None,
        }
    }
}

impl<W: Clone> StreamCore<W> {
    /// A new stream. Messages wait until the first [`flush`](Self::flush), after the priming event if there is one.
    pub fn open(params: &StreamParams, retry_millis: u64) -> Self {
        let mut core = Self::new(WriterState::Buffering, Numbering::new(params.primed));
        if params.primed {
            let seq = core.numbering.take();
            core.queue.push_priming(&params.prefix, seq, retry_millis);
        }
        core
    }

    /// A stream that is never stored.
    pub fn connection_bound() -> Self {
        let state = WriterState::Unlogged(UnloggedCause::ConnectionBound);
        Self::new(state, Numbering::new(false))
    }

    /// A stream that the store knows and that has no writer in this process.
    pub fn adopt(status: &StreamStatus) -> Self {
        let state = if status.sealed {
            WriterState::Closed(CloseReason::Sealed)
        } else {
            WriterState::Ready
        };
        let mut core = Self::new(state, Numbering::after(status.last.unwrap_or_default()));
        core.in_store = true;
        core.appended = status.last;
        core.proposed = status.last.unwrap_or_default();
        core
    }

    fn new(state: WriterState, numbering: Numbering) -> Self {
        StreamCore {
            state,
            sealing: false,
            in_store: false,
            numbering,
            queue: Queue::default(),
            released: Vec::new(),
            append_due: false,
            gap: None,
            bound: None,
            binding: None,
            in_doubt: None,
            proposed: Seq::PRIMING,
            appended: None,
            appended_bytes: 0,
            reader: Attached::None,
            displaced: None,
            live: LiveBuffer::default(),
            spare: Vec::new(),
        }
    }

    /// Whether the stream has closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, WriterState::Closed(_))
    }

    /// Whether messages have no ids.
    pub fn is_unlogged(&self) -> bool {
        matches!(
            self.state,
            WriterState::Unlogged(_) | WriterState::Closed(CloseReason::Unlogged)
        )
    }

    /// Whether the store may know the stream: it acknowledged an append, or a failed append may be stored nevertheless.
    pub fn may_be_in_store(&self) -> bool {
        self.in_store || self.in_doubt.is_some()
    }

    /// Whether messages are queued or at the store.
    pub fn has_pending_append(&self) -> bool {
        match self.state {
            WriterState::Appending(_) => true,
            WriterState::Buffering | WriterState::Ready => !self.queue.is_empty(),
            WriterState::Unlogged(_) | WriterState::Closed(_) => false,
        }
    }

    /// The number of the last message that went out without an id because the store failed.
    pub fn last_unlogged(&self) -> Option<Seq> {
        if self.gap.is_some() && !self.is_unlogged() {
            return self.gap; // the store does not have the gap yet
        }
        if !self.is_unlogged() || !self.may_be_in_store() {
            return None;
        }
        let last = self.numbering.last()?;
        self.appended.is_none_or(|stored| stored < last).then_some(last)
    }

    /// Whether a message without an id is missing from a store that has the stream up to `stored`. The store may have
    /// the append that failed, and nothing after it.
    pub fn has_unlogged_after(&self, stored: Option<Seq>) -> bool {
        if !self.is_unlogged() && stored >= self.gap {
            return false; // the store has the gap and announces it
        }
        self.last_unlogged()
            .is_some_and(|last| Some(last) > self.in_doubt || stored < self.in_doubt)
    }

    pub(super) fn accepts_messages(&self) -> bool {
        !self.sealing && !self.is_closed()
    }

    /// Closes the stream. Wakes the reader and the waiting emitters.
    pub(super) fn close(&mut self, reason: CloseReason, effects: &mut Effects<W>) {
        if !self.is_closed() {
            effects.ended = Some(reason);
            self.state = WriterState::Closed(reason);
        }
        effects.room = true;
        self.wake_reader(effects);
    }

    /// Wakes the reader.
    pub(super) fn wake_reader(&mut self, effects: &mut Effects<W>) {
        if let Some(waiter) = self.reader.local_mut().and_then(|reader| reader.waiter.take()) {
            effects.wake = Some(waiter);
        }
    }
}
