//! Names of sessions and callers in logs, metrics and the audit log. Nobody can use a tag in place of the id.

use crate::principal::{Principal, SessionId};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The first 16 hex digits of a SHA-256 (OPS-15).
///
/// A session id is a secret, and a subject may be an address of a person. A tag recognises both again and reveals neither.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag([u8; 8]);

impl Tag {
    /// The tag of a session.
    pub fn of_session(id: &SessionId) -> Self {
        Self::first_bytes(Sha256::new().chain_update(id.as_str()))
    }

    /// The tag of a caller. `None` for the anonymous one.
    pub fn of_principal(principal: &Principal) -> Option<Self> {
        if principal.is_anonymous() {
            return None;
        }
        // A zero byte separates the two, so that no other pair has the same bytes.
        let digest = Sha256::new()
            .chain_update(principal.issuer())
            .chain_update([0])
            .chain_update(principal.subject());
        Some(Self::first_bytes(digest))
    }

    /// Reads a tag that a person or a program repeats. `None` if it is another text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_tag = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = is_tag.then(|| u64::from_str_radix(text, 16).ok())??;
        Some(Tag(number.to_be_bytes()))
    }

    /// Its text. Faster than `Display`, for a log with a line for each call.
    pub fn hex_digits(self) -> [u8; 16] {
        let digit = |at: usize| {
            let byte = self.0[at / 2];
            let digit = if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
            b"0123456789abcdef"[usize::from(digit)]
        };
        std::array::from_fn(digit)
    }

    fn first_bytes(digest: Sha256) -> Self {
        let digest: [u8; 32] = digest.finalize().into();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Tag(first)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Tag {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OPS-15: `printf 1 | sha256sum` begins with these digits.
    #[test]
    fn ops_15_tag_is_the_beginning_of_a_sha_256() {
        let id = SessionId::parse("1").unwrap();
        assert_eq!(Tag::of_session(&id).to_string(), "6b86b273ff34fce1");
        assert_eq!(&Tag::of_session(&id).hex_digits(), b"6b86b273ff34fce1");
        assert_eq!(
            serde_json::to_string(&Tag::of_session(&id)).unwrap(),
            "\"6b86b273ff34fce1\""
        );
    }

    #[test]
    fn ops_09_tag_is_read_again_as_it_was_written() {
        let tag = Tag::of_session(&SessionId::parse("1").unwrap());
        assert_eq!(Tag::parse(&tag.to_string()), Some(tag));
        for text in [
            "",
            "6b86b273ff34fce",
            "6B86B273FF34FCE1",
            "+b86b273ff34fce1",
            "6b86b273ff34fce10",
        ] {
            assert_eq!(Tag::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ops_15_callers_of_two_issuers_have_two_tags() {
        let tag = |issuer: &str, subject: &str| Tag::of_principal(&Principal::new(issuer, subject));
        assert_eq!(Tag::of_principal(&Principal::anonymous()), None);
        assert_ne!(tag("ab", "c"), tag("a", "bc"));
        assert_eq!(tag("a", "b"), tag("a", "b"));
        assert_eq!(tag("a", "b").unwrap().to_string().len(), 16);
    }
}
