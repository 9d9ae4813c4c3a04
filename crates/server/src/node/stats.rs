//! Counts of a running endpoint.

use serde::Serialize;

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
}
