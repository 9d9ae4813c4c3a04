//! The writer's inputs: messages, appends, the end.

use super::core::{
    Attached, Close, CloseReason, Effects, Feed, InFlight, StreamClosed, StreamCore, StreamParams, UnloggedCause,
    WriterState,
};
use super::queue::FrameRun;
use super::{Batch, Numbering, Retain};
use crate::event_id::{Seq, StreamKind};
use crate::push::QueuePosition;
use crate::sse::EncodeMessage;
use std::sync::Arc;

/// A larger emptied table of runs is freed.
const MAX_SPARE_RUNS: usize = 64;

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The store has the batch.
    Stored,
    /// The store cannot be reached. It may have stored the batch nevertheless.
    StoreFailed,
    /// The store refused the batch: another writer, a sealed stream or an ended session.
    Refused,
}

impl<W: Clone> StreamCore<W> {
    /// Accepts a message. `seals` if the stream ends with it. Then call [`next_append`](Self::next_append).
    ///
    /// The number is preliminary while a [bind](Self::begin_bind) is in flight: bound messages come first.
    pub fn emit(
        &mut self,
        params: &StreamParams,
        message: impl EncodeMessage,
        retain: Retain,
        seals: bool,
    ) -> Result<(Seq, Effects<W>), StreamClosed> {
        if !self.accepts_messages() {
            return Err(StreamClosed);
        }
        let mut effects = Effects::default();
        let seq = self.accept(params, message, retain, false, &mut effects);
        if seals {
            self.begin_seal(&mut effects);
        }
        Ok((seq, effects))
    }

    /// Binds messages of the push queue to this stream, at most about a batch. `next` returns a message, its position
    /// in the stored queue, and whether another one follows. Binds none while an append is pending, so that messages
    /// wait in the queue, where they are bounded. Returns the number of bound messages.
    pub fn bind<M: EncodeMessage>(
        &mut self,
        params: &StreamParams,
        mut next: impl FnMut() -> Option<(M, Option<QueuePosition>, bool)>,
    ) -> Result<(usize, Effects<W>), StreamClosed> {
        if !self.accepts_messages() {
            return Err(StreamClosed);
        }
        let (mut bound, mut effects) = (0, Effects::default());
        if self.has_pending_append() {
            return Ok((bound, effects));
        }
        while (bound == 0 || !self.queue.is_full())
            && let Some((message, position, more)) = next()
        {
            self.accept(params, message, Retain::None, more, &mut effects);
            if self.is_unlogged() {
                effects.settled = position.map(|position| (position, false)).or(effects.settled);
            } else {
                self.bound = position.or(self.bound);
            }
            bound += 1;
        }
        Ok((bound, effects))
    }

    /// Ends the stream without a message.
    pub fn seal(&mut self) -> Effects<W> {
        let mut effects = Effects::default();
        if self.accepts_messages() {
            self.begin_seal(&mut effects);
        }
        effects
    }

    /// Ends the buffering: a reader may exist now, so messages are appended as they are emitted.
    pub fn flush(&mut self) {
        match &mut self.state {
            WriterState::Buffering => self.state = WriterState::Ready,
            WriterState::Appending(in_flight) => in_flight.buffering = false,
            _ => {}
        }
    }

    /// Releases a settled question, so that the store may evict it. The store gets the release at once, even without
    /// another message: a call may be silent for long, and the limits of its stream apply meanwhile (D4).
    pub fn release(&mut self, question: Seq) {
        if matches!(self.state, WriterState::Unlogged(_) | WriterState::Closed(_)) {
            return;
        }
        self.released.push(question);
        self.append_due = true;
    }

    /// Ends the stream at once, because its session has ended. Queued messages are dropped.
    pub fn stop(&mut self) -> Effects<W> {
        let mut effects = Effects::default();
        self.queue.clear();
        self.close(CloseReason::Stopped, &mut effects);
        effects
    }

    /// The number after the last one that the store may have shown to a client. It now has the stream up to `stored`,
    /// and may have lost writes. A stream that recovers in a cluster continues at this number. If it is beyond the one
    /// after `stored`, the batch that continues needs [`Batch::gap`].
    pub fn first_unseen(&self, stored: Option<Seq>) -> Seq {
        stored.max(Some(self.proposed)).map_or(Seq::FIRST, Seq::next)
    }

    /// The store accepts appends again, and `last` is the last event that it has of this stream. Numbers continue from
    /// there. The reader of the outage ends, because its numbers differ. `None` if messages without ids were emitted
    /// after `last_unlogged`.
    pub fn store_recovered(&mut self, last_unlogged: Option<Seq>, last: Option<Seq>) -> Option<Effects<W>> {
        let failed = matches!(self.state, WriterState::Unlogged(UnloggedCause::StoreFailed));
        if !failed || self.last_unlogged() != last_unlogged {
            return None;
        }
        let mut effects = Effects::default();
        self.state = WriterState::Ready;
        self.numbering = Numbering::after(last.unwrap_or_default());
        self.appended = last;
        self.wake_reader(&mut effects);
        self.detach_reader(&mut effects);
        Some(effects)
    }

    /// The store works again and accepts a gap. Numbers continue, and a reader that has the messages without ids stays:
    /// the store gets the gap with the next append, which is due. `None` if the stream has not failed.
    ///
    /// Only for the stream of one call. A stream with several calls stays without ids to its end: one of the answers
    /// may be lost, and only the end reports that. The numbers of a push stream are unknown after a failed bind.
    pub fn store_recovered_with_gap(&mut self, params: &StreamParams) -> Option<Effects<W>> {
        let failed = matches!(self.state, WriterState::Unlogged(UnloggedCause::StoreFailed));
        let is_one_call = params.info.kind == StreamKind::Call && params.info.calls.len() <= 1;
        if !failed || !is_one_call {
            return None;
        }
        self.state = WriterState::Ready;
        self.gap = self.numbering.last();
        self.append_due = true;
        Some(Effects::default())
    }

    /// The batch to append now: everything that is queued. It is in flight from here on, and its outcome goes to
    /// [`appended`](Self::appended). `None` if no append is due, or one is in flight.
    pub fn next_append(&mut self, params: &StreamParams) -> Option<Batch> {
        let (due, buffering) = match self.state {
            WriterState::Buffering => (self.sealing || self.queue.is_full(), true),
            WriterState::Ready => (self.sealing || self.append_due || !self.queue.is_empty(), false),
            _ => return None,
        };
        if !due {
            return None;
        }
        self.append_due = false;
        self.binding = self.bound.take();
        let mut runs = std::mem::take(&mut self.spare);
        if !self.queue.is_empty() {
            self.proposed = self.numbering.last().unwrap_or_default();
        }
        let batch = Batch {
            epoch: params.epoch,
            info: (!self.in_store || self.gap.is_some()).then(|| Arc::clone(&params.info)),
            events: self.queue.take(&mut runs),
            released: std::mem::take(&mut self.released),
            seals: self.sealing,
            taken: self.binding,
            gap: self.gap,
        };
        let released = if batch.events.is_empty() {
            batch.released.clone()
        } else {
            Vec::new()
        };
        self.state = WriterState::Appending(InFlight {
            runs,
            released,
            seals: self.sealing,
            buffering,
            binds_from: None,
        });
        Some(batch)
    }

    /// The outcome of the append in flight.
    pub fn appended(&mut self, params: &StreamParams, outcome: AppendOutcome) -> Effects<W> {
        let mut effects = Effects::default();
        let binding = self.binding.take();
        let is_stored = outcome == AppendOutcome::Stored;
        let settled = if is_stored {
            binding
        } else {
            self.bound.take().or(binding)
        };
        effects.settled = settled.map(|position| (position, is_stored));
        let WriterState::Appending(in_flight) = &mut self.state else {
            return effects; // the stream has closed
        };
        let in_flight = std::mem::take(in_flight);
        match outcome {
            AppendOutcome::Stored => self.batch_stored(params, in_flight, &mut effects),
            AppendOutcome::StoreFailed if in_flight.runs.is_empty() && !in_flight.seals => {
                // The batch only released questions, and no message is missing. The next append releases them.
                self.after_append(in_flight.buffering);
                self.released.extend(in_flight.released);
                self.wake_reader(&mut effects); // a closing reader may wait for the append
            }
            AppendOutcome::StoreFailed => {
                let in_doubt = in_flight.runs.last().map(|run| run.last);
                self.batch_failed(params, in_flight.runs, in_doubt, &mut effects);
            }
            AppendOutcome::Refused => {
                self.queue.clear();
                self.close(CloseReason::Fenced, &mut effects);
            }
        }
        effects
    }

    pub(super) fn batch_stored(&mut self, params: &StreamParams, mut in_flight: InFlight, effects: &mut Effects<W>) {
        self.in_store = true;
        self.appended = self.appended.max(self.gap.take());
        self.after_append(in_flight.buffering);
        for run in in_flight.runs.drain(..) {
            effects.stored += run.events();
            self.appended = Some(run.last);
            self.appended_bytes += run.payload_bytes as u64;
            self.offer(params, run);
        }
        if let (Attached::Remote(reader), Some(last)) = (&mut self.reader, self.appended) {
            reader.note_appended(last, self.appended_bytes);
        }
        if params.info.kind == StreamKind::Push {
            // There may be many idle push streams, so an idle stream frees its tables.
            if self.queue.is_empty() {
                self.queue.clear();
            }
        } else if in_flight.runs.capacity() <= MAX_SPARE_RUNS {
            self.spare = in_flight.runs;
        }
        effects.room = true;
        if in_flight.seals {
            self.close(CloseReason::Sealed, effects);
        } else {
            self.wake_reader(effects);
        }
    }

    /// STO-02: messages in flight, queued messages and later ones go to the attached reader without ids.
    pub(super) fn batch_failed(
        &mut self,
        params: &StreamParams,
        mut runs: Vec<FrameRun>,
        in_doubt: Option<Seq>,
        effects: &mut Effects<W>,
    ) {
        effects.store_failed = true;
        effects.room = true;
        self.state = WriterState::Unlogged(UnloggedCause::StoreFailed);
        self.released = Vec::new();
        self.append_due = false;
        self.in_doubt = in_doubt;
        self.queue.take(&mut runs);
        for run in runs.iter().filter_map(FrameRun::without_ids) {
            self.offer(params, run);
        }
        if self.sealing {
            self.close(CloseReason::Unlogged, effects);
        } else {
            self.wake_reader(effects);
        }
    }

    fn after_append(&mut self, buffering: bool) {
        self.state = if buffering {
            WriterState::Buffering
        } else {
            WriterState::Ready
        };
    }

    fn begin_seal(&mut self, effects: &mut Effects<W>) {
        let nothing_to_seal = !self.in_store && self.gap.is_none() && !self.has_pending_append();
        match self.state {
            WriterState::Unlogged(_) => self.close(CloseReason::Unlogged, effects),
            _ if nothing_to_seal => self.close(CloseReason::Sealed, effects),
            _ => self.sealing = true,
        }
    }

    /// Numbers a message and queues it. `joined` if another message follows at once. An unlogged message goes to the
    /// reader.
    fn accept(
        &mut self,
        params: &StreamParams,
        message: impl EncodeMessage,
        retain: Retain,
        joined: bool,
        effects: &mut Effects<W>,
    ) -> Seq {
        let seq = self.numbering.take();
        if let WriterState::Unlogged(cause) = self.state {
            self.offer_unlogged(params, cause, seq, message);
            self.wake_reader(effects);
        } else {
            let may_join = joined || !matches!(self.state, WriterState::Ready);
            self.queue.push(&params.prefix, seq, message, retain, may_join);
        }
        seq
    }

    /// Passes a run to the attached reader.
    fn offer(&mut self, params: &StreamParams, run: FrameRun) {
        let is_unlogged = self.is_unlogged();
        let Some(reader) = self.reader.local_mut() else { return };
        // The store may show events before it acknowledges them, so the reader may have seen them. A priming event is
        // different: every cursor starts from its number.
        if run.last <= reader.taken && run.last > Seq::PRIMING {
            return;
        }
        if reader.feed == Feed::CatchingUp {
            if is_unlogged {
                // This message is not in the store. The reader ends after the stored events, and the next resume
                // announces the gap.
                reader.close = Some(Close { retry: 0 });
            }
            return;
        }
        let is_half_seen = reader.taken > Seq::PRIMING && run.first <= reader.taken;
        if is_half_seen || !self.live.fits(run.events(), run.wire.len(), &params.limits) {
            reader.feed = Feed::CatchingUp;
            if is_unlogged {
                reader.close = Some(Close { retry: 0 }); // there is no store to catch up from
            }
            self.live.clear();
            return;
        }
        self.live.push(run);
    }

    /// Passes a message without an id to the attached reader.
    fn offer_unlogged(&mut self, params: &StreamParams, cause: UnloggedCause, seq: Seq, message: impl EncodeMessage) {
        let Some(reader) = self.reader.local_mut() else { return };
        // A connection-bound stream has no store, so it always buffers the message. Its emitters wait instead.
        let fits = cause == UnloggedCause::ConnectionBound || self.live.fits(1, message.size(), &params.limits);
        if reader.feed == Feed::CatchingUp || !fits {
            reader.feed = Feed::CatchingUp;
            reader.close = Some(Close { retry: 0 }); // the store does not have this message
            self.live.clear();
            return;
        }
        self.live.push_message(seq, params.framing, message);
    }
}
