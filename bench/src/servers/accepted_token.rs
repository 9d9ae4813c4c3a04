//! An authenticator that knows one token, which was accepted before. It decides with the functions that the gateway uses.
//! `bench/authenticated` includes this file too.

#![allow(unreachable_pub)] // it is public in `bench/authenticated`

use http::request::Parts;
use rethread::auth::{AuthOutcome, Scopes, presented_token};
use rethread::{Authenticate, Authentication, Principal, Wall};
use rethread_auth::{AcceptedTokens, Audience, Endpoint, Identity, ServerPolicy, TagKey};
use std::str::FromStr;
use std::sync::{Arc, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

const RESOURCE: &str = "https://mcp.example.com/mcp";

/// The kind of the token of a caller. Both are as long as real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A token of `rethread token new`: 46 bytes.
    Static,
    /// A JWT of 600 bytes.
    Jwt,
}

impl TokenKind {
    /// The token.
    pub fn token(self) -> String {
        match self {
            TokenKind::Static => format!("rt_{}", "t".repeat(43)),
            TokenKind::Jwt => "t".repeat(600),
        }
    }
}

impl FromStr for TokenKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "static" => Ok(TokenKind::Static),
            "jwt" => Ok(TokenKind::Jwt),
            _ => Err("expected `static` or `jwt`"),
        }
    }
}

/// Knows one accepted token.
pub struct AcceptedToken {
    key: TagKey,
    tokens: RwLock<AcceptedTokens>,
    policy: Arc<ServerPolicy>,
}

impl AcceptedToken {
    /// The authenticator that knows the token of this kind.
    pub fn new(kind: TokenKind) -> Self {
        let scopes = Scopes::from_words("mcp");
        let principal = Principal::new(
            "https://login.example.com/realms/corp",
            "3f2a6c1e-0000-4000-8000-000000000000",
        );
        let expires = Some(Wall::from_millis(u64::MAX));
        let mut identity = Identity::new(principal, "corp".into(), scopes.clone(), expires);
        identity.audience = (kind == TokenKind::Jwt).then(|| Audience {
            claimed: vec![RESOURCE.to_owned()],
            accepted: None,
        });
        let (key, mut tokens) = (TagKey::from_random([7; 16]), AcceptedTokens::default());
        let epoch = tokens.epoch();
        tokens.insert(key.tag(kind.token()), identity, epoch);
        AcceptedToken {
            key,
            tokens: RwLock::new(tokens),
            policy: Arc::new(ServerPolicy::new(scopes).with_urls(RESOURCE, "https://mcp.example.com/sse", None)),
        }
    }
}

impl Authenticate for AcceptedToken {
    fn caller(&self, head: &Parts) -> Authentication {
        let tokens = self.tokens.read().expect("no thread panics");
        let identity = match presented_token(&head.uri, &head.headers) {
            Ok(Some(token)) => tokens.get(self.key.tag(token.as_bytes()), wall_now()),
            _ => None,
        };
        Authentication::Done(match identity {
            Some(identity) => identity.admit(&self.policy, Endpoint::Mcp),
            None => Err(self.policy.refuse(AuthOutcome::Unknown, &"".into(), Endpoint::Mcp)),
        })
    }
}

fn wall_now() -> Wall {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
