//! The `WWW-Authenticate` header of a refusal (RFC 6750, RFC 9728).

use super::scope::Scopes;
use http::HeaderValue;
use std::sync::Arc;

/// The facts that a client needs to get a token that is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// Everything that the request needs.
    pub scopes: Scopes,
    /// The URL of the protected resource metadata. `None` without an authorization server.
    pub resource_metadata: Option<Arc<str>>,
}

/// The `error` of a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeError {
    /// The form of the request is wrong.
    InvalidRequest,
    /// The token is not accepted.
    InvalidToken,
    /// The token lacks a scope.
    InsufficientScope,
}

impl ChallengeError {
    /// The code in the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChallengeError::InvalidRequest => "invalid_request",
            ChallengeError::InvalidToken => "invalid_token",
            ChallengeError::InsufficientScope => "insufficient_scope",
        }
    }
}

impl Challenge {
    /// A challenge for `scopes`.
    pub fn new(scopes: Scopes, resource_metadata: Option<Arc<str>>) -> Self {
        Challenge {
            scopes,
            resource_metadata,
        }
    }

    /// The value of the header. Characters that cannot be quoted are left out of the URL: the operator wrote it, not a client.
    pub fn header(&self, error: Option<ChallengeError>) -> HeaderValue {
        let scope = self.scopes.to_string();
        let parameters = [
            ("error", error.map(ChallengeError::as_str)),
            ("scope", Some(scope.as_str()).filter(|scope| !scope.is_empty())),
            ("resource_metadata", self.resource_metadata.as_deref()),
        ];
        let mut text = String::from("Bearer");
        let mut separator = " ";
        for (name, value) in parameters {
            let Some(value) = value else { continue };
            text.extend([separator, name, "=\""]);
            text.extend(
                value
                    .chars()
                    .filter(|c| matches!(c, '\x20'..='\x7e') && !matches!(c, '"' | '\\')),
            );
            text.push('"');
            separator = ", ";
        }
        HeaderValue::try_from(text).expect("visible ASCII and spaces")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of section 3.8 of the requirements.
    #[test]
    fn auth_01_challenges_have_their_parameters_in_order() {
        let url = "https://mcp.example.com/.well-known/oauth-protected-resource/servers/files/mcp";
        let full = |scopes: &str| Challenge::new(Scopes::from_words(scopes), Some(url.into()));
        let cases = [
            (
                full("mcp files"),
                None,
                format!(r#"Bearer scope="mcp files", resource_metadata="{url}""#),
            ),
            (
                full("mcp files"),
                Some(ChallengeError::InvalidToken),
                format!(r#"Bearer error="invalid_token", scope="mcp files", resource_metadata="{url}""#),
            ),
            (
                full("mcp files files:write"),
                Some(ChallengeError::InsufficientScope),
                format!(
                    r#"Bearer error="insufficient_scope", scope="mcp files files:write", resource_metadata="{url}""#
                ),
            ),
            (
                full(""),
                Some(ChallengeError::InvalidRequest),
                format!(r#"Bearer error="invalid_request", resource_metadata="{url}""#),
            ),
            (Challenge::default(), None, "Bearer".to_owned()),
            (
                Challenge::new(Scopes::new(), Some("a\"b\\c\r\nd".into())),
                None,
                r#"Bearer resource_metadata="abcd""#.to_owned(),
            ),
        ];
        for (challenge, error, expected) in cases {
            assert_eq!(challenge.header(error), expected);
        }
    }
}
