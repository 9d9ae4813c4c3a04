//! Tokens that were verified a moment ago.

use crate::identity::Identity;
use crate::static_tokens::TokenDigest;
use rethread_proto::clock::Wall;
use std::collections::HashMap;
use std::sync::Arc;

/// Verified tokens in both generations together.
const MAX_TOKENS: usize = 4096;

/// Verified tokens by digest, bounded in number. Two generations: when the younger one is full, the older one is dropped.
#[derive(Debug, Default)]
pub struct VerifiedTokens {
    young: HashMap<TokenDigest, Arc<Identity>>,
    old: HashMap<TokenDigest, Arc<Identity>>,
}

impl VerifiedTokens {
    /// The caller of a token that was verified and has not expired.
    pub fn get(&self, digest: &TokenDigest, now: Wall) -> Option<Arc<Identity>> {
        let found = self.young.get(digest).or_else(|| self.old.get(digest))?;
        let is_valid = found.expires.is_none_or(|expires| expires > now);
        is_valid.then(|| Arc::clone(found))
    }

    /// Remembers a verified token.
    pub fn insert(&mut self, digest: TokenDigest, identity: Arc<Identity>) {
        if self.young.len() >= MAX_TOKENS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, identity);
    }

    /// Forgets all tokens, because keys have changed.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_proto::Principal;
    use rethread_proto::auth::Scopes;

    #[test]
    fn auth_13_verified_tokens_expire_and_are_bounded() {
        let identity = |expires| {
            let principal = Principal::new("i", "s");
            Arc::new(Identity::new(
                principal,
                "idp".into(),
                Scopes::new(),
                Some(Wall::from_millis(expires)),
            ))
        };
        let digest = |n: usize| TokenDigest::of(&n.to_string());
        let mut tokens = VerifiedTokens::default();
        tokens.insert(digest(0), identity(10));
        assert!(tokens.get(&digest(0), Wall::from_millis(9)).is_some());
        assert!(tokens.get(&digest(0), Wall::from_millis(10)).is_none());
        for n in 1..3 * MAX_TOKENS {
            tokens.insert(digest(n), identity(10));
        }
        assert!(tokens.young.len() + tokens.old.len() <= MAX_TOKENS);
        assert!(tokens.get(&digest(3 * MAX_TOKENS - 1), Wall::from_millis(0)).is_some());
        tokens.clear();
        assert!(tokens.get(&digest(3 * MAX_TOKENS - 1), Wall::from_millis(0)).is_none());
    }
}
