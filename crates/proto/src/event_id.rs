//! Event ids on the wire: a stream and an event in it.
//!
//! The plain form is `<ordinal>-<seq>` (D1). The format is pluggable. Everything before the last number is the
//! *prefix*, which an [`EventIdFormat`] makes once per stream. The number is that of the event. Parsing is total: any
//! other text is an unknown id, never an error (RES-02).

use crate::inline_str::InlineStr;
use crate::jsonrpc::RequestId;
use crate::principal::SessionId;
use sha2::{Digest, Sha256};
use std::fmt;

/// A stream's number in its session. Odd for call streams, even for push streams, so that an id shows the kind of its
/// stream after the stream is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Ordinal(pub u64);

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum StreamKind {
    /// Carries the messages of the requests of one POST, and ends with their answers.
    Call,
    /// Carries unsolicited messages to a GET.
    Push,
}

impl Ordinal {
    /// The first ordinal of a kind.
    pub const fn first(kind: StreamKind) -> Self {
        match kind {
            StreamKind::Call => Ordinal(1),
            StreamKind::Push => Ordinal(2),
        }
    }

    /// The next ordinal of the same kind.
    #[must_use]
    pub const fn next(self) -> Self {
        Ordinal(self.0.saturating_add(2))
    }

    /// The kind of the stream with this ordinal.
    pub const fn kind(self) -> StreamKind {
        if self.0 % 2 == 1 {
            StreamKind::Call
        } else {
            StreamKind::Push
        }
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event's number in its stream. The priming event is number 0, messages count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// The priming event, and the cursor of a reader that has seen no message.
    pub const PRIMING: Seq = Seq(0);
    /// The first message.
    pub const FIRST: Seq = Seq(1);

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The parts of an event id: an event in a stream of the session that presents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    /// The stream.
    pub ordinal: Ordinal,
    /// The event.
    pub seq: Seq,
}

/// The values that a format may use in the ids of a stream.
#[derive(Clone, Copy, Debug)]
pub struct IdScope<'a> {
    /// The session. A format may only use a digest of it.
    pub session: &'a SessionId,
    /// The stream.
    pub ordinal: Ordinal,
    /// The node on which the stream was created.
    pub node: &'a str,
    /// The requests that the stream answers. Empty for a push stream.
    pub calls: &'a [RequestId],
}

/// A format of event ids. `prefix` + number must use `[A-Za-z0-9_-]` only and at most 128 bytes. They must never
/// contain the session id: event ids appear in logs and in the storage of clients (RES-02, T-15).
pub trait EventIdFormat: fmt::Debug + Send + Sync {
    /// The ids of one stream without their number.
    fn prefix(&self, scope: &IdScope<'_>) -> IdPrefix;

    /// Parses an id that `session` presents. `None` for any text that no stream of this session can have issued.
    fn parse(&self, session: &SessionId, text: &str) -> Option<EventId>;
}

/// The part of an event id that all events of a stream share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix(InlineStr);

impl IdPrefix {
    /// Wraps the text before the number.
    pub fn new(text: impl AsRef<str>) -> Self {
        IdPrefix(text.as_ref().into())
    }

    /// The text before the number.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The whole id of the event `seq`.
    pub fn id(&self, seq: Seq) -> String {
        format!("{}{}", self.as_str(), seq)
    }
}

/// `<ordinal>-<seq>`: short, parseable, and without secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl EventIdFormat for Plain {
    fn prefix(&self, scope: &IdScope<'_>) -> IdPrefix {
        let mut digits = itoa::Buffer::new();
        IdPrefix(InlineStr::joined(digits.format(scope.ordinal.0), "-"))
    }

    fn parse(&self, _session: &SessionId, text: &str) -> Option<EventId> {
        let (ordinal, seq) = text.split_once('-')?;
        place(ordinal, seq)
    }
}

/// `<session tag>-<ordinal>-<node>-<call tag>-<seq>`, for debugging with many nodes. Session and JSON-RPC ids appear as
/// short digests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qualified;

impl EventIdFormat for Qualified {
    fn prefix(&self, scope: &IdScope<'_>) -> IdPrefix {
        let node: String = scope
            .node
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
            .take(32)
            .collect();
        let call = match scope.calls {
            [] => "push".to_owned(),
            calls => tag(calls.iter().map(RequestId::as_json)),
        };
        IdPrefix::new(format!(
            "{}-{}-{}-{call}-",
            session_tag(scope.session),
            scope.ordinal,
            if node.is_empty() { "0" } else { &node },
        ))
    }

    fn parse(&self, session: &SessionId, text: &str) -> Option<EventId> {
        if text.len() > 128 {
            return None;
        }
        let mut parts = text.split('-');
        let (tag, ordinal, node, call, seq) = (
            parts.next()?,
            parts.next()?,
            parts.next()?,
            parts.next()?,
            parts.next()?,
        );
        let word = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let ours = parts.next().is_none() && tag == session_tag(session) && word(node) && word(call);
        if ours { place(ordinal, seq) } else { None }
    }
}

fn place(ordinal: &str, seq: &str) -> Option<EventId> {
    let ordinal = Ordinal(number(ordinal)?);
    let seq = Seq(number(seq)?);
    (ordinal.0 > 0).then_some(EventId { ordinal, seq })
}

/// A decimal number in its canonical spelling. `+1`, `01` and ` 1` are not issued ids.
fn number(text: &str) -> Option<u64> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

fn session_tag(session: &SessionId) -> String {
    tag([session.as_bytes()])
}

fn tag<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest[..5].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn session(n: u8) -> SessionId {
        SessionId::from_random([n; 18])
    }

    fn formats() -> [Box<dyn EventIdFormat>; 2] {
        [Box::new(Plain), Box::new(Qualified)]
    }

    #[test]
    fn res_02_plain_ids_have_ordinal_and_number() {
        let scope = IdScope {
            session: &session(1),
            ordinal: Ordinal(5),
            node: "n1",
            calls: &[],
        };
        assert_eq!(Plain.prefix(&scope).id(Seq(12)), "5-12");
    }

    /// Empty, without a dash, non-numeric, negative, and others.
    #[test]
    fn res_02_bad_ids_are_unrecognised_not_errors() {
        let long = "9".repeat(300);
        for bad in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "1--1",
            "a-1",
            "1-a",
            "1-1-1",
            "+1-1",
            "01-1",
            "1-01",
            " 1-1",
            "1-1 ",
            "0-1",
            "1-18446744073709551616",
            "٣-1",
            "1\u{0}-1",
            &long,
            "../1-1",
        ] {
            for format in formats() {
                assert_eq!(format.parse(&session(1), bad), None, "{bad:?}");
            }
        }
        let last = Plain.parse(&session(1), "1-18446744073709551615").unwrap();
        assert_eq!(last.seq, Seq(u64::MAX));
    }

    /// RES-03: a qualified id is unknown in another session, before the store is read.
    #[test]
    fn res_03_qualified_ids_are_unrecognised_in_another_session() {
        let scope = IdScope {
            session: &session(1),
            ordinal: Ordinal(3),
            node: "node-a.example",
            calls: &[RequestId::from(7)],
        };
        let id = Qualified.prefix(&scope).id(Seq(4));
        assert!(Qualified.parse(&session(1), &id).is_some());
        assert_eq!(Qualified.parse(&session(2), &id), None);
    }

    #[test]
    fn d1_parity_of_an_ordinal_is_the_kind_of_its_stream() {
        let mut call = Ordinal::first(StreamKind::Call);
        let mut push = Ordinal::first(StreamKind::Push);
        for _ in 0..100 {
            assert_eq!((call.kind(), push.kind()), (StreamKind::Call, StreamKind::Push));
            (call, push) = (call.next(), push.next());
        }
    }

    proptest! {
        #[test]
        fn res_02_ids_round_trip(ordinal in 1u64.., seq: u64, n: u8, node in "[ -~]{0,60}", call in "[ -~]{0,80}") {
            let session = session(n);
            let calls = [RequestId::from(call.as_str())];
            for format in formats() {
                for calls in [&calls[..], &[]] {
                    let scope = IdScope { session: &session, ordinal: Ordinal(ordinal), node: &node, calls };
                    let id = format.prefix(&scope).id(Seq(seq));
                    prop_assert_eq!(format.parse(&session, &id), Some(EventId { ordinal: Ordinal(ordinal), seq: Seq(seq) }));
                    prop_assert!(id.len() <= 128, "{}", id);
                    prop_assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{}", id);
                    prop_assert!(!id.contains(session.as_str()));
                }
            }
        }

        #[test]
        fn res_02_parsing_is_total(text in "\\PC{0,140}") {
            for format in formats() {
                let _ = format.parse(&session(1), &text);
            }
        }
    }
}
