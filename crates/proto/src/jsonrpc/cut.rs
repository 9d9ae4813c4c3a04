//! Cuts members out of a JSON object in one pass, building nothing.
//!
//! This is how the usual message is read, and it only reads what it is sure of: for whatever else there may be in a body it
//! says `None`, and serde decides what that is. So nothing here has to explain, and what is cut is exactly what serde would
//! have found.

/// How deep values may nest before they are left to serde.
const DEPTH: u32 = 64;

/// The raw values of the members `keys` of the object that `text` is; `None` unless it is plainly one: valid JSON, no key
/// with escapes in it, none of `keys` there twice.
pub(crate) fn cut<'a, const N: usize>(text: &'a str, keys: [&str; N]) -> Option<[Option<&'a str>; N]> {
    let bytes = text.as_bytes();
    let mut found = [None; N];
    let mut at = expect(bytes, blank(bytes, 0), b'{')?;
    at = blank(bytes, at);
    if bytes.get(at) == Some(&b'}') {
        return (blank(bytes, at + 1) == bytes.len()).then_some(found);
    }
    loop {
        let start = expect(bytes, at, b'"')?;
        let end = plain_string(bytes, start)?;
        let key = &bytes[start..end - 1];
        let value = blank(bytes, expect(bytes, blank(bytes, end), b':')?);
        let end = skip(bytes, value)?;
        if let Some(place) = keys.iter().position(|wanted| wanted.as_bytes() == key)
            && found[place].replace(&text[value..end]).is_some()
        {
            return None;
        }
        at = blank(bytes, end);
        match bytes.get(at)? {
            b',' => at = blank(bytes, at + 1),
            b'}' => return (blank(bytes, at + 1) == bytes.len()).then_some(found),
            _ => return None,
        }
    }
}

/// The text of a string without escapes; `None` for any other value.
pub(crate) fn plain_text(value: &str) -> Option<&str> {
    let text = value.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', text.as_bytes()).is_none().then_some(text)
}

fn expect(bytes: &[u8], at: usize, byte: u8) -> Option<usize> {
    (bytes.get(at) == Some(&byte)).then_some(at + 1)
}

/// Past white space.
fn blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Past a value.
fn skip(bytes: &[u8], mut at: usize) -> Option<usize> {
    // One bit for every open bracket, the innermost lowest: whether it is an object.
    let (mut objects, mut depth) = (0u64, 0u32);
    loop {
        at = match bytes.get(at)? {
            b'"' => string(bytes, at + 1)?,
            open @ (b'{' | b'[') => {
                let object = *open == b'{';
                let inside = blank(bytes, at + 1);
                if bytes.get(inside) == Some(&if object { b'}' } else { b']' }) {
                    inside + 1
                } else {
                    depth += 1;
                    if depth > DEPTH {
                        return None;
                    }
                    objects = objects << 1 | u64::from(object);
                    at = if object { key(bytes, inside)? } else { inside };
                    continue;
                }
            }
            b't' => literal(bytes, at, b"true")?,
            b'f' => literal(bytes, at, b"false")?,
            b'n' => literal(bytes, at, b"null")?,
            _ => number(bytes, at)?,
        };
        // A value has ended: so may what it is in.
        loop {
            if depth == 0 {
                return Some(at);
            }
            at = blank(bytes, at);
            let object = objects & 1 == 1;
            match bytes.get(at)? {
                b',' => {
                    at = blank(bytes, at + 1);
                    if object {
                        at = key(bytes, at)?;
                    }
                    break;
                }
                b'}' if object => {}
                b']' if !object => {}
                _ => return None,
            }
            at += 1;
            objects >>= 1;
            depth -= 1;
        }
    }
}

/// Past a key and its colon, to the value.
fn key(bytes: &[u8], at: usize) -> Option<usize> {
    let end = string(bytes, expect(bytes, at, b'"')?)?;
    Some(blank(bytes, expect(bytes, blank(bytes, end), b':')?))
}

fn literal(bytes: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    bytes[at..].starts_with(word).then_some(at + word.len())
}

/// Past a string whose opening quote was read.
fn string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = until_special(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match bytes.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            _ => return None,
        }
    }
}

/// The same for a string without escapes.
fn plain_string(bytes: &[u8], at: usize) -> Option<usize> {
    expect(bytes, until_special(bytes, at), b'"')
}

/// Past everything that stands for itself in a string: up to a quote, a backslash or a control character.
fn until_special(bytes: &[u8], mut at: usize) -> usize {
    // Eight bytes at a time: the high bit of each byte that is one of them. A bit too many costs a second look, none is missed.
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
        let special = zeros(word ^ (LOW * 0x22)) | zeros(word ^ (LOW * 0x5c)) | control;
        if special != 0 {
            at += special.trailing_zeros() as usize / 8;
            break;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
            break;
        }
        at += 1;
    }
    at
}

fn number(bytes: &[u8], mut at: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at > start).then_some(at)
    };
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at)? {
        b'0' => at + 1,
        _ => digits(at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(at)?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use std::collections::HashMap;

    const KEYS: [&str; 3] = ["a", "id", "método"];

    /// What serde finds.
    fn found<'a>(text: &'a str) -> Option<[Option<&'a str>; 3]> {
        let all: HashMap<String, &'a RawValue> = serde_json::from_str(text).ok()?;
        Some(KEYS.map(|key| all.get(key).map(|raw| raw.get())))
    }

    /// What is cut is what serde finds; valid JSON without escapes and repetitions is cut.
    fn agrees(text: &str) {
        if let Some(cut) = cut(text, KEYS) {
            assert_eq!(Some(cut), found(text), "{text}");
        }
    }

    #[test]
    fn http_04_only_what_is_valid_is_cut() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "{}",
            " { } ",
            "{}x",
            "{} {}",
            "[]",
            "null",
            "1",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{a:1}",
            "{\"a\":1 \"id\":2}",
            "{\"a\":[1,]}",
            "{\"a\":[}]}",
            "{\"a\":{\"b\":1]}",
            "{\"a\":tru}",
            "{\"a\":truely}",
            "{\"a\":01}",
            "{\"a\":-}",
            "{\"a\":1.}",
            "{\"a\":.5}",
            "{\"a\":1e}",
            "{\"a\":+1}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"\\u12\"}",
            "{\"a\":\"\u{1}\"}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"x}",
            "{\"a\":[[]],\"id\":[{},{\"x\":[]}]}",
            "\u{feff}{}",
            "{\"a\":NaN}",
            "{\"a\":1//\n}",
        ] {
            agrees(text);
            let valid = found(text).is_some();
            assert_eq!(cut(text, KEYS).is_some(), valid, "{text:?}");
        }
        assert!(cut("{\"a\":1,\"a\":2}", KEYS).is_none(), "which of them?");
        assert!(cut("{\"\\u0061\":1}", KEYS).is_none(), "serde knows what that is");
        let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(cut(&deep(65), KEYS).is_some() && cut(&deep(66), KEYS).is_none());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            "\\PC{0,24}".prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let keys = prop_oneof!["a|id|método|b", "\\PC{0,10}"];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                proptest::collection::hash_map(keys, inner, 0..5)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn http_04_valid_json_is_cut_as_serde_reads_it(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            agrees(&text);
            let escaped = value.as_object().is_some_and(|map| map.keys().any(|key| serde_json::to_string(key).unwrap().contains('\\')));
            prop_assert_eq!(cut(&text, KEYS).is_some(), value.is_object() && !escaped, "{}", text);
        }

        /// Damaged JSON is never cut unless serde takes it, too.
        #[test]
        fn http_04_damage_is_noticed(value in json(), at: prop::sample::Index, byte in "[\\x00-\\x7f]", insert: bool) {
            let mut text: Vec<char> = serde_json::to_string(&value).unwrap().chars().collect();
            let at = at.index(text.len());
            let byte = byte.chars().next().unwrap();
            if insert { text.insert(at, byte) } else { text[at] = byte }
            agrees(&text.into_iter().collect::<String>());
        }
    }
}
