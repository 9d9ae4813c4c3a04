//! The names of keys and channels.

use rethread_store::{Ordinal, Principal, SessionKey};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Identifies a session: 16 bytes of a hash of the principal and the session id. The store contains no readable id
/// (D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionDigest([u8; 16]);

impl SessionDigest {
    pub(crate) fn new(key: &SessionKey) -> Self {
        SessionDigest(digest(&[
            key.principal.issuer(),
            key.principal.subject(),
            key.session.as_str(),
        ]))
    }

    pub(crate) fn parse(hex: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        if hex.len() != 32 || !hex.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).ok()?;
        }
        Some(SessionDigest(bytes))
    }

    pub(crate) fn hex(self) -> String {
        hex(&self.0)
    }
}

/// Identifies a principal.
pub(crate) fn principal_digest(principal: &Principal) -> String {
    hex(&digest(&[principal.issuer(), principal.subject()]))
}

/// Hashes texts with their lengths, so that different lists have different inputs.
fn digest(texts: &[&str]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    short
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
            text
        })
}

/// The keys of all nodes of one installation.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Box<str>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.into() }
    }

    pub(crate) fn members(&self) -> String {
        format!("{}{{nodes}}", self.prefix)
    }

    pub(crate) fn mailbox(&self, member: &str) -> String {
        format!("{}i:{{{member}}}", self.prefix)
    }

    /// The prefix of wake-up channels. The incarnation of the node follows.
    pub(crate) fn wake_channel(&self) -> String {
        format!("{}w:", self.prefix)
    }

    pub(crate) fn broadcast_channel(&self) -> String {
        format!("{}bcast", self.prefix)
    }

    /// The keys of one server.
    pub(crate) fn server(&self, name: &str) -> ServerKeys {
        let subject = encode_name(name);
        ServerKeys {
            prefix: format!("{}{subject}:", self.prefix).into(),
            subject: subject.into(),
        }
    }
}

/// The keys of one server.
#[derive(Clone, Debug)]
pub(crate) struct ServerKeys {
    prefix: Box<str>,
    /// The name of the server in wake-ups.
    pub(crate) subject: Box<str>,
}

impl ServerKeys {
    /// The key of a session's hash, and the prefix of its other keys.
    pub(crate) fn session(&self, session: SessionDigest) -> String {
        format!("{}{{{}}}", self.prefix, session.hex())
    }

    pub(crate) fn broadcasts(&self) -> String {
        format!("{}{{bcast}}", self.prefix)
    }

    /// All sessions by their last use, which may be out of date.
    pub(crate) fn idle(&self) -> String {
        format!("{}{{idle}}", self.prefix)
    }

    /// The sessions of a principal.
    pub(crate) fn sessions_of(&self, principal: &str) -> String {
        format!("{}o:{{{principal}}}", self.prefix)
    }

    /// The name of a session in wake-ups. Spaces separate it from the server and the stream.
    pub(crate) fn subject_of(&self, session: SessionDigest) -> String {
        format!("{} {}", self.subject, session.hex())
    }
}

/// A session in the set of idle sessions: its digest and that of its principal.
pub(crate) fn idle_member(session: SessionDigest, principal: &str) -> String {
    format!("{}{principal}", session.hex())
}

/// Parses an [`idle_member`].
pub(crate) fn parse_idle_member(member: &str) -> Option<(SessionDigest, &str)> {
    let (session, principal) = member.split_at_checked(32)?;
    Some((SessionDigest::parse(session)?, principal))
}

/// A stream in this process.
pub(crate) type StreamDigest = (SessionDigest, Ordinal);

/// Escapes bytes that have a meaning in keys, hash tags and wake-ups.
fn encode_name(name: &str) -> String {
    name.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02x}"); // writing to a string cannot fail
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rethread_store::SessionId;

    fn key(issuer: &str, subject: &str, session: &str) -> SessionKey {
        SessionKey {
            principal: Principal::new(issuer, subject),
            session: SessionId::parse(session).unwrap(),
        }
    }

    #[test]
    fn d3_session_keys_differ_and_contain_no_id() {
        let keys = Keys::new("rt:").server("a b{c}:d");
        let one = keys.session(SessionDigest::new(&key("ab", "c", "s")));
        let other = keys.session(SessionDigest::new(&key("a", "bc", "s")));
        assert_ne!(one, other);
        assert!(one.starts_with("rt:a%20b%7bc%7d%3ad:{") && one.ends_with('}'), "{one}");
        assert_eq!(one.len(), "rt:a%20b%7bc%7d%3ad:{}".len() + 32);
    }

    #[test]
    fn digests_round_trip() {
        let digest = SessionDigest::new(&key("a", "b", "s"));
        assert_eq!(SessionDigest::parse(&digest.hex()), Some(digest));
        let principal = principal_digest(&Principal::anonymous());
        let member = idle_member(digest, &principal);
        assert_eq!(parse_idle_member(&member), Some((digest, principal.as_str())));
        for invalid in ["", "0", &"g".repeat(32), &"\u{e4}".repeat(16)] {
            assert_eq!(SessionDigest::parse(invalid), None);
        }
    }
}
