//! Media types in `Accept` and `Content-Type`.
//!
//! A search for substrings would accept `text/event-stream;q=0` and refuse `*/*` (T-33), so the ranges are parsed, without
//! allocations.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};

/// Whether `Accept` admits the media type `kind/sub` (HTTP-02). A missing `Accept` counts as `*/*`.
///
/// The most specific matching range decides (RFC 9110 section 12.5.1): `*/*;q=0.1, text/event-stream;q=0` refuses an event
/// stream. Parameters other than `q` are ignored, and so are invalid ranges.
pub(super) fn admits(headers: &HeaderMap, kind: &str, sub: &str) -> bool {
    let (best, seen_any) = best_range(headers, kind, sub);
    best.map_or(!seen_any, |(_, admitted)| admitted)
}

/// Whether `Accept` names the media type `kind/sub` itself and admits it.
pub(super) fn names(headers: &HeaderMap, kind: &str, sub: &str) -> bool {
    best_range(headers, kind, sub).0 == Some((Specificity::Exact, true))
}

/// The range that decides about `kind/sub`, and whether there is any range.
fn best_range(headers: &HeaderMap, kind: &str, sub: &str) -> (Option<(Specificity, bool)>, bool) {
    let mut seen_any = false;
    let mut best: Option<(Specificity, bool)> = None;
    for range in headers
        .get_all(ACCEPT)
        .iter()
        .flat_map(|line| split(line.as_bytes(), b','))
    {
        seen_any = true;
        let Some(found) = weigh(range, kind, sub) else { continue };
        // Of equally specific ranges, one that admits wins: `(Exact, true) > (Exact, false)`.
        best = best.max(Some(found));
    }
    (best, seen_any)
}

/// Whether the value of `Content-Type` is `application/json`, with or without parameters (HTTP-03).
pub(super) fn is_json_content_type(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let essence = bytes.split(|&b| b == b';').next().unwrap_or(bytes);
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Whether `Accept` is one of the three values that nearly every client sends. They admit both forms of a response.
pub(super) fn admits_both(only: &HeaderValue) -> bool {
    matches!(
        only.as_bytes(),
        b"application/json, text/event-stream" | b"text/event-stream, application/json" | b"*/*"
    )
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    Anything,
    Kind,
    Exact,
}

/// How specifically `range` matches `kind/sub`, and whether it admits it. `None` if it does not match or is invalid.
fn weigh(range: &[u8], kind: &str, sub: &str) -> Option<(Specificity, bool)> {
    let mut parts = split(range, b';');
    let essence = parts.next()?;
    let mut halves = essence.splitn(2, |&b| b == b'/');
    let specificity = match (halves.next()?.trim_ascii(), halves.next().map(<[u8]>::trim_ascii)) {
        // A bare `*` is not a media range, but old HTTP clients send it.
        (b"*", None | Some(b"*")) => Specificity::Anything,
        (k, Some(b"*")) if k.eq_ignore_ascii_case(kind.as_bytes()) => Specificity::Kind,
        (k, Some(s)) if k.eq_ignore_ascii_case(kind.as_bytes()) && s.eq_ignore_ascii_case(sub.as_bytes()) => {
            Specificity::Exact
        }
        _ => return None,
    };
    for parameter in parts {
        let mut halves = parameter.splitn(2, |&b| b == b'=');
        if halves.next()?.trim_ascii().eq_ignore_ascii_case(b"q") {
            return Some((specificity, is_positive(halves.next()?.trim_ascii())?));
        }
    }
    Some((specificity, true))
}

/// Whether the weight `q` is above zero. `None` if it is not a number.
fn is_positive(q: &[u8]) -> Option<bool> {
    let digits = q.iter().filter(|b| b.is_ascii_digit()).count();
    let dots = q.iter().filter(|&&b| b == b'.').count();
    let number = digits > 0 && dots <= 1 && digits + dots == q.len();
    number.then(|| q.iter().any(|b| matches!(b, b'1'..=b'9')))
}

/// The non-empty, trimmed parts of `text` between `separator`s that are not inside a quoted string.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |&byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => return byte == separator && !quoted,
        }
        false
    })
    .map(<[u8]>::trim_ascii)
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(lines: &[&'static str]) -> HeaderMap {
        lines
            .iter()
            .map(|line| (ACCEPT, HeaderValue::from_static(line)))
            .collect()
    }

    /// HTTP-02, T-33. The columns: the value of `Accept`, whether it admits JSON, whether it admits an event stream.
    #[test]
    fn http_02_accept_is_parsed_as_media_ranges() {
        let table: [(&[&'static str], bool, bool); 38] = [
            (&[], true, true),
            (&[""], true, true),
            (&["*/*"], true, true),
            (&["*"], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["text/event-stream, application/json"], true, true),
            (&["application/json,text/event-stream"], true, true),
            (&["APPLICATION/JSON ,Text/Event-Stream"], true, true),
            (&["application/json", "text/event-stream"], true, true),
            (&["application/json"], true, false),
            (&["text/event-stream"], false, true),
            (&["application/*"], true, false),
            (&["text/*"], false, true),
            (&["application/*, text/*"], true, true),
            (&["application/json, text/event-stream;q=0"], true, false),
            (&["application/json, text/event-stream; Q=0.000"], true, false),
            (&["application/json, text/event-stream;q=0.001"], true, true),
            (&["application/json;q=.2, text/event-stream;q=1"], true, true),
            (&["*/*;q=0.1, text/event-stream;q=0"], true, false),
            (&["text/event-stream;q=0, */*"], true, false),
            (&["*/*;q=0, text/event-stream"], false, true),
            (&["text/*;q=0, */*"], true, false),
            (&["text/*;q=0, text/event-stream"], false, true),
            (&["*/*;q=0"], false, false),
            (&["*/*", "text/event-stream;q=0"], true, false),
            (
                &["application/json;charset=utf-8, text/event-stream;level=1;q=0.5"],
                true,
                true,
            ),
            (&["application/json;x=\"a,b;q=0\", text/event-stream"], true, true),
            (&["application/json;x=\"\\\",text/event-stream;\""], true, false),
            (&["application/json;x=\"open, text/event-stream"], true, false),
            (&["text/html, application/xhtml+xml, */*;q=0.8"], true, true),
            (&["application/json, text/event-stream;q=high"], true, false),
            (&["application/json, text/event-stream;q="], true, false),
            (&["application/json, text/event-stream;q"], true, false),
            (&["application/json, */event-stream"], true, false),
            (&["application/jsonl, text/event-streams"], false, false),
            (&["application, text"], false, false),
            (&[", ,;;, ,"], false, false),
            (
                &["application/json, text/event-stream;q=0, text/event-stream"],
                true,
                true,
            ),
        ];
        for (lines, json, stream) in table {
            let headers = accept(lines);
            assert_eq!(admits(&headers, "application", "json"), json, "json by {lines:?}");
            assert_eq!(
                admits(&headers, "text", "event-stream"),
                stream,
                "event-stream by {lines:?}"
            );
        }
        assert!(!admits(
            &accept(&["application/json, text/event-stream"]),
            "text",
            "html"
        ));
    }

    #[test]
    fn http_03_content_type_is_json_with_any_parameters() {
        for (value, json) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("Application/JSON;charset=UTF-8", true),
            (" application/json ;x=\"a;b\"", true),
            ("text/plain", false),
            ("application/jsonp", false),
            ("application/json-rpc", false),
            ("application/x-www-form-urlencoded", false),
            ("application/json, text/plain", false),
            ("text/plain; application/json", false),
            ("json", false),
            ("", false),
        ] {
            assert_eq!(
                is_json_content_type(&HeaderValue::from_static(value)),
                json,
                "{value:?}"
            );
        }
    }
}
