//! How much of a session the store has (D9).

use crate::node::Node;
use rethread_proto::LogLevel;
use rethread_proto::clock::Mono;
use rethread_store::{Incarnation, SessionKey, SessionRecord, StoreError, StoreFuture};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Mutex;

/// How much of a session the store has.
pub(super) struct Persistence {
    pub(super) touched: AtomicU64,
    /// The number of changes of the record.
    pub(super) changes: AtomicU64,
    /// The number of changes that the store has. Locked while the record is written, so that an older record never replaces a
    /// newer one.
    pub(super) saved: Mutex<u64>,
    /// The revision of the stored record, as this process knows it. Changed by the holder of `saved` and by readers of the
    /// record.
    revision: AtomicU64,
    /// The changes that the store lacks.
    pub(super) unsaved: parking_lot::Mutex<UnsavedChanges>,
    /// The store does not know the session any more, or another process owns it.
    pub(super) gone: AtomicBool,
}

impl Persistence {
    pub(super) fn new(now: Mono) -> Self {
        Persistence {
            touched: AtomicU64::new(now.as_millis()),
            changes: AtomicU64::new(0),
            saved: Mutex::new(0),
            revision: AtomicU64::new(1),
            unsaved: parking_lot::Mutex::default(),
            gone: AtomicBool::new(false),
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    pub(super) fn set_revision(&self, revision: u64) {
        self.revision.store(revision, Ordering::Release);
    }

    /// A record of this revision was read. False if a newer one is known.
    pub(super) fn raise_revision(&self, revision: u64) -> bool {
        self.revision.fetch_max(revision, Ordering::AcqRel) <= revision
    }
}

/// A change of a session's record by its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordChange {
    Initialized,
    LogLevel(LogLevel),
    Subscribed(Box<str>),
    Unsubscribed(Box<str>),
}

/// Changes that the stored record lacks, the last one of each kind. Another node may change the same record, so this node
/// applies its changes to the newest record.
#[derive(Debug, Default)]
pub(super) struct UnsavedChanges {
    initialized: bool,
    log_level: Option<LogLevel>,
    /// Whether each of these URIs is subscribed to. Bounded by the limits of the session: see `Session::save`.
    subscriptions: BTreeMap<Box<str>, bool>,
}

impl UnsavedChanges {
    pub(super) fn add(&mut self, change: RecordChange) {
        match change {
            RecordChange::Initialized => self.initialized = true,
            RecordChange::LogLevel(level) => self.log_level = Some(level),
            RecordChange::Subscribed(uri) => drop(self.subscriptions.insert(uri, true)),
            RecordChange::Unsubscribed(uri) => drop(self.subscriptions.insert(uri, false)),
        }
    }

    /// Applies the changes to a record.
    pub(super) fn apply(&self, record: &mut SessionRecord) {
        record.initialized |= self.initialized;
        if let Some(level) = self.log_level {
            record.log_level = Some(level.as_str().into());
        }
        for (uri, subscribed) in &self.subscriptions {
            if *subscribed {
                record.subscriptions.insert(uri.clone());
            } else {
                record.subscriptions.remove(uri);
            }
        }
    }

    /// The number of changes of subscriptions.
    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }
}

/// The end of a session that the store may not have recorded yet.
#[derive(Default)]
#[must_use]
pub(crate) struct PendingEnd(pub(super) Option<(Arc<Node>, SessionKey)>);

impl PendingEnd {
    /// Ends the session in the store, and waits for the result: the other nodes that have a view of the session.
    pub(crate) async fn wait(self) -> Result<Vec<Incarnation>, StoreError> {
        let Some((ended, forgotten)) = self.end_in_store() else {
            return Ok(Vec::new());
        };
        let (ended, forgotten) = (ended.await, forgotten.await);
        forgotten.and(ended)
    }

    /// Ends the session in the store in the background. If that fails, the session expires later.
    pub(crate) fn detach(self) {
        let Some((ended, forgotten)) = self.end_in_store() else {
            return;
        };
        if let Err(later) = ended.now() {
            tokio::spawn(later);
        }
        if let Err(later) = forgotten.now() {
            tokio::spawn(later);
        }
    }

    /// Does nothing: the store has reported the end itself, or another node owns the session now.
    pub(crate) fn skip(self) {}

    fn end_in_store(self) -> Option<(EndFuture, ForgetFuture)> {
        let (node, key) = self.0?;
        Some((node.store.end(&key), node.store.forget_session(&key)))
    }
}

type EndFuture = StoreFuture<Result<Vec<Incarnation>, StoreError>>;
type ForgetFuture = StoreFuture<Result<(), StoreError>>;
