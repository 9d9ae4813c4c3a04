//! The digest of a call's arguments, which a retry must repeat.

use crate::jsonrpc::Params;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

/// The params that a retry may change: its own metadata, and the members of the retry itself (MRTR-04). With their quotes.
const NOT_PART_OF_THE_CALL: [&[u8]; 3] = [b"\"_meta\"", b"\"inputResponses\"", b"\"requestState\""];

/// Bounds the recursion. Deeper than any body that passes the envelope's limit.
const MAX_DEPTH: usize = 128;

/// SHA-256 of the called method's params without `_meta`, `inputResponses` and `requestState`.
///
/// The order of keys, white space and escapes do not matter. Everything else does (MRTR-05, T-28). Numbers are compared as
/// text, so that two large integers with the same floating-point value differ. Of a repeated key, both values count.
pub fn digest(params: &Params) -> [u8; 32] {
    let canonical = canonical(params.as_json()).unwrap_or_else(|| {
        // Not an object, or with a string that is not valid text: equal only to itself. No canonical form has this beginning.
        [b"as it stands:", params.as_json()].concat()
    });
    Sha256::digest(&canonical).into()
}

fn canonical(json: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(json).ok()?;
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut walk = Walk {
        text,
        at: 0,
        out: Vec::with_capacity(text.len()),
    };
    (walk.peek()? == b'{').then(|| walk.object(0)).flatten()?;
    Some(walk.out)
}

/// Rewrites valid JSON in canonical form, in one pass.
///
/// Written by hand, because serde would parse numbers, and raw values are scanned once per nesting level: a second of work
/// for a hostile body of four megabytes.
struct Walk<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
}

/// The position of a field in the output.
struct Field {
    start: usize,
    key_end: usize,
    end: usize,
}

impl Walk<'_> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let inner = (depth < MAX_DEPTH).then_some(depth + 1)?;
        self.step(b'{');
        let mut fields: Vec<Field> = Vec::new();
        loop {
            match self.peek()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => {}
            }
            let start = self.out.len();
            self.peek()?;
            self.string()?;
            let key_end = self.out.len();
            self.peek()?;
            self.step(b':');
            self.value(inner)?;
            self.out.push(b',');
            if depth == 0 && NOT_PART_OF_THE_CALL.contains(&&self.out[start..key_end]) {
                self.out.truncate(start);
            } else {
                let end = self.out.len();
                fields.push(Field { start, key_end, end });
            }
        }
        self.sort(fields);
        self.step(b'}');
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let inner = (depth < MAX_DEPTH).then_some(depth + 1)?;
        self.step(b'[');
        loop {
            match self.peek()? {
                b']' => break,
                b',' => self.step(b','),
                _ => self.value(inner)?,
            }
        }
        self.step(b']');
        Some(())
    }

    /// A string in its shortest escaping.
    fn string(&mut self) -> Option<()> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let (mut end, mut escapes) = (start + 1, false);
        loop {
            end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
            if bytes[end] == b'"' {
                break;
            }
            escapes = true;
            end += 2;
        }
        self.at = end + 1;
        let token = &self.text[start..self.at];
        if escapes {
            let string: String = serde_json::from_str(token).ok()?;
            serde_json::to_writer(&mut self.out, &string).ok()?;
        } else {
            self.out.extend_from_slice(token.as_bytes());
        }
        Some(())
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let ends = |b: &u8| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
        let length = rest.iter().position(ends)?;
        self.out.extend_from_slice(&rest[..length]);
        self.at += length;
        (length > 0).then_some(())
    }

    /// Sorts fields by their keys. Equal keys keep their order.
    fn sort(&mut self, mut fields: Vec<Field>) {
        let key = |field: &Field| &self.out[field.start..field.key_end];
        let Some(start) = fields.first().map(|first| first.start) else {
            return;
        };
        if fields.is_sorted_by(|a, b| key(a) <= key(b)) {
            return;
        }
        fields.sort_by(|a, b| key(a).cmp(key(b)));
        let parts: Vec<&[u8]> = fields.iter().map(|field| &self.out[field.start..field.end]).collect();
        let sorted = parts.concat();
        self.out.truncate(start);
        self.out.extend_from_slice(&sorted);
    }

    /// The next byte after white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let blank = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.at += blank;
        rest.get(blank).copied()
    }

    /// Copies the current byte.
    fn step(&mut self, byte: u8) {
        self.at += 1;
        self.out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    fn of(json: &str) -> [u8; 32] {
        digest(&Params::from_raw(Bytes::copy_from_slice(json.as_bytes())))
    }

    #[test]
    fn mrtr_05_form_does_not_matter() {
        let plain = of(r#"{"name":"book","arguments":{"day":"fri","seats":[1,2.50]}}"#);
        for same in [
            r#" { "arguments" : {"seats":[ 1 , 2.50 ],"day":"fri"} , "name":"book" } "#,
            r#"{"n\u0061me":"\u0062ook","arguments":{"day":"fri","seats":[1,2.50]}}"#,
            r#"{"name":"book","arguments":{"day":"fri","seats":[1,2.50]},"_meta":{"progressToken":1}}"#,
            r#"{"requestState":"x","name":"book","inputResponses":{},"arguments":{"day":"fri","seats":[1,2.50]}}"#,
        ] {
            assert_eq!(of(same), plain, "{same}");
        }
        assert_eq!(of(""), of("{}"));
        assert_eq!(of(r#"{"_meta":{}}"#), of("{}"));
    }

    #[test]
    fn mrtr_05_t_28_changed_arguments_are_another_call() {
        let all = [
            "{}",
            "[]",
            "null",
            "not json",
            r#"{"name":"book"}"#,
            r#"{"name":"Book"}"#,
            r#"{"uri":"book"}"#,
            r#"{"name":"book","arguments":{}}"#,
            r#"{"name":"book","arguments":{"_meta":1}}"#,
            r#"{"name":"book","arguments":{"requestState":1}}"#,
            r#"{"name":"book","arguments":{"a":1}}"#,
            r#"{"name":"book","arguments":{"a":1.0}}"#,
            r#"{"name":"book","arguments":{"a":"1"}}"#,
            r#"{"name":"book","arguments":{"a":[1]}}"#,
            r#"{"name":"book","arguments":{"a":[[1]]}}"#,
            r#"{"name":"book","arguments":{"a":[1,2]}}"#,
            r#"{"name":"book","arguments":{"a":[2,1]}}"#,
            r#"{"name":"book","arguments":{"a":null}}"#,
            r#"{"name":"book","arguments":{"a":2,"a":1}}"#,
            r#"{"name":"book","arguments":{"a":1,"a":2}}"#,
            r#"{"name":"book","arguments":{"a":36893488147419103233}}"#,
            r#"{"name":"book","arguments":{"a":36893488147419103234}}"#,
            r#"{"name":"book","arguments":{"a":"\ud800"}}"#,
            r#"{"name":"book","arguments":{"a":"\ud801"}}"#,
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                assert_ne!(of(a), of(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn sec_06_deep_nesting_is_digested_without_running_out_of_stack() {
        let deep = |n: usize| format!(r#"{{"a":{}1{}}}"#, "[".repeat(n), "]".repeat(n));
        assert_ne!(of(&deep(50_000)), of(&deep(50_001)));
        assert_eq!(of(&deep(60)), of(&format!(" {}", deep(60))));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c\\\\\"/\n\u{e9}]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::vec(("[a-c]{1,2}", inner), 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn reversed(value: &Value, out: &mut String) {
        let Value::Object(fields) = value else {
            out.push_str(&serde_json::to_string_pretty(value).unwrap());
            return;
        };
        out.push('{');
        for (n, (name, value)) in fields.iter().rev().enumerate() {
            out.push_str(if n > 0 { " ,\t" } else { "\n" });
            out.push_str(&format!("{} : ", Value::from(name.as_str())));
            reversed(value, out);
        }
        out.push('}');
    }

    proptest! {
        /// MRTR-05: digests are equal exactly if the values are.
        #[test]
        fn mrtr_05_equal_digests_mean_equal_values(a in tree(), b in tree()) {
            let of_value = |value: &Value| of(&json!({ "arguments": value }).to_string());
            prop_assert_eq!(a == b, of_value(&a) == of_value(&b));
            let mut shuffled = String::new();
            let whole = Map::from_iter([("arguments".to_owned(), a.clone()), ("name".to_owned(), b)]);
            reversed(&Value::Object(whole.clone()), &mut shuffled);
            prop_assert_eq!(of(&shuffled), of(&Value::Object(whole).to_string()), "{}", shuffled);
        }

        #[test]
        fn mrtr_05_any_bytes_have_a_digest(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            digest(&Params::from_raw(Bytes::from(bytes)));
        }
    }
}
