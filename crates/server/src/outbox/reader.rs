//! A stream, seen by the one connection that reads it, and by those who wait for it.

use super::state::{Reader, State};
use super::{Close, Effects, Stream, Taken};
use crate::session::Transport;
use crate::telemetry;
use rethread_proto::event_id::Seq;
use rethread_proto::push::ListenerId;
use rethread_proto::sse::Draft;
use rethread_store::Retain;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// A writer that waits for a reader does not look around more often than this.
const SHORTEST_STEP: Duration = Duration::from_millis(1);

impl Stream {
    /// Makes a connection the reader, from `cursor` on. An older one gets EOF (RES-06). One that `resumes` reads the store
    /// first, and is live when it has caught up.
    pub(crate) fn attach(&self, cursor: Seq, resumes: bool) -> u64 {
        let connection = self.node.next_connection();
        let mut state = self.state.lock();
        // In an outage the store gets nothing new: one that has seen all of it misses nothing from here on.
        let at_end = state.lost && state.appended.is_none_or(|appended| cursor >= appended);
        let reader = Reader {
            connection,
            live: !resumes || at_end,
            taken: cursor,
            taken_bytes: state.appended_bytes,
            waker: None,
            close: None,
        };
        let displaced = state.reader.replace(reader);
        state.window.clear();
        drop(state);
        self.delay_caused.store(0, Ordering::Relaxed);
        if let Some(waker) = displaced.and_then(|reader| reader.waker) {
            waker.wake();
        }
        self.room.notify_waiters();
        connection
    }

    /// The connection is gone. True if it was the reader.
    pub(crate) fn detach(&self, connection: u64) -> bool {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        let attached = state.is_reader(connection);
        if attached {
            state.detach(&mut effects);
        }
        drop(state);
        self.notify(effects);
        attached
    }

    /// Says something to this listener at once, if it waits for nothing else; otherwise the message comes back. The caller
    /// performs the effects when it has released its own locks.
    pub(crate) fn say_to(&self, listener: ListenerId, draft: Draft) -> Result<Effects, Draft> {
        let mut state = self.state.lock();
        if !self.waits_for(&state, listener) {
            return Err(draft);
        }
        let mut effects = Effects::default();
        self.accept(&mut state, draft, Retain::None, false, &mut effects);
        effects.append = self.next_append(&mut state);
        Ok(effects)
    }

    /// Whether this connection has taken everything and waits for more, and its client can come back for what it is told next: it
    /// was told an id. Otherwise a connection that breaks now, unnoticed, would take the message with it.
    fn waits_for(&self, state: &State, listener: ListenerId) -> bool {
        let idle = state.window.is_empty() && state.is_open() && !state.is_busy();
        let can_resume = |reader: &Reader| reader.taken > Seq::PRIMING || self.version.sends_priming_event();
        let waits = |reader: &Reader| {
            reader.live && reader.waker.is_some() && reader.close.is_none() && can_resume(reader) && !state.lost
        };
        idle && state
            .reader
            .as_ref()
            .is_some_and(|reader| listener == ListenerId(reader.connection) && waits(reader))
    }

    /// Whether a connection reads it.
    pub(crate) fn has_reader(&self) -> bool {
        self.state.lock().reader.is_some()
    }

    /// What is ready for `connection`.
    pub(crate) fn take(&self, connection: u64, cx: &Context<'_>) -> Taken {
        let mut state = self.state.lock();
        if !state.is_reader(connection) {
            return Taken::End;
        }
        if let Some((wire, last)) = state.take_window() {
            drop(state);
            self.room.notify_waiters();
            return Taken::Frames(wire, last);
        }
        let (over, busy) = (state.over, state.is_busy());
        let Some(reader) = &mut state.reader else {
            return Taken::End;
        };
        if over && reader.live {
            return Taken::End;
        }
        // What was said before the close is heard before it: a client that leaves without an id cannot come back.
        if let Some(close) = reader.close.filter(|_| !busy) {
            return Taken::Close(close);
        }
        if !reader.live {
            return Taken::Behind;
        }
        match &mut reader.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Taken::Nothing
    }

    /// The connection has read the store up to `cursor`. True if it is live from here on; false if there is more to read.
    pub(crate) fn caught_up(&self, connection: u64, cursor: Seq, bytes: usize) -> bool {
        let mut state = self.state.lock();
        if !state.is_reader(connection) {
            return true; // displaced: the next `take` says so
        }
        let caught_up = state.appended.is_none_or(|appended| cursor >= appended);
        let (lost, appended_bytes) = (state.lost, state.appended_bytes);
        if let Some(reader) = &mut state.reader {
            // One that a message without an id has passed is closed. What comes next would hide the gap.
            reader.live = caught_up && !(lost && reader.close.is_some());
            reader.taken = reader.taken.max(cursor);
            reader.taken_bytes = (reader.taken_bytes + bytes as u64).min(appended_bytes);
            if caught_up {
                reader.taken_bytes = appended_bytes;
            }
        }
        drop(state);
        if caught_up {
            self.delay_caused.store(0, Ordering::Relaxed);
        }
        self.room.notify_waiters();
        caught_up
    }

    /// Asks the reader to close while the stream lives on.
    pub(crate) fn close_reader(&self, close: Close) {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        if let Some(reader) = &mut state.reader {
            reader.close = Some(close);
        }
        state.wake(&mut effects);
        drop(state);
        self.notify(effects);
    }

    /// Wakes the reader: there may be something for it.
    pub(crate) fn wake(&self) {
        let mut effects = Effects::default();
        self.state.lock().wake(&mut effects);
        self.notify(effects);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().over
    }

    /// Whether anything of this stream was ever stored: otherwise nothing is left of it when it goes.
    pub(crate) fn is_stored(&self) -> bool {
        self.state.lock().created
    }

    /// Whether the store failed it: what is said has no id, and cannot be read again (STO-02).
    pub(crate) fn is_lost(&self) -> bool {
        self.state.lock().lost
    }

    /// The number of the last message that went out without an id, because the store failed.
    pub(crate) fn unlogged(&self) -> Option<Seq> {
        self.state.lock().unlogged()
    }

    /// Whether some of these are missing from a store that has the stream up to `stored`.
    pub(crate) fn has_unlogged(&self, stored: Option<Seq>) -> bool {
        self.state.lock().has_unlogged(stored)
    }

    /// Whether something is on its way to the store.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Whether there is nothing to wait for before the next message.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.lock();
        !state.window.is_half_full(&self.node.limits) && state.has_room(&self.node)
    }

    /// Waits until the reader is less than a retained window behind, so that it is not overtaken by eviction; but not
    /// for ever: a reader that takes nothing is disconnected and may resume (SSE-14).
    ///
    /// It waits as long for a store that does not keep up, but only for a moment while other calls of the session run: their
    /// messages may come from the same source as those of this call, and then wait, too (GW-12).
    ///
    /// Long before that it steps aside once, whenever half of the live window is full: a reader that is only waiting for its
    /// turn need not go through the store.
    pub(crate) async fn room(&self) {
        if self.state.lock().window.is_half_full(&self.node.limits) {
            tokio::task::yield_now().await;
        }
        let timing = &self.node.timing;
        let mut waited = Duration::ZERO;
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            let can_come_back = {
                let mut effects = Effects::default();
                let mut state = self.state.lock();
                if state.has_room(&self.node) {
                    return;
                }
                freed.as_mut().enable();
                state.wake(&mut effects);
                // A slow store is not the reader's fault. Without a store the reader could not come back.
                let can_come_back = !state.queue.is_long() && !state.lost;
                drop(state);
                self.notify(effects);
                can_come_back
            };
            // Another call may begin at any time, so this is looked at again and again.
            let delays_others = can_come_back && self.delays_other_calls();
            let shared_stall = timing.shared_stall.min(timing.stall);
            if delays_others && self.delay_caused() >= shared_stall {
                return self.let_stalled_reader_go();
            }
            let step = shared_stall.max(SHORTEST_STEP);
            let step = step.min(timing.stall.saturating_sub(waited));
            let began = Instant::now();
            let was_freed = tokio::time::timeout(step, freed).await.is_ok();
            if delays_others {
                // A reader that takes a little now and then delays the others all the same: the sum counts.
                let millis = began.elapsed().as_millis() as u64;
                self.delay_caused.fetch_add(millis, Ordering::Relaxed);
            }
            if was_freed {
                waited = Duration::ZERO;
                continue;
            }
            waited += step;
            if waited >= timing.stall {
                return self.let_stalled_reader_go();
            }
        }
    }

    fn delay_caused(&self) -> Duration {
        Duration::from_millis(self.delay_caused.load(Ordering::Relaxed))
    }

    /// Whether calls run in the session whose answers do not come on this stream.
    fn delays_other_calls(&self) -> bool {
        self.transport == Transport::Streamable
            && (self.session.upgrade()).is_some_and(|session| session.runs_other_calls(&self.info.calls))
    }

    fn let_stalled_reader_go(&self) {
        let mut effects = Effects::default();
        let mut state = self.state.lock();
        // A slow store is not the reader's fault.
        if state.has_room(&self.node) || state.queue.is_long() {
            return;
        }
        state.wake(&mut effects);
        state.detach(&mut effects);
        drop(state);
        telemetry::stalled();
        self.notify(effects);
    }
}
