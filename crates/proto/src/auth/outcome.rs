//! The outcomes of authentication. Each one that refuses has its status and its challenge.

use super::challenge::{Challenge, ChallengeError};
use super::scope::Scopes;
use crate::principal::Principal;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;

/// The outcome of authentication: a label of metrics, and the reason in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthOutcome {
    /// The caller is known and may call.
    Ok,
    /// The request has no token.
    Missing,
    /// The form of the credentials is wrong.
    Malformed,
    /// The token is neither a known static token nor a JWT.
    Unknown,
    /// The signature does not verify.
    Signature,
    /// The algorithm, or another part of the header of the JWT, is not accepted.
    Algorithm,
    /// No usable key has the id that the JWT names.
    Key,
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    Early,
    /// The token is for another server.
    Audience,
    /// The issuer is not configured.
    Issuer,
    /// The token names no subject.
    Subject,
    /// A scope is missing.
    Scope,
    /// The server is not for this principal.
    Principal,
    /// The peer has sent too many bad tokens.
    Slowed,
    /// The keys of the issuer cannot be fetched.
    Unavailable,
}

impl AuthOutcome {
    /// All outcomes.
    pub const ALL: [AuthOutcome; 16] = [
        AuthOutcome::Ok,
        AuthOutcome::Missing,
        AuthOutcome::Malformed,
        AuthOutcome::Unknown,
        AuthOutcome::Signature,
        AuthOutcome::Algorithm,
        AuthOutcome::Key,
        AuthOutcome::Expired,
        AuthOutcome::Early,
        AuthOutcome::Audience,
        AuthOutcome::Issuer,
        AuthOutcome::Subject,
        AuthOutcome::Scope,
        AuthOutcome::Principal,
        AuthOutcome::Slowed,
        AuthOutcome::Unavailable,
    ];

    /// The outcome in one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            AuthOutcome::Ok => "ok",
            AuthOutcome::Missing => "missing",
            AuthOutcome::Malformed => "malformed",
            AuthOutcome::Unknown => "unknown",
            AuthOutcome::Signature => "signature",
            AuthOutcome::Algorithm => "algorithm",
            AuthOutcome::Key => "key",
            AuthOutcome::Expired => "expired",
            AuthOutcome::Early => "early",
            AuthOutcome::Audience => "audience",
            AuthOutcome::Issuer => "issuer",
            AuthOutcome::Subject => "subject",
            AuthOutcome::Scope => "scope",
            AuthOutcome::Principal => "principal",
            AuthOutcome::Slowed => "slowed",
            AuthOutcome::Unavailable => "unavailable",
        }
    }

    /// Whether the request brought a token that is not accepted. Such requests fill the bucket of their peer (AUTH-24).
    pub const fn is_bad_token(self) -> bool {
        matches!(self.status(), StatusCode::UNAUTHORIZED) && !matches!(self, AuthOutcome::Missing)
    }

    /// The status of a refusal.
    const fn status(self) -> StatusCode {
        match self {
            AuthOutcome::Ok => StatusCode::OK,
            AuthOutcome::Malformed => StatusCode::BAD_REQUEST,
            AuthOutcome::Missing
            | AuthOutcome::Unknown
            | AuthOutcome::Signature
            | AuthOutcome::Algorithm
            | AuthOutcome::Key
            | AuthOutcome::Expired
            | AuthOutcome::Early
            | AuthOutcome::Audience
            | AuthOutcome::Issuer
            | AuthOutcome::Subject => StatusCode::UNAUTHORIZED,
            AuthOutcome::Scope | AuthOutcome::Principal => StatusCode::FORBIDDEN,
            AuthOutcome::Slowed => StatusCode::TOO_MANY_REQUESTS,
            AuthOutcome::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The text of a refusal. It repeats nothing of the token.
    const fn text(self) -> &'static str {
        match self {
            AuthOutcome::Ok => "the caller is known",
            AuthOutcome::Missing => "authentication is required: send `Authorization: Bearer` with a token",
            AuthOutcome::Malformed => {
                "malformed credentials: send one `Authorization: Bearer` header with one token, and no token in the URL"
            }
            AuthOutcome::Unknown => "invalid token: it is not known here",
            AuthOutcome::Signature => "invalid token: its signature does not verify",
            AuthOutcome::Algorithm => "invalid token: its algorithm or type is not accepted",
            AuthOutcome::Key => "invalid token: its key is not known",
            AuthOutcome::Expired => "invalid token: it has expired",
            AuthOutcome::Early => "invalid token: it is not valid yet",
            AuthOutcome::Audience => "invalid token: it is for another server",
            AuthOutcome::Issuer => "invalid token: its issuer is not accepted",
            AuthOutcome::Subject => "invalid token: it names no subject",
            AuthOutcome::Scope => "insufficient scope: the token lacks a scope that this request needs",
            AuthOutcome::Principal => "this caller may not use this server",
            AuthOutcome::Slowed => "too many invalid tokens from this address; try again later",
            AuthOutcome::Unavailable => "the keys of the token's issuer cannot be fetched; try again",
        }
    }

    /// The `error` of the challenge.
    const fn challenge_error(self) -> Option<ChallengeError> {
        match self {
            AuthOutcome::Missing => None,
            AuthOutcome::Malformed => Some(ChallengeError::InvalidRequest),
            AuthOutcome::Scope => Some(ChallengeError::InsufficientScope),
            _ => Some(ChallengeError::InvalidToken),
        }
    }
}

/// A refusal by authentication or authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthRefusal {
    /// The reason.
    pub outcome: AuthOutcome,
    /// The provider of the identity. Empty if none was found.
    pub provider: Arc<str>,
    /// The caller, if its token was verified before the refusal. For the audit log: no response names it.
    pub principal: Option<Principal>,
    /// Sent with 400, 401 and a missing scope.
    challenge: Option<Challenge>,
    /// Seconds until a retry may succeed.
    retry_after: Option<u32>,
}

impl AuthRefusal {
    /// A refusal with a challenge. An outcome that no other token would change gets none: clients would ask for tokens for
    /// ever.
    pub fn challenge(outcome: AuthOutcome, provider: impl Into<Arc<str>>, challenge: Challenge) -> Self {
        let has_challenge = !matches!(
            outcome,
            AuthOutcome::Principal | AuthOutcome::Slowed | AuthOutcome::Unavailable
        );
        AuthRefusal {
            outcome,
            provider: provider.into(),
            principal: None,
            challenge: Some(challenge).filter(|_| has_challenge),
            retry_after: None,
        }
    }

    /// The same refusal of a caller whose token was verified.
    #[must_use]
    pub fn with_principal(mut self, principal: Option<Principal>) -> Self {
        self.principal = principal;
        self
    }

    /// The principal may not use the server (AUTH-17).
    pub fn principal(provider: impl Into<Arc<str>>) -> Self {
        Self::challenge(AuthOutcome::Principal, provider, Challenge::default())
    }

    /// The keys cannot be fetched (AUTH-19), or the peer is slowed (AUTH-24). A retry may succeed after some seconds.
    pub fn retry_later(outcome: AuthOutcome, provider: impl Into<Arc<str>>, seconds: u32) -> Self {
        AuthRefusal {
            outcome,
            provider: provider.into(),
            principal: None,
            challenge: None,
            retry_after: Some(seconds),
        }
    }

    /// A scope is missing. The challenge names everything that the request needs at once (AUTH-14).
    pub fn scope(provider: impl Into<Arc<str>>, mut challenge: Challenge, needed: &Scopes) -> Self {
        challenge.scopes.extend(needed.iter().cloned());
        Self::challenge(AuthOutcome::Scope, provider, challenge)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.outcome.status()
    }

    pub(crate) fn text(&self) -> &'static str {
        self.outcome.text()
    }

    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    pub(crate) fn www_authenticate(&self) -> Option<HeaderValue> {
        let challenge = self.challenge.as_ref()?;
        Some(challenge.header(self.outcome.challenge_error()))
    }

    /// The reason of a refusal in one word, for the counter of all refusals.
    pub(crate) fn label(&self) -> &'static str {
        match self.outcome {
            AuthOutcome::Malformed => "authorization",
            AuthOutcome::Scope => "scope",
            AuthOutcome::Principal => "principal",
            AuthOutcome::Slowed => "slowed",
            AuthOutcome::Unavailable => "keys_unavailable",
            _ => "unauthenticated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::{Reason, Refusal};

    /// The answer table: status, and whether there is a challenge with which error.
    #[test]
    fn auth_01_every_outcome_has_its_status_and_challenge() {
        for outcome in AuthOutcome::ALL {
            let (status, challenge) = match outcome {
                AuthOutcome::Ok => continue,
                AuthOutcome::Missing => (401, Some("Bearer scope=\"mcp\"")),
                AuthOutcome::Malformed => (400, Some("Bearer error=\"invalid_request\", scope=\"mcp\"")),
                AuthOutcome::Scope => (403, Some("Bearer error=\"insufficient_scope\", scope=\"mcp\"")),
                AuthOutcome::Principal => (403, None),
                AuthOutcome::Slowed => (429, None),
                AuthOutcome::Unavailable => (503, None),
                _ => (401, Some("Bearer error=\"invalid_token\", scope=\"mcp\"")),
            };
            let auth = AuthRefusal::challenge(outcome, "idp", Challenge::new(Scopes::from_words("mcp"), None));
            let refusal = Refusal::new(Reason::Auth(Box::new(auth)));
            assert_eq!(refusal.status().as_u16(), status, "{outcome:?}");
            let header = refusal.www_authenticate();
            let header = header.as_ref().map(|header| header.to_str().unwrap());
            assert_eq!(header, challenge, "{outcome:?}");
            assert!(!refusal.label().is_empty());
        }
    }

    #[test]
    fn auth_19_a_retry_has_its_delay_and_no_challenge() {
        let auth = AuthRefusal::retry_later(AuthOutcome::Unavailable, "idp", 10);
        let refusal = Refusal::new(Reason::Auth(Box::new(auth)));
        assert_eq!((refusal.status().as_u16(), refusal.retry_after()), (503, Some(10)));
        assert_eq!(refusal.www_authenticate(), None);
    }

    #[test]
    fn auth_14_missing_scope_lists_everything_that_is_needed() {
        let challenge = Challenge::new(Scopes::from_words("mcp files"), None);
        let auth = AuthRefusal::scope("idp", challenge, &Scopes::from_words("files files:write"));
        let header = auth.www_authenticate().unwrap();
        assert_eq!(
            header,
            r#"Bearer error="insufficient_scope", scope="mcp files files:write""#
        );
    }
}
