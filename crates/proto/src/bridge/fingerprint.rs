//! Client capabilities as a key: clients with equal keys may share the children of a legacy server (GW-06).

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Capabilities that say nothing to a legacy server, because they are not passed on.
const LEFT_OUT: [&str; 2] = ["extensions", "experimental"];

/// The canonical form of raw capabilities. Members are sorted, `true` equals `{}`, and `false` and null equal a missing
/// member.
pub fn fingerprint(capabilities: &[u8]) -> String {
    let capabilities: Value = serde_json::from_slice(capabilities).unwrap_or_default();
    let mut key = String::new();
    if let Value::Object(members) = &capabilities {
        let kept = members.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
        write_members(&mut key, kept);
    }
    key
}

fn write_members<'a>(key: &mut String, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    let sorted: BTreeMap<_, _> = members.filter(|(_, value)| is_declared(value)).collect();
    key.push('{');
    for (name, value) in sorted {
        let _ = write!(key, "{name:?}:");
        match value {
            Value::Object(members) => write_members(key, members.iter()),
            Value::Bool(_) => key.push_str("{}"),
            other => {
                let _ = write!(key, "{other}");
            }
        }
        key.push(',');
    }
    key.push('}');
}

fn is_declared(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GW-06: the same capabilities in any spelling have one key, and other capabilities another.
    #[test]
    fn gw_06_fingerprint_is_canonical() {
        let same = [
            r#"{"sampling":{},"roots":{"listChanged":true}}"#,
            r#"{"roots":{"listChanged":{}},"sampling":true}"#,
            r#"{ "roots" : { "listChanged" : true }, "sampling" : {}, "extensions": {"x": {}} }"#,
            r#"{"sampling":{},"roots":{"listChanged":true},"experimental":{"a":1},"elicitation":null}"#,
            r#"{"sampling":{},"roots":{"listChanged":true},"elicitation":false}"#,
        ];
        for other in same {
            assert_eq!(
                fingerprint(other.as_bytes()),
                fingerprint(same[0].as_bytes()),
                "{other}"
            );
        }
        let different = [
            r"{}",
            r#"{"sampling":{}}"#,
            r#"{"sampling":{"tools":{}}}"#,
            r#"{"elicitation":{}}"#,
            r#"{"elicitation":{"url":{}}}"#,
            r#"{"elicitation":{"form":{},"url":{}}}"#,
            r#"{"roots":{}}"#,
            same[0],
        ];
        for (n, one) in different.iter().enumerate() {
            for other in &different[n + 1..] {
                assert_ne!(
                    fingerprint(one.as_bytes()),
                    fingerprint(other.as_bytes()),
                    "{one} {other}"
                );
            }
        }
    }

    #[test]
    fn gw_06_fingerprint_of_no_object_is_that_of_no_capabilities() {
        assert_eq!(fingerprint(b""), fingerprint(b"[1]"));
    }
}
