//! What a stream's lock guards.

use super::Close;
use super::queue::{Queue, Stretch};
use crate::node::Node;
use bytes::{Bytes, BytesMut};
use rethread_proto::event_id::Seq;
use rethread_proto::session::stream::Numbering;
use std::collections::VecDeque;
use std::task::Waker;

/// A frame from this size on is cheaper to write by itself than to copy.
pub(super) const LARGE: usize = 8 << 10;

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
    pub(super) seal: Seal,
    /// Whether somebody is appending.
    pub(super) draining: bool,
    /// Whether the store knows the stream.
    pub(super) created: bool,
    /// The store failed this stream: it goes on without ids, for its live reader only (STO-02).
    pub(super) lost: bool,
    /// Nothing more will come, and nothing more is taken.
    pub(super) over: bool,
    pub(super) appended: Option<Seq>,
    pub(super) appended_bytes: u64,
    pub(super) reader: Option<Reader>,
    /// Appended, and ready for the live reader.
    pub(super) window: VecDeque<Stretch>,
    pub(super) window_events: usize,
    pub(super) window_bytes: usize,
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
    /// Whether something is on its way to the store.
    pub(super) fn is_busy(&self) -> bool {
        !self.over && !self.lost && (self.draining || !self.queue.is_empty())
    }

    pub(super) fn is_reader(&self, connection: u64) -> bool {
        self.reader
            .as_ref()
            .is_some_and(|reader| reader.connection == connection)
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.reader.as_mut().and_then(|reader| reader.waker.take()) {
            waker.wake();
        }
    }

    pub(super) fn clear_window(&mut self) {
        self.window = VecDeque::new();
        self.window_events = 0;
        self.window_bytes = 0;
    }

    /// What the window has, up to the returned number: small frames together, for one write; a large one alone, uncopied.
    pub(super) fn take_window(&mut self) -> Option<(Bytes, Seq)> {
        let Stretch {
            first,
            mut last,
            mut wire,
            mut payload,
        } = self.window.pop_front()?;
        let is_small = |wire: &Bytes| wire.len() < LARGE;
        let more = self.window.iter().take_while(|ready| is_small(&ready.wire)).count();
        if is_small(&wire) && more > 0 {
            let sizes = self.window.iter().take(more).map(|ready| ready.wire.len());
            let mut all = BytesMut::with_capacity(wire.len() + sizes.sum::<usize>());
            all.extend_from_slice(&wire);
            for ready in self.window.drain(..more) {
                all.extend_from_slice(&ready.wire);
                payload += ready.payload;
                last = ready.last;
            }
            wire = all.freeze();
        }
        self.window_bytes -= wire.len();
        self.window_events -= (last.0 - first.0) as usize + 1;
        if self.window.is_empty() {
            self.clear_window();
        }
        if let Some(reader) = &mut self.reader {
            reader.taken = last;
            reader.taken_bytes += payload as u64;
        }
        Some((wire, last))
    }

    /// Whether the live reader has much to read: half of what its window holds.
    pub(super) fn is_crowded(&self, node: &Node) -> bool {
        self.window_events > node.limits.window_events / 2 || self.window_bytes > node.limits.window_bytes / 2
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
            let half = (node.limits.window_events / 2, node.limits.window_bytes / 2);
            return self.window_events < half.0.max(1) && self.window_bytes < half.1.max(1);
        }
        let last = self.appended.unwrap_or_default();
        let behind = last.0.saturating_sub(reader.taken.0) as usize + self.queue.len();
        let bytes = self.appended_bytes.saturating_sub(reader.taken_bytes) as usize;
        behind < node.retention.events.saturating_sub(1).max(1) && bytes < node.retention.bytes
    }
}
