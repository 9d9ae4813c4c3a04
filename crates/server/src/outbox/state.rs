//! What a stream's lock guards.

use super::Close;
use super::effects::Effects;
use super::queue::{Queue, Stretch};
use super::window::Window;
use crate::node::Node;
use bytes::Bytes;
use rethread_proto::event_id::Seq;
use rethread_proto::push::QueuePosition;
use rethread_proto::stream::Numbering;
use std::task::Waker;

#[derive(Debug)]
pub(super) struct State {
    pub(super) numbering: Numbering,
    /// Numbered, not yet appended.
    pub(super) queue: Queue,
    /// Nobody can read yet: what is said waits for what is said next, to be appended together.
    pub(super) held: bool,
    /// The emptied buffer of the last append.
    pub(super) spare: Vec<Stretch>,
    /// Questions that were settled since the last append.
    pub(super) released: Vec<Seq>,
    /// Whether that alone is reason enough to append.
    pub(super) release_due: bool,
    /// Messages of the push queue up to here are queued: the next batch takes them.
    pub(super) taken: Option<QueuePosition>,
    pub(super) seal: Seal,
    /// Whether somebody is appending.
    pub(super) draining: bool,
    /// Whether the store knows the stream.
    pub(super) created: bool,
    /// The store failed this stream: it goes on without ids, for its live reader only (STO-02).
    pub(super) lost: bool,
    /// The last number of the append that failed: the store may have it all the same.
    pub(super) in_doubt: Option<Seq>,
    /// Nothing more will come, and nothing more is taken.
    pub(super) over: bool,
    pub(super) appended: Option<Seq>,
    pub(super) appended_bytes: u64,
    pub(super) reader: Option<Reader>,
    /// Appended, and ready for the live reader.
    pub(super) window: Window,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Seal {
    Open,
    /// Queued, or waiting to be.
    Asked,
    Done,
}

/// The one connection that reads a stream.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) connection: u64,
    /// Has all that was appended, or will find it in the window. Otherwise it reads the store.
    pub(super) live: bool,
    pub(super) taken: Seq,
    pub(super) taken_bytes: u64,
    pub(super) waker: Option<Waker>,
    pub(super) close: Option<Close>,
}

impl State {
    /// Whether it takes messages.
    pub(super) fn is_open(&self) -> bool {
        !self.over && self.seal == Seal::Open
    }

    /// The number of the last message that went out without an id, because the store failed.
    pub(super) fn unlogged(&self) -> Option<Seq> {
        let last = self.numbering.last().filter(|_| self.lost && self.created)?;
        self.appended.is_none_or(|stored| stored < last).then_some(last)
    }

    /// Whether a message that went out without an id is missing from a store that has the stream up to `stored`. The store may
    /// have taken the append that failed, and nothing after it.
    pub(super) fn has_unlogged(&self, stored: Option<Seq>) -> bool {
        self.unlogged()
            .is_some_and(|last| Some(last) > self.in_doubt || stored < self.in_doubt)
    }

    /// Whether something is on its way to the store.
    pub(super) fn is_busy(&self) -> bool {
        !self.over && !self.lost && (self.draining || !self.queue.is_empty())
    }

    pub(super) fn is_reader(&self, connection: u64) -> bool {
        self.reader
            .as_ref()
            .is_some_and(|reader| reader.connection == connection)
    }

    /// The reader has something to read.
    pub(super) fn wake(&mut self, effects: &mut Effects) {
        let waker = self.reader.as_mut().and_then(|reader| reader.waker.take());
        effects.wake = waker.or(effects.wake.take());
    }

    /// Lets the reader go, if there is one.
    pub(super) fn detach(&mut self, effects: &mut Effects) {
        self.reader = None;
        self.window.clear();
        effects.room = true;
    }

    /// Nothing more will come.
    pub(super) fn finish(&mut self, effects: &mut Effects) {
        effects.ended |= !self.over;
        effects.room = true;
        self.over = true;
        self.seal = Seal::Done;
        self.wake(effects);
    }

    /// What goes to the reader next, up to the returned number.
    pub(super) fn take_window(&mut self) -> Option<(Bytes, Seq)> {
        let next = self.window.take()?;
        if let Some(reader) = &mut self.reader {
            reader.taken = next.last;
            reader.taken_bytes += next.payload as u64;
        }
        Some((next.wire, next.last))
    }

    pub(super) fn has_room(&self, node: &Node) -> bool {
        if self.over {
            return true;
        }
        if self.queue.is_long() {
            return false;
        }
        let Some(reader) = &self.reader else { return true };
        if self.lost {
            // There is no store to catch up from: the window is all there is.
            return !self.window.is_half_full(&node.limits);
        }
        let last = self.appended.unwrap_or_default();
        let behind = last.0.saturating_sub(reader.taken.0) as usize + self.queue.len();
        let bytes = self.appended_bytes.saturating_sub(reader.taken_bytes) as usize;
        behind < node.retention.events.saturating_sub(1).max(1) && bytes < node.retention.bytes
    }
}
