//! Static bearer tokens, known by their SHA-256 (AUTH-18).
//!
//! A token has 32 random bytes, so one SHA-256 is enough. A slow hash would let unauthenticated clients use CPU time.

use crate::identity::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rethread_proto::Principal;
use rethread_proto::auth::{AuthOutcome, ImpliedScopes, Scopes};
use rethread_proto::clock::Wall;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The provider of static tokens, and the issuer of their principals.
pub const STATIC_PROVIDER: &str = "tokens";

/// A token with fewer characters cannot have enough random bits.
pub const MIN_TOKEN_CHARS: usize = 32;

/// The SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a token.
    pub fn of(token: &str) -> Self {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
    }
}

/// In hex digits.
impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 has 64 hex digits")]
pub struct NotADigest;

impl FromStr for TokenDigest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let mut digest = [0; 32];
        let pairs = text.as_bytes().chunks_exact(2);
        if text.len() != 64 {
            return Err(NotADigest);
        }
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            let hex = |digit: u8| char::from(digit).to_digit(16).ok_or(NotADigest);
            *byte = (hex(pair[0])? * 16 + hex(pair[1])?) as u8;
        }
        Ok(TokenDigest(digest))
    }
}

/// A token that was made now. It is shown once, and only its digest is stored.
pub struct NewToken {
    text: String,
}

impl NewToken {
    /// A token of these random bytes.
    pub fn from_random(bytes: [u8; 32]) -> Self {
        NewToken {
            text: format!("rt_{}", URL_SAFE_NO_PAD.encode(bytes)),
        }
    }

    /// The token.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Its digest.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of(&self.text)
    }
}

/// The token is a secret: `Debug` output hides it.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken(…)")
    }
}

/// One name of a token file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenEntry {
    pub(crate) digests: Vec<TokenDigest>,
    pub(crate) scopes: Scopes,
    pub(crate) expires: Option<Wall>,
}

/// All static tokens, by digest.
#[derive(Clone, Debug, Default)]
pub struct StaticTokens {
    by_digest: HashMap<TokenDigest, Arc<StaticToken>>,
    provider: Option<Arc<str>>,
}

#[derive(Debug)]
struct StaticToken {
    principal: Principal,
    scopes: Scopes,
    expires: Option<Wall>,
}

impl StaticTokens {
    /// `entries` have different digests.
    pub(crate) fn new(entries: impl IntoIterator<Item = (String, TokenEntry)>) -> Self {
        let mut by_digest = HashMap::new();
        for (name, entry) in entries {
            let token = Arc::new(StaticToken {
                principal: Principal::new(STATIC_PROVIDER, name),
                scopes: entry.scopes,
                expires: entry.expires,
            });
            by_digest.extend(entry.digests.into_iter().map(|digest| (digest, Arc::clone(&token))));
        }
        StaticTokens {
            by_digest,
            provider: Some(STATIC_PROVIDER.into()),
        }
    }

    /// Finds the caller of a token. `None` if the token is not a static one.
    ///
    /// The table is asked for a digest. Its timing leaks something about digests, which nobody can turn into a token.
    pub fn look_up(
        &self,
        digest: &TokenDigest,
        implied: &ImpliedScopes,
        leeway: Duration,
        now: Wall,
    ) -> Option<Result<Identity, AuthOutcome>> {
        let token = self.by_digest.get(digest)?;
        let expires = token.expires.map(|expires| expires + leeway);
        if expires.is_some_and(|expires| expires <= now) {
            return Some(Err(AuthOutcome::Expired));
        }
        let provider = self.provider.clone().unwrap_or_else(|| STATIC_PROVIDER.into());
        let scopes = implied.extend(token.scopes.clone());
        Some(Ok(Identity::new(token.principal.clone(), provider, scopes, expires)))
    }

    /// The owner of a token, expired or not.
    pub fn owner(&self, digest: &TokenDigest) -> Option<&Principal> {
        self.by_digest.get(digest).map(|token| &token.principal)
    }

    /// The number of digests.
    pub fn len(&self) -> usize {
        self.by_digest.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_digest.is_empty()
    }

    /// The principals that have lost a token in `newer`. Their connections end, and they need another token.
    pub fn revoked_in(&self, newer: &StaticTokens) -> BTreeSet<Principal> {
        let lost = self.by_digest.iter().filter(|(digest, token)| {
            let kept = newer.by_digest.get(digest);
            kept.is_none_or(|kept| kept.principal != token.principal)
        });
        lost.map(|(_, token)| token.principal.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_file::parse_token_file;

    const NOW: Wall = Wall::from_millis(1_785_196_800_000); // 2026-07-28

    fn look_up(tokens: &StaticTokens, token: &str, now: Wall) -> Option<Result<Identity, AuthOutcome>> {
        tokens.look_up(
            &TokenDigest::of(token),
            &ImpliedScopes::default(),
            Duration::from_secs(30),
            now,
        )
    }

    #[test]
    fn auth_18_new_tokens_are_random_and_shown_once() {
        let token = NewToken::from_random([7; 32]);
        assert!(token.reveal().starts_with("rt_") && token.reveal().len() == 46);
        assert!(token.reveal().len() >= MIN_TOKEN_CHARS);
        assert_eq!(token.digest().to_string().len(), 64);
        assert_eq!(token.digest().to_string().parse(), Ok(token.digest()));
        assert!(!format!("{token:?}").contains(token.reveal()));
        assert_ne!(token.reveal(), NewToken::from_random([8; 32]).reveal());
    }

    #[test]
    fn auth_18_token_is_compared_whole() {
        let token = NewToken::from_random([7; 32]);
        let file = format!("[tokens.ada]\nsha256 = [\"{}\"]\nscopes = [\"mcp\"]\n", token.digest());
        let tokens = parse_token_file(&file).unwrap();
        let found = look_up(&tokens, token.reveal(), NOW).unwrap().unwrap();
        assert_eq!(found.principal, Principal::new("tokens", "ada"));
        assert_eq!(
            (&*found.provider, found.scopes.to_string()),
            ("tokens", "mcp".to_owned())
        );
        let text = token.reveal();
        for near_miss in [
            &text[..text.len() - 1],
            &format!("{text}="),
            &text.to_lowercase(),
            &text[3..],
            "",
            &token.digest().to_string(),
        ] {
            assert_eq!(look_up(&tokens, near_miss, NOW), None, "{near_miss}");
        }
    }

    #[test]
    fn auth_18_several_digests_are_one_principal_and_may_expire() {
        let (old, new) = (NewToken::from_random([1; 32]), NewToken::from_random([2; 32]));
        let file = format!(
            "[tokens.ada]\nsha256 = [\"{}\", \"{}\"]\nexpires = \"2026-07-28T00:00:00Z\"\n",
            old.digest(),
            new.digest()
        );
        let tokens = parse_token_file(&file).unwrap();
        let at = |token: &NewToken, ms| look_up(&tokens, token.reveal(), Wall::from_millis(NOW.as_millis() + ms));
        for token in [&old, &new] {
            let found = at(token, 29_999).unwrap().unwrap();
            assert_eq!(found.principal.subject(), "ada");
            assert_eq!(found.expires, Some(NOW + Duration::from_secs(30)), "with the leeway");
            assert_eq!(at(token, 30_000), Some(Err(AuthOutcome::Expired)));
        }
    }

    #[test]
    fn auth_18_removed_digest_revokes_its_principal() {
        let (one, two) = (NewToken::from_random([1; 32]), NewToken::from_random([2; 32]));
        let file = |entries: &[(&str, &NewToken)]| {
            let entries = entries.iter();
            let text: String = entries
                .map(|(name, token)| format!("[tokens.{name}]\nsha256 = \"{}\"\n", token.digest()))
                .collect();
            parse_token_file(&text).unwrap()
        };
        let both = file(&[("ada", &one), ("bob", &two)]);
        let subjects = |newer: &StaticTokens| {
            let revoked = both.revoked_in(newer);
            revoked.iter().map(|p| p.subject().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(subjects(&both), [""; 0]);
        assert_eq!(subjects(&file(&[("bob", &two)])), ["ada"]);
        assert_eq!(subjects(&file(&[("ada", &two), ("bob", &one)])), ["ada", "bob"]);
        assert_eq!(subjects(&StaticTokens::default()), ["ada", "bob"]);
    }
}
