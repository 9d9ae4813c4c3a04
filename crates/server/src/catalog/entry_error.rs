//! Reasons why a catalog does not take an entry.

/// Why a catalog did not take an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// An entry of this kind has this name already.
    #[error("the {kind} `{name}` is in the catalog already")]
    NameTaken {
        /// The kind of entry, such as `tool`.
        kind: &'static str,
        /// The name, the URI or the URI template.
        name: String,
    },
    /// The entry breaks a rule of MCP, or its schema cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// The list is full: 10,000 entries.
    #[error("the catalog has too many entries of the kind {kind}")]
    Full {
        /// The kind of entry, such as `tool`.
        kind: &'static str,
    },
    /// The server of this catalog has ended.
    #[error("the server of this catalog has ended")]
    Closed,
}
