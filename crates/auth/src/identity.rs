//! A caller whose token was verified, before any server has decided about it.

use rethread_proto::Principal;
use rethread_proto::auth::Scopes;
use rethread_proto::clock::Wall;
use std::sync::Arc;

/// A verified caller. It is not yet known whether it may use a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The principal: the sessions and streams of the caller belong to it.
    pub principal: Principal,
    /// The name of the provider.
    pub provider: Arc<str>,
    /// The scopes of the token, and those that they imply.
    pub scopes: Scopes,
    /// The end of the token, allowed clock skew included.
    pub expires: Option<Wall>,
    /// The servers that the token is for. `None` if the provider issues tokens for this gateway only.
    pub audience: Option<Audience>,
}

/// The audiences of a token, and those that its provider is configured to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    /// The values in the token.
    pub claimed: Vec<String>,
    /// Accepted values, normalized. `None`: the URLs of the called server.
    pub accepted: Option<Arc<[String]>>,
}

impl Identity {
    /// A caller of a provider whose tokens are for this gateway only.
    pub fn new(principal: Principal, provider: Arc<str>, scopes: Scopes, expires: Option<Wall>) -> Self {
        Identity {
            principal,
            provider,
            scopes,
            expires,
            audience: None,
        }
    }
}
