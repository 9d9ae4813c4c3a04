//! Checks of a stateless request after its version is settled: `_meta` is complete, and the mirrored headers equal the body.
//!
//! A router in front of this server acts on the headers, and this server acts on the body. A difference could deceive one of
//! them, so such a request is refused. The caller keeps this order (VER-05):
//!
//! | # | check | refused as |
//! |---|---|---|
//! | 1 | [`Stateless::read`], [`Stateless::capabilities`] | `MissingMeta` |
//! | 2 | [`check_method`] | `HeaderMismatch` |
//! | 3 | [`check_name`] | `HeaderMismatch` |
//! | 4 | the method is known: the caller's business | |
//! | 5 | [`Stateless::log_level`] | `MissingMeta` |
//! | 6 | [`HeaderParams::check`], with the schema of the tool that is called (T-36) | `HeaderMismatch` |
//!
//! A notification mirrors only its method, and may omit it (HTTP-06): [`check_method_if_sent`]. The legacy era mirrors
//! nothing and does not use this module (HDR-07).

mod meta;
mod params;
mod value;

pub use meta::{Capabilities, Field, LOG_LEVELS, Stateless};
pub use params::{AnnotationFault, BadAnnotation, HeaderParams};

use crate::refusal::Reason;
use http::{HeaderMap, HeaderName};
use value::{decoded, mismatch, sent, shorten};

/// `Mcp-Method`: repeats the method (HDR-01).
pub static MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `Mcp-Name`: repeats the name, URI or task id of the request (HDR-02).
pub static MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Checks that `Mcp-Method` repeats the method of a request (HDR-01).
pub fn check_method(headers: &HeaderMap, method: &str) -> Result<(), Reason> {
    compare_method(headers, method, true)
}

/// Checks that `Mcp-Method`, if present, repeats the method of a notification (HTTP-06, T-03).
pub fn check_method_if_sent(headers: &HeaderMap, method: &str) -> Result<(), Reason> {
    compare_method(headers, method, false)
}

fn compare_method(headers: &HeaderMap, method: &str, required: bool) -> Result<(), Reason> {
    // HDR-03: the method is never decoded.
    match sent(headers, &MCP_METHOD, "Mcp-Method")? {
        Some(text) if text == method => Ok(()),
        Some(text) => Err(mismatch(format!(
            "Mcp-Method '{}' differs from method '{}'",
            shorten(text),
            shorten(method)
        ))),
        None if required => Err(mismatch("Mcp-Method is missing: it must repeat the method")),
        None => Ok(()),
    }
}

/// Checks that `Mcp-Name` repeats the name in the params (HDR-02): `params.name` of `tools/call` and `prompts/get`,
/// `params.uri` of `resources/read`. Other methods mirror no name.
///
/// The methods of the Tasks extension mirror `params.taskId`, but only if the client declared the extension. Without it they
/// are unknown methods, and the header is not at fault. A header that is present is always compared.
pub fn check_name(headers: &HeaderMap, method: &str, request: &Stateless) -> Result<(), Reason> {
    let (label, field, required) = match method {
        "tools/call" | "prompts/get" => ("params.name", &request.name, true),
        "resources/read" => ("params.uri", &request.uri, true),
        "tasks/get" | "tasks/update" | "tasks/cancel" => ("params.taskId", &request.task_id, request.declares_tasks()),
        _ => return Ok(()),
    };
    let Some(text) = sent(headers, &MCP_NAME, "Mcp-Name")? else {
        return if required {
            Err(mismatch(format!("Mcp-Name is missing: it must repeat {label}")))
        } else {
            Ok(())
        };
    };
    let name = decoded(text, "Mcp-Name")?;
    let differs = match field {
        Field::Text(held) if held.as_bytes() == name.as_bytes() => return Ok(()),
        Field::Text(held) => format!("differs from {label} '{}'", shorten(held.as_str())),
        Field::Absent => format!("repeats nothing: there is no {label}"),
        Field::Other => format!("repeats nothing: {label} is not a string"),
    };
    Err(mismatch(format!("Mcp-Name '{}' {differs}", shorten(&name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{Params, code};
    use crate::refusal::Refusal;
    use bytes::Bytes;
    use http::HeaderValue;
    use serde_json::json;

    pub(super) fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
            })
            .collect()
    }

    /// The text of a refusal with 400 -32020. `None` if the request was admitted.
    pub(super) fn refused(outcome: Result<(), Reason>) -> Option<String> {
        let refusal = Refusal::new(outcome.err()?);
        assert_eq!(refusal.status().as_u16(), 400);
        assert_eq!(refusal.error().code, code::HEADER_MISMATCH);
        Some(refusal.error().message.to_string())
    }

    fn request(params: &str) -> Stateless {
        Stateless::read(&Params::from_raw(Bytes::copy_from_slice(params.as_bytes()))).unwrap()
    }

    /// VER-05: all checks in order, as the caller runs them. The columns: the params, `Mcp-Method`, `Mcp-Name`,
    /// `Mcp-Param-Region`, and the code of the refusal with a word that identifies it.
    #[test]
    fn ver_05_each_single_defect_has_its_refusal() {
        const CAPABILITIES: &str = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        let region = HeaderParams::of_schema(&json!({
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } }
        }))
        .unwrap();
        let walk = |params: &str, lines: &[(&'static str, &str)]| {
            let headers = headers(lines);
            let request = Stateless::read(&Params::from_raw(Bytes::copy_from_slice(params.as_bytes())))?;
            request.capabilities()?;
            check_method(&headers, "tools/call")?;
            check_name(&headers, "tools/call", &request)?;
            request.log_level()?;
            region.check(&headers, request.arguments.as_deref())
        };
        let params =
            |name: &str, meta: &str| format!(r#"{{"name":{name},"arguments":{{"region":"eu"}},"_meta":{{{meta}}}}}"#);
        let good = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "t"),
            ("mcp-param-region", "eu"),
        ];
        let loud = format!(r#"{CAPABILITIES},"io.modelcontextprotocol/logLevel":"loud""#);
        let (invalid, differs) = (code::INVALID_PARAMS, code::HEADER_MISMATCH);
        for (name, meta, lines, refusal) in [
            (r#""t""#, CAPABILITIES, &good[..], None),
            (r#""t""#, "", &good[..], Some((invalid, "clientCapabilities"))),
            (r#""t""#, CAPABILITIES, &good[1..], Some((differs, "Mcp-Method"))),
            (r#""u""#, CAPABILITIES, &good[..], Some((differs, "Mcp-Name"))),
            (r#""t""#, &loud, &good[..], Some((invalid, "logLevel"))),
            (r#""t""#, CAPABILITIES, &good[..2], Some((differs, "Mcp-Param-Region"))),
            // Of several faults, the first in order is reported.
            (r#""u""#, "", &[], Some((invalid, "clientCapabilities"))),
            (r#""u""#, &loud, &[], Some((differs, "Mcp-Method"))),
            (r#""u""#, &loud, &good[..1], Some((differs, "Mcp-Name"))),
            (r#""t""#, &loud, &good[..2], Some((invalid, "logLevel"))),
        ] {
            let params = params(name, meta);
            let error = walk(&params, lines).err().map(|reason| Refusal::new(reason).error());
            assert_eq!(
                error.as_ref().map(|e| e.code),
                refusal.map(|(code, _)| code),
                "{params} {lines:?}"
            );
            if let (Some(error), Some((_, word))) = (error, refusal) {
                assert!(error.message.contains(word), "{}", error.message);
            }
        }
    }

    #[test]
    fn hdr_01_the_method_is_mirrored_letter_by_letter() {
        let table: [(&[(&str, &str)], bool); 12] = [
            (&[("Mcp-Method", "tools/call")], true),
            (&[("mcp-method", "tools/call")], true),
            (&[("MCP-METHOD", "tools/call")], true),
            (&[("Mcp-Method", " \t tools/call  ")], true),
            (&[("Mcp-Method", "TOOLS/CALL")], false),
            (&[("Mcp-Method", "tools/list")], false),
            (&[("Mcp-Method", "tools/call,tools/call")], false),
            (&[("Mcp-Method", "")], false),
            (&[("Mcp-Methods", "tools/call")], false),
            // HDR-03: never decoded.
            (&[("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?=")], false),
            // HDR-08
            (&[("Mcp-Method", "tools/call"), ("Mcp-Method", "tools/list")], false),
            (&[("Mcp-Method", "tools/call"), ("Mcp-Method", " tools/call")], true),
        ];
        for (lines, fine) in table {
            let outcome = check_method(&headers(lines), "tools/call");
            assert_eq!(refused(outcome).is_none(), fine, "{lines:?}");
        }
        assert_eq!(
            refused(check_method(&headers(&[]), "ping")).unwrap(),
            "Mcp-Method is missing: it must repeat the method"
        );
        assert_eq!(
            refused(check_method(&headers(&[("mcp-method", "a/b")]), "a/c")).unwrap(),
            "Mcp-Method 'a/b' differs from method 'a/c'"
        );
    }

    #[test]
    fn http_06_a_notification_need_not_mirror_its_method_but_may_not_contradict_it() {
        let method = "notifications/cancelled";
        for (lines, fine) in [
            (headers(&[]), true),
            (headers(&[("mcp-method", method)]), true),
            (headers(&[("mcp-method", "notifications/progress")]), false),
            (headers(&[("mcp-method", "")]), false),
            (headers(&[("mcp-method", method), ("mcp-method", "x")]), false),
        ] {
            assert_eq!(
                refused(check_method_if_sent(&lines, method)).is_none(),
                fine,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn hdr_02_name_mirrors_the_field_of_the_method() {
        let all = r#"{"name":"n","uri":"file:///u","taskId":"t"}"#;
        let tasks = r#"{"name":"n","taskId":"t","_meta":{"io.modelcontextprotocol/clientCapabilities":
            {"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#;
        let table = [
            ("tools/call", all, Some("n"), true),
            ("tools/call", all, Some("\t n "), true),
            ("tools/call", all, Some("N"), false),
            ("tools/call", all, Some("file:///u"), false),
            ("tools/call", all, Some(""), false),
            ("tools/call", all, None, false),
            ("prompts/get", all, Some("n"), true),
            ("prompts/get", all, Some("x"), false),
            ("prompts/get", all, None, false),
            ("resources/read", all, Some("file:///u"), true),
            ("resources/read", all, Some("n"), false),
            ("resources/read", all, None, false),
            ("tasks/get", tasks, Some("t"), true),
            ("tasks/update", tasks, Some("t"), true),
            ("tasks/cancel", tasks, Some("t"), true),
            ("tasks/get", tasks, Some("n"), false),
            ("tasks/update", tasks, None, false),
            ("tasks/cancel", tasks, None, false),
            ("tasks/list", tasks, None, true),
            // Not declared: not required, but compared if present.
            ("tasks/get", all, None, true),
            ("tasks/get", all, Some("t"), true),
            ("tasks/get", all, Some("x"), false),
            // Nothing to mirror.
            ("tools/list", all, None, true),
            ("tools/list", all, Some("whatever"), true),
            ("server/discover", "{}", None, true),
            // The params have no name.
            ("tools/call", "{}", None, false),
            ("tools/call", "{}", Some("n"), false),
            ("tools/call", r#"{"name":null}"#, Some("null"), false),
            ("tools/call", r#"{"name":7}"#, Some("7"), false),
            ("tools/call", r#"{"name":"7"}"#, Some("7"), true),
            ("tools/call", r#"{"name":["n"]}"#, Some("n"), false),
            ("tools/call", r#"{"name":""}"#, Some(""), true),
            ("tools/call", r#"{"name":""}"#, None, false),
            // A nested name is another name.
            ("tools/call", r#"{"arguments":{"name":"n"}}"#, Some("n"), false),
        ];
        for (method, params, name, fine) in table {
            let lines: Vec<_> = name.iter().map(|name| ("mcp-name", *name)).collect();
            let outcome = check_name(&headers(&lines), method, &request(params));
            assert_eq!(refused(outcome).is_none(), fine, "{method} {params} {name:?}");
        }
    }

    #[test]
    fn hdr_02_refusal_names_the_difference() {
        let said = |name: Option<&str>, params: &str| {
            let lines: Vec<_> = name.iter().map(|name| ("mcp-name", *name)).collect();
            refused(check_name(&headers(&lines), "tools/call", &request(params))).unwrap()
        };
        assert_eq!(
            said(Some("foo"), r#"{"name":"bar"}"#),
            "Mcp-Name 'foo' differs from params.name 'bar'"
        );
        assert_eq!(
            said(None, r#"{"name":"bar"}"#),
            "Mcp-Name is missing: it must repeat params.name"
        );
        assert_eq!(
            said(Some("foo"), "{}"),
            "Mcp-Name 'foo' repeats nothing: there is no params.name"
        );
        assert_eq!(
            said(Some("7"), r#"{"name":7}"#),
            "Mcp-Name '7' repeats nothing: params.name is not a string"
        );
        let long = said(
            Some(&"a".repeat(5000)),
            &json!({ "name": "\u{fc}".repeat(5000) }).to_string(),
        );
        assert!(long.chars().count() < 260, "{long}");
    }

    /// HDR-03. The columns: the value of `Mcp-Name`, the value of `params.name`, whether they agree.
    #[test]
    fn hdr_03_the_name_is_decoded_before_it_is_compared() {
        let table = [
            ("us-west1", "us-west1", true),
            ("my tool", "my tool", true),
            ("a\tb", "a\tb", true),
            ("=?base64?dXMtd2VzdDE=?=", "us-west1", true),
            ("  =?base64?dXMtd2VzdDE=?= ", "us-west1", true),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, \u{4e16}\u{754c}", true),
            ("=?base64?IHBhZGRlZCA=?=", " padded ", true),
            (" padded ", " padded ", false),
            ("padded", " padded ", false),
            ("=?base64?bGluZTEKbGluZTI=?=", "line1\nline2", true),
            ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?=", true),
            ("=?base64?literal?=", "=?base64?literal?=", false),
            ("=?base64??=", "", true),
            // Undecodable: padding, alphabet, stray bits, white space, UTF-8.
            ("=?base64?dXMtd2VzdDE?=", "us-west1", false),
            ("=?base64?dXMtd2VzdDE==?=", "us-west1", false),
            ("=?base64?dXMtd2VzdDF=?=", "us-west1", false),
            ("=?base64?dXMt d2VzdDE=?=", "us-west1", false),
            ("=?base64?dXMt*2VzdDE=?=", "us-west1", false),
            ("=?base64?_-8=?=", "\u{fffd}", false),
            ("=?base64?/+8=?=", "\u{fffd}", false),
            ("=?base64?/w==?=", "\u{ff}", false),
            ("=?base64?=?=", "", false),
            // Half a marker, or one in capitals, is text.
            ("=?base64?dXMtd2VzdDE=", "us-west1", false),
            ("=?base64?dXMtd2VzdDE=", "=?base64?dXMtd2VzdDE=", true),
            ("dXMtd2VzdDE=?=", "dXMtd2VzdDE=?=", true),
            ("=?base64?=", "=?base64?=", true),
            ("=?BASE64?dXMtd2VzdDE=?=", "us-west1", false),
            ("=?BASE64?dXMtd2VzdDE=?=", "=?BASE64?dXMtd2VzdDE=?=", true),
            ("=?Base64?dXMtd2VzdDE=?=", "=?Base64?dXMtd2VzdDE=?=", true),
            ("x=?base64?dXMtd2VzdDE=?=", "x=?base64?dXMtd2VzdDE=?=", true),
            // Decoded once, not twice.
            ("=?base64?PT9iYXNlNjQ/WVE9PT89?=", "a", false),
            ("=?base64?PT9iYXNlNjQ/WVE9PT89?=", "=?base64?YQ==?=", true),
        ];
        for (header, name, fine) in table {
            let body = request(&json!({ "name": name }).to_string());
            let outcome = check_name(&headers(&[("mcp-name", header)]), "tools/call", &body);
            assert_eq!(refused(outcome).is_none(), fine, "{header:?} for {name:?}");
        }
        // Escapes in the body do not change the name.
        let escaped = request(r#"{"\u006eame":"\u0066oo\/"}"#);
        assert!(check_name(&headers(&[("mcp-name", "foo/")]), "tools/call", &escaped).is_ok());
    }

    #[test]
    fn hdr_08_different_lines_and_non_ascii_bytes_are_refused() {
        let table: [(&[&str], bool); 7] = [
            (&["foo", "bar"], false),
            (&["bar", "foo"], false),
            (&["foo", ""], false),
            (&["foo", "foo"], true),
            (&["foo", " foo "], true),
            (&["foo", "=?base64?Zm9v?="], false),
            (&["f\u{f6}o"], false),
        ];
        for (lines, fine) in table {
            let lines: Vec<_> = lines.iter().map(|line| ("mcp-name", *line)).collect();
            let outcome = check_name(&headers(&lines), "tools/call", &request(r#"{"name":"foo"}"#));
            assert_eq!(refused(outcome).is_none(), fine, "{lines:?}");
        }
        // Refused even if the body is equal: header bytes beyond ASCII have no agreed meaning.
        let umlaut = request(r#"{"name":"f\u00f6o"}"#);
        assert_eq!(
            refused(check_name(&headers(&[("mcp-name", "f\u{f6}o")]), "tools/call", &umlaut)).unwrap(),
            "Mcp-Name holds characters beyond visible ASCII: send it as =?base64?...?="
        );
    }
}
