//! Finds the members of a JSON object in one pass, without building values.
//!
//! This is the fast path for usual messages. The scan accepts only input that it understands completely. For anything
//! else it returns `None`, and `serde_json` parses the message and reports errors. The scan finds exactly the members
//! that serde would find.

mod text;

use text::{blank, expect, plain_string, skip};

/// Limit of the nesting that the scan follows. Beyond this, `serde_json` parses the message.
const MAX_SCAN_DEPTH: u32 = 64;
/// The objects around a member that the scan finds: the message, its params and their `_meta`.
const MEMBER_DEPTH: usize = 3;

/// Other keys of one object that the scan compares for repetitions. Beyond this, `serde_json` parses the message.
const MAX_OTHER_KEYS: usize = 8;

/// The start and the end of a raw value. Only the object itself starts at 0, so `(0, 0)` means absent.
pub(crate) type Span = (u32, u32);

pub(crate) const NOWHERE: Span = (0, 0);

/// The members of a message: `jsonrpc`, `id`, `method`, `params`, `result`, `error`.
const MESSAGE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const PARAMS: usize = 3;

/// The members of params that some rule of the transport needs.
const IN_PARAMS: [&str; 7] = [
    "name",
    "uri",
    "taskId",
    "arguments",
    "inputResponses",
    "requestState",
    "_meta",
];
const NAME: usize = 0;
const META: usize = 6;

/// The members of `_meta` that some rule of the transport needs.
const IN_META: [&str; 5] = [
    "io.modelcontextprotocol/protocolVersion",
    "progressToken",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];

/// Places in [`IN_META`].
pub(crate) const META_VERSION: usize = 0;
pub(crate) const META_PROGRESS_TOKEN: usize = 1;

/// The positions of the members of params that some rule needs, and of those in `_meta`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    params: [Span; IN_PARAMS.len()],
    meta: [Span; IN_META.len()],
}

impl Members {
    /// The members of `params`, in the order of [`IN_PARAMS`] without `_meta`, then those of `_meta`, in the order of
    /// [`IN_META`]. Null counts as absent.
    pub(crate) fn of<'a>(&self, params: &'a str) -> ([Option<&'a str>; 6], [Option<&'a str>; 5]) {
        let raw = |span: Span| at(params, span).filter(|raw| *raw != "null");
        let [name, uri, task, arguments, responses, state, _] = self.params;
        (
            [name, uri, task, arguments, responses, state].map(raw),
            self.meta.map(raw),
        )
    }

    /// One member of `_meta`, by its place in [`IN_META`]. Null counts as absent.
    pub(crate) fn in_meta<'a>(&self, params: &'a [u8], place: usize) -> Option<&'a str> {
        let (from, to) = self.meta[place];
        let raw = std::str::from_utf8(params.get(from as usize..to as usize)?).ok()?;
        Some(raw).filter(|raw| !raw.is_empty() && *raw != "null")
    }

    /// Scans params that were not part of a scanned message. `None` if they need the slow path or have no `_meta`.
    pub(crate) fn find(params: &str) -> Option<Self> {
        let bytes = params.as_bytes();
        u32::try_from(bytes.len()).ok()?;
        let (members, has_meta, end) = members(bytes, blank(bytes, 0), MAX_SCAN_DEPTH)?;
        (has_meta && blank(bytes, end) == bytes.len()).then_some(members)
    }
}

/// A scanned message.
pub(crate) struct Scan<'a> {
    /// The raw values of [`MESSAGE`].
    pub(crate) members: [Option<&'a str>; 6],
    /// The positions in the params, if they have a `_meta`.
    pub(crate) params: Option<Members>,
    /// The position of `name` in the params.
    pub(crate) name: Span,
}

/// Scans a message. `None` unless `text` is valid JSON, an object, and nested at most `depth` deep. In the message, its
/// params and their `_meta`, no key may have escapes or be repeated, and at most [`MAX_OTHER_KEYS`] may be of no
/// interest.
pub(crate) fn scan(text: &str, depth: usize) -> Option<Scan<'_>> {
    let bytes = text.as_bytes();
    u32::try_from(bytes.len()).ok()?;
    let depth = depth.checked_sub(MEMBER_DEPTH)?.min(MAX_SCAN_DEPTH as usize) as u32;
    let (mut found, mut params, mut name) = ([NOWHERE; MESSAGE.len()], None, NOWHERE);
    let end = object(bytes, blank(bytes, 0), depth, &MESSAGE, &mut found, |key, at| {
        if key != PARAMS || bytes.get(at) != Some(&b'{') {
            return skip(bytes, at, depth);
        }
        let (members, has_meta, end) = members(bytes, at, depth)?;
        params = has_meta.then_some(members);
        name = members.params[NAME];
        Some(end)
    })?;
    (blank(bytes, end) == bytes.len()).then(|| Scan {
        members: found.map(|span| at(text, span)),
        params,
        name,
    })
}

/// The members of the params that begin at `start`, whether they have a `_meta`, and the end of the params.
fn members(bytes: &[u8], start: usize, depth: u32) -> Option<(Members, bool, usize)> {
    let (mut params, mut meta, mut has_meta) = ([NOWHERE; IN_PARAMS.len()], [NOWHERE; IN_META.len()], false);
    let end = object(bytes, start, depth, &IN_PARAMS, &mut params, |key, at| {
        if key != META || bytes.get(at) != Some(&b'{') {
            return skip(bytes, at, depth);
        }
        has_meta = true;
        object(bytes, at, depth, &IN_META, &mut meta, |_, at| skip(bytes, at, depth))
    })?;
    let start = start as u32;
    let from_start = |(from, to): Span| if to == 0 { NOWHERE } else { (from - start, to - start) };
    let members = Members {
        params: params.map(from_start),
        meta: meta.map(from_start),
    };
    Some((members, has_meta, end))
}

fn at(text: &str, (from, to): Span) -> Option<&str> {
    text.get(from as usize..to as usize).filter(|raw| !raw.is_empty())
}

/// Skips an object. `found` gets the positions of the members `keys`, and `value` skips one of them.
fn object<const N: usize>(
    bytes: &[u8],
    at: usize,
    depth: u32,
    keys: &[&str; N],
    found: &mut [Span; N],
    mut value: impl FnMut(usize, usize) -> Option<usize>,
) -> Option<usize> {
    let mut at = blank(bytes, expect(bytes, at, b'{')?);
    if bytes.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    let mut others = OtherKeys::default();
    loop {
        let start = expect(bytes, at, b'"')?;
        let end = plain_string(bytes, start)?;
        let key = &bytes[start..end - 1];
        at = blank(bytes, expect(bytes, blank(bytes, end), b':')?);
        match keys.iter().position(|wanted| wanted.as_bytes() == key) {
            Some(place) => {
                let end = value(place, at)?;
                if found[place] != NOWHERE {
                    return None; // ambiguous
                }
                found[place] = (at as u32, end as u32);
                at = end;
            }
            None => {
                others.insert(bytes, (start as u32, end as u32 - 1))?;
                at = skip(bytes, at, depth)?;
            }
        }
        at = blank(bytes, at);
        match bytes.get(at)? {
            b',' => at = blank(bytes, at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// The other keys of one object. Nearly always there are none.
#[derive(Default)]
struct OtherKeys {
    spans: [Span; MAX_OTHER_KEYS],
    count: usize,
}

impl OtherKeys {
    /// `None` if the key is repeated or the table is full.
    fn insert(&mut self, bytes: &[u8], key: Span) -> Option<()> {
        let text = |(from, to): Span| &bytes[from as usize..to as usize];
        if self.spans[..self.count].iter().any(|other| text(*other) == text(key)) {
            return None;
        }
        *self.spans.get_mut(self.count)? = key;
        self.count += 1;
        Some(())
    }
}

/// The text of a string without escapes. `None` for any other value.
pub(crate) fn plain_text(value: &str) -> Option<&str> {
    let text = value.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', text.as_bytes()).is_none().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use std::collections::HashMap;

    /// The members that serde finds.
    fn found<const N: usize>(text: &str, keys: [&str; N]) -> Option<[Option<String>; N]> {
        let all: HashMap<String, &RawValue> = serde_json::from_str(text).ok()?;
        Some(keys.map(|key| all.get(key).map(|raw| raw.get().to_owned())))
    }

    fn is_cut(text: &str) -> bool {
        scan(text, 100).is_some()
    }

    /// Asserts that the scan finds what serde finds.
    fn agrees(text: &str) {
        let Some(scanned) = scan(text, 100) else { return };
        let owned = |raw: Option<&str>| raw.map(str::to_owned);
        assert_eq!(Some(scanned.members.map(owned)), found(text, MESSAGE), "{text}");
        let Some(params) = scanned.members[PARAMS] else { return };
        let present = |raw: Option<String>| raw.filter(|raw| raw != "null");
        let expected = found(params, IN_PARAMS).map(|found| found.map(present));
        let meta = expected
            .as_ref()
            .and_then(|params| found(params[META].as_deref()?, IN_META));
        assert_eq!(scanned.params.is_some(), meta.is_some(), "{text}");
        assert_eq!(scanned.params.is_some(), Members::find(params).is_some(), "{text}");
        for members in scanned.params.into_iter().chain(Members::find(params)) {
            let (in_params, in_meta) = members.of(params);
            assert_eq!(in_params.map(owned)[..], expected.as_ref().unwrap()[..META], "{text}");
            assert_eq!(in_meta.map(owned), meta.clone().unwrap().map(present), "{text}");
        }
    }

    #[test]
    fn http_04_scan_accepts_only_valid_json() {
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
            assert_eq!(is_cut(text), found(text, MESSAGE).is_some(), "{text:?}");
        }
        for unclear in [
            "{\"id\":1,\"id\":2}",
            "{\"\\u0069d\":1}",
            "{\"params\":{\"name\":1,\"name\":2}}",
            "{\"params\":{\"level\":1,\"level\":1}}",
            "{\"params\":{\"_meta\":{\"x\":1,\"x\":1}}}",
            "{\"params\":{\"_meta\":{\"progressToken\":1,\"progressToken\":1}}}",
        ] {
            assert!(!is_cut(unclear), "{unclear}");
        }
        for params in [
            "{}",
            " {\"_meta\":null}",
            "{\"_meta\":[]}",
            "[]",
            "3",
            "{\"_meta\":{}} x",
        ] {
            assert!(Members::find(params).is_none(), "{params}");
        }
        let many = |n: usize| {
            format!(
                "{{{}}}",
                (0..n).map(|i| format!("\"{i}\":1")).collect::<Vec<_>>().join(",")
            )
        };
        assert!(is_cut(&many(MAX_OTHER_KEYS)) && !is_cut(&many(MAX_OTHER_KEYS + 1)));
        let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(is_cut(&deep(65)) && !is_cut(&deep(66)));
        assert!(
            scan(&deep(8), 10).is_some() && scan(&deep(10), 10).is_none(),
            "SEC-06: not sure is no"
        );
        assert!(scan("{}", 2).is_none());
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
            let keys = prop_oneof!["id|params|name|_meta|progressToken|b", "\\PC{0,10}"];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                proptest::collection::hash_map(keys, inner, 0..5)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn http_04_scan_finds_the_members_that_serde_finds(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            agrees(&text);
            if !text.contains('\\') {
                prop_assert_eq!(is_cut(&text), value.is_object(), "{}", text);
            }
        }

        /// The scan never accepts damaged JSON that serde refuses.
        #[test]
        fn http_04_scan_refuses_damaged_json(value in json(), at: prop::sample::Index, byte in "[\\x00-\\x7f]", insert: bool) {
            let mut text: Vec<char> = serde_json::to_string(&value).unwrap().chars().collect();
            let at = at.index(text.len());
            let byte = byte.chars().next().unwrap();
            if insert { text.insert(at, byte) } else { text[at] = byte }
            agrees(&text.into_iter().collect::<String>());
        }
    }
}
