//! Settings of authentication.

use rethread_auth::{AllowEntry, ToolPattern};
use rethread_proto::auth::{ImpliedScopes, Scopes};
use std::path::PathBuf;
use std::time::Duration;

/// Who may call the gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthSettings {
    /// The file with the digests of static tokens.
    pub(crate) tokens: Option<PathBuf>,
    /// Scopes that every server needs.
    pub(crate) scopes: Scopes,
    /// How far clocks may differ.
    pub(crate) leeway: Duration,
    pub(crate) implies: ImpliedScopes,
}

/// Who may use one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerAccess {
    /// Besides those of [`AuthSettings`].
    pub(crate) scopes: Scopes,
    /// `None`: every principal with the scopes.
    pub(crate) allow: Option<Vec<AllowEntry>>,
    /// Scopes that calls of some tools need.
    pub(crate) tool_scopes: Vec<(ToolPattern, Scopes)>,
}
