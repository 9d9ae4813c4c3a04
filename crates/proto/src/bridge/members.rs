//! Rewrites the members of a JSON object without touching the values that stay.

use crate::jsonrpc::Fields;
use bytes::Bytes;

/// The rewrite of one member.
pub(super) enum Member {
    Keep,
    Remove,
    /// Another value, as JSON.
    Replace(Vec<u8>),
}

/// The object `json` with each member kept, removed or replaced, and the members `added` at its end. `added` is JSON
/// without braces, such as `"a":1,"b":2`. `None` if `json` is not an object.
pub(super) fn rewrite(json: &[u8], added: &[u8], mut decide: impl FnMut(&str, &str) -> Member) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(json).ok()?;
    let fields = Fields::read(text)?;
    let mut out = Vec::with_capacity(json.len() + added.len() + 2);
    out.push(b'{');
    let comma = |out: &mut Vec<u8>| {
        if out.len() > 1 {
            out.push(b',');
        }
    };
    for (name, value) in &fields.0 {
        let replaced = match decide(name, value.get()) {
            Member::Keep => None,
            Member::Remove => continue,
            Member::Replace(json) => Some(json),
        };
        comma(&mut out);
        write_text(&mut out, name);
        out.push(b':');
        out.extend_from_slice(replaced.as_deref().unwrap_or(value.get().as_bytes()));
    }
    if !added.is_empty() {
        comma(&mut out);
        out.extend_from_slice(added);
    }
    out.push(b'}');
    Some(out)
}

/// The same, for bytes that may be no object: these stay as they are.
pub(super) fn rewrite_or_keep(json: &Bytes, added: &[u8], decide: impl FnMut(&str, &str) -> Member) -> Bytes {
    rewrite(json, added, decide).map_or_else(|| json.clone(), Bytes::from)
}

/// The members of `_meta` without those that `is_removed` names. `Remove` if nothing is left.
pub(super) fn filter_meta(meta: &str, is_removed: impl Fn(&str) -> bool) -> Member {
    let Some(fields) = Fields::read(meta) else {
        return Member::Keep;
    };
    if !fields.0.iter().any(|(name, _)| is_removed(name)) {
        return Member::Keep;
    }
    let kept = rewrite(meta.as_bytes(), b"", |name, _| match is_removed(name) {
        true => Member::Remove,
        false => Member::Keep,
    });
    match kept {
        Some(kept) if kept != b"{}" => Member::Replace(kept),
        _ => Member::Remove,
    }
}

/// The items of an array, each rewritten by `item`.
pub(super) fn rewrite_items(array: &str, mut item: impl FnMut(&str) -> Option<Vec<u8>>) -> Member {
    let Ok(items) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(array) else {
        return Member::Keep;
    };
    let mut out = vec![b'['];
    for raw in items {
        let written = item(raw.get());
        let written = written.as_deref().unwrap_or(raw.get().as_bytes());
        if written.is_empty() {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(written);
    }
    out.push(b']');
    Member::Replace(out)
}

/// Whether `json` contains one of the texts. A key with escapes counts, since a search does not see through them.
pub(super) fn mentions(json: &[u8], texts: &[&str]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(json, text).is_some();
    texts.iter().any(|text| has(text.as_bytes())) || has(b"\\u")
}

/// The raw value of a member.
pub(super) fn member<'a>(json: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(json).ok()?;
    Some(Fields::read(text)?.find(name)?.get())
}

pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a JSON value can be written to memory");
}
