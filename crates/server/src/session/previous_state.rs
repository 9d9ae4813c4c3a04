//! The state of a session when its process ended.

use std::collections::BTreeSet;

/// The state of a session when its process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreviousState {
    /// Whether the client had sent `notifications/initialized`.
    pub initialized: bool,
    /// The log level that the client had set.
    pub log_level: Option<Box<str>>,
    /// The resources that the client had subscribed to.
    pub subscriptions: BTreeSet<Box<str>>,
}
