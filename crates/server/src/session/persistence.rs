//! How far the store knows of a session (design D9).

use crate::node::Node;
use rethread_proto::clock::Mono;
use rethread_store::{SessionKey, StoreError, StoreFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::Mutex;

/// How far the store knows of a session.
pub(super) struct Persistence {
    pub(super) touched: AtomicU64,
    /// How often the record has changed.
    pub(super) changes: AtomicU64,
    /// How many of these changes the store has. Locked while the record is written: writes come one after the other, so
    /// that an older record never replaces a newer one.
    pub(super) saved: Mutex<u64>,
    /// The store no longer knows the session, or knows it as another's.
    pub(super) gone: AtomicBool,
}

impl Persistence {
    pub(super) fn new(now: Mono) -> Self {
        Persistence {
            touched: AtomicU64::new(now.as_millis()),
            changes: AtomicU64::new(0),
            saved: Mutex::new(0),
            gone: AtomicBool::new(false),
        }
    }
}

/// A session has ended here, and the store may not know it yet.
#[derive(Default)]
#[must_use]
pub(crate) struct PendingEnd(pub(super) Option<(Arc<Node>, SessionKey)>);

impl PendingEnd {
    /// Tells the store, and waits until it has taken note.
    pub(crate) async fn wait(self) -> Result<(), StoreError> {
        let Some([ended, forgotten]) = self.tell() else {
            return Ok(());
        };
        let (ended, forgotten) = (ended.await, forgotten.await);
        ended.and(forgotten)
    }

    /// Tells the store, and lets it take its time. A session whose end could not be noted expires.
    pub(crate) fn detach(self) {
        for later in self.tell().into_iter().flatten().filter_map(|told| told.now().err()) {
            tokio::spawn(later);
        }
    }

    /// Says nothing: the store said it itself, or another node has the session now.
    pub(crate) fn skip(self) {}

    fn tell(self) -> Option<[StoreFuture<Result<(), StoreError>>; 2]> {
        let (node, key) = self.0?;
        Some([node.store.end(&key), node.store.forget_session(&key)])
    }
}
