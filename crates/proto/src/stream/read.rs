//! The reader's inputs: attach, take, catch up, detach, and backpressure for emitters.

use super::core::{Attached, Close, ConnectionId, Effects, Feed, LocalReader, StreamCore, StreamParams, WriterState};
use crate::event_id::Seq;
use bytes::Bytes;

/// The result of a take.
#[derive(Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// Frames, and the cursor after them.
    Frames(Bytes, Seq),
    /// The live buffer lacks events: read the store.
    Behind,
    /// Close the connection. The stream continues.
    Close(Close),
    /// Another connection reads now, or the stream has ended.
    End,
    /// Nothing yet. The waiter is stored.
    Nothing,
}

/// Whether an emitter may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may continue.
    Free,
    /// It should let the reader run once: half of the live buffer is full.
    YieldOnce,
    /// The reader is a retained window behind: wait, so that eviction does not overtake it.
    WaitForReader,
    /// The store is behind: wait. The reader must not be detached for it.
    WaitForStore,
}

impl<W: Clone> StreamCore<W> {
    /// Attaches a connection that has seen everything up to `cursor`. An older connection is displaced (RES-06). With
    /// `resumes`, the connection reads the store first.
    pub fn attach(&mut self, connection: ConnectionId, cursor: Seq, resumes: bool) -> Effects<W> {
        let mut effects = Effects::default();
        self.wake_reader(&mut effects); // the displaced reader
        effects.displaced = self.displace_remote();
        // In an outage the store gets no new events, so a reader that has all of them is up to date.
        let at_end = self.is_unlogged() && self.appended.is_none_or(|appended| cursor >= appended);
        self.reader = Attached::Local(LocalReader {
            connection,
            feed: if resumes && !at_end {
                Feed::CatchingUp
            } else {
                Feed::Live
            },
            taken: cursor,
            taken_bytes: self.appended_bytes,
            waiter: None,
            close: None,
        });
        self.live.clear();
        effects.room = true;
        effects
    }

    /// Detaches the connection. Returns whether it was the reader.
    pub fn detach(&mut self, connection: ConnectionId) -> (bool, Effects<W>) {
        let mut effects = Effects::default();
        let was_reader = self.is_reader(connection);
        if was_reader {
            self.detach_reader(&mut effects);
        }
        (was_reader, effects)
    }

    /// Takes the ready frames for `connection`. Stores `waiter` if there are none.
    pub fn take(&mut self, connection: ConnectionId, waiter: &W) -> (TakeOutcome, Effects<W>) {
        let mut effects = Effects::default();
        if !self.is_reader(connection) {
            return (TakeOutcome::End, effects);
        }
        let (is_closed, is_pending) = (self.is_closed(), self.has_pending_append());
        let Some(reader) = self.reader.local_mut() else {
            return (TakeOutcome::End, effects);
        };
        if let Some(run) = self.live.take() {
            reader.taken = run.last;
            reader.taken_bytes += run.payload_bytes as u64;
            effects.room = true;
            return (TakeOutcome::Frames(run.wire, run.last), effects);
        }
        if is_closed && reader.feed == Feed::Live {
            return (TakeOutcome::End, effects);
        }
        // Messages emitted before the close are delivered before it: a client without an id cannot resume.
        if let Some(close) = reader.close.filter(|_| !is_pending) {
            return (TakeOutcome::Close(close), effects);
        }
        if reader.feed == Feed::CatchingUp {
            return (TakeOutcome::Behind, effects);
        }
        match &mut reader.waiter {
            Some(kept) => kept.clone_from(waiter),
            none => *none = Some(waiter.clone()),
        }
        (TakeOutcome::Nothing, effects)
    }

    /// The connection has read the store up to `cursor`. True if it is live now, false if there is more to read.
    pub fn caught_up(&mut self, connection: ConnectionId, cursor: Seq, bytes: usize) -> (bool, Effects<W>) {
        let mut effects = Effects::default();
        if !self.is_reader(connection) {
            return (true, effects); // displaced: the next `take` reports it
        }
        let mut is_caught_up = self.appended.is_none_or(|appended| cursor >= appended);
        let is_unlogged = self.is_unlogged();
        if let Some(reader) = self.reader.local_mut() {
            // A reader that attached in an outage is live before its first page, which may contain events of the
            // buffer.
            if !self.live.skip_to(cursor) {
                is_caught_up = false;
                if is_unlogged {
                    reader.close = Some(Close { retry: 0 }); // the cleared buffer had messages without ids
                }
            }
            // A reader that missed a message without an id is closed. A later message would hide the gap.
            let goes_live = is_caught_up && !(is_unlogged && reader.close.is_some());
            reader.feed = if goes_live { Feed::Live } else { Feed::CatchingUp };
            reader.taken = reader.taken.max(cursor);
            reader.taken_bytes = (reader.taken_bytes + bytes as u64).min(self.appended_bytes);
            if is_caught_up {
                reader.taken_bytes = self.appended_bytes;
            }
        }
        effects.room = true;
        (is_caught_up, effects)
    }

    /// Asks the reader to close while the stream continues.
    pub fn close_reader(&mut self, close: Close) -> Effects<W> {
        if let Some(reader) = self.reader.local_mut() {
            reader.close = Some(close);
        }
        self.wake()
    }

    /// Wakes the reader, because another source may have messages for it.
    pub fn wake(&mut self) -> Effects<W> {
        let mut effects = Effects::default();
        self.wake_reader(&mut effects);
        effects
    }

    /// Whether a connection of this process reads the stream.
    pub fn has_reader(&self) -> bool {
        self.reader.local().is_some()
    }

    /// Whether `connection` has taken everything, waits for more, and its client has an id to resume with. Only then a
    /// push message may go to it directly: otherwise an undetected broken connection would lose the message.
    pub fn is_waiting(&self, params: &StreamParams, connection: ConnectionId) -> bool {
        let is_idle = matches!(self.state, WriterState::Ready) && !self.sealing && self.queue.is_empty();
        is_idle
            && self.live.is_empty()
            && self.reader.local().is_some_and(|reader| {
                reader.connection == connection
                    && reader.feed == Feed::Live
                    && reader.waiter.is_some()
                    && reader.close.is_none()
                    && (params.primed || reader.taken > Seq::PRIMING)
            })
    }

    /// Whether an emitter may continue.
    pub fn room(&self, params: &StreamParams) -> Room {
        if self.is_closed() {
            return Room::Free;
        }
        if self.queue.is_long() {
            return Room::WaitForStore;
        }
        let (taken, taken_bytes) = match &self.reader {
            Attached::None => return Room::Free,
            Attached::Local(reader) => (reader.taken, reader.taken_bytes),
            Attached::Remote(reader) => (reader.position, reader.taken_bytes),
        };
        let limits = &params.limits;
        let is_half_full = self.live.is_half_full(limits);
        let must_wait = if self.is_unlogged() {
            is_half_full // there is no store to catch up from
        } else {
            let last = self.appended.unwrap_or_default();
            let events = last.0.saturating_sub(taken.0) as usize + self.queue.len();
            let bytes = self.appended_bytes.saturating_sub(taken_bytes) as usize;
            events >= limits.retained_events.saturating_sub(1).max(1) || bytes >= limits.retained_bytes
        };
        match (must_wait, is_half_full) {
            (true, _) => Room::WaitForReader,
            (false, true) => Room::YieldOnce,
            (false, false) => Room::Free,
        }
    }

    /// Detaches a reader for which an emitter waited too long, unless the reader has advanced.
    pub fn reader_stalled(&mut self, params: &StreamParams) -> Effects<W> {
        let mut effects = Effects::default();
        if self.room(params) == Room::WaitForReader {
            self.wake_reader(&mut effects);
            effects.displaced = self.displace_remote();
            self.detach_reader(&mut effects);
            effects.reader_stalled = true;
        }
        effects
    }

    pub(super) fn detach_reader(&mut self, effects: &mut Effects<W>) {
        self.reader = Attached::None;
        self.live.clear();
        effects.room = true;
    }

    fn is_reader(&self, connection: ConnectionId) -> bool {
        self.reader
            .local()
            .is_some_and(|reader| reader.connection == connection)
    }
}
