//! The operations of the store.

use crate::compaction::Copied;
use rethread_store::{Batch, Event, QueueUpdate, Queued, SessionKey, SessionRecord, StoreError, StreamKey};
use std::time::Duration;

/// A requested change.
#[derive(Debug)]
pub(crate) enum Op {
    Append(StreamKey, Batch),
    ForgetStream(StreamKey),
    ForgetSession(SessionKey),
    Create(SessionKey, SessionRecord),
    Update(SessionKey, u64, SessionRecord),
    UpdateQueue(SessionKey, QueueUpdate),
    Touch(SessionKey),
    End(SessionKey),
    /// Ends a session if it is still idle.
    Expire(SessionKey, Duration),
    /// Forgets a bounded number of ended streams beyond their age limit.
    Sweep,
    /// Compaction: moves those of these parts that are live.
    Move(Vec<Copied>),
}

/// The number of sessions or streams that the operation removed. Zero for operations that do not count.
pub(crate) type Outcome = Result<usize, StoreError>;

impl Op {
    /// Approximate bytes that the operation adds to the log.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Append(_, batch) => {
                let info = batch.info.as_ref().map_or(0, |info| info.cost());
                info + batch.events.iter().map(Event::cost).sum::<usize>()
            }
            Op::UpdateQueue(_, update) => update.messages.iter().map(Queued::cost).sum(),
            Op::Create(_, record) | Op::Update(_, _, record) => record.cost(),
            Op::Move(copies) => copies.iter().map(|copied| copied.bytes.len()).sum(),
            _ => 0,
        }
    }
}
