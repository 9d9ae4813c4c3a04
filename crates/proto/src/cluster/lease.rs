//! The lease of this node, measured by the node itself.
//!
//! For a node, its lease must end no later than for the store. So it measures from the moment *before* it sent the
//! renewal, with a clock that also counts suspended time. Clocks of different machines are never compared.

use super::{Incarnation, Members};
use crate::clock::Mono;
use std::time::Duration;

/// Renewals per length of a lease.
const RENEWALS_PER_LEASE: u32 = 4;
/// Limit of the delay after a failed join or renewal.
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The time for which a node may act as a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseClock {
    length: Duration,
    /// The moment before the last successful join or renewal was sent.
    sent: Mono,
}

impl LeaseClock {
    /// A lease of `length` that was requested at `sent`.
    pub const fn new(length: Duration, sent: Mono) -> Self {
        LeaseClock { length, sent }
    }

    /// A renewal that was sent at `sent` has succeeded. A late result of an earlier renewal changes nothing.
    pub fn renewed(&mut self, sent: Mono) {
        self.sent = self.sent.max(sent);
    }

    /// How long the lease holds after each renewal.
    pub const fn length(&self) -> Duration {
        self.length
    }

    /// The moment from which other nodes may act for this one.
    pub fn end(&self) -> Mono {
        self.sent + self.length
    }

    /// Whether no other node may act for this one. Read the clock for each call: a process that was stopped serves
    /// sockets before its timers fire.
    pub fn holds(&self, now: Mono) -> bool {
        now < self.end()
    }

    /// The moment of the next renewal.
    pub fn next_renewal(&self) -> Mono {
        self.sent + self.length / RENEWALS_PER_LEASE
    }

    /// The delay after a failed renewal.
    fn retry_pause(&self) -> Duration {
        MAX_RETRY_PAUSE.min(self.length / RENEWALS_PER_LEASE)
    }
}

/// Decides when a node joins and renews, and lists its obligations when the lease ends.
#[derive(Debug)]
pub struct LeaseKeeper {
    state: KeeperState,
    /// The incarnation before this one.
    previous: Option<Incarnation>,
    /// The next attempt to join or to renew.
    next: Mono,
    /// The identity of the store at the last renewal.
    born: Option<Box<str>>,
}

#[derive(Debug)]
enum KeeperState {
    Outside,
    Member(Incarnation, LeaseClock),
    /// A newer process has the name of this one. This process must exit.
    Replaced,
    /// The node has given its lease back. It never joins again.
    Left,
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Join, or join again after the lease of this incarnation has ended.
    Join(Option<Incarnation>),
    /// Renew the lease of this incarnation.
    Renew(Incarnation),
}

/// Why a join or a renewal failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseError {
    /// The store cannot be reached. A renewal may have succeeded nevertheless.
    StoreFailed,
    /// The lease has ended or was removed. That is final.
    Ended,
    /// A newer process has joined under the name of this one.
    Replaced,
}

/// A successful renewal, as the store reported it.
#[derive(Clone, Debug)]
pub struct RenewedLease {
    /// The moment before the renewal was sent.
    pub sent: Mono,
    /// All members whose leases hold.
    pub live: Vec<Incarnation>,
    /// The identity of the store. It changes when the store has lost everything.
    pub born: Box<str>,
}

/// An obligation of a node. The caller performs actions in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// The node is a member. Close connections that stayed open since its last lease: their clients resume from the
    /// store.
    Serve(Incarnation),
    /// These nodes are dead. Close their orphaned streams with readers here, remove their GETs from sessions that are
    /// open here, and settle requests that were forwarded to them.
    SettleDead(Vec<Incarnation>),
    /// Session requests get 503 until the node has joined again. Requests without a session continue.
    RefuseSessions,
    /// Sessions that this node owns end here with their children: another node may have claimed them.
    EndOwnedSessions,
    /// Parked calls are cancelled: a retry elsewhere is refused.
    CancelParkedCalls,
    /// Call streams are closed without an end: another node may have ended them with an error.
    CloseCallStreams,
    /// Views are dropped. GETs stay open, with keep-alives only, until the node has joined again.
    DropViews,
    /// Exit the process, because a newer one has its name.
    Exit,
}

impl LeaseKeeper {
    /// A node that has not joined.
    pub fn new() -> Self {
        LeaseKeeper {
            state: KeeperState::Outside,
            previous: None,
            next: Mono::default(),
            born: None,
        }
    }

    /// The incarnation and lease of a member.
    pub fn member(&self) -> Option<(&Incarnation, &LeaseClock)> {
        match &self.state {
            KeeperState::Member(incarnation, clock) => Some((incarnation, clock)),
            _ => None,
        }
    }

    /// Whether the node may act as a member at `now`.
    pub fn holds(&self, now: Mono) -> bool {
        self.member().is_some_and(|(_, clock)| clock.holds(now))
    }

    /// The request that is due. The caller reads `now` before it sends the request, and passes the same `now` with the
    /// result. It calls this again at [`next`](Self::next).
    pub fn poll(&mut self, now: Mono) -> (Option<LeaseRequest>, Vec<MemberAction>) {
        let actions = match &self.state {
            KeeperState::Member(_, clock) if !clock.holds(now) => self.expire(now),
            _ => Vec::new(),
        };
        if now < self.next {
            return (None, actions);
        }
        let request = match &self.state {
            KeeperState::Outside => Some(LeaseRequest::Join(self.previous.clone())),
            KeeperState::Member(incarnation, _) => Some(LeaseRequest::Renew(incarnation.clone())),
            KeeperState::Replaced | KeeperState::Left => None,
        };
        self.next = now + self.pause();
        (request, actions)
    }

    /// The moment of the next [`poll`](Self::poll).
    pub fn next(&self) -> Mono {
        match &self.state {
            KeeperState::Member(_, clock) => self.next.min(clock.end()),
            _ => self.next,
        }
    }

    /// The result of a join that was sent at `sent`.
    pub fn joined(&mut self, sent: Mono, result: Result<(Incarnation, Duration), LeaseError>) -> Vec<MemberAction> {
        match (&self.state, result) {
            (KeeperState::Outside, Ok((incarnation, length))) => {
                self.state = KeeperState::Member(incarnation.clone(), LeaseClock::new(length, sent));
                self.next = sent; // the first renewal reads the live set
                self.born = None;
                vec![MemberAction::Serve(incarnation)]
            }
            (_, Err(LeaseError::Replaced)) => self.replaced(),
            _ => Vec::new(),
        }
    }

    /// The result of a renewal of `member`.
    pub fn renewed(
        &mut self,
        member: &Incarnation,
        now: Mono,
        result: Result<RenewedLease, LeaseError>,
        members: &mut Members,
    ) -> Vec<MemberAction> {
        let KeeperState::Member(current, clock) = &mut self.state else {
            return Vec::new(); // the lease has ended
        };
        if current != member {
            return Vec::new();
        }
        match result {
            Ok(renewal) => {
                let born = self.born.get_or_insert_with(|| renewal.born.clone());
                if *born != renewal.born {
                    return self.expire(now); // the store has lost every session and this lease
                }
                clock.renewed(renewal.sent);
                self.next = clock.next_renewal();
                let died = members.renewed(renewal.sent, &renewal.live, now);
                if died.is_empty() {
                    return Vec::new();
                }
                vec![MemberAction::SettleDead(died)]
            }
            Err(LeaseError::StoreFailed) => Vec::new(),
            Err(LeaseError::Ended) => self.expire(now),
            Err(LeaseError::Replaced) => self.replaced(),
        }
    }

    /// The node leaves: it is not a member from now on, and does not join again. Returns its incarnation.
    pub fn leave(&mut self) -> Option<Incarnation> {
        match std::mem::replace(&mut self.state, KeeperState::Left) {
            KeeperState::Member(incarnation, _) => Some(incarnation),
            KeeperState::Replaced => {
                self.state = KeeperState::Replaced;
                None
            }
            KeeperState::Outside => self.previous.take(),
            KeeperState::Left => None,
        }
    }

    fn pause(&self) -> Duration {
        match &self.state {
            KeeperState::Member(_, clock) => clock.retry_pause(),
            _ => MAX_RETRY_PAUSE,
        }
    }

    fn expire(&mut self, now: Mono) -> Vec<MemberAction> {
        let state = std::mem::replace(&mut self.state, KeeperState::Outside);
        if let KeeperState::Member(incarnation, _) = state {
            self.previous = Some(incarnation);
        }
        self.next = now;
        vec![
            MemberAction::RefuseSessions,
            MemberAction::EndOwnedSessions,
            MemberAction::CancelParkedCalls,
            MemberAction::CloseCallStreams,
            MemberAction::DropViews,
        ]
    }

    fn replaced(&mut self) -> Vec<MemberAction> {
        let mut actions = match self.state {
            KeeperState::Member(..) => self.expire(self.next),
            _ => Vec::new(),
        };
        self.state = KeeperState::Replaced;
        actions.push(MemberAction::Exit);
        actions
    }
}

impl Default for LeaseKeeper {
    fn default() -> Self {
        LeaseKeeper::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Mono {
        Mono::from_millis(millis)
    }

    fn node(n: u64) -> Incarnation {
        Incarnation::new(n, 0)
    }

    fn member() -> LeaseKeeper {
        let mut keeper = LeaseKeeper::new();
        assert_eq!(keeper.poll(at(0)).0, Some(LeaseRequest::Join(None)));
        let actions = keeper.joined(at(0), Ok((node(1), LEASE)));
        assert_eq!(actions, [MemberAction::Serve(node(1))]);
        keeper
    }

    fn renew(keeper: &mut LeaseKeeper, sent: u64, born: &str) -> Vec<MemberAction> {
        let renewal = RenewedLease {
            sent: at(sent),
            live: vec![node(1)],
            born: born.into(),
        };
        keeper.renewed(&node(1), at(sent), Ok(renewal), &mut Members::new())
    }

    #[test]
    fn node_lease_is_measured_from_before_the_renewal_was_sent() {
        let mut clock = LeaseClock::new(LEASE, at(1_000));
        assert!(clock.holds(at(10_999)) && !clock.holds(at(11_000)));
        clock.renewed(at(3_500));
        clock.renewed(at(2_000)); // a late result
        assert!(clock.holds(at(13_499)) && !clock.holds(at(13_500)));
        assert_eq!(clock.next_renewal(), at(6_000));
    }

    #[test]
    fn node_lease_is_renewed_every_quarter() {
        let mut keeper = member();
        let (request, actions) = keeper.poll(at(5));
        assert_eq!((request, actions), (Some(LeaseRequest::Renew(node(1))), Vec::new()));
        assert_eq!(keeper.poll(at(6)).0, None, "one request is in flight");
        assert!(renew(&mut keeper, 5, "a").is_empty());
        assert_eq!(keeper.next(), at(2_505));
        assert_eq!(keeper.poll(at(2_505)).0, Some(LeaseRequest::Renew(node(1))));
        let failed = keeper.renewed(&node(1), at(2_600), Err(LeaseError::StoreFailed), &mut Members::new());
        assert!(failed.is_empty());
        assert_eq!(
            keeper.poll(at(2_755)).0,
            Some(LeaseRequest::Renew(node(1))),
            "soon again"
        );
        assert!(keeper.holds(at(10_004)) && !keeper.holds(at(10_005)));
    }

    /// The lease in the store begins between the send and the result.
    #[test]
    fn node_result_of_a_renewal_that_arrives_late_gives_no_more_time() {
        let mut keeper = member();
        let renewal = RenewedLease {
            sent: at(2_500),
            live: vec![node(1)],
            born: "a".into(),
        };
        let _ = keeper.renewed(&node(1), at(9_000), Ok(renewal), &mut Members::new());
        assert!(keeper.holds(at(12_499)) && !keeper.holds(at(12_500)));
    }

    #[test]
    fn node_expired_lease_ends_everything_that_another_node_may_take_over() {
        let mut keeper = member();
        let (request, actions) = keeper.poll(at(10_000));
        assert_eq!(
            request,
            Some(LeaseRequest::Join(Some(node(1)))),
            "it joins again at once"
        );
        assert_eq!(
            actions,
            [
                MemberAction::RefuseSessions,
                MemberAction::EndOwnedSessions,
                MemberAction::CancelParkedCalls,
                MemberAction::CloseCallStreams,
                MemberAction::DropViews,
            ]
        );
        assert!(
            renew(&mut keeper, 9_999, "a").is_empty() && !keeper.holds(at(10_000)),
            "a late result"
        );
        assert_eq!(
            keeper.joined(at(10_000), Ok((node(2), LEASE))),
            [MemberAction::Serve(node(2))]
        );
        assert!(
            renew(&mut keeper, 10_500, "a").is_empty() && keeper.next() == at(10_000),
            "of the old lease"
        );
    }

    #[test]
    fn node_ends_its_lease_when_the_store_was_emptied_or_refuses() {
        let mut keeper = member();
        let _ = renew(&mut keeper, 5, "a");
        assert_eq!(renew(&mut keeper, 6, "b").len(), 5);
        assert!(!keeper.holds(at(6)));
        let mut keeper = member();
        let ended = keeper.renewed(&node(1), at(7), Err(LeaseError::Ended), &mut Members::new());
        assert_eq!(ended.first(), Some(&MemberAction::RefuseSessions));
        let mut keeper = member();
        let replaced = keeper.renewed(&node(1), at(7), Err(LeaseError::Replaced), &mut Members::new());
        assert_eq!(replaced.last(), Some(&MemberAction::Exit));
        assert_eq!(keeper.poll(at(99_000)), (None, Vec::new()), "it never joins again");
        assert!(keeper.next() > at(99_000), "no poll is due");
    }

    #[test]
    fn node_that_has_left_does_not_join_again() {
        let mut keeper = member();
        assert_eq!(keeper.leave(), Some(node(1)));
        assert!(!keeper.holds(at(1)));
        let ended = keeper.renewed(&node(1), at(1), Err(LeaseError::Ended), &mut Members::new());
        assert!(ended.is_empty(), "the store has removed the lease");
        assert_eq!(keeper.poll(at(99_000)), (None, Vec::new()));
        assert!(
            keeper.joined(at(99_000), Ok((node(2), LEASE))).is_empty(),
            "a late result"
        );
        assert_eq!(keeper.leave(), None);
        let mut keeper = member();
        let _ = keeper.poll(at(10_000));
        assert_eq!(keeper.leave(), Some(node(1)), "its server has joined and not left");
    }
}
