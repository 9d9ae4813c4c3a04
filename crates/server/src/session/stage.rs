//! The stage of a session in its handler.

/// How far the handler has come with a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Unopened,
    /// An `initialize` runs.
    SessionStart,
    /// The handler has opened the session, and must be told when it ends.
    Open,
}
