//! The membership of this process in a cluster: its incarnation, its lease, and the nodes that it knows to live.
//!
//! The decisions are in `rethread_proto::cluster`. A store with one member has no lease: the process is the cluster, and
//! nobody else acts for it.

use parking_lot::{Mutex, RwLock};
use rethread_proto::clock::{Mono, Wall};
use rethread_proto::cluster::{LeaseError, LeaseKeeper, LeaseRequest, Liveness, MemberAction, Members, RenewedLease};
use rethread_store::{ClusterStore, Incarnation, Renewal, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The lease of a node that does not know its own.
const DEFAULT_LEASE: Duration = Duration::from_secs(10);
/// The lease end of a process that is the only member.
const NEVER: u64 = u64::MAX;

/// This process as a member.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The end of the lease, in milliseconds of [`boot_time`]. A copy of the keeper's, for the check of every request.
    lease_end: AtomicU64,
    current: RwLock<Option<Arc<Incarnation>>>,
    keeper: Mutex<LeaseKeeper>,
    /// The time of the store when [`boot_time`] was zero, in milliseconds of the wall clock. Zero if it is not known.
    store_epoch: AtomicU64,
    members: Mutex<Members>,
    /// Whether wake-ups arrive. Without them a view may be out of date.
    has_wake_ups: AtomicBool,
    /// Notified when the members have changed, and when this process has joined.
    changed: Notify,
    /// A newer process has joined under the name of this one.
    replaced: watch::Sender<bool>,
}

impl Membership {
    /// A process that is the only member.
    pub(crate) fn alone() -> Self {
        Self::new(NEVER)
    }

    /// A process that has not joined yet.
    pub(crate) fn outside() -> Self {
        Self::new(0)
    }

    fn new(lease_end: u64) -> Self {
        Membership {
            lease_end: AtomicU64::new(lease_end),
            current: RwLock::default(),
            keeper: Mutex::default(),
            store_epoch: AtomicU64::new(0),
            members: Mutex::default(),
            has_wake_ups: AtomicBool::new(true),
            changed: Notify::new(),
            replaced: watch::Sender::new(false),
        }
    }

    /// Whether the lease holds: no other node acts for this one. Reads the clock, because a process that was stopped serves
    /// sockets before any of its timers fires.
    pub(crate) fn holds(&self) -> bool {
        let end = self.lease_end.load(Ordering::Acquire);
        end == NEVER || boot_time().as_millis() < end
    }

    // ---- the clock of the store ----

    /// The store has just returned its time. It is measured from there on with [`boot_time`], so that a step of the local wall
    /// clock has no effect.
    pub(crate) fn set_store_time(&self, now: Wall) {
        let epoch = now.since(Wall::from_millis(boot_time().as_millis()));
        self.store_epoch.store(epoch.as_millis() as u64, Ordering::Relaxed);
    }

    /// The time that all nodes share: that of the store. `None` if this process is the only member, or has not joined yet.
    pub(crate) fn store_time(&self) -> Option<Wall> {
        match self.store_epoch.load(Ordering::Relaxed) {
            0 => None,
            epoch => Some(Wall::from_millis(epoch.saturating_add(boot_time().as_millis()))),
        }
    }

    // ---- the lease: see `LeaseKeeper` ----

    /// The request to the store that is due at `now`.
    pub(crate) fn poll(&self, now: Mono) -> (Option<LeaseRequest>, Vec<MemberAction>) {
        self.with_keeper(|keeper| keeper.poll(now))
    }

    /// Leaves the cluster for good. Returns the incarnation whose lease is to be given back.
    pub(crate) fn leave(&self) -> Option<Incarnation> {
        self.with_keeper(LeaseKeeper::leave)
    }

    /// The time until the next poll.
    pub(crate) fn pause(&self, now: Mono) -> Duration {
        self.keeper.lock().next().since(now)
    }

    pub(crate) fn joined(&self, sent: Mono, result: Result<(Incarnation, Duration), LeaseError>) -> Vec<MemberAction> {
        if let Ok((incarnation, _)) = &result {
            *self.current.write() = Some(Arc::new(incarnation.clone()));
        }
        self.with_keeper(|keeper| keeper.joined(sent, result))
    }

    pub(crate) fn renewed(
        &self,
        member: &Incarnation,
        sent: Mono,
        result: Result<Renewal, LeaseError>,
    ) -> Vec<MemberAction> {
        let result = result.map(|renewal| {
            self.set_store_time(renewal.now);
            RenewedLease {
                sent,
                live: renewal.live,
                born: renewal.born,
            }
        });
        let mut members = self.members.lock();
        self.with_keeper(|keeper| keeper.renewed(member, boot_time(), result, &mut members))
    }

    fn with_keeper<T>(&self, change: impl FnOnce(&mut LeaseKeeper) -> T) -> T {
        let mut keeper = self.keeper.lock();
        let changed = change(&mut keeper);
        let end = keeper.member().map_or(0, |(_, clock)| clock.end().as_millis());
        self.lease_end.store(end, Ordering::Release);
        drop(keeper);
        self.changed.notify_waiters();
        changed
    }

    /// The length of the lease. Without one, a moment that suits waits.
    pub(crate) fn lease(&self) -> Duration {
        let keeper = self.keeper.lock();
        keeper.member().map_or(DEFAULT_LEASE, |(_, clock)| clock.length())
    }

    /// How long the lease holds from now on.
    pub(crate) fn lease_left(&self) -> Duration {
        let keeper = self.keeper.lock();
        keeper
            .member()
            .map_or(Duration::ZERO, |(_, clock)| clock.end().since(boot_time()))
    }

    /// Waits until the lease holds.
    pub(crate) async fn when_joined(&self) {
        loop {
            let changed = self.changed.notified();
            if self.holds() {
                return;
            }
            changed.await;
        }
    }

    // ---- the members ----

    /// The incarnation of this process. `None` if it is the only member, or has not joined yet.
    pub(crate) fn current(&self) -> Option<Arc<Incarnation>> {
        self.current.read().clone()
    }

    pub(crate) fn is_this_process(&self, incarnation: &Incarnation) -> bool {
        self.current.read().as_deref() == Some(incarnation)
    }

    /// Decides something with the members that this process knows.
    pub(crate) fn with_members<T>(&self, decide: impl FnOnce(&Members) -> T) -> T {
        decide(&self.members.lock())
    }

    /// The number of members that are known to live.
    pub(crate) fn live_nodes(&self) -> usize {
        self.members.lock().live().count()
    }

    /// Asks the store whether a node lives.
    pub(crate) async fn check(&self, store: &dyn ClusterStore, node: &Incarnation) -> Result<(), StoreError> {
        let is_alive = store.is_alive(node).await?;
        if self.members.lock().checked(node, is_alive, boot_time()) {
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// Learns of members that have joined since the last renewal. A node that stops passes its work to them.
    pub(crate) async fn learn_members(&self, store: &dyn ClusterStore) {
        let Some(current) = self.current() else { return };
        if let Ok(renewal) = store.renew(&current).await {
            let mut members = self.members.lock();
            for member in renewal.live {
                members.checked(&member, true, boot_time());
            }
        }
    }

    /// Whether a node is dead. A node that is missing from the local copy of the live set may be newer than the copy, so
    /// the store decides.
    pub(crate) async fn is_dead(&self, store: &dyn ClusterStore, node: &Incarnation) -> Result<bool, StoreError> {
        if self.is_this_process(node) {
            return Ok(false);
        }
        if self.with_members(|members| members.liveness(node)) == Liveness::Unknown {
            self.check(store, node).await?;
        }
        Ok(self.with_members(|members| members.liveness(node)) == Liveness::Dead)
    }

    /// Waits until a node is known to be dead.
    pub(crate) async fn when_dead(&self, store: &dyn ClusterStore, node: &Incarnation) {
        loop {
            let changed = self.changed.notified();
            if matches!(self.is_dead(store, node).await, Ok(true)) {
                return;
            }
            changed.await;
        }
    }

    /// Wake-ups arrive, or may be lost from now on. Returns whether they arrived before.
    pub(crate) fn set_wake_ups(&self, arrive: bool) -> bool {
        self.has_wake_ups.swap(arrive, Ordering::AcqRel)
    }

    /// Whether views can be trusted without asking the store.
    pub(crate) fn has_wake_ups(&self) -> bool {
        self.has_wake_ups.load(Ordering::Acquire)
    }

    pub(crate) fn set_replaced(&self) {
        self.replaced.send_replace(true);
    }

    /// Waits until a newer process has joined under the name of this one.
    pub(crate) async fn when_replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        let _ = replaced.wait_for(|replaced| *replaced).await; // the sender lives as long as `self`
    }
}

/// The time since the machine was started, including the time in which it was suspended. A process that wakes from a
/// suspension thus finds its lease ended.
#[cfg(target_os = "linux")]
pub(crate) fn boot_time() -> Mono {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Mono::from_start(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
}

/// The time since the first call.
#[cfg(not(target_os = "linux"))]
pub(crate) fn boot_time() -> Mono {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    Mono::from_start(START.get_or_init(std::time::Instant::now).elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_of_the_only_member_holds() {
        assert!(Membership::alone().holds());
        assert!(
            !Membership::outside().holds(),
            "a process that has not joined has no lease"
        );
    }

    #[test]
    fn lease_is_measured_from_before_it_was_requested() {
        const LEASE: Duration = Duration::from_secs(60);
        let (membership, now, inc) = (Membership::outside(), boot_time(), Incarnation::new(1, 1));
        let (request, _) = membership.poll(now);
        assert_eq!(request, Some(LeaseRequest::Join(None)));
        let long_ago = Mono::from_start(now.since(Mono::from_start(2 * LEASE)));
        membership.joined(long_ago, Ok((inc.clone(), LEASE)));
        assert!(!membership.holds());
        let (_, actions) = membership.poll(now);
        assert!(actions.contains(&MemberAction::RefuseSessions));
        membership.joined(now, Ok((inc, LEASE)));
        assert!(membership.holds());
    }
}
