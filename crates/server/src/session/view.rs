//! A session in a cluster: this process has a view of it, and other nodes may have views, too.

use super::Session;
use crate::node::acknowledgements::{ENDED, Expectation};
use crate::node::{Node, random};
use rethread_proto::cluster::{CallPlace, SessionPlace};
use rethread_store::{Incarnation, SessionRecord, StoreError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session {
    /// Reads the record again. False if the session has ended.
    pub(crate) async fn refresh_view(&self) -> Result<bool, StoreError> {
        match self.node.store.load(&self.key).await {
            Ok(stored) => {
                self.set_owner(stored.owner);
                self.apply_newer_record(stored.revision, &stored.record);
                Ok(true)
            }
            Err(StoreError::SessionGone) => {
                self.persistence.gone.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes over a record, unless this process knows a newer one.
    pub(super) fn apply_newer_record(&self, revision: u64, record: &SessionRecord) {
        if self.persistence.raise_revision(revision) {
            self.apply_record(record);
        }
    }

    /// The revision that this view has seen, for the node that changed the session.
    pub(crate) fn seen_revision(&self) -> u64 {
        if self.is_gone() {
            ENDED
        } else {
            self.persistence.revision()
        }
    }

    /// Whether a node owns the session, as far as this view knows.
    pub(crate) fn is_owned_by(&self, node: &Incarnation) -> bool {
        self.has_owner() && self.owner.read().as_ref() == Some(node)
    }

    /// Whether this process owns the session.
    pub(crate) fn is_owned_here(&self) -> bool {
        self.has_owner() && self.is_served_here()
    }

    pub(crate) fn set_owner(&self, owner: Option<Incarnation>) {
        *self.owner.write() = owner;
    }

    /// Whether calls of this session run in this process, as far as this view knows.
    pub(crate) fn is_served_here(&self) -> bool {
        let is_owner = || matches!(&*self.owner.read(), Some(owner) if self.node.membership.is_this_process(owner));
        !self.has_owner() || is_owner()
    }

    /// Decides where a call runs, with what this view knows.
    pub(crate) fn call_place(&self, here: &Incarnation, is_forwarded: bool, avoided: &[Incarnation]) -> CallPlace {
        self.with_place(here, is_forwarded, avoided, |place| {
            self.node.membership.with_members(|members| place.call(members))
        })
    }

    /// Decides something with what this view knows about its place.
    pub(crate) fn with_place<T>(
        &self,
        here: &Incarnation,
        is_forwarded: bool,
        avoided: &[Incarnation],
        decide: impl FnOnce(&SessionPlace<'_>) -> T,
    ) -> T {
        let owner = self.owner.read().clone();
        decide(&SessionPlace {
            here,
            holds_state: self.has_owner(),
            owner: owner.as_ref(),
            is_draining: self.node.is_draining(),
            is_forwarded,
            avoided,
            random: u64::from_le_bytes(random()),
        })
    }

    /// Whether one node owns the session: its handler holds state, and there may be other nodes.
    pub(crate) fn has_owner(&self) -> bool {
        self.is_kept() && self.node.handler.holds_session_state && self.node.cluster().is_some()
    }

    /// Draws ordinals before the last block is used up.
    pub(crate) fn draw_ordinals_if_low(self: &Arc<Self>) {
        if self.node.cluster().is_none() || !self.state.lock().ordinals.is_running_low() {
            return;
        }
        if self.drawing_ordinals.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(cluster) = session.node.cluster() {
                match cluster.draw_ordinals(&session.key).await {
                    Ok(block) => session.state.lock().ordinals.add(block),
                    Err(error) => session.store_answered(&Err::<(), _>(error)),
                }
            }
            session.drawing_ordinals.store(false, Ordering::Release);
        });
    }

    /// An epoch for a stream that this process takes over from another writer. In a store with one member the epoch of the
    /// view is later than that of every earlier writer.
    pub(crate) async fn draw_epoch(&self) -> Result<u64, StoreError> {
        match self.node.cluster() {
            Some(cluster) => cluster.draw_epoch(&self.key).await,
            None => Ok(self.epoch),
        }
    }

    /// Removes the view of this process from the store.
    pub(crate) fn close_view(&self) {
        if self.is_kept()
            && let Some(cluster) = self.node.cluster()
            && let Err(later) = cluster.close_view(&self.key, self.epoch).now()
        {
            tokio::spawn(later);
        }
    }

    /// Collects acknowledgements of a change that follows. `None` if there are no other nodes.
    pub(crate) fn expect_acknowledgements(&self) -> Option<Expectation<'_>> {
        let has_other_nodes = self.is_kept() && self.node.cluster().is_some();
        has_other_nodes.then(|| self.node.acknowledgements.expect(&self.key))
    }
}

/// Waits until other nodes have seen a change of a session.
pub(crate) async fn wait_for_views(
    node: &Node,
    expected: Option<Expectation<'_>>,
    views: &[Incarnation],
    revision: u64,
) {
    if let Some(expected) = expected
        && !views.is_empty()
    {
        node.metrics.events.change_seen(expected.wait(views, revision).await);
    }
}
