//! The operations of the store.

use crate::group::Location;
use crate::record::Record;
use bytes::Bytes;
use rethread_store::{Batch, Event, QueueUpdate, Queued, SessionKey, SessionRecord, StoreError, StreamInfo, StreamKey};
use std::time::Duration;

/// A change.
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
    /// Forgets some of the streams that are past their age.
    Sweep,
    /// Compaction: moves what is still wanted of these records, each with the place of its body and the body.
    Move(Vec<(Record, Location, Bytes)>),
}

/// The result of an operation: the number of sessions or streams that it removed, where that matters.
pub(crate) type Outcome = Result<usize, StoreError>;

impl Op {
    /// The bytes that it adds to the log, roughly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Append(_, batch) => {
                let info = batch.info.as_ref().map_or(0, StreamInfo::cost);
                info + batch.events.iter().map(Event::cost).sum::<usize>()
            }
            Op::UpdateQueue(_, update) => update.messages.iter().map(Queued::cost).sum(),
            Op::Create(_, record) | Op::Update(_, _, record) => record.cost(),
            Op::Move(records) => records.iter().map(|(_, _, body)| body.len()).sum(),
            _ => 0,
        }
    }
}
