//! Decides who may run a child (GW-20, GW-21, GW-22). Pure: times are arguments, decisions are [`Action`]s.
//!
//! A child has a place from its start until its process is reaped. Starts wait in order for a place. A child that nobody needs
//! is stopped after its idle limit, and earlier if another start needs its place.

use crate::child::kind::ChildKind;
use crate::upstream::StopCause;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

/// A child must be without need for this long before another start may take its place: a session that was just
/// initialized can then make its call.
pub(crate) const EVICTABLE_AFTER: Duration = Duration::from_millis(500);
/// How long a start waits while every child is needed. Beyond: [`Refused::Busy`].
pub(crate) const BUSY_AFTER: Duration = Duration::from_secs(1);
/// Starts that may wait at the same time. Beyond: [`Refused::Busy`] at once.
pub(crate) const MAX_WAITING_STARTS: usize = 1024;

/// A child, from its grant until its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChildId(u64);

/// A start that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WaiterId(u64);

/// Whether a child is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Needed,
    /// It was needed until this moment.
    UnneededSince(Duration),
}

/// Why a start gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Every child that it could replace is needed, or too many starts wait.
    Busy,
    /// It waited for the longest time that it may.
    TimedOut,
}

/// A task for the caller of [`PoolState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The start may spawn a process as this child.
    Grant(WaiterId, ChildId),
    /// The start takes over this spare.
    Claim(WaiterId, ChildId),
    Refuse(WaiterId, Refused),
    /// Stop this child, unless it is needed after all: then report its need.
    Stop(ChildId, StopCause),
    /// Spawn a process as this spare.
    StartSpare(ChildId),
}

/// The limits of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) max_children: usize,
    /// Processes that wait for a client.
    pub(crate) spare: usize,
    /// The longest wait of a start.
    pub(crate) start_timeout: Duration,
    /// Whether a start may stop a child that nobody needs.
    pub(crate) evicts: bool,
}

impl PoolLimits {
    /// Free places that are made in advance.
    fn reserve(&self) -> usize {
        if self.evicts {
            (self.max_children / 10).max(self.spare)
        } else {
            0
        }
    }

    /// Children that all leases of one principal may have.
    fn per_principal(&self) -> usize {
        (self.max_children / 2).max(1)
    }
}

/// A start. `principal` bounds leases; `None` is the anonymous caller, who has no bound.
#[derive(Clone, Debug)]
pub(crate) struct Start<P> {
    pub(crate) kind: ChildKind,
    pub(crate) principal: Option<P>,
    /// Nobody needs the child for this long: it is stopped. `None`: its owner decides.
    pub(crate) idle_limit: Option<Duration>,
}

#[derive(Debug)]
struct Child<P> {
    start: Start<P>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is started or initialized, so somebody waits for it.
    Starting,
    Running(Need),
    Stopping,
}

#[derive(Debug)]
struct Waiter<P> {
    id: WaiterId,
    start: Start<P>,
    since: Duration,
    /// From when on every child that it could replace was needed.
    busy_since: Option<Duration>,
}

/// The places of one server. `P` identifies a principal.
#[derive(Debug)]
pub(crate) struct PoolState<P> {
    limits: PoolLimits,
    children: BTreeMap<ChildId, Child<P>>,
    waiters: VecDeque<Waiter<P>>,
    last_id: u64,
    /// No spare is started before this moment: earlier ones have exited.
    spare_not_before: Duration,
    closed: bool,
}

/// Counts for metrics and log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    pub(crate) running: usize,
    pub(crate) needed: usize,
    pub(crate) spare: usize,
}

impl<P: Clone + Eq + Hash> PoolState<P> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        PoolState {
            limits,
            children: BTreeMap::new(),
            waiters: VecDeque::new(),
            last_id: 0,
            spare_not_before: Duration::ZERO,
            closed: false,
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A start asks for a place. [`decide`](Self::decide) answers.
    pub(crate) fn ask(&mut self, start: Start<P>, now: Duration) -> Result<WaiterId, Refused> {
        if self.closed || self.waiters.len() >= MAX_WAITING_STARTS {
            return Err(Refused::Busy);
        }
        let id = WaiterId(self.next_id());
        self.waiters.push_back(Waiter {
            id,
            start,
            since: now,
            busy_since: None,
        });
        Ok(id)
    }

    /// A start waits no longer.
    pub(crate) fn withdraw(&mut self, waiter: WaiterId) {
        self.waiters.retain(|waiting| waiting.id != waiter);
    }

    /// The child is initialized, and its owner reports its need from now on. A spare is ready when it is spawned.
    pub(crate) fn started(&mut self, child: ChildId, now: Duration) {
        self.set_phase(child, Phase::Starting, Phase::Running(Need::UnneededSince(now)));
    }

    /// The need of a running child.
    pub(crate) fn report(&mut self, child: ChildId, need: Need) {
        if let Some(child) = self.children.get_mut(&child)
            && matches!(child.phase, Phase::Running(_))
        {
            child.phase = Phase::Running(need);
        }
    }

    /// The child that was to be stopped is needed.
    pub(crate) fn stop_declined(&mut self, child: ChildId) {
        self.set_phase(child, Phase::Stopping, Phase::Running(Need::Needed));
    }

    /// The child ends by itself. Its place is free when it is [released](Self::release).
    pub(crate) fn exiting(&mut self, child: ChildId) {
        if let Some(child) = self.children.get_mut(&child) {
            child.phase = Phase::Stopping;
        }
    }

    fn set_phase(&mut self, child: ChildId, from: Phase, to: Phase) {
        if let Some(child) = self.children.get_mut(&child).filter(|child| child.phase == from) {
            child.phase = to;
        }
    }

    /// The process of the child is reaped, or was never spawned.
    pub(crate) fn release(&mut self, child: ChildId) {
        self.children.remove(&child);
    }

    /// A spare exited. No other one is started before `not_before`.
    pub(crate) fn spare_exited(&mut self, not_before: Duration) {
        self.spare_not_before = self.spare_not_before.max(not_before);
    }

    /// Starts no spare any more, or begins to.
    pub(crate) fn set_spares(&mut self, spare: usize) {
        self.limits.spare = spare;
    }

    /// Starts nothing from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        let mut counts = PoolCounts::default();
        for child in self.children.values() {
            counts.running += 1;
            if child.start.kind == ChildKind::Spare {
                counts.spare += usize::from(child.phase != Phase::Stopping);
            } else if matches!(child.phase, Phase::Starting | Phase::Running(Need::Needed)) {
                counts.needed += 1;
            }
        }
        counts
    }

    fn free(&self) -> usize {
        self.limits.max_children.saturating_sub(self.children.len())
    }

    /// Decides what to do now. Needs of running children must be up to date.
    pub(crate) fn decide(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        self.stop_idle(now, &mut actions);
        if self.closed {
            actions.extend(self.waiters.drain(..).map(|w| Action::Refuse(w.id, Refused::Busy)));
            return actions;
        }
        let blocked = self.grant(&mut actions);
        self.make_room(now, &blocked, &mut actions);
        self.refuse(now, &blocked, &mut actions);
        self.start_spares(now, &mut actions);
        actions
    }

    fn stop_idle(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for (id, child) in &mut self.children {
            if let (Phase::Running(Need::UnneededSince(since)), Some(limit)) = (child.phase, child.start.idle_limit)
                && now.saturating_sub(since) >= limit
            {
                child.phase = Phase::Stopping;
                actions.push(Action::Stop(*id, StopCause::Idle));
            }
        }
    }

    /// Grants places in order. Returns the principals whose leases have all the places that they may have.
    fn grant(&mut self, actions: &mut Vec<Action>) -> HashMap<P, usize> {
        let mut leases: HashMap<P, usize> = HashMap::new();
        for child in self
            .children
            .values()
            .filter(|child| child.start.kind == ChildKind::Lease)
        {
            if let Some(principal) = &child.start.principal {
                *leases.entry(principal.clone()).or_default() += 1;
            }
        }
        let limit = self.limits.per_principal();
        let mut waiting = VecDeque::with_capacity(self.waiters.len());
        while let Some(waiter) = self.waiters.pop_front() {
            let lease_of = waiter
                .start
                .principal
                .clone()
                .filter(|_| waiter.start.kind == ChildKind::Lease);
            let is_full = lease_of
                .as_ref()
                .is_some_and(|p| leases.get(p).is_some_and(|n| *n >= limit));
            let spare = self.ready_spare().filter(|_| waiter.start.kind != ChildKind::Probe);
            if is_full || (spare.is_none() && self.free() == 0) {
                waiting.push_back(waiter);
                continue;
            }
            if let Some(principal) = lease_of {
                *leases.entry(principal).or_default() += 1;
            }
            let id = spare.unwrap_or_else(|| ChildId(self.next_id()));
            let child = Child {
                start: waiter.start,
                phase: Phase::Starting,
            };
            self.children.insert(id, child);
            actions.push(match spare {
                Some(id) => Action::Claim(waiter.id, id),
                None => Action::Grant(waiter.id, id),
            });
        }
        self.waiters = waiting;
        leases.retain(|_, children| *children >= limit);
        leases
    }

    fn ready_spare(&self) -> Option<ChildId> {
        let is_ready =
            |child: &Child<P>| child.start.kind == ChildKind::Spare && matches!(child.phase, Phase::Running(_));
        self.children
            .iter()
            .find(|(_, child)| is_ready(child))
            .map(|(id, _)| *id)
    }

    /// Stops the least recently needed children for the starts that wait, and for the reserve.
    fn make_room(&mut self, now: Duration, blocked: &HashMap<P, usize>, actions: &mut Vec<Action>) {
        if !self.limits.evicts {
            return;
        }
        // A principal at its bound makes room among its own leases.
        let mut wanted_by: HashMap<P, usize> = HashMap::new();
        let mut wanted = 0;
        for waiter in &self.waiters {
            match self.blocked_principal(waiter, blocked) {
                Some(principal) => *wanted_by.entry(principal).or_default() += 1,
                None => wanted += 1,
            }
        }
        for (principal, wanted) in wanted_by {
            let is_own = |child: &Child<P>| {
                child.start.kind == ChildKind::Lease && child.start.principal.as_ref() == Some(&principal)
            };
            let stopping = self.stopping(is_own);
            for _ in stopping..wanted {
                let Some(victim) = self.victim(now, is_own) else { break };
                self.stop(victim, actions);
            }
        }
        let is_any = |_: &Child<P>| true;
        let wanted = wanted + self.limits.reserve();
        for _ in (self.free() + self.stopping(is_any))..wanted {
            let Some(victim) = self.victim(now, is_any) else { break };
            self.stop(victim, actions);
        }
    }

    fn blocked_principal(&self, waiter: &Waiter<P>, blocked: &HashMap<P, usize>) -> Option<P> {
        let principal = waiter.start.principal.as_ref()?;
        (waiter.start.kind == ChildKind::Lease && blocked.contains_key(principal)).then(|| principal.clone())
    }

    fn stopping(&self, filter: impl Fn(&Child<P>) -> bool) -> usize {
        let is_stopping = |child: &&Child<P>| child.phase == Phase::Stopping && filter(child);
        self.children.values().filter(is_stopping).count()
    }

    /// The child that was longest without need, if that is long enough.
    fn victim(&self, now: Duration, filter: impl Fn(&Child<P>) -> bool) -> Option<ChildId> {
        let unneeded = self.children.iter().filter_map(|(id, child)| match child.phase {
            Phase::Running(Need::UnneededSince(since))
                if child.start.kind != ChildKind::Spare
                    && filter(child)
                    && now.saturating_sub(since) >= EVICTABLE_AFTER =>
            {
                Some((since, *id))
            }
            _ => None,
        });
        unneeded.min().map(|(_, id)| id)
    }

    fn stop(&mut self, id: ChildId, actions: &mut Vec<Action>) {
        if let Some(child) = self.children.get_mut(&id) {
            child.phase = Phase::Stopping;
            actions.push(Action::Stop(id, StopCause::MaxChildren));
        }
    }

    /// Refuses starts that waited too long, or that have no chance.
    fn refuse(&mut self, now: Duration, blocked: &HashMap<P, usize>, actions: &mut Vec<Action>) {
        let evicts = self.limits.evicts;
        let gives_way = |child: &Child<P>| match child.phase {
            // A child that starts is soon without need, or ends. Both make room, later than 1 s on a slow machine.
            Phase::Starting | Phase::Stopping => true,
            Phase::Running(Need::UnneededSince(_)) => evicts && child.start.kind != ChildKind::Spare,
            Phase::Running(Need::Needed) => false,
        };
        let is_any_giving_way = self.children.values().any(gives_way);
        let mut waiting = VecDeque::with_capacity(self.waiters.len());
        while let Some(mut waiter) = self.waiters.pop_front() {
            let has_chance = match self.blocked_principal(&waiter, blocked) {
                Some(principal) => self
                    .children
                    .values()
                    .any(|child| child.start.principal.as_ref() == Some(&principal) && gives_way(child)),
                None => is_any_giving_way,
            };
            waiter.busy_since = if has_chance {
                None
            } else {
                waiter.busy_since.or(Some(now))
            };
            let is_busy = waiter
                .busy_since
                .is_some_and(|since| now.saturating_sub(since) >= BUSY_AFTER);
            if is_busy {
                actions.push(Action::Refuse(waiter.id, Refused::Busy));
            } else if now.saturating_sub(waiter.since) >= self.limits.start_timeout {
                actions.push(Action::Refuse(waiter.id, Refused::TimedOut));
            } else {
                waiting.push_back(waiter);
            }
        }
        self.waiters = waiting;
    }

    fn start_spares(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if now < self.spare_not_before || !self.waiters.is_empty() {
            return;
        }
        let is_spare = |child: &&Child<P>| child.start.kind == ChildKind::Spare;
        let mut spares = self.children.values().filter(is_spare).count();
        while spares < self.limits.spare && self.free() > 0 {
            spares += 1;
            let id = ChildId(self.next_id());
            let start = Start {
                kind: ChildKind::Spare,
                principal: None,
                idle_limit: None,
            };
            let child = Child {
                start,
                phase: Phase::Starting,
            };
            self.children.insert(id, child);
            actions.push(Action::StartSpare(id));
        }
    }

    /// When [`decide`](Self::decide) must run again although nothing happens. Needs change without notice, so a waiting
    /// start looks often.
    pub(crate) fn next_decision(&self, now: Duration) -> Option<Duration> {
        const WAITING_INTERVAL: Duration = Duration::from_millis(50);
        const RESERVE_INTERVAL: Duration = Duration::from_millis(500);
        /// The bounds of the pause between two looks at the needs.
        const MIN_IDLE_INTERVAL: Duration = Duration::from_millis(20);
        const MAX_IDLE_INTERVAL: Duration = Duration::from_secs(1);
        if !self.waiters.is_empty() {
            return Some(now + WAITING_INTERVAL);
        }
        let idle_limits = self.children.values().filter_map(|child| child.start.idle_limit);
        let idle = idle_limits
            .min()
            .map(|limit| (limit / 20).clamp(MIN_IDLE_INTERVAL, MAX_IDLE_INTERVAL));
        let reserve = (self.free() < self.limits.reserve()).then_some(RESERVE_INTERVAL);
        let spare = self.spare_not_before.checked_sub(now).filter(|pause| !pause.is_zero());
        [idle, reserve, spare]
            .into_iter()
            .flatten()
            .min()
            .map(|pause| now + pause)
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
