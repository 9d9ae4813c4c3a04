//! The caller of an authenticated request.

use super::challenge::Challenge;
use super::scope::Scopes;
use crate::clock::Wall;
use crate::principal::Principal;
use std::ops::Deref;
use std::sync::Arc;

/// An authenticated caller. A handler finds it among the extensions of its request. Its facts are fields: see [`CallerFacts`].
///
/// Cheap to clone: one decision about a token serves many requests.
#[derive(Clone, Debug)]
pub struct Caller(Arc<CallerFacts>);

/// The facts of a [`Caller`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallerFacts {
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

impl Deref for Caller {
    type Target = CallerFacts;

    fn deref(&self) -> &CallerFacts {
        &self.0
    }
}

impl Caller {
    /// A caller without scopes, whose proof of identity does not end.
    pub fn new(principal: Principal, provider: impl Into<Arc<str>>) -> Self {
        Caller(Arc::new(CallerFacts {
            principal,
            provider: provider.into(),
            scopes: Scopes::new(),
            expires: None,
            challenge: Challenge::default(),
        }))
    }

    /// The same caller with these scopes.
    #[must_use]
    pub fn with_scopes(self, scopes: Scopes) -> Self {
        self.with(|facts| facts.scopes = scopes)
    }

    /// The same caller whose proof of identity ends at `expires`.
    #[must_use]
    pub fn with_expiry(self, expires: Option<Wall>) -> Self {
        self.with(|facts| facts.expires = expires)
    }

    /// The same caller, challenged in this way if a message needs further scopes.
    #[must_use]
    pub fn with_challenge(self, challenge: Challenge) -> Self {
        self.with(|facts| facts.challenge = challenge)
    }

    fn with(mut self, change: impl FnOnce(&mut CallerFacts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}
