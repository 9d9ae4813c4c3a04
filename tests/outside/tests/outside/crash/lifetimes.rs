//! When the server was up and down, as the killing task reports it.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::task::JoinError;
use tokio::time::Instant;

/// The lifetimes of a server so far, or of the nodes behind a balancer.
pub(super) struct ServerLifetimes {
    pub(super) addr: SocketAddr,
    /// Several nodes share the work: the others serve while one of them is down.
    pub(super) has_nodes: bool,
    lives: Mutex<LifetimeState>,
}

#[derive(Default)]
struct LifetimeState {
    /// One entry per kill.
    outages: Vec<Outage>,
    /// Times of slow responses to trivial requests.
    slow: Vec<Instant>,
    kills_over: bool,
}

/// The time between a kill and the restart. The kill is shortly after `from`.
#[derive(Clone, Copy)]
pub(super) struct Outage {
    node: SocketAddr,
    pub(super) from: Instant,
    to: Option<Instant>,
}

impl ServerLifetimes {
    pub(super) fn new(addr: SocketAddr) -> Self {
        ServerLifetimes {
            addr,
            has_nodes: false,
            lives: Mutex::default(),
        }
    }

    /// Nodes behind a balancer.
    pub(super) fn of_nodes(balancer: SocketAddr) -> Self {
        ServerLifetimes {
            has_nodes: true,
            ..Self::new(balancer)
        }
    }

    /// Call this just before the kill.
    pub(super) fn record_kill(&self) {
        self.record_kill_of(self.addr);
    }

    /// Call this just before the kill of a node.
    pub(super) fn record_kill_of(&self, node: SocketAddr) {
        let from = Instant::now();
        self.lives().outages.push(Outage { node, from, to: None });
    }

    /// Call this when the server is ready again.
    pub(super) fn record_restart(&self) {
        if let Some(outage) = self.lives().outages.last_mut() {
            outage.to = Some(Instant::now());
        }
    }

    /// Whether a node is killed or paused, or has not joined again since.
    pub(super) fn is_away(&self, node: SocketAddr) -> bool {
        let lives = self.lives();
        let last = lives.outages.last();
        last.is_some_and(|outage| outage.node == node && outage.to.is_none())
    }

    /// Call this after the last kill.
    pub(super) fn record_last_kill(&self) {
        self.lives().kills_over = true;
    }

    /// Whether the last kill is over.
    pub(super) fn kills_are_over(&self) -> bool {
        self.lives().kills_over
    }

    /// The number of the current lifetime. `None` during a restart.
    pub(super) fn current(&self) -> Option<usize> {
        let lives = self.lives();
        let between = lives.outages.last().is_some_and(|outage| outage.to.is_none());
        (!between).then_some(lives.outages.len())
    }

    /// Records that a trivial request was slow.
    pub(super) fn record_slow_response(&self) {
        self.lives().slow.push(Instant::now());
    }

    /// Whether no response was slow in this time. Then work that was due earlier is done.
    pub(super) fn was_responsive(&self, from: Instant, to: Instant) -> bool {
        !self.lives().slow.iter().any(|moment| (from..to).contains(moment))
    }

    /// The first outage of a node that ends after `moment`.
    pub(super) fn next_outage_after(&self, moment: Instant, node: SocketAddr) -> Option<Outage> {
        let lives = self.lives();
        let over = |outage: &&Outage| outage.to.is_some_and(|to| to <= moment);
        let of_node = lives.outages.iter().filter(|outage| outage.node == node);
        of_node.copied().find(|outage| !over(&outage))
    }

    /// The end of the last outage of a node within this time. `to` if it has not ended.
    pub(super) fn end_of_outage_during(&self, node: SocketAddr, from: Instant, to: Instant) -> Option<Instant> {
        let lives = self.lives();
        let of_node = lives.outages.iter().filter(|outage| outage.node == node);
        let ends = of_node
            .filter(|outage| outage.from < to)
            .map(|outage| outage.to.unwrap_or(to));
        ends.filter(|end| *end > from).max()
    }

    /// The lengths of the outages.
    pub(super) fn outages(&self) -> Vec<Duration> {
        let length = |outage: &Outage| Some(outage.to? - outage.from);
        self.lives().outages.iter().filter_map(length).collect()
    }

    /// Number and lengths of the outages.
    pub(super) fn outage_summary(&self) -> String {
        let mut away: Vec<u128> = self.outages().iter().map(Duration::as_millis).collect();
        let (first, last) = (away.first().copied(), away.last().copied());
        away.sort_unstable();
        let (median, longest) = (away.get(away.len() / 2).copied(), away.last().copied());
        let [first, last, median, longest] = [first, last, median, longest].map(Option::unwrap_or_default);
        let times = away.len();
        format!("down {times} times, median {median} ms (first {first}, last {last}, longest {longest})")
    }

    /// Panics if the task has panicked.
    pub(super) fn propagate_failure(&self, ended: Result<(), JoinError>) {
        if let Err(error) = ended {
            println!("the server was {}", self.outage_summary());
            std::panic::resume_unwind(error.into_panic());
        }
    }

    fn lives(&self) -> std::sync::MutexGuard<'_, LifetimeState> {
        self.lives.lock().expect("no panic while locked")
    }
}
