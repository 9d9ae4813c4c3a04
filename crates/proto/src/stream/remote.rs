//! A reader on another node: a cursor over the store, whose position the writer learns with each append.

use super::core::{Attached, Effects, StreamCore};
use crate::cluster::ReaderToken;
use crate::event_id::Seq;
use std::collections::VecDeque;

/// Beyond this many marks every second one is dropped. The writer then sees the reader move in larger steps.
const MAX_MARKS: usize = 64;

/// The reader of a stream on another node.
#[derive(Debug)]
pub(super) struct RemoteReader {
    pub(super) token: ReaderToken,
    /// The last event that it has seen.
    pub(super) position: Seq,
    /// Bytes that were appended up to its position, rounded down to a mark.
    pub(super) taken_bytes: u64,
    /// The last number and the total bytes of appends after its position.
    marks: VecDeque<(Seq, u64)>,
}

impl RemoteReader {
    /// Records that the stream has `total_bytes` up to `last`.
    pub(super) fn note_appended(&mut self, last: Seq, total_bytes: u64) {
        if last <= self.position {
            self.taken_bytes = total_bytes; // the reader saw the events before their acknowledgement
            return;
        }
        if self.marks.len() == MAX_MARKS {
            let mut is_kept = false;
            self.marks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.marks.push_back((last, total_bytes));
    }

    /// Moves to `seen`. True if the position has advanced.
    fn move_to(&mut self, seen: Seq) -> bool {
        if seen <= self.position {
            return false;
        }
        self.position = seen;
        while let Some((last, total_bytes)) = self.marks.front()
            && *last <= seen
        {
            self.taken_bytes = *total_bytes;
            self.marks.pop_front();
        }
        true
    }
}

impl<W: Clone> StreamCore<W> {
    /// A connection on another node reads the stream and has seen everything up to `seen`. A connection of this process
    /// is displaced (RES-06). Emitters wait for the new reader as for a local one.
    ///
    /// A token that a connection of this process has displaced stays displaced: an acknowledgement may report it late.
    pub fn attach_remote(&mut self, token: ReaderToken, seen: Seq) -> Effects<W> {
        let mut effects = Effects::default();
        if self.displaced.as_deref() == Some(&token) {
            return effects;
        }
        if let Attached::Remote(reader) = &mut self.reader
            && reader.token == token
        {
            effects.room = reader.move_to(seen);
            return effects;
        }
        self.wake_reader(&mut effects); // its next `take` is the end
        self.detach_reader(&mut effects);
        self.reader = Attached::Remote(Box::new(RemoteReader {
            token,
            position: seen,
            taken_bytes: self.appended_bytes, // unknown, so earlier appends do not count
            marks: VecDeque::new(),
        }));
        effects
    }

    /// The reader on another node that the store reported, with an append or after a wake-up. `None` if there is none.
    /// Then a connection of this process stays attached.
    pub fn remote_reader(&mut self, reported: Option<(ReaderToken, Seq)>) -> Effects<W> {
        if let Some((token, seen)) = reported {
            return self.attach_remote(token, seen);
        }
        let mut effects = Effects::default();
        if matches!(self.reader, Attached::Remote(_)) {
            self.detach_reader(&mut effects);
        }
        effects
    }

    /// Whether a connection on another node reads the stream.
    pub fn has_remote_reader(&self) -> bool {
        matches!(self.reader, Attached::Remote(_))
    }

    /// Detaches a reader on another node. Its token is never accepted again.
    pub(super) fn displace_remote(&mut self) -> Option<Box<ReaderToken>> {
        let Attached::Remote(reader) = &self.reader else {
            return None;
        };
        let token = Box::new(reader.token.clone());
        self.displaced = Some(token.clone());
        self.reader = Attached::None;
        Some(token)
    }
}
