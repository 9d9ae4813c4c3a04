//! Why a session ends.

/// Why a session ends in this process. [`as_str`](Self::as_str) is the label of `rethread_sessions_closed_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The client sent DELETE.
    Deleted,
    /// It was not used for too long.
    Idle,
    /// The token of its principal has expired.
    TokenExpired,
    /// Another node has ended it, or the store has lost it.
    EndedElsewhere,
    /// It belonged to a connection that has ended.
    Disconnected,
    /// Another node continues it: this one drains.
    HandedOver,
    /// Another node may continue it: this one has not used it for long.
    ViewClosed,
    /// The lease of this node has ended.
    LeaseLost,
    /// An operator has ended it.
    Operator,
    /// Its client has opened it and never used it, or has not used it for long and another session needed its place.
    Unused,
}

impl SessionEnd {
    /// All reasons.
    pub const ALL: [SessionEnd; 10] = [
        SessionEnd::Deleted,
        SessionEnd::Idle,
        SessionEnd::TokenExpired,
        SessionEnd::EndedElsewhere,
        SessionEnd::Disconnected,
        SessionEnd::HandedOver,
        SessionEnd::ViewClosed,
        SessionEnd::LeaseLost,
        SessionEnd::Operator,
        SessionEnd::Unused,
    ];

    /// The reason as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            SessionEnd::Deleted => "deleted",
            SessionEnd::Idle => "idle",
            SessionEnd::TokenExpired => "token_expired",
            SessionEnd::EndedElsewhere => "ended_elsewhere",
            SessionEnd::Disconnected => "disconnected",
            SessionEnd::HandedOver => "handed_over",
            SessionEnd::ViewClosed => "view_closed",
            SessionEnd::LeaseLost => "lease_lost",
            SessionEnd::Operator => "operator",
            SessionEnd::Unused => "unused",
        }
    }
}
