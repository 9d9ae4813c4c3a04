//! Counts of a running endpoint.

use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The numbers of one endpoint at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Sessions in memory.
    pub sessions: usize,
    /// Calls that a handler executes. Includes parked calls until their handler ends.
    pub running_calls: usize,
    /// Calls that wait for input, or whose result waits for the retry (2026-07-28).
    pub parked_calls: usize,
    /// Connections that read a stream.
    pub connections: usize,
    /// Open `subscriptions/listen` streams.
    pub subscriptions: usize,
    /// Bytes of events that the store retains. `None` if the store does not count them.
    pub retained_bytes: Option<usize>,
    /// Whether the store works, as far as its last use has shown.
    pub store_up: bool,
    by_kind: [usize; ConnectionKind::ALL.len()],
}

impl Stats {
    /// Connections of one kind.
    pub fn connections_of(&self, kind: ConnectionKind) -> usize {
        self.by_kind[kind as usize]
    }
}

/// The kind of a connection, by the stream that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ConnectionKind {
    /// The stream of a call.
    Call,
    /// Messages of a session that belong to no call.
    Push,
    /// `subscriptions/listen`.
    Listen,
    /// The one connection of a session on `/sse`, or on lines.
    Sse,
}

impl ConnectionKind {
    /// All kinds.
    pub const ALL: [ConnectionKind; 4] = [
        ConnectionKind::Call,
        ConnectionKind::Push,
        ConnectionKind::Listen,
        ConnectionKind::Sse,
    ];

    /// The kind as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConnectionKind::Call => "call",
            ConnectionKind::Push => "push",
            ConnectionKind::Listen => "listen",
            ConnectionKind::Sse => "sse",
        }
    }
}

/// The open connections of a node.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts([AtomicUsize; ConnectionKind::ALL.len()]);

impl ConnectionCounts {
    pub(crate) fn enter(&self, kind: ConnectionKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, kind: ConnectionKind) {
        self.0[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// All of them.
    pub(crate) fn now(&self) -> usize {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds the counts to `stats`.
    pub(crate) fn fill(&self, stats: &mut Stats) {
        stats.by_kind = std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        stats.connections = stats.by_kind.iter().sum();
    }
}
