//! How much of a session the store has (design D9).

use crate::node::Node;
use rethread_proto::clock::Mono;
use rethread_store::{SessionKey, StoreError, StoreFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::Mutex;

/// How much of a session the store has.
pub(super) struct Persistence {
    pub(super) touched: AtomicU64,
    /// The number of changes of the record.
    pub(super) changes: AtomicU64,
    /// The number of changes that the store has. Locked while the record is written, so that an older record never replaces a
    /// newer one.
    pub(super) saved: Mutex<u64>,
    /// The store does not know the session any more, or another process owns it.
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

/// The end of a session that the store may not have recorded yet.
#[derive(Default)]
#[must_use]
pub(crate) struct PendingEnd(pub(super) Option<(Arc<Node>, SessionKey)>);

impl PendingEnd {
    /// Ends the session in the store, and waits for the result.
    pub(crate) async fn wait(self) -> Result<(), StoreError> {
        let Some([ended, forgotten]) = self.end_in_store() else {
            return Ok(());
        };
        let (ended, forgotten) = (ended.await, forgotten.await);
        ended.and(forgotten)
    }

    /// Ends the session in the store in the background. If that fails, the session expires later.
    pub(crate) fn detach(self) {
        for later in self
            .end_in_store()
            .into_iter()
            .flatten()
            .filter_map(|told| told.now().err())
        {
            tokio::spawn(later);
        }
    }

    /// Does nothing: the store has reported the end itself, or another node owns the session now.
    pub(crate) fn skip(self) {}

    fn end_in_store(self) -> Option<[StoreFuture<Result<(), StoreError>>; 2]> {
        let (node, key) = self.0?;
        Some([node.store.end(&key), node.store.forget_session(&key)])
    }
}
