//! The stage of a session in its handler.

/// The stage of a session in its handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Unopened,
    /// An `initialize` runs.
    Opening,
    /// The handler has opened the session, and must be notified of its end.
    Open,
}
