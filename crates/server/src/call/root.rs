//! The directories that a client works in.

use serde::{Deserialize, Serialize};

/// A directory or a file that a client works with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Root {
    /// The location, a `file://` URI.
    pub uri: String,
    /// The name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `ListRootsResult` of the MCP schema.
#[derive(Deserialize)]
pub(crate) struct Roots {
    pub(crate) roots: Vec<Root>,
}
