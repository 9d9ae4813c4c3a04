//! Reuses peer loops.
//!
//! A call leases a loop and releases it at its end. If a handler retained the peer, the loop stays bound to that peer
//! and sends to the session from then on. Only a loop whose peer no handler holds is leased again (see
//! `peer_refcount.rs`). A message of one call can therefore never appear in another.

use crate::notification_handler::{NotificationGuard, NotificationHandler};
use crate::peer_loop::{Destination, PeerLoop};
use crate::progress_tokens::ProgressTokens;
use crate::server_subscriptions::ServerSubscriptions;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, GetExtensions, InitializeRequestParams, RequestMetaObject};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Retained loops that each lease or release checks for reuse.
const MAX_RECLAIM_CHECKS: usize = 2;

/// State that all loops of a pool share.
#[derive(Clone)]
pub(crate) enum Registry {
    /// The loops serve one session: its progress tokens.
    Session(Arc<ProgressTokens>),
    /// The loops serve stateless calls of many clients: the subscriptions that servers handle.
    Stateless(Arc<ServerSubscriptions>),
}

pub(crate) struct PeerPool {
    loops: Mutex<PooledLoops>,
    registry: Registry,
    handler: NotificationHandler,
    /// Loops whose peers handlers may retain. Beyond this, the pool closes the oldest.
    max_retained: usize,
}

#[derive(Default)]
struct PooledLoops {
    idle: Vec<PeerLoop>,
    /// Loops whose peer a handler holds after its call, oldest first.
    retained: VecDeque<PeerLoop>,
    /// Index in `retained` of the last reclaim check.
    last_check: usize,
    leased: usize,
    closed: bool,
}

impl PeerPool {
    pub(crate) fn new(max_retained: usize, registry: Registry, handler: NotificationHandler) -> Arc<Self> {
        Arc::new(PeerPool {
            loops: Mutex::default(),
            registry,
            handler,
            max_retained,
        })
    }

    /// Leases a loop that sends to `destination`. A new loop reports `info` as its client.
    pub(crate) fn lease(
        self: &Arc<Self>,
        destination: Destination,
        info: impl FnOnce() -> InitializeRequestParams,
    ) -> PeerLease {
        let idle = {
            let mut loops = self.loops.lock();
            loops.leased += 1;
            loops.idle.pop().or_else(|| loops.reclaim())
        };
        let peer_loop = match idle {
            Some(peer_loop) => {
                peer_loop.set_destination(destination.clone());
                peer_loop
            }
            None => PeerLoop::start(destination.clone(), info(), self.registry.clone(), self.handler.clone()),
        };
        PeerLease {
            pool: Arc::clone(self),
            peer_loop: Some(peer_loop),
            destination,
        }
    }

    /// The progress tokens, if the pool serves a session.
    pub(crate) fn tokens(&self) -> Option<&Arc<ProgressTokens>> {
        match &self.registry {
            Registry::Session(tokens) => Some(tokens),
            Registry::Stateless(_) => None,
        }
    }

    fn release(&self, peer_loop: PeerLoop) {
        let free = peer_loop.is_free();
        if free {
            peer_loop.reset();
        }
        let mut loops = self.loops.lock();
        loops.leased -= 1;
        let mut closing = Vec::new();
        match (free, loops.closed) {
            (_, true) => closing.push(peer_loop),
            (true, false) => loops.idle.push(peer_loop),
            (false, false) => {
                loops.retained.push_back(peer_loop);
                if loops.retained.len() > self.max_retained {
                    closing.extend(loops.retained.pop_front());
                } else {
                    closing.extend(loops.reclaim());
                }
            }
        }
        // At most as many idle loops as leased ones, so that a burst leaves no idle loops.
        let max_idle = loops.leased.max(1);
        if loops.idle.len() > max_idle {
            closing.extend(loops.idle.drain(max_idle..));
        }
        // Close loops only after releasing the lock.
        drop(loops);
        drop(closing);
    }

    /// Updates the client information of every pooled peer.
    pub(crate) fn set_peer_info(&self, info: &InitializeRequestParams) {
        let loops = self.loops.lock();
        for peer_loop in loops.idle.iter().chain(&loops.retained) {
            peer_loop.peer().set_peer_info(info.clone());
        }
    }

    /// Closes every loop at the end of the session.
    pub(crate) fn close(&self) {
        let mut loops = self.loops.lock();
        loops.closed = true;
        let (idle, retained) = (std::mem::take(&mut loops.idle), std::mem::take(&mut loops.retained));
        drop(loops);
        drop((idle, retained));
    }

    /// Number of loops: idle, retained, leased.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize, usize) {
        let loops = self.loops.lock();
        (loops.idle.len(), loops.retained.len(), loops.leased)
    }
}

impl PooledLoops {
    /// Removes a retained loop whose peer was dropped. Checks a few only, so that retained peers do not slow calls.
    fn reclaim(&mut self) -> Option<PeerLoop> {
        for _ in 0..MAX_RECLAIM_CHECKS.min(self.retained.len()) {
            self.last_check = if self.last_check + 1 < self.retained.len() {
                self.last_check + 1
            } else {
                0
            };
            if self.retained[self.last_check].is_free() {
                let peer_loop = self.retained.remove(self.last_check)?;
                peer_loop.reset();
                return Some(peer_loop);
            }
        }
        None
    }
}

/// A leased loop. Dropping it releases the loop to its pool.
pub(crate) struct PeerLease {
    pool: Arc<PeerPool>,
    peer_loop: Option<PeerLoop>,
    destination: Destination,
}

impl PeerLease {
    pub(crate) fn peer(&self) -> rmcp::Peer<RoleServer> {
        self.peer_loop().peer().clone()
    }

    /// Sets the client of a stateless request; consecutive requests on a loop may come from different clients.
    pub(crate) fn set_client(&self, meta: &RequestMetaObject) {
        self.peer_loop().set_client(meta);
    }

    /// Passes a notification to the server. The notification holds the lease and the permit until its handler returns.
    pub(crate) async fn notify_server(self, mut notification: ClientNotification, permit: OwnedSemaphorePermit) {
        let shared = Arc::clone(self.peer_loop().shared());
        let (guard, start) = NotificationGuard::new(Some(self), permit);
        notification.extensions_mut().insert(guard);
        shared.notify_server(notification, start).await;
    }

    fn peer_loop(&self) -> &PeerLoop {
        self.peer_loop
            .as_ref()
            .expect("a lease holds its loop until it is dropped")
    }
}

impl Drop for PeerLease {
    fn drop(&mut self) {
        let Some(peer_loop) = self.peer_loop.take() else { return };
        if let Registry::Stateless(subscriptions) = &self.pool.registry {
            subscriptions.remove(peer_loop.id());
        }
        peer_loop.set_destination(self.destination.after_call());
        self.pool.release(peer_loop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{ClientCapabilities, Implementation};
    use std::future::Future;

    fn pool(max_retained: usize) -> Arc<PeerPool> {
        PeerPool::new(
            max_retained,
            Registry::Session(Arc::default()),
            NotificationHandler::default(),
        )
    }

    fn lease_from(pool: &Arc<PeerPool>) -> PeerLease {
        pool.lease(Destination::Unassigned, || {
            InitializeRequestParams::new(ClientCapabilities::default(), Implementation::new("c", "1"))
        })
    }

    async fn eventually(condition: impl Fn() -> bool) {
        let poll = async {
            while !condition() {
                tokio::task::yield_now().await;
            }
        };
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(30), poll).await;
        outcome.expect("condition within 30 seconds");
    }

    #[tokio::test]
    async fn loop_is_reused_after_its_peer_is_dropped() {
        let pool = pool(4);
        for _ in 0..10 {
            let lease = lease_from(&pool);
            let id = lease.peer_loop().id();
            drop((lease.peer(), lease));
            assert_eq!(pool.count(), (1, 0, 0));
            assert_eq!(lease_from(&pool).peer_loop().id(), id);
        }
    }

    #[tokio::test]
    async fn loop_is_not_reused_while_its_peer_is_held() {
        let pool = pool(4);
        let lease = lease_from(&pool);
        let (id, peer) = (lease.peer_loop().id(), lease.peer());
        drop(lease);
        assert_eq!(pool.count(), (0, 1, 0));
        for _ in 0..5 {
            assert_ne!(lease_from(&pool).peer_loop().id(), id);
        }
        drop(peer);
        let (one, two) = (lease_from(&pool), lease_from(&pool));
        assert!(
            [one.peer_loop().id(), two.peer_loop().id()].contains(&id),
            "reused after the drop"
        );
    }

    /// Otherwise the message would go to the next call.
    #[tokio::test]
    async fn loop_is_not_reused_while_a_message_is_unrouted() {
        let pool = pool(4);
        let lease = lease_from(&pool);
        let id = lease.peer_loop().id();
        {
            let peer = lease.peer();
            let mut sending = std::pin::pin!(peer.notify_tool_list_changed());
            // Dropped midway: the message is in the channel, and the loop has not run yet.
            let first_poll = std::future::poll_fn(|cx| std::task::Poll::Ready(sending.as_mut().poll(cx))).await;
            assert!(first_poll.is_pending());
        }
        drop(lease);
        assert_eq!(pool.count(), (0, 1, 0));
        let next = lease_from(&pool);
        assert_ne!(next.peer_loop().id(), id);
        eventually(|| pool.loops.lock().retained.iter().all(PeerLoop::is_free)).await;
        assert_eq!(lease_from(&pool).peer_loop().id(), id, "reused after routing");
    }

    #[tokio::test]
    async fn burst_leaves_one_idle_loop() {
        let pool = pool(4);
        let burst: Vec<_> = (0..20).map(|_| lease_from(&pool)).collect();
        assert_eq!(pool.count(), (0, 0, 20));
        drop(burst);
        assert_eq!(pool.count().0, 1);
    }

    #[tokio::test]
    async fn oldest_retained_loop_is_closed_at_the_limit() {
        let pool = pool(4);
        let peers: Vec<_> = (0..6).map(|_| lease_from(&pool).peer()).collect();
        eventually(|| peers[1].is_transport_closed()).await;
        let closed: Vec<_> = peers.iter().map(rmcp::Peer::is_transport_closed).collect();
        assert_eq!(closed, [true, true, false, false, false, false]);
        pool.close();
        eventually(|| peers.iter().all(rmcp::Peer::is_transport_closed)).await;
        assert_eq!(pool.count(), (0, 0, 0));
    }
}
