//! The policy for sessions whose process has ended.

/// The policy for sessions whose process has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restore {
    /// A session is restored by the first request for it.
    #[default]
    Resume,
    /// Sessions end with their process. For servers that cannot continue in the middle of a session.
    Expire,
}
