//! Settings of authentication.

use rethread_auth::{AllowEntry, JwtRules, KeyTiming, ToolPattern};
use rethread_proto::auth::{ImpliedScopes, Rate, Scopes};
use std::path::PathBuf;
use std::time::Duration;

/// The authentication of callers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthSettings {
    /// The file with the digests of static tokens.
    pub(crate) tokens: Option<PathBuf>,
    /// Scopes that every server needs.
    pub(crate) scopes: Scopes,
    /// How far clocks may differ.
    pub(crate) leeway: Duration,
    pub(crate) implies: ImpliedScopes,
    /// Bad tokens of one peer. Beyond: 429.
    pub(crate) failures: Rate,
    /// Issuers of JWTs.
    pub(crate) jwt: Vec<JwtSettings>,
}

/// One issuer of JWTs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JwtSettings {
    pub(crate) rules: JwtRules,
    pub(crate) keys: KeyLocation,
    pub(crate) timing: KeyTiming,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum KeyLocation {
    Url(String),
    File(PathBuf),
    /// The metadata of the issuer has their URL.
    Discover,
}

/// The knowledge of a child about its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IdentitySetting {
    /// Nothing.
    #[default]
    None,
    /// Issuer and subject in the `_meta` of each request.
    Meta,
    /// Issuer and subject in the environment. Such a child serves one principal.
    Env,
}

/// The callers of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerAccess {
    /// Besides those of [`AuthSettings`].
    pub(crate) scopes: Scopes,
    /// `None`: every principal with the scopes.
    pub(crate) allow: Option<Vec<AllowEntry>>,
    /// Scopes that calls of some tools need.
    pub(crate) tool_scopes: Vec<(ToolPattern, Scopes)>,
}
