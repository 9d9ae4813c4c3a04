//! Streams (D2, D4): the log of one stream, the state of its writer and its reader, and the start of a resume.
//!
//! [`Log`] is the part in a store. [`StreamCore`] is the state of the writer and the attached reader, in the process
//! that serves the stream. [`Reader`] is one connection. [`plan`] decides how a GET with `Last-Event-ID` begins.

mod bind;
mod complete;
mod core;
mod fence;
mod live_buffer;
mod log;
mod queue;
mod read;
mod reader;
mod remote;
mod resume;
pub mod retention;
mod summary;
mod write;

pub use self::core::{
    Close, CloseReason, ConnectionId, Effects, StreamClosed, StreamCore, StreamParams, UnloggedCause,
};
pub use bind::{BindOutcome, BindStart, MAX_BOUND_MESSAGES};
pub use complete::complete;
pub use fence::{Admission, Refused, StreamEnd};
pub use log::{Log, Page, StreamStatus};
pub use read::{Room, TakeOutcome};
pub use reader::{Input, Reader, ReaderStart, RemoteRead, Step};
pub use resume::{ResumePlan, plan};
pub use summary::StreamSummary;
pub use write::AppendOutcome;

use crate::event_id::{Seq, StreamKind};
use crate::jsonrpc::RequestId;
use crate::push::QueuePosition;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The numbers of one stream, proposed by its one writer.
#[derive(Debug)]
pub struct Numbering {
    next: Seq,
}

impl Numbering {
    /// Starts with the priming event if the stream has one, otherwise with the first message.
    pub fn new(primed: bool) -> Self {
        Numbering {
            next: if primed { Seq::PRIMING } else { Seq::FIRST },
        }
    }

    /// Continues after `last`, for a writer that adopts a stream.
    pub fn after(last: Seq) -> Self {
        Numbering { next: last.next() }
    }

    /// The next number.
    pub fn take(&mut self) -> Seq {
        let seq = self.next;
        self.next = seq.next();
        seq
    }

    /// The number that is taken next.
    pub fn peek(&self) -> Seq {
        self.next
    }

    /// The number that was taken last, by this or the previous writer.
    pub fn last(&self) -> Option<Seq> {
        self.next.0.checked_sub(1).map(Seq)
    }
}

/// The permanent data of a stream, which remain after its events are evicted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct StreamInfo {
    /// The kind of the stream.
    pub kind: StreamKind,
    /// The requests that it answers. Empty for a push stream.
    pub calls: Vec<RequestId>,
    /// The node on which it was created.
    pub node: Arc<str>,
}

impl StreamInfo {
    /// The info of a stream of `kind` that was created on `node` and answers `calls`.
    pub fn new(kind: StreamKind, calls: Vec<RequestId>, node: impl Into<Arc<str>>) -> Self {
        StreamInfo {
            kind,
            calls,
            node: node.into(),
        }
    }

    /// The cost against byte limits. It remains when the events are gone.
    pub fn cost(&self) -> usize {
        let calls = self.calls.iter().map(|id| size_of::<RequestId>() + id.as_json().len());
        self.node.len() + calls.sum::<usize>()
    }
}

/// Why eviction skips an event (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Retain {
    /// It is not retained.
    #[default]
    None,
    /// A question without an answer.
    Question,
    /// An answer.
    Answer,
}

/// An event as it is stored: a number and a payload. The priming event has an empty payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The number in the stream.
    pub seq: Seq,
    /// The message.
    pub payload: Bytes,
    /// Whether eviction skips it.
    pub retain: Retain,
}

impl Event {
    /// An event that eviction may remove.
    pub const fn new(seq: Seq, payload: Bytes) -> Self {
        Event {
            seq,
            payload,
            retain: Retain::None,
        }
    }

    /// The same event with a reason to retain it.
    #[must_use]
    pub fn with_retain(mut self, retain: Retain) -> Self {
        self.retain = retain;
        self
    }
}

/// A batch of events for one stream (D2).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The writer's epoch: a later writer fences an earlier one.
    pub epoch: u64,
    /// The info of the stream, in the append that creates it.
    pub info: Option<Arc<StreamInfo>>,
    /// The events, numbered without a gap.
    pub events: Vec<Event>,
    /// Questions that were settled since the last append. They may be evicted from now on.
    pub released: Vec<Seq>,
    /// Whether the stream ends with this batch.
    pub seals: bool,
    /// The events were taken from the session's push queue. The append removes messages up to here from it (D6).
    pub taken: Option<QueuePosition>,
    /// The store may lack events up to this number, because it failed or lost its last writes. It counts missing events
    /// as evicted, so that readers learn of the gap (D4). The batch then contains the info again. Only for stores with
    /// several members.
    pub gap: Option<Seq>,
}

impl Batch {
    /// A batch of events. It neither creates nor ends a stream.
    pub const fn new(epoch: u64, events: Vec<Event>) -> Self {
        Batch {
            epoch,
            info: None,
            events,
            released: Vec::new(),
            seals: false,
            taken: None,
            gap: None,
        }
    }

    /// The same batch of another writer.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// The same batch with other events.
    #[must_use]
    pub fn with_events(mut self, events: Vec<Event>) -> Self {
        self.events = events;
        self
    }

    /// The same batch with the info of its stream. The first append of a stream needs it.
    #[must_use]
    pub fn with_info(mut self, info: impl Into<Arc<StreamInfo>>) -> Self {
        self.info = Some(info.into());
        self
    }

    /// The same batch, which also releases retained questions for eviction.
    #[must_use]
    pub fn with_released(mut self, released: Vec<Seq>) -> Self {
        self.released = released;
        self
    }

    /// The same batch, which also ends the stream.
    #[must_use]
    pub fn sealing(mut self) -> Self {
        self.seals = true;
        self
    }

    /// The same batch for a store that may lack events up to `gap`.
    #[must_use]
    pub fn with_gap(mut self, gap: Seq) -> Self {
        self.gap = Some(gap);
        self
    }

    /// The same batch for a store that has lost the last events of this writer, or the whole stream `info`. `None` if
    /// it was refused for another reason: the stream has another writer or has ended.
    pub fn after_loss(self, refused: Refused, info: &Arc<StreamInfo>) -> Option<Self> {
        let before = self.events.first()?.seq.0.checked_sub(1).map(Seq)?;
        let has_lost = match refused {
            Refused::Conflict { epoch, last } => epoch <= self.epoch && last < Some(before),
            Refused::Unknown => true,
            Refused::Sealed => false,
        };
        (has_lost && self.gap.is_none()).then(|| self.with_gap(before).with_info(Arc::clone(info)))
    }

    /// The same batch, which also removes messages up to `position` from the session's push queue.
    #[must_use]
    pub fn with_taken(mut self, position: QueuePosition) -> Self {
        self.taken = Some(position);
        self
    }
}

/// The limits of a stored stream (D4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Number of events. Beyond this, the oldest are evicted.
    pub events: usize,
    /// Bytes of payload and bookkeeping. Beyond this, the oldest events are evicted.
    pub bytes: usize,
    /// Time after the stream was sealed. Then the stream is forgotten.
    pub age: Duration,
}

impl Retention {
    /// Limits of one stream.
    pub const fn new(events: usize, bytes: usize, age: Duration) -> Self {
        Retention { events, bytes, age }
    }

    /// The same limits with another number of events.
    #[must_use]
    pub const fn with_events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// The same limits with another number of bytes.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// The same limits with another age.
    #[must_use]
    pub const fn with_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }
}

impl Default for Retention {
    fn default() -> Self {
        Retention::new(4096, 8 << 20, Duration::from_secs(600))
    }
}

/// How the messages of a stream are framed on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Events with ids; without ids while the stream is not logged.
    Numbered,
    /// Events with a name and no id (2024-11-05).
    Named,
    /// Lines, for stdio.
    Line,
}

/// The limits of a stream while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamLimits {
    /// Events in the live buffer. Beyond this, the reader catches up from the store.
    pub live_events: usize,
    /// Bytes in the live buffer. Beyond this, the reader catches up from the store.
    pub live_bytes: usize,
    /// Events that the store retains. An emitter waits for a reader that is this far behind.
    pub retained_events: usize,
    /// Bytes that the store retains. An emitter waits for a reader that is this far behind.
    pub retained_bytes: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        let retention = Retention::default();
        StreamLimits {
            live_events: 1024,
            live_bytes: 1 << 20,
            retained_events: retention.events,
            retained_bytes: retention.bytes,
        }
    }
}

#[cfg(test)]
mod gap_transitions;
#[cfg(test)]
mod node_transitions;
#[cfg(test)]
mod transitions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_id::IdPrefix;

    /// The parameters of a call stream whose ids begin with `7-`.
    pub(super) fn params(primed: bool) -> StreamParams {
        StreamParams {
            prefix: IdPrefix::new("7-"),
            framing: Framing::Numbered,
            epoch: 1,
            info: StreamInfo::new(StreamKind::Call, vec![7.into()], "n").into(),
            primed,
            limits: Arc::new(StreamLimits::default()),
        }
    }
}
