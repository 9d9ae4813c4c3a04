//! The value of one mirrored header.

use crate::refusal::Reason;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use std::borrow::Cow;

/// The longest part of a value that a refusal repeats, in characters. The rest is left out.
const MAX_SHOWN_CHARS: usize = 100;

/// The trimmed value of the header `name`. `None` if it was not sent. Equal lines count as one, because proxies repeat
/// headers.
pub(super) fn sent<'a>(headers: &'a HeaderMap, name: &HeaderName, label: &str) -> Result<Option<&'a str>, Reason> {
    let mut lines = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    // HDR-08: a router could use either line.
    if lines.any(|line| line != first) {
        return Err(mismatch(format!("{label} is sent twice, with different values")));
    }
    let legal = first.iter().all(|b| b.is_ascii_graphic() || matches!(b, b' ' | b'\t'));
    let text = std::str::from_utf8(first).ok().filter(|_| legal);
    text.map(Some).ok_or_else(|| {
        mismatch(format!(
            "{label} holds characters beyond visible ASCII: send it as =?base64?...?="
        ))
    })
}

/// Decodes `=?base64?...?=` (HDR-03). Without both exact markers, `text` is returned unchanged.
pub(super) fn decoded<'a>(text: &'a str, label: &str) -> Result<Cow<'a, str>, Reason> {
    let Some(inner) = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(Cow::Borrowed(text));
    };
    let plain = STANDARD
        .decode(inner)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    plain
        .map(Cow::Owned)
        .ok_or_else(|| mismatch(format!("{label} cannot be decoded: it is not the Base64 of UTF-8 text")))
}

pub(super) fn mismatch(what: impl Into<Cow<'static, str>>) -> Reason {
    Reason::HeaderMismatch(what.into())
}

/// The beginning of `text`.
pub(super) fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}
