//! The state of a stream for operators.

use super::core::{Attached, StreamCore};
use crate::event_id::Seq;

/// The state of a stream at one moment, without its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StreamSummary {
    /// The last number that readers can get.
    pub last: Option<Seq>,
    /// The last number that the attached reader has taken. `None` without a reader.
    pub cursor: Option<Seq>,
    /// Whether a connection reads the stream.
    pub attached: bool,
    /// Whether the stream accepts no more messages.
    pub sealed: bool,
    /// The bytes that this process has appended.
    pub bytes: u64,
    /// Whether messages went out without ids because the store failed.
    pub unlogged: bool,
}

impl<W: Clone> StreamCore<W> {
    /// The state of the stream, for operators.
    pub fn summary(&self) -> StreamSummary {
        let cursor = match &self.reader {
            Attached::None => None,
            Attached::Local(reader) => Some(reader.taken),
            Attached::Remote(reader) => Some(reader.position),
        };
        let last = if self.is_unlogged() {
            self.numbering.last()
        } else {
            self.appended
        };
        StreamSummary {
            last,
            cursor,
            attached: cursor.is_some(),
            sealed: self.sealing || self.is_closed(),
            bytes: self.appended_bytes,
            unlogged: self.last_unlogged().is_some(),
        }
    }
}
