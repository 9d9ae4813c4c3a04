//! What is kept of a session beside its streams.

use crate::coding::Reader;
use rethread_proto::clock::Wall;
use rethread_store::SessionRecord;

/// A session's row. A session that forgets its streams gets a new `sid`, and nothing of the old one is ever found again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) sid: u64,
    pub(crate) touched: Wall,
    /// [`SessionRecord::to_bytes`], which is read as seldom as can be.
    pub(crate) record: Vec<u8>,
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(16 + self.record.len());
        value.extend_from_slice(&self.sid.to_le_bytes());
        value.extend_from_slice(&self.touched.as_millis().to_le_bytes());
        value.extend_from_slice(&self.record);
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut reader = Reader(value);
        Some(Row {
            sid: reader.u64()?,
            touched: Wall::from_millis(reader.u64()?),
            record: reader.rest().to_vec(),
        })
    }

    /// When it was last touched: all that a search for idle sessions looks at.
    pub(crate) fn touched(value: &[u8]) -> Option<Wall> {
        let mut reader = Reader(value);
        reader.u64()?;
        Some(Wall::from_millis(reader.u64()?))
    }

    pub(crate) fn record(&self) -> Option<SessionRecord> {
        SessionRecord::from_bytes(&self.record)
    }
}
