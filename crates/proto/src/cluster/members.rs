//! The local copy of the live set, and the known deaths.
//!
//! The store decides which nodes are alive. A node that is missing from the local copy may be newer than the copy, so
//! it must be checked before any action on its death. Death is final: no late report revives a node.

use super::Incarnation;
use crate::clock::Mono;
use std::collections::{HashMap, HashSet, VecDeque};

/// Dead nodes in the local copy. For older deaths, ask the store.
const MAX_REMEMBERED_DEATHS: usize = 1_024;

/// The other nodes, as one node knows them.
#[derive(Debug, Default)]
pub struct Members {
    /// The live nodes, each with the moment of the report that found it alive.
    live: HashMap<Incarnation, Mono>,
    dead: HashSet<Incarnation>,
    /// The dead, oldest report first.
    deaths: VecDeque<Incarnation>,
}

/// Whether a node is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The node was alive at the last report.
    Alive,
    /// The node is dead. That is final.
    Dead,
    /// The node may be dead, or newer than the last report: ask the store.
    Unknown,
}

impl Members {
    /// An empty copy.
    pub fn new() -> Self {
        Members::default()
    }

    /// Whether `node` is alive.
    pub fn liveness(&self, node: &Incarnation) -> Liveness {
        if self.dead.contains(node) {
            Liveness::Dead
        } else if self.live.contains_key(node) {
            Liveness::Alive
        } else {
            Liveness::Unknown
        }
    }

    /// The live nodes.
    pub fn live(&self) -> impl Iterator<Item = &Incarnation> {
        self.live.keys()
    }

    /// Applies the live set of a renewal that was sent at `sent` and answered at `now`. Returns the nodes that have
    /// died since the last report.
    ///
    /// A node that was found alive after `sent` stays alive: the live set may be older than that.
    pub fn renewed(&mut self, sent: Mono, live: &[Incarnation], now: Mono) -> Vec<Incarnation> {
        let reported: HashSet<&Incarnation> = live.iter().collect();
        let is_missing = |(node, since): (&Incarnation, &Mono)| {
            let died = !reported.contains(node) && *since <= sent;
            died.then(|| node.clone())
        };
        let died: Vec<_> = self.live.iter().filter_map(is_missing).collect();
        for node in &died {
            self.remember_death(node);
        }
        for node in live.iter().filter(|node| !self.dead.contains(*node)) {
            self.live.entry(node.clone()).or_insert(now);
        }
        died
    }

    /// Applies the store's answer about `node`, which arrived at `now`. True if the node has died since the last
    /// report.
    pub fn checked(&mut self, node: &Incarnation, is_alive: bool, now: Mono) -> bool {
        if self.dead.contains(node) {
            return false;
        }
        if is_alive {
            self.live.insert(node.clone(), now);
            return false;
        }
        self.remember_death(node);
        true
    }

    fn remember_death(&mut self, node: &Incarnation) {
        self.live.remove(node);
        if self.dead.insert(node.clone()) {
            self.deaths.push_back(node.clone());
        }
        if self.deaths.len() > MAX_REMEMBERED_DEATHS
            && let Some(oldest) = self.deaths.pop_front()
        {
            self.dead.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_millis(millis)
    }

    fn node(n: u64) -> Incarnation {
        Incarnation::new(n, 0)
    }

    #[test]
    fn node_that_is_not_in_the_live_set_must_be_checked() {
        let mut members = Members::new();
        assert!(members.renewed(at(1), &[node(1), node(2)], at(2)).is_empty());
        assert_eq!(members.liveness(&node(2)), Liveness::Alive);
        assert_eq!(members.liveness(&node(3)), Liveness::Unknown);
        assert!(!members.checked(&node(3), true, at(3)));
        assert_eq!(members.liveness(&node(3)), Liveness::Alive);
        assert!(members.checked(&node(4), false, at(3)));
        assert!(!members.checked(&node(4), false, at(4)), "it is reported once");
        assert_eq!(members.liveness(&node(4)), Liveness::Dead);
    }

    #[test]
    fn node_that_joined_after_the_renewal_was_sent_is_not_dead() {
        let mut members = Members::new();
        let _ = members.renewed(at(1), &[node(1)], at(2));
        let _ = members.checked(&node(2), true, at(12));
        assert!(
            members.renewed(at(10), &[node(1)], at(13)).is_empty(),
            "sent before the check"
        );
        assert_eq!(members.liveness(&node(2)), Liveness::Alive);
        assert_eq!(members.renewed(at(20), &[node(1)], at(21)), [node(2)]);
    }

    #[test]
    fn node_death_is_final_and_its_memory_bounded() {
        let mut members = Members::new();
        let _ = members.renewed(at(1), &[node(1), node(2)], at(2));
        assert_eq!(members.renewed(at(3), &[node(1)], at(4)), [node(2)]);
        let _ = members.renewed(at(2), &[node(1), node(2)], at(5)); // a late result
        let _ = members.checked(&node(2), true, at(6));
        assert_eq!(members.liveness(&node(2)), Liveness::Dead);
        for n in 10..10 + MAX_REMEMBERED_DEATHS as u64 {
            let _ = members.checked(&node(n), false, at(7));
        }
        assert_eq!(members.liveness(&node(2)), Liveness::Unknown, "the store knows");
        assert_eq!(members.deaths.len(), MAX_REMEMBERED_DEATHS);
        assert_eq!(members.dead.len(), MAX_REMEMBERED_DEATHS);
    }
}
