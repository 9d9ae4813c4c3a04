//! The caller of an authenticated request.

use super::challenge::Challenge;
use super::scope::Scopes;
use crate::clock::Wall;
use crate::principal::Principal;
use std::sync::Arc;

/// An authenticated caller. A handler finds it among the extensions of its request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Caller {
    /// The owner of everything that the request opens.
    pub principal: Principal,
    /// The name of the provider that knows the principal, for logs and metrics.
    pub provider: Arc<str>,
    /// The scopes that the caller has.
    pub scopes: Scopes,
    /// When the proof of identity ends, allowed clock skew included. `None` if it does not end by itself.
    pub expires: Option<Wall>,
    /// The challenge if a message needs further scopes.
    pub challenge: Challenge,
}

impl Caller {
    /// A caller without scopes, whose proof of identity does not end.
    pub fn new(principal: Principal, provider: impl Into<Arc<str>>) -> Self {
        Caller {
            principal,
            provider: provider.into(),
            scopes: Scopes::new(),
            expires: None,
            challenge: Challenge::default(),
        }
    }

    /// The same caller with these scopes.
    #[must_use]
    pub fn with_scopes(mut self, scopes: Scopes) -> Self {
        self.scopes = scopes;
        self
    }

    /// The same caller whose proof of identity ends at `expires`.
    #[must_use]
    pub fn with_expiry(mut self, expires: Option<Wall>) -> Self {
        self.expires = expires;
        self
    }

    /// The same caller, challenged in this way if a message needs further scopes.
    #[must_use]
    pub fn with_challenge(mut self, challenge: Challenge) -> Self {
        self.challenge = challenge;
        self
    }
}
