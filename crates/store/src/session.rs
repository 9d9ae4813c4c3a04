use crate::{Ordinal, SessionKey, StoreError, StoreFuture};
use bytes::Bytes;
use rethread_proto::Version;
use rethread_proto::clock::Wall;
use std::collections::BTreeSet;

/// What outlives the process of a session (design D9).
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRecord {
    /// The negotiated revision.
    pub version: Version,
    /// The raw `params` of the `initialize` request: client info and capabilities, exactly as they were sent.
    pub hello: Bytes,
    /// Whether the client has said `notifications/initialized`.
    pub initialized: bool,
    /// The minimum level of log messages, if one was set.
    pub log_level: Option<Box<str>>,
    /// The resources the client subscribed to.
    pub subscriptions: BTreeSet<Box<str>>,
    /// No stream above this ordinal was issued when the record was written.
    pub high_water: Ordinal,
    /// How many lives the session has had; raised by every restore.
    pub epoch: u64,
    /// When it was last known to be used.
    pub touched: Wall,
}

/// The records of every session.
pub trait SessionStore: Send + Sync + 'static {
    /// Opens a session. From here on its streams take appends.
    fn create(&self, key: &SessionKey, record: SessionRecord) -> StoreFuture<Result<(), StoreError>>;

    /// Reads a record; [`StoreError::SessionGone`] if there is none.
    fn load(&self, key: &SessionKey) -> StoreFuture<Result<SessionRecord, StoreError>>;

    /// Replaces a record, if the stored one is of epoch `epoch`: two nodes that restore at once make one session, not
    /// two. [`StoreError::Conflict`] otherwise, [`StoreError::SessionGone`] if it has ended.
    fn update(&self, key: &SessionKey, epoch: u64, record: SessionRecord) -> StoreFuture<Result<(), StoreError>>;

    /// Ends a session. From here on every append to its streams is refused. Ending what has ended is no error.
    fn end(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;
}
