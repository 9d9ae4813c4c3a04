//! Tokens that were accepted a moment ago: static ones and verified JWTs.

use crate::identity::Identity;
use crate::policy::{Endpoint, ServerPolicy};
use crate::token_tag::{BuildTagHasher, TokenTag};
use rethread_proto::auth::{AuthRefusal, Caller};
use rethread_proto::clock::Wall;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Accepted tokens in both generations together.
const MAX_TOKENS: usize = 4096;

/// Servers whose admission of one token is remembered. Further ones decide on every request.
const MAX_ADMISSIONS: usize = 4;

type Identities = HashMap<TokenTag, Box<AcceptedIdentity>, BuildTagHasher>;

/// The identity of an accepted token, and the servers that have admitted it.
#[derive(Debug)]
pub struct AcceptedIdentity {
    identity: Identity,
    /// Filled from the front. The decision is a function of the policy and the identity, and neither changes.
    admissions: [OnceLock<Admission>; MAX_ADMISSIONS],
}

#[derive(Debug)]
struct Admission {
    policy: Arc<ServerPolicy>,
    endpoint: Endpoint,
    caller: Caller,
}

impl AcceptedIdentity {
    fn new(identity: Identity) -> Self {
        AcceptedIdentity {
            identity,
            admissions: Default::default(),
        }
    }

    /// Whether the server with this policy admits the identity. A server never sees the decision of another one: its policy is
    /// another object, even if it is equal.
    pub fn admit(&self, policy: &Arc<ServerPolicy>, endpoint: Endpoint) -> Result<Caller, AuthRefusal> {
        for slot in &self.admissions {
            match slot.get() {
                Some(known) if Arc::ptr_eq(&known.policy, policy) && known.endpoint == endpoint => {
                    return Ok(known.caller.clone());
                }
                Some(_) => {}
                None => {
                    let caller = policy.admit(&self.identity, endpoint)?;
                    let policy = Arc::clone(policy);
                    // If another request was faster, a later one fills the next slot.
                    let _ = slot.set(Admission {
                        policy,
                        endpoint,
                        caller: caller.clone(),
                    });
                    return Ok(caller);
                }
            }
        }
        policy.admit(&self.identity, endpoint)
    }
}

impl Deref for AcceptedIdentity {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

/// Identities by the tag of their token, bounded in number. Two generations: when the younger one is full, the older one is dropped.
#[derive(Debug, Default)]
pub struct AcceptedTokens {
    young: Identities,
    old: Identities,
    epoch: TokenEpoch,
}

/// A time between two changes of keys or token files. A decision that began in an earlier one is not remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenEpoch(u64);

impl AcceptedTokens {
    /// The caller of a token that was accepted and has not expired.
    pub fn get(&self, tag: TokenTag, now: Wall) -> Option<&AcceptedIdentity> {
        let found = self.young.get(&tag).or_else(|| self.old.get(&tag))?;
        let is_valid = found.expires.is_none_or(|expires| expires > now);
        is_valid.then_some(&**found)
    }

    /// The present epoch. Read it before the keys or the token file that decide about a token.
    pub fn epoch(&self) -> TokenEpoch {
        self.epoch
    }

    /// Remembers a token that was accepted by the keys or the token file of `epoch`.
    pub fn insert(&mut self, tag: TokenTag, identity: Identity, epoch: TokenEpoch) {
        if epoch != self.epoch {
            return; // the key or the token may have been removed meanwhile
        }
        if self.young.len() >= MAX_TOKENS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tag, Box::new(AcceptedIdentity::new(identity)));
    }

    /// Forgets all tokens, because keys or the token file have changed. Call it after the change.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.epoch.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Audience;
    use crate::token_tag::TagKey;
    use rethread_proto::Principal;
    use rethread_proto::auth::Scopes;

    fn identity(expires: u64) -> Identity {
        let (principal, expires) = (Principal::new("i", "s"), Wall::from_millis(expires));
        Identity::new(principal, "idp".into(), Scopes::new(), Some(expires))
    }

    fn tag(n: usize) -> TokenTag {
        TagKey::from_random([7; 16]).tag(n.to_string())
    }

    #[test]
    fn auth_13_accepted_tokens_expire_and_are_bounded() {
        let mut tokens = AcceptedTokens::default();
        let epoch = tokens.epoch();
        tokens.insert(tag(0), identity(10), epoch);
        assert!(tokens.get(tag(0), Wall::from_millis(9)).is_some());
        assert!(tokens.get(tag(0), Wall::from_millis(10)).is_none());
        for n in 1..3 * MAX_TOKENS {
            tokens.insert(tag(n), identity(10), epoch);
        }
        assert!(tokens.young.len() + tokens.old.len() <= MAX_TOKENS);
        assert!(tokens.get(tag(3 * MAX_TOKENS - 1), Wall::from_millis(0)).is_some());
        tokens.clear();
        assert!(tokens.get(tag(3 * MAX_TOKENS - 1), Wall::from_millis(0)).is_none());
    }

    /// A request reads the keys, they are replaced, and the request ends: its token must not come back.
    #[test]
    fn auth_13_decision_from_before_a_change_is_not_remembered() {
        let mut tokens = AcceptedTokens::default();
        let before = tokens.epoch();
        tokens.clear();
        tokens.insert(tag(0), identity(10), before);
        assert!(tokens.get(tag(0), Wall::from_millis(0)).is_none());
        tokens.insert(tag(0), identity(10), tokens.epoch());
        assert!(tokens.get(tag(0), Wall::from_millis(0)).is_some());
    }

    /// AUTH-09: admitted at one server, a token is refused at another whose audience it lacks, also if both policies were
    /// asked before. Equal policies of two servers are two policies.
    #[test]
    fn auth_09_admission_at_one_server_is_not_one_at_another() {
        let policy = |name: &str| {
            let (mcp, sse) = (format!("https://m/{name}/mcp"), format!("https://m/{name}/sse"));
            Arc::new(ServerPolicy::new(Scopes::new()).with_urls(&mcp, &sse, Some((mcp.clone(), sse.clone()))))
        };
        let mut identity = identity(10);
        identity.audience = Some(Audience {
            claimed: vec!["https://m/a/mcp".to_owned(), "https://m/c/mcp".to_owned()],
            accepted: None,
        });
        let accepted = AcceptedIdentity::new(identity);
        let (a, b) = (policy("a"), policy("b"));
        for _ in 0..3 {
            for endpoint in [Endpoint::Mcp, Endpoint::Sse] {
                let caller = accepted.admit(&a, endpoint).unwrap();
                assert_eq!(
                    caller.challenge,
                    a.challenge(endpoint),
                    "the metadata is that of the endpoint"
                );
                assert!(accepted.admit(&b, endpoint).is_err());
            }
        }
        // More servers than slots: all are asked, and each decides for itself.
        for _ in 0..2 * MAX_ADMISSIONS {
            let c = policy("c");
            assert_eq!(
                accepted.admit(&c, Endpoint::Mcp).unwrap().challenge,
                c.challenge(Endpoint::Mcp)
            );
            assert!(accepted.admit(&policy("b"), Endpoint::Mcp).is_err());
        }
    }
}
