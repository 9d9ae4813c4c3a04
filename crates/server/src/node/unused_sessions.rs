//! The fate of sessions that are opened and never used.

use std::time::Duration;

/// The policy for sessions that sent no request after `initialize` and opened no stream. Some hosts open a session for every call and
/// never return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnusedSessions {
    /// They stay in memory until they are idle for too long.
    #[default]
    Keep,
    /// After this time only their record stays, in the store. The next request restores them. At a limit of sessions, the
    /// session that was longest without use ends, if that is longer than this time.
    Unload(Duration),
    /// After this time they end. At a limit of sessions as for `Unload`.
    End(Duration),
}

impl UnusedSessions {
    /// A session without use for longer than this may end to make room for another one.
    pub(crate) fn may_end_after(self) -> Option<Duration> {
        match self {
            UnusedSessions::Keep => None,
            UnusedSessions::Unload(after) | UnusedSessions::End(after) => Some(after),
        }
    }
}
