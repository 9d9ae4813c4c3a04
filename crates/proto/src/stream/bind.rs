//! Messages of a push queue that several nodes share: the store moves them to this stream and numbers them, in one
//! step.
//!
//! The writer learns how many there are when the step is done. Messages that are emitted meanwhile follow them and have
//! preliminary numbers until then.

use super::core::{CloseReason, Effects, InFlight, StreamCore, StreamParams, WriterState};
use super::queue::Queue;
use super::{Numbering, Retain, StreamInfo};
use crate::event_id::Seq;
use crate::sse::OneLine;
use bytes::Bytes;
use std::sync::Arc;

/// A request to the store to move messages to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindStart {
    /// The number of the first message.
    pub first: Seq,
    /// The description of the stream, if the store does not know it yet.
    pub info: Option<Arc<StreamInfo>>,
    /// The highest number of messages.
    pub max: usize,
}

/// The largest number of messages of one bind.
pub const MAX_BOUND_MESSAGES: usize = 64;

/// The result of a bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindOutcome {
    /// The store has moved these messages, each on one line. There may be none.
    Messages(Vec<Bytes>),
    /// The store cannot be reached. It may have moved messages nevertheless: then a resume finds them in the stream.
    StoreFailed,
    /// The store refused: another writer, a sealed stream or an ended session.
    Refused,
}

impl<W: Clone> StreamCore<W> {
    /// Starts to bind messages of a shared push queue. The bind is in flight from here on, and its outcome goes to
    /// [`bound`](Self::bound). `None` if messages are queued or in flight, or the stream ends: then the queue keeps its
    /// messages.
    pub fn begin_bind(&mut self, params: &StreamParams) -> Option<BindStart> {
        let is_idle = matches!(self.state, WriterState::Ready) && self.queue.is_empty();
        if !is_idle || self.sealing || self.gap.is_some() {
            return None;
        }
        let first = self.numbering.peek();
        self.state = WriterState::Appending(InFlight {
            binds_from: Some(first),
            ..InFlight::default()
        });
        self.proposed = Seq(first.0 + MAX_BOUND_MESSAGES as u64 - 1);
        Some(BindStart {
            first,
            max: MAX_BOUND_MESSAGES,
            info: (!self.in_store).then(|| Arc::clone(&params.info)),
        })
    }

    /// The outcome of the bind in flight. Then call [`next_append`](Self::next_append).
    pub fn bound(&mut self, params: &StreamParams, outcome: BindOutcome) -> Effects<W> {
        let mut effects = Effects::default();
        let WriterState::Appending(InFlight {
            binds_from: Some(first),
            ..
        }) = self.state
        else {
            return effects; // the stream has closed
        };
        match outcome {
            BindOutcome::Messages(messages) if messages.is_empty() => self.bound_nothing(&mut effects),
            BindOutcome::Messages(messages) => {
                let in_flight = self.number_bound(params, first, messages);
                self.batch_stored(params, in_flight, &mut effects);
            }
            BindOutcome::StoreFailed => self.bind_failed(params, &mut effects),
            BindOutcome::Refused => {
                self.queue.clear();
                self.close(CloseReason::Fenced, &mut effects);
            }
        }
        effects
    }

    /// The queue was empty, or another stream is the newest listener. A waiting reader is not woken, because it would
    /// request another bind.
    fn bound_nothing(&mut self, effects: &mut Effects<W>) {
        self.state = WriterState::Ready;
        self.proposed = self.appended.unwrap_or_default();
        if self.reader.local().is_some_and(|reader| reader.close.is_some()) {
            self.wake_reader(effects);
        }
    }

    /// Numbers bound messages, and after them the messages that were emitted meanwhile.
    fn number_bound(&mut self, params: &StreamParams, first: Seq, messages: Vec<Bytes>) -> InFlight {
        let mut in_flight = InFlight::default();
        let emitted = self.queue.take(&mut Vec::new());
        self.numbering = Numbering { next: first };
        self.proposed = Seq((first.0 + messages.len() as u64).saturating_sub(1));
        let mut bound = Queue::default();
        for message in messages {
            let seq = self.numbering.take();
            bound.push(&params.prefix, seq, OneLine(message), Retain::None, true);
        }
        bound.take(&mut in_flight.runs);
        for event in emitted {
            let seq = self.numbering.take();
            self.queue
                .push(&params.prefix, seq, OneLine(event.payload), event.retain, true);
        }
        in_flight
    }

    /// The store may have moved messages, so the next number is unknown. The stream continues without ids until
    /// [`store_recovered`](Self::store_recovered) sets the number.
    fn bind_failed(&mut self, params: &StreamParams, effects: &mut Effects<W>) {
        // The bind may have created the stream. None of the messages that were emitted here is stored.
        let in_doubt = (!self.in_store).then_some(Seq::PRIMING);
        self.batch_failed(params, Vec::new(), in_doubt, effects);
    }
}
