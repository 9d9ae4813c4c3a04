//! The fence of a stream (D2): decides whether a batch continues the stored events. Every store uses it.

use super::Batch;
use crate::event_id::Seq;

/// Why a batch was refused. Contains the stored state, so that a writer can distinguish its own repeated append from an
/// append of another writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The stream has another writer, or the numbers do not continue the stream.
    #[error("the append does not fit what is stored (epoch {epoch}, last number {last:?})")]
    Conflict {
        /// The epoch of the last writer.
        epoch: u64,
        /// The last number stored.
        last: Option<Seq>,
    },
    /// The stream has ended.
    #[error("the stream has ended")]
    Sealed,
    /// The store does not know the stream, and the batch does not contain its info.
    #[error("the stream does not exist")]
    Unknown,
}

/// The end of a stored stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The epoch of the last writer.
    pub epoch: u64,
    /// The last number appended.
    pub last: Option<Seq>,
    /// Whether the stream has ended.
    pub sealed: bool,
}

/// The decision about a batch that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The batch continues the stored events.
    New,
    /// The batch is stored already. Appending it again changes nothing.
    Repeated,
}

impl StreamEnd {
    /// The end of a stream without events.
    pub const fn empty(epoch: u64) -> Self {
        StreamEnd {
            epoch,
            last: None,
            sealed: false,
        }
    }

    /// Decides about a batch. It must have the same or a later epoch, and its numbers must continue the stream or
    /// follow [`Batch::gap`]. The stream must not be sealed.
    pub fn admit(&self, batch: &Batch) -> Result<Admission, Refused> {
        let next = self.last.max(batch.gap).map_or(Seq::PRIMING, Seq::next);
        let (first, end) = match (batch.events.first(), batch.events.last()) {
            (Some(first), Some(last)) => (first.seq, last.seq),
            _ => (next, self.last.unwrap_or_default()),
        };
        let stored = if batch.events.is_empty() {
            batch.seals
        } else {
            self.last == Some(end)
        };
        if stored && batch.epoch == self.epoch && batch.seals == self.sealed {
            return Ok(Admission::Repeated);
        }
        if self.sealed {
            return Err(Refused::Sealed);
        }
        let gapless = batch.events.windows(2).all(|pair| pair[1].seq == pair[0].seq.next());
        let is_new = self.last.is_none() && batch.gap.is_none();
        let follows = first == next || (is_new && first <= Seq::FIRST);
        if batch.epoch < self.epoch || !follows || !gapless {
            return Err(Refused::Conflict {
                epoch: self.epoch,
                last: self.last,
            });
        }
        Ok(Admission::New)
    }
}
