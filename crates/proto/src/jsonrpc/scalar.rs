//! Ids that must be returned exactly as the client sent them: `7` is not `"7"`, and 2^53 + 1 keeps its last digit.

use crate::inline_str::InlineStr;
use serde_json::value::RawValue;
use std::fmt;

macro_rules! scalar {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Kept as JSON text: an integer or a string in its shortest escaping, so equal texts mean equal values and
        /// writing it back is a copy.
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $name(InlineStr);

        impl $name {
            /// Parses a scalar from JSON text. `None` unless it is a string or an integer.
            pub fn from_json(json: &str) -> Option<Self> {
                canonical(json).map($name)
            }

            /// The JSON text.
            pub fn as_json(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }

        impl From<i64> for $name {
            fn from(number: i64) -> Self {
                $name(InlineStr::from(number.to_string().as_str()))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(InlineStr::from(serde_json::Value::from(text).to_string().as_str()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let raw = RawValue::from_string(self.0.as_str().to_owned()).map_err(serde::ser::Error::custom)?;
                raw.serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let raw = Box::<RawValue>::deserialize(deserializer)?;
                $name::from_json(raw.get()).ok_or_else(|| serde::de::Error::custom("expected a string or an integer"))
            }
        }
    };
}

scalar!(
    /// The id of a request: a string or an integer.
    RequestId
);
scalar!(
    /// The token for progress notifications of a request: a string or an integer.
    ProgressToken
);

fn canonical(json: &str) -> Option<InlineStr> {
    if json.starts_with('"') {
        if memchr::memchr(b'\\', json.as_bytes()).is_none() {
            return Some(json.into());
        }
        let text: String = serde_json::from_str(json).ok()?;
        return Some(InlineStr::from(serde_json::Value::from(text).to_string().as_str()));
    }
    let digits = json.strip_prefix('-').unwrap_or(json);
    let integer = !digits.is_empty() && digits.len() <= 64 && digits.bytes().all(|b| b.is_ascii_digit());
    integer.then(|| json.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_equal_in_any_escaping() {
        assert_eq!(RequestId::from_json(r#""a""#), RequestId::from_json(r#""\u0061""#));
        assert_eq!(RequestId::from_json(r#""a""#), Some(RequestId::from("a")));
        assert_ne!(RequestId::from_json("7"), RequestId::from_json(r#""7""#));
    }

    #[test]
    fn ids_survive_as_exact_integers() {
        for exact in ["0", "-1", "9007199254740993", "18446744073709551616"] {
            assert_eq!(RequestId::from_json(exact).unwrap().to_string(), exact);
        }
        for bad in ["1.0", "1e3", "null", "true", "{}", "[1]", "-", ""] {
            assert_eq!(RequestId::from_json(bad), None, "{bad}");
        }
    }

    #[test]
    fn serde_round_trip_keeps_the_type() {
        for json in ["7", "\"7\"", "\"a\\\"b\""] {
            let id: RequestId = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&id).unwrap(), json);
        }
    }
}
