//! What becomes of sessions whose process is gone.

/// What becomes of the sessions of a process that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restore {
    /// They are brought back on first use.
    #[default]
    Resume,
    /// They have ended with it: for servers that cannot bear to be asked in the middle of a conversation.
    Expire,
}
