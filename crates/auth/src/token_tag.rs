//! A short name for a token that was accepted before.
//!
//! A tag is the SipHash-2-4 of the token with 128 bits, under a random key of this process. It is a MAC: anyone without the key cannot
//! find a token with a given tag, or two tokens with one tag, other than by trying 2^128 of them. Neither the key nor a tag
//! leaves the process, so nobody can try offline. A cache by tag holds no token.

use siphasher::sip128::SipHasher24;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// The key of all tags of one cache.
pub struct TagKey(SipHasher24);

impl TagKey {
    /// A key of these random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        TagKey(SipHasher24::new_with_key(&bytes))
    }

    /// The tag of a token: of all its bytes.
    pub fn tag(&self, token: impl AsRef<[u8]>) -> TokenTag {
        let hash = self.0.hash(token.as_ref());
        TokenTag(hash.h1, hash.h2)
    }
}

/// The key is a secret: `Debug` output hides it.
impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(…)")
    }
}

/// The tag of a token. It is compared whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenTag(u64, u64);

/// A tag is random already: half of it is the hash.
impl Hash for TokenTag {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// Passes half of a tag on.
#[derive(Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type BuildTagHasher = BuildHasherDefault<TagHasher>;

#[cfg(test)]
mod tests {
    use super::*;

    /// The first vectors of the reference implementation (`vectors_sip128`): the key 00 01 … 0f, and messages 00, 00 01, ….
    #[test]
    fn auth_07_tag_is_siphash_2_4_with_128_bits() {
        let key: [u8; 16] = std::array::from_fn(|n| n as u8);
        let key = TagKey::from_random(key);
        let tag = |token: &str| {
            let TokenTag(first, second) = key.tag(token);
            u128::from_be_bytes([first.to_le_bytes(), second.to_le_bytes()].concat().try_into().unwrap())
        };
        assert_eq!(tag(""), 0xa3817f04ba25a8e66df67214c7550293);
        assert_eq!(tag("\0"), 0xda87c1d86b99af44347659119b22fc45);
        assert_eq!(tag("\0\u{1}"), 0x8177228da4a45dc7fca38bdef60affe4);
    }

    #[test]
    fn auth_07_tags_of_other_tokens_and_other_keys_differ() {
        let (one, other) = (TagKey::from_random([1; 16]), TagKey::from_random([2; 16]));
        assert_eq!(one.tag("rt_abc"), one.tag("rt_abc"));
        assert_ne!(one.tag("rt_abc"), other.tag("rt_abc"));
        for near_miss in ["", "rt_ab", "rt_abcd", "rt_abC", "rt_abc\0"] {
            assert_ne!(one.tag("rt_abc"), one.tag(near_miss), "{near_miss:?}");
        }
        assert_eq!(format!("{one:?}"), "TagKey(…)");
    }
}
