//! What an answer must be. The first is read as JSON and judged by its meaning; every later one must be the same bytes, but
//! for the id of its request. So each is checked whole, at the price of a comparison.

use anyhow::{Context as _, Result, ensure};
use memchr::memmem;
use serde_json::Value;
use std::ops::Range;

/// The digits of a request's id: as many in every request, so that every request has the same length.
pub(crate) const ID_DIGITS: usize = 6;

/// The answers that a server must give.
pub(crate) struct Expected {
    bytes: Vec<u8>,
    id: Option<Range<usize>>,
}

impl Expected {
    /// Learns from a first answer to request `id`. A canned answer has the same id for ever.
    pub(crate) fn learn(payload: &[u8], id: u32, canned: bool, judge: impl Fn(&Value) -> Result<()>) -> Result<Self> {
        let shown = || String::from_utf8_lossy(payload).into_owned();
        let message: Value = serde_json::from_slice(payload).with_context(|| format!("no JSON: {}", shown()))?;
        judge(&message).with_context(shown)?;
        let id = match message.get("id") {
            Some(_) if canned => None,
            Some(found) => {
                ensure!(*found == id, "the answer to another request: {}", shown());
                Some(place_of_id(payload, id).with_context(shown)?)
            }
            None => None,
        };
        Ok(Expected {
            bytes: payload.to_vec(),
            id,
        })
    }

    /// Whether `payload` is that answer, for request `id`.
    pub(crate) fn check(&self, payload: &[u8], id: u32) -> Result<()> {
        let same = match &self.id {
            None => payload == self.bytes,
            Some(place) => {
                payload.len() == self.bytes.len()
                    && payload[..place.start] == self.bytes[..place.start]
                    && payload[place.end..] == self.bytes[place.end..]
                    && payload[place.clone()] == *itoa::Buffer::new().format(id).as_bytes()
            }
        };
        ensure!(
            same,
            "the answer to {id} is not what it should be: {}",
            String::from_utf8_lossy(payload)
        );
        Ok(())
    }
}

fn place_of_id(payload: &[u8], id: u32) -> Option<Range<usize>> {
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

    fn fine(_: &Value) -> Result<()> {
        Ok(())
    }

    #[test]
    fn only_the_id_may_differ() {
        let first = br#"{"jsonrpc":"2.0","id":100001,"result":{"a":1}}"#;
        let expected = Expected::learn(first, 100_001, false, fine).unwrap();
        let other = br#"{"jsonrpc":"2.0","id":100002,"result":{"a":1}}"#;
        expected.check(other, 100_002).unwrap();
        assert!(expected.check(first, 100_002).is_err(), "the answer to another request");
        let wrong = br#"{"jsonrpc":"2.0","id":100002,"result":{"a":2}}"#;
        assert!(expected.check(wrong, 100_002).is_err(), "another answer");
        assert!(expected.check(&other[1..], 100_002).is_err(), "a part of the answer");
    }

    #[test]
    fn the_first_answer_is_judged() {
        let answer = br#"{"jsonrpc": "2.0", "id": 100009, "error": {}}"#;
        assert!(Expected::learn(answer, 100_001, false, fine).is_err());
        assert!(Expected::learn(answer, 100_009, false, |_| anyhow::bail!("no")).is_err());
        assert!(Expected::learn(answer, 100_009, false, fine).is_ok());
    }
}
