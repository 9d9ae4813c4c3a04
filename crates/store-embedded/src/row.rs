//! What is kept of a session beside its streams.

use crate::coding::Reader;
use rethread_store::SessionRecord;

/// What a session costs beside its record.
const SESSION_OVERHEAD: u64 = 512;

/// A session's row. A session that forgets its streams gets a new `sid`, and nothing of the old one is ever found again.
/// When it was last used stands in a row of its own, which is written far more often.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) sid: u64,
    /// [`SessionRecord::to_bytes`], which is read as seldom as can be.
    pub(crate) record: Vec<u8>,
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(8 + self.record.len());
        value.extend_from_slice(&self.sid.to_le_bytes());
        value.extend_from_slice(&self.record);
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = Reader(value);
        Some(Row {
            sid: reader.u64()?,
            record: reader.rest().to_vec(),
        })
    }

    /// What it counts against the total.
    pub(crate) fn cost(&self) -> u64 {
        SESSION_OVERHEAD + self.record.len() as u64
    }

    pub(crate) fn record(&self) -> Option<SessionRecord> {
        SessionRecord::from_bytes(&self.record)
    }
}
