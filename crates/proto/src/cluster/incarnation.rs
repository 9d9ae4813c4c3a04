//! The names of processes and of readers in a cluster.

use crate::inline_str::InlineStr;
use std::fmt;

/// The longest text of an incarnation: a number of 20 digits, a point and 8 hexadecimal digits.
const MAX_BYTES: usize = 29;

/// The id of one start of a node: `<n>.<hex>`. It is never reused, even if the store loses the counter of `n`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct Incarnation(InlineStr);

impl Incarnation {
    /// The incarnation with number `n` and random part `random`.
    pub fn new(n: u64, random: u32) -> Self {
        Incarnation(InlineStr::from(format!("{n}.{random:08x}").as_str()))
    }

    /// Parses the text of an incarnation. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (n, random) = text.split_once('.')?;
        let digits = |text: &str, allowed: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(allowed);
        let valid = text.len() <= MAX_BYTES
            && digits(n, u8::is_ascii_digit)
            && digits(random, u8::is_ascii_hexdigit)
            && random.len() == 8;
        valid.then(|| Incarnation(InlineStr::from(text)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl<'de> serde::Deserialize<'de> for Incarnation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Incarnation::parse(&text).ok_or_else(|| serde::de::Error::custom("not an incarnation"))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One reader of a stream on another node than its writer: `<incarnation>/<connection>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReaderToken {
    /// The node of the connection.
    pub node: Incarnation,
    /// The connection, unique in that process.
    pub connection: u64,
}

impl ReaderToken {
    /// Parses the text of a token. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (node, connection) = text.split_once('/')?;
        Some(ReaderToken {
            node: Incarnation::parse(node)?,
            connection: connection.parse().ok()?,
        })
    }
}

impl fmt::Display for ReaderToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnation_round_trips_and_rejects_other_texts() {
        let inc = Incarnation::new(7, 0xdead_beef);
        assert_eq!(inc.as_str(), "7.deadbeef");
        assert_eq!(Incarnation::parse("7.deadbeef"), Some(inc.clone()));
        let longest = Incarnation::new(u64::MAX, u32::MAX);
        assert_eq!(Incarnation::parse(longest.as_str()), Some(longest));
        for other in [
            "",
            ".",
            "7",
            "7.",
            ".deadbeef",
            "7.deadbee",
            "7.deadbeef0",
            "x.deadbeef",
            "7.deadbeeg",
            "7.dead.eef",
        ] {
            assert_eq!(Incarnation::parse(other), None, "{other}");
        }
        let token = ReaderToken {
            node: inc,
            connection: 12,
        };
        assert_eq!(ReaderToken::parse(&token.to_string()), Some(token));
        assert_eq!(ReaderToken::parse("7.deadbeef"), None);
    }
}
