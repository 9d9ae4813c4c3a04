//! Messages between nodes: encoding and encryption.
//!
//! A message is a head in JSON and a body in raw bytes. Nodes trust mail, so it is encrypted and authenticated with
//! their shared secret. An attacker with access to the store can neither read a request nor forge one.

use crate::cluster::Incarnation;
use crate::principal::{Principal, SessionId};
use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the format. It is authenticated, so that a message of a later format is never accepted as this one.
const VERSION: &[u8] = b"rethread-mail-v1";
const NONCE_BYTES: usize = 24;
/// The longest head. HTTP heads are shorter.
const MAX_HEAD_BYTES: usize = 1 << 20;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The kind of the message, and its data.
    pub head: MailHead,
    /// The body of the request or response, or a part of it. Empty for other messages.
    pub body: Bytes,
}

/// The kind of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MailHead {
    /// Serve an HTTP request, once.
    Request(ForwardedRequest),
    /// The head of the response, with the body if that is complete.
    Response {
        /// The request.
        request: ForwardId,
        /// The HTTP status.
        status: u16,
        /// The headers.
        headers: Vec<(String, String)>,
        /// Where the body is.
        content: ForwardedContent,
    },
    /// The next part of a response.
    Chunk {
        /// The request.
        request: ForwardId,
        /// The number of the chunk, from 1 on. Nodes of earlier versions send none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        /// Whether the response ends here.
        is_last: bool,
    },
    /// The client has read chunks of a response, so more may be sent.
    Credit {
        /// The request.
        request: ForwardId,
        /// The number of chunks since the last message of this kind.
        chunks: u32,
        /// The number of all chunks. Nodes of earlier versions send none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// The client of a request has left.
    ClientLeft {
        /// The request.
        request: ForwardId,
    },
    /// Asks whether the node knows this request, because the store may have lost mail.
    Ask {
        /// The request.
        request: ForwardId,
    },
    /// The answer to [`Ask`](Self::Ask).
    Known {
        /// The request.
        request: ForwardId,
        /// Whether the node runs it or is about to.
        is_known: bool,
        /// The chunks of the response that were sent before this message. Nodes of earlier versions send none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<u64>,
    },
    /// A view of a session has seen a change.
    Acknowledge {
        /// The principal of the session.
        principal: (String, String),
        /// The session.
        session: String,
        /// The revision that it has seen.
        revision: u64,
        /// The node of the view.
        by: Incarnation,
    },
}

/// The id of a forwarded request: the node that received it, and a number on that node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ForwardId {
    /// The node that received the request and waits for the response.
    pub node: Incarnation,
    /// Its number on that node.
    pub number: u64,
}

/// An HTTP request for another node. It contains no credentials: the receiving node has checked them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedRequest {
    /// Its id.
    pub id: ForwardId,
    /// Issuer and subject of the caller. Both are empty for the anonymous one.
    pub principal: (String, String),
    /// The HTTP method.
    pub method: String,
    /// The path and the query.
    pub target: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The endpoint of the node that serves it.
    pub endpoint: ForwardEndpoint,
}

/// An endpoint of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardEndpoint {
    /// Streamable HTTP.
    Mcp,
    /// The POST endpoint of a 2024-11-05 session.
    Messages,
}

/// Where the body of a forwarded response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardedContent {
    /// In this message.
    Whole,
    /// In the log of a stream of the session. The receiving node reads it there.
    Stream {
        /// The stream.
        ordinal: u64,
    },
    /// In the messages that follow.
    Chunks,
}

/// Issuer and subject of a principal, for a mail.
pub fn principal_names(principal: &Principal) -> (String, String) {
    if principal.is_anonymous() {
        return Default::default();
    }
    (principal.issuer().to_owned(), principal.subject().to_owned())
}

/// The principal of these names.
pub fn named_principal((issuer, subject): &(String, String)) -> Principal {
    if issuer.is_empty() && subject.is_empty() {
        return Principal::anonymous();
    }
    Principal::new(issuer.as_str(), subject.as_str())
}

/// The session of this name. `None` if it cannot be one.
pub fn named_session(session: &str) -> Option<SessionId> {
    SessionId::parse(session)
}

/// A message that cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is too large")]
pub struct MailTooLarge;

/// Seals and opens mail with the secret that all nodes share.
#[derive(Clone)]
pub struct MailSeal(XChaCha20Poly1305);

impl MailSeal {
    /// A seal with a secret key.
    pub fn new(key: [u8; 32]) -> Self {
        MailSeal(XChaCha20Poly1305::new(&key.into()))
    }

    /// Seals a message. The nonce must be random.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], mail: &Mail) -> Result<Bytes, MailTooLarge> {
        let head = serde_json::to_vec(&mail.head).map_err(|_| MailTooLarge)?;
        let length = u32::try_from(head.len()).map_err(|_| MailTooLarge)?;
        if head.len() > MAX_HEAD_BYTES {
            return Err(MailTooLarge);
        }
        let plain = [&length.to_be_bytes()[..], &head, &mail.body].concat();
        let payload = Payload {
            msg: &plain,
            aad: VERSION,
        };
        let sealed = self.0.encrypt(&nonce.into(), payload).map_err(|_| MailTooLarge)?;
        Ok([&nonce[..], &sealed].concat().into())
    }

    /// Opens a message. `None` if it was not sealed with this key, or is not one of these messages.
    pub fn open(&self, sealed: &[u8]) -> Option<Mail> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload {
            msg: sealed,
            aad: VERSION,
        };
        parse(&self.0.decrypt(&(*nonce).into(), payload).ok()?.into())
    }
}

/// Parses a decrypted message.
pub fn parse(plain: &Bytes) -> Option<Mail> {
    let (length, rest) = plain.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    if length > MAX_HEAD_BYTES {
        return None;
    }
    let head = serde_json::from_slice(rest.get(..length)?).ok()?;
    Some(Mail {
        head,
        body: plain.slice(4 + length..),
    })
}

impl fmt::Debug for MailSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MailSeal(…)") // SEC-07: the key is a secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal() -> MailSeal {
        MailSeal::new([7; 32])
    }

    fn request(body: &[u8]) -> Mail {
        let id = ForwardId {
            node: Incarnation::new(3, 9),
            number: 7,
        };
        Mail {
            head: MailHead::Request(ForwardedRequest {
                id,
                principal: principal_names(&Principal::new("https://issuer", "alice")),
                method: "POST".into(),
                target: "/mcp?a=b".into(),
                headers: vec![("mcp-session-id".into(), "abc".into())],
                endpoint: ForwardEndpoint::Mcp,
            }),
            body: Bytes::copy_from_slice(body),
        }
    }

    #[test]
    fn sealed_mail_is_opened_with_the_same_secret_only() {
        let mail = request(b"{\"a\":1}");
        let sealed = seal().seal([1; 24], &mail).unwrap();
        assert_eq!(seal().open(&sealed), Some(mail));
        assert_eq!(MailSeal::new([8; 32]).open(&sealed), None);
        let text = String::from_utf8_lossy(&sealed).into_owned();
        assert!(
            !text.contains("alice") && !text.contains("abc"),
            "the sealed text is not readable"
        );
    }

    /// D13: the bodies are bounded where they are read.
    #[test]
    fn sec_06_heads_are_bounded_at_both_ends() {
        let mut mail = request(b"");
        let MailHead::Request(head) = &mut mail.head else {
            panic!("expected a request");
        };
        head.target = "x".repeat(MAX_HEAD_BYTES);
        assert_eq!(seal().seal([1; 24], &mail), Err(MailTooLarge));
        let json = serde_json::to_vec(&mail.head).unwrap();
        let plain = [&(json.len() as u32).to_be_bytes()[..], &json].concat();
        assert_eq!(parse(&plain.into()), None);
    }

    /// Nodes of two versions serve together during a rolling restart.
    #[test]
    fn t_38_mail_of_an_earlier_version_is_read() {
        let id = r#"{"node":"NODE","number":7}"#.replace("NODE", Incarnation::new(3, 9).as_str());
        let parsed = |head: &str| {
            let head = head.replace("ID", &id);
            let plain = [&(head.len() as u32).to_be_bytes()[..], head.as_bytes()].concat();
            parse(&plain.into()).map(|mail| mail.head)
        };
        let chunk = parsed(r#"{"kind":"chunk","request":ID,"is_last":true}"#);
        assert!(matches!(
            chunk,
            Some(MailHead::Chunk {
                number: None,
                is_last: true,
                ..
            })
        ));
        let credit = parsed(r#"{"kind":"credit","request":ID,"chunks":8}"#);
        assert!(matches!(
            credit,
            Some(MailHead::Credit {
                chunks: 8,
                total: None,
                ..
            })
        ));
        let known = parsed(r#"{"kind":"known","request":ID,"is_known":true,"later":1}"#);
        assert!(matches!(
            known,
            Some(MailHead::Known {
                is_known: true,
                sent: None,
                ..
            })
        ));
    }

    #[test]
    fn names_of_principals_round_trip() {
        for principal in [
            Principal::anonymous(),
            Principal::new("i", "s"),
            Principal::new("", "s"),
        ] {
            assert_eq!(named_principal(&principal_names(&principal)), principal);
        }
    }

    proptest! {
        /// Any change of a sealed message makes it invalid.
        #[test]
        fn changed_mail_is_refused(body in proptest::collection::vec(any::<u8>(), 0..40), at in any::<prop::sample::Index>()) {
            let mut sealed = seal().seal([1; 24], &request(&body)).unwrap().to_vec();
            let at = at.index(sealed.len());
            sealed[at] ^= 1;
            prop_assert_eq!(seal().open(&sealed), None);
        }

        /// No input makes the parser panic.
        #[test]
        fn parser_is_total(plain in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&plain.into());
        }
    }
}
