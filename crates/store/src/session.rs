use crate::{Incarnation, Ordinal, OrdinalBlock, SessionKey, StoreError, StoreFuture};
use bytes::Bytes;
use rethread_proto::Version;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The stored part of a session. It survives the process (D9).
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
    /// The epoch of the last view. The first epoch is 1.
    pub epoch: u64,
    /// The capabilities that the server declared in this session as JSON, if they differ from its general ones.
    pub declared: Option<Bytes>,
}

/// Cost of a session without its record.
const SESSION_OVERHEAD_BYTES: usize = 512;
/// Cost of a subscription without its URI.
const SUBSCRIPTION_OVERHEAD_BYTES: usize = 32;

/// A stored record and related data of the store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredSession {
    /// The record as it was written.
    pub record: SessionRecord,
    /// The highest ordinal that any stream of the session ever had in the store, including forgotten streams. A
    /// restored session continues above it.
    pub high_water: Ordinal,
    /// Time since the last creation, update or touch, by the store's clock.
    pub idle: Duration,
    /// The revision of the record.
    pub revision: u64,
    /// The node that holds the session's state in its handler.
    pub owner: Option<Incarnation>,
}

impl StoredSession {
    /// A record as it was written, with the highest ordinal of its streams and the time since its last use. Its
    /// revision is its epoch.
    pub const fn new(record: SessionRecord, high_water: Ordinal, idle: Duration) -> Self {
        StoredSession {
            revision: record.epoch,
            record,
            high_water,
            idle,
            owner: None,
        }
    }
}

/// A view of a session: the data that a node needs to serve it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionView {
    /// The record. Its epoch belongs to this view only.
    pub record: SessionRecord,
    /// The revision of the record, for [`SessionStore::update`].
    pub revision: u64,
    /// The ordinals for streams of this view.
    pub ordinals: OrdinalBlock,
    /// Time since the last creation, update or touch, by the store's clock.
    pub idle: Duration,
    /// The node that holds the session's state in its handler. `None` in a store with one member, and if no node does.
    pub owner: Option<Incarnation>,
}

impl SessionView {
    /// A view in the epoch of `record`.
    pub const fn new(record: SessionRecord, revision: u64, ordinals: OrdinalBlock, idle: Duration) -> Self {
        SessionView {
            record,
            revision,
            ordinals,
            idle,
            owner: None,
        }
    }

    /// The first view of a session in a store with one member: the whole range of ordinals.
    pub const fn first(record: SessionRecord) -> Self {
        let revision = record.epoch;
        Self::new(record, revision, OrdinalBlock::all(), Duration::ZERO)
    }

    /// The view of a process that restores a session from a store with one member.
    pub fn restored(stored: StoredSession) -> Self {
        let ordinals = OrdinalBlock::after_restart(stored.high_water);
        let record = stored.record;
        let revision = record.epoch; // the same in a store with one member
        Self::new(record, revision, ordinals, stored.idle)
    }
}

/// The result of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Updated {
    /// The revision of the record after the update.
    pub revision: u64,
    /// Other nodes that have a view of the session. They were woken, and acknowledge the change to this node.
    pub views: Vec<Incarnation>,
}

impl Updated {
    /// An update, and the other nodes with a view of the session.
    pub const fn new(revision: u64, views: Vec<Incarnation>) -> Self {
        Updated { revision, views }
    }
}

/// Whether a session lives in this process.
pub type IsLive = Arc<dyn Fn(&SessionKey) -> bool + Send + Sync>;

/// The records of all sessions.
pub trait SessionStore: Send + Sync + 'static {
    /// Creates a session and opens its first view. After this its streams accept appends. With `owned`, this node owns
    /// it. [`StoreError::Full`] if the record does not fit.
    fn create(
        &self,
        key: &SessionKey,
        record: SessionRecord,
        owned: bool,
    ) -> StoreFuture<Result<SessionView, StoreError>>;

    /// Opens a view of a session: draws an epoch and ordinals. [`StoreError::SessionGone`] if the session has ended.
    ///
    /// In a store with one member only the last view is valid: it fences the updates of earlier views and of their
    /// queues. In a cluster every node may have a view, and opening one fences no other.
    fn open(&self, key: &SessionKey) -> StoreFuture<Result<SessionView, StoreError>>;

    /// Reads a record. [`StoreError::SessionGone`] if there is none.
    fn load(&self, key: &SessionKey) -> StoreFuture<Result<StoredSession, StoreError>>;

    /// Replaces a record if the stored one has this revision. In a store with one member the revision is the epoch of
    /// the view. In a cluster each update raises it, and a node that loses the race loads the record and tries again.
    ///
    /// [`StoreError::Conflict`] for another revision, [`StoreError::SessionGone`] if the session has ended,
    /// [`StoreError::Full`] if the new record does not fit. The stored epoch never changes here.
    fn update(
        &self,
        key: &SessionKey,
        revision: u64,
        record: SessionRecord,
    ) -> StoreFuture<Result<Updated, StoreError>>;

    /// Records that a session is in use. [`StoreError::SessionGone`] if it has ended.
    fn touch(&self, key: &SessionKey) -> StoreFuture<Result<(), StoreError>>;

    /// Ends every session that was not created, updated or touched for `idle`. Forgets its streams and its push queue.
    /// Returns the number of ended sessions.
    ///
    /// The wall clock may step, because it was set or the machine was suspended. A process therefore decides itself
    /// when its live sessions are idle, and the store touches them instead. A session whose last touch is in the future
    /// counts as touched now.
    fn expire(&self, idle: Duration, is_live: IsLive) -> StoreFuture<Result<usize, StoreError>>;

    /// Ends a session. After this every append to its streams is refused, and its push queue is gone. Succeeds if the
    /// session has ended before.
    ///
    /// Returns the other nodes that have a view of the session. They were woken, and acknowledge the end to this node.
    fn end(&self, key: &SessionKey) -> StoreFuture<Result<Vec<Incarnation>, StoreError>>;
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
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    declared: Option<Cow<'a, str>>,
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
            declared: None,
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
        let declared = self.declared.as_ref().map_or(0, Bytes::len);
        SESSION_OVERHEAD_BYTES + self.initialize_params.len() + log_level + declared + subscriptions.sum::<usize>()
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
            declared: self.declared.as_deref().map(String::from_utf8_lossy),
        };
        serde_json::to_vec(&form).expect("a record serializes")
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
            declared: form.declared.map(|json| Bytes::copy_from_slice(json.as_bytes())),
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
            declared: Some(Bytes::from("{\"tools\":{}}")),
            ..bare.clone()
        };
        for record in [bare, full] {
            assert_eq!(SessionRecord::from_bytes(&record.to_bytes()), Some(record));
        }
        assert_eq!(SessionRecord::from_bytes(b"{}"), None);
    }
}
