//! The purpose of a child.

/// The users of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChildKind {
    /// One session with its own child.
    Session,
    /// One caller of the other era, or without a session.
    Lease,
    /// The stateless requests of one principal.
    Shared,
    /// Nobody yet.
    Spare,
    /// The gateway itself, once.
    Probe,
}

impl ChildKind {
    /// The name in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ChildKind::Session => "session",
            ChildKind::Lease => "lease",
            ChildKind::Shared => "shared",
            ChildKind::Spare => "spare",
            ChildKind::Probe => "probe",
        }
    }
}
