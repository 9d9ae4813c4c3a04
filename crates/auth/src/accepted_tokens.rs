//! Tokens that were accepted a moment ago: static ones and verified JWTs.

use crate::identity::Identity;
use crate::token_tag::{BuildTagHasher, TokenTag};
use rethread_proto::clock::Wall;
use std::collections::HashMap;
use std::sync::Arc;

/// Accepted tokens in both generations together.
const MAX_TOKENS: usize = 4096;

type Identities = HashMap<TokenTag, Arc<Identity>, BuildTagHasher>;

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
    pub fn get(&self, tag: TokenTag, now: Wall) -> Option<&Arc<Identity>> {
        let found = self.young.get(&tag).or_else(|| self.old.get(&tag))?;
        let is_valid = found.expires.is_none_or(|expires| expires > now);
        is_valid.then_some(found)
    }

    /// The present epoch. Read it before the keys or the token file that decide about a token.
    pub fn epoch(&self) -> TokenEpoch {
        self.epoch
    }

    /// Remembers a token that was accepted by the keys or the token file of `epoch`.
    pub fn insert(&mut self, tag: TokenTag, identity: Arc<Identity>, epoch: TokenEpoch) {
        if epoch != self.epoch {
            return; // the key or the token may have been removed meanwhile
        }
        if self.young.len() >= MAX_TOKENS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(tag, identity);
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
    use crate::token_tag::TagKey;
    use rethread_proto::Principal;
    use rethread_proto::auth::Scopes;

    fn identity(expires: u64) -> Arc<Identity> {
        let (principal, expires) = (Principal::new("i", "s"), Wall::from_millis(expires));
        Arc::new(Identity::new(principal, "idp".into(), Scopes::new(), Some(expires)))
    }

    fn tag(n: usize) -> TokenTag {
        TagKey::from_random([7; 16]).tag(&n.to_string())
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
}
