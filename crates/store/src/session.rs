use crate::{Ordinal, SessionKey, StoreError, StoreFuture};
use bytes::Bytes;
use rethread_proto::Version;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The stored part of a session. It survives the process (design D9).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionRecord {
    /// The negotiated revision.
    pub version: Version,
    /// The raw `params` of the `initialize` request: client info and capabilities, exactly as the client sent them.
    pub initialize_params: Bytes,
    /// Whether the client has sent `notifications/initialized`.
    pub initialized: bool,
    /// The minimum level of log messages, if one was set.
    pub log_level: Option<Box<str>>,
    /// The URIs of the resources that the client subscribed to.
    pub subscriptions: BTreeSet<Box<str>>,
    /// Incremented by every restore. The first epoch is 1.
    pub epoch: u64,
}

/// Cost of a session without its record.
const SESSION_OVERHEAD_BYTES: usize = 512;
/// Cost of a subscription without its URI.
const SUBSCRIPTION_OVERHEAD_BYTES: usize = 32;

/// A stored record, with data that the store keeps beside it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredSession {
    /// The record as it was written.
    pub record: SessionRecord,
    /// The highest ordinal that any stream of the session ever had in the store, including forgotten streams. A restored
    /// session continues above it.
    pub high_water: Ordinal,
    /// Time since the last creation, update or touch, by the store's clock.
    pub idle: Duration,
}

impl StoredSession {
    /// A record as it was written, with the highest ordinal of its streams and the time since its last use.
    pub const fn new(record: SessionRecord, high_water: Ordinal, idle: Duration) -> Self {
        StoredSession {
            record,
            high_water,
            idle,
        }
    }
}

/// Whether a session lives in this process.
pub type IsLive = Arc<dyn Fn(&SessionKey) -> bool + Send + Sync>;

/// The records of all sessions.
pub trait SessionStore: Send + Sync + 'static {
    /// Opens a session. After this its streams accept appends. [`StoreError::Full`] if the record does not fit.
    fn create(&self, key: &SessionKey, record: SessionRecord) -> StoreFuture<Result<(), StoreError>>;

    /// Reads a record. [`StoreError::SessionGone`] if there is none.
    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>>;

    /// Replaces a record if the stored one has epoch `epoch`. Of two nodes that restore a session at once, one succeeds.
    /// [`StoreError::Conflict`] for another epoch, [`StoreError::SessionGone`] if the session has ended, [`StoreError::Full`]
    /// if the new record does not fit.
    fn update(&self, key: &SessionKey, epoch: u64, record: SessionRecord) -> StoreFuture<Result<(), StoreError>>;

    /// Records that a session is in use. [`StoreError::SessionGone`] if it has ended.
    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;

    /// Ends every session that was not created, updated or touched for `idle`. Forgets its streams and its push queue.
    /// Returns the number of ended sessions.
    ///
    /// The wall clock may step, because it was set or the machine was suspended. A process therefore decides itself when its
    /// live sessions are idle, and the store touches them instead. A session whose last touch is in the future counts as
    /// touched now.
    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>>;

    /// Ends a session. After this every append to its streams is refused, and its push queue is gone. Succeeds if the session
    /// has ended before.
    fn end(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;
}

/// The serialized form of a record. Fields may be added, and readers ignore unknown ones.
#[derive(Serialize, Deserialize)]
struct Form<'a> {
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(borrow)]
    initialize_params: Cow<'a, str>,
    initialized: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_level: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    subscriptions: BTreeSet<Box<str>>,
    epoch: u64,
}

impl SessionRecord {
    /// The record of a new session, in its first epoch.
    pub const fn new(version: Version, initialize_params: Bytes) -> Self {
        SessionRecord {
            version,
            initialize_params,
            initialized: false,
            log_level: None,
            subscriptions: BTreeSet::new(),
            epoch: 1,
        }
    }

    /// The same record in another epoch.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = epoch;
        self
    }

    /// The cost against the byte limits of a store, including bookkeeping.
    pub fn cost(&self) -> usize {
        let subscriptions = self
            .subscriptions
            .iter()
            .map(|uri| uri.len() + SUBSCRIPTION_OVERHEAD_BYTES);
        let log_level = self.log_level.as_ref().map_or(0, |level| level.len());
        SESSION_OVERHEAD_BYTES + self.initialize_params.len() + log_level + subscriptions.sum::<usize>()
    }

    /// The record as bytes, for backends that store bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let form = Form {
            version: self.version.as_str().into(),
            initialize_params: String::from_utf8_lossy(&self.initialize_params),
            initialized: self.initialized,
            log_level: self.log_level.clone(),
            subscriptions: self.subscriptions.clone(),
            epoch: self.epoch,
        };
        serde_json::to_vec(&form).expect("a record is plain JSON")
    }

    /// Parses the output of [`to_bytes`](Self::to_bytes). `None` for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let form: Form<'_> = serde_json::from_slice(bytes).ok()?;
        Some(SessionRecord {
            version: form.version.parse().ok()?,
            initialize_params: Bytes::copy_from_slice(form.initialize_params.as_bytes()),
            initialized: form.initialized,
            log_level: form.log_level,
            subscriptions: form.subscriptions,
            epoch: form.epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips_through_bytes() {
        let bare = SessionRecord::new(Version::V2025_06_18, Bytes::new());
        let full = SessionRecord {
            initialize_params: Bytes::from("{\"a\":\"\u{1f9f5}\\n\"}"),
            initialized: true,
            log_level: Some("debug".into()),
            subscriptions: ["a".into(), "\"".into()].into(),
            epoch: u64::MAX,
            ..bare.clone()
        };
        for record in [bare, full] {
            assert_eq!(SessionRecord::from_bytes(&record.to_bytes()), Some(record));
        }
        assert_eq!(SessionRecord::from_bytes(b"{}"), None);
    }
}
