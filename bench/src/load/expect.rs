//! Checks messages. The first one is parsed and checked by its meaning. Every later one must have the same bytes except
//! for the request id. A complete check therefore costs one comparison.

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use serde_json::Value;
use std::ops::Range;

/// Digits of a request id. All ids have the same length, and so have all requests.
pub(crate) const ID_DIGITS: usize = 6;

/// The expected message.
pub(crate) struct Expected {
    bytes: Vec<u8>,
    id: Option<Range<usize>>,
}

impl Expected {
    /// Learns from the first message for request `id`. A canned message always has the same id.
    pub(crate) fn learn(payload: &[u8], id: u32, canned: bool, check: impl Fn(&Value) -> Result<()>) -> Result<Self> {
        let shown = || String::from_utf8_lossy(payload).into_owned();
        let message: Value = serde_json::from_slice(payload).with_context(|| format!("not JSON: {}", shown()))?;
        check(&message).with_context(shown)?;
        let id = match message.get("id") {
            Some(_) if canned => None,
            Some(found) => {
                ensure!(*found == id, "the response to another request: {}", shown());
                Some(id_range(payload, id).with_context(shown)?)
            }
            None => None,
        };
        Ok(Expected {
            bytes: payload.to_vec(),
            id,
        })
    }

    /// Checks a message for request `id`.
    pub(crate) fn check(&self, payload: &[u8], id: u32) -> Result<()> {
        let same = match &self.id {
            None => payload == self.bytes,
            Some(range) => {
                payload.len() == self.bytes.len()
                    && payload[..range.start] == self.bytes[..range.start]
                    && payload[range.end..] == self.bytes[range.end..]
                    && payload[range.clone()] == *itoa::Buffer::new().format(id).as_bytes()
            }
        };
        ensure!(
            same,
            "unexpected response to {id}: {}",
            String::from_utf8_lossy(payload)
        );
        Ok(())
    }
}

fn id_range(payload: &[u8], id: u32) -> Option<Range<usize>> {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(id).as_bytes();
    memmem::find_iter(payload, b"\"id\"").find_map(|at| {
        let rest = &payload[at + 4..];
        let value = rest.iter().position(|byte| !matches!(byte, b':' | b' '))?;
        let start = at + 4 + value;
        rest[value..].starts_with(digits).then_some(start..start + digits.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(_: &Value) -> Result<()> {
        Ok(())
    }

    #[test]
    fn only_the_id_may_differ() {
        let first = br#"{"jsonrpc":"2.0","id":100001,"result":{"a":1}}"#;
        let expected = Expected::learn(first, 100_001, false, accept).unwrap();
        let other = br#"{"jsonrpc":"2.0","id":100002,"result":{"a":1}}"#;
        expected.check(other, 100_002).unwrap();
        assert!(expected.check(first, 100_002).is_err(), "another request");
        let wrong = br#"{"jsonrpc":"2.0","id":100002,"result":{"a":2}}"#;
        assert!(expected.check(wrong, 100_002).is_err(), "another result");
        assert!(expected.check(&other[1..], 100_002).is_err(), "a truncated message");
    }

    #[test]
    fn first_message_is_checked() {
        let answer = br#"{"jsonrpc": "2.0", "id": 100009, "error": {}}"#;
        assert!(Expected::learn(answer, 100_001, false, accept).is_err());
        assert!(Expected::learn(answer, 100_009, false, |_| anyhow::bail!("no")).is_err());
        assert!(Expected::learn(answer, 100_009, false, accept).is_ok());
    }
}
