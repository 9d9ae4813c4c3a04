//! What a session had when its process ended.

use std::collections::BTreeSet;

/// What a session had when its process went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreviousState {
    /// The client had said `notifications/initialized`.
    pub initialized: bool,
    /// The level it had set.
    pub log_level: Option<Box<str>>,
    /// The resources it had subscribed to.
    pub subscriptions: BTreeSet<Box<str>>,
}
