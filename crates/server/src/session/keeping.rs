//! What the store keeps of a session: its record, and that it is in use (design D9).

use super::{Session, Transport};
use crate::node::Node;
use rethread_proto::clock::Mono;
use rethread_store::{SessionKey, SessionRecord, StoreError, StoreFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far the store knows of a session.
pub(super) struct Keeping {
    touched: AtomicU64,
    /// The record in the store is older than the session: the store failed when it was written.
    behind: AtomicBool,
    /// The store no longer knows the session, or knows it as another's.
    gone: AtomicBool,
}

impl Keeping {
    pub(super) fn new(now: Mono) -> Self {
        Keeping {
            touched: AtomicU64::new(now.as_millis()),
            behind: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }
}

/// A session has ended here, and the store may not know it yet.
#[derive(Default)]
#[must_use]
pub(crate) struct Parting(Option<(Arc<Node>, SessionKey)>);

impl Parting {
    /// Tells the store, and waits until it has taken note.
    pub(crate) async fn told(self) -> Result<(), StoreError> {
        let Some([ended, forgotten]) = self.tell() else {
            return Ok(());
        };
        let (ended, forgotten) = (ended.await, forgotten.await);
        ended.and(forgotten)
    }

    /// Tells the store, and lets it take its time. A session whose end could not be noted expires.
    pub(crate) fn mention(self) {
        for later in self.tell().into_iter().flatten().filter_map(|told| told.now().err()) {
            tokio::spawn(later);
        }
    }

    /// Says nothing: the store said it itself, or another node has the session now.
    pub(crate) fn silent(self) {}

    fn tell(self) -> Option<[StoreFuture<Result<(), StoreError>>; 2]> {
        let (node, key) = self.0?;
        Some([node.store.end(&key), node.store.forget_session(&key)])
    }
}

impl Session {
    pub(crate) fn record(&self) -> SessionRecord {
        let initialized = self.hub.has_begun();
        let state = self.state.lock();
        SessionRecord {
            version: self.version(),
            hello: self.hello().clone(),
            initialized,
            log_level: state.log_level.map(|level| level.as_str().into()),
            subscriptions: state.subscriptions.clone(),
            epoch: self.epoch,
        }
    }

    /// Whether anything of it is stored. A session that is its connection has nothing to come back to.
    fn is_kept(&self) -> bool {
        self.transport == Transport::Streamable
    }

    /// Writes the record before the client hears that something in it has changed. If the store fails, the session goes
    /// on, and the record is written later.
    pub(super) async fn save(&self) {
        if self.is_kept() {
            let saved = self.node.store.update(&self.key, self.epoch, self.record()).await;
            self.heard(&saved);
        }
    }

    /// Tells the store what it should know by now: a record that it missed, or that the session is still in use.
    pub(crate) fn keep_up(&self, now: Mono) -> Option<StoreFuture<Result<(), StoreError>>> {
        if !self.is_kept() || self.has_ended() {
            return None;
        }
        if self.keeping.behind.swap(false, Ordering::Relaxed) {
            return Some(self.node.store.update(&self.key, self.epoch, self.record()));
        }
        let touched = Mono::from_millis(self.keeping.touched.load(Ordering::Relaxed));
        let used = Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        let in_use = self.uses.load(Ordering::Relaxed) > 0 || used > touched;
        if !in_use || now.since(touched) < self.node.timing.touch_every() {
            return None;
        }
        self.keeping.touched.store(now.as_millis(), Ordering::Relaxed);
        Some(self.node.store.touch(&self.key))
    }

    /// Takes note of what the store said to a record or an append.
    pub(crate) fn heard(&self, result: &Result<(), StoreError>) {
        match result {
            // A stream that its one writer did not end was ended by the session's next life.
            Err(StoreError::SessionGone | StoreError::Sealed) => self.keeping.gone.store(true, Ordering::Relaxed),
            Err(StoreError::Conflict { epoch, .. }) if *epoch > self.epoch => {
                self.keeping.gone.store(true, Ordering::Relaxed);
            }
            Err(error) if error.is_outage() => self.keeping.behind.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Whether the store has said that the session is not ours any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.keeping.gone.load(Ordering::Relaxed)
    }

    pub(super) fn part(&self) -> Parting {
        Parting(self.is_kept().then(|| (Arc::clone(&self.node), self.key.clone())))
    }
}
