//! How much a session is in use.

use super::{Session, Transport};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The users of a session at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Open connections: GET streams, and responses that are still read.
    pub connections: usize,
    /// Running calls.
    pub calls: usize,
    /// Subscribed resources.
    pub subscriptions: usize,
    /// The session ends with its one connection (`/sse` and stdio).
    pub is_connection_bound: bool,
    /// The time since the last request, and since the end of the last connection or call. Precise to a second.
    pub unused_for: Duration,
}

impl Activity {
    /// Whether a connection is open or a call runs.
    pub fn is_in_use(&self) -> bool {
        self.connections > 0 || self.calls > 0
    }
}

impl Session {
    pub(crate) fn activity(&self) -> Activity {
        let (calls, subscriptions) = {
            let state = self.state.lock();
            (state.calls.len(), state.subscriptions.len())
        };
        let last_used = rethread_proto::clock::Mono::from_millis(self.last_used.load(Ordering::Relaxed));
        Activity {
            // Every running call is a use, too.
            connections: self.uses.load(Ordering::Relaxed).saturating_sub(calls),
            calls,
            subscriptions,
            is_connection_bound: self.transport != Transport::Streamable,
            unused_for: self.node.clock.now().since(last_used),
        }
    }
}
