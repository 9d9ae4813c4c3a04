//! The members that 2026-07-28 adds to every result: `resultType`, the server's name, and caching hints (VER-13, VER-14).

use crate::node::server_info::SERVER_INFO;
use rethread_proto::RequestId;
use rethread_proto::jsonrpc::{RpcError, code, write_result_with};
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The keys of a result that we may have to add.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known<'a> {
    #[serde(borrow)]
    result_type: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_scope: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

/// A response of this era with the result of a handler. The bytes of the result do not change; missing members are inserted
/// in front of them. `named` is [`ServerInfo::meta_member`](crate::ServerInfo).
pub(crate) fn result(id: &RequestId, json: &[u8], method: &str, named: &str) -> Result<Vec<u8>, RpcError> {
    let mut out = Vec::with_capacity(json.len() + named.len() + 160);
    write_result_with(&mut out, id, |out| write(out, json, method, named))?;
    Ok(out)
}

fn write(out: &mut Vec<u8>, json: &[u8], method: &str, named: &str) -> Result<(), RpcError> {
    let not_an_object = || RpcError::internal("the handler's result is not a JSON object");
    let json = json.trim_ascii();
    let inside = json
        .strip_prefix(b"{")
        .and_then(|rest| rest.strip_suffix(b"}"))
        .ok_or_else(not_an_object)?;
    let known: Known<'_> = if may_have_known_key(json) {
        serde_json::from_slice(json).map_err(|_| not_an_object())?
    } else {
        Known::default()
    };
    let complete = known.result_type.is_none_or(|kind| kind.get() == "\"complete\"");
    let cacheable = complete && is_cacheable(method);

    out.push(b'{');
    if known.result_type.is_none() {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    if cacheable && known.ttl_ms.is_none() {
        out.extend_from_slice(b"\"ttlMs\":0,");
    }
    if cacheable && known.cache_scope.is_none() {
        out.extend_from_slice(b"\"cacheScope\":\"private\",");
    }
    match known.meta.map(RawValue::get) {
        None => {
            out.extend_from_slice(b"\"_meta\":{");
            out.extend_from_slice(named.as_bytes());
            out.push(b'}');
            if !inside.trim_ascii().is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(inside);
        }
        Some(meta) => {
            // `meta` is a slice of `inside`: the name goes right behind its opening brace.
            let at = meta.as_ptr() as usize - inside.as_ptr() as usize;
            let names_itself = meta.contains(SERVER_INFO);
            if let (false, Some(rest)) = (names_itself, meta.strip_prefix('{')) {
                out.extend_from_slice(&inside[..=at]);
                out.extend_from_slice(named.as_bytes());
                if !rest.trim_ascii_start().starts_with('}') {
                    out.push(b',');
                }
                out.extend_from_slice(&inside[at + 1..]);
            } else {
                out.extend_from_slice(inside);
            }
        }
    }
    out.push(b'}');
    Ok(())
}

/// Whether a result may have one of the keys of [`Known`]. Most results have none, and comparing the bytes after each quote
/// costs much less than a parse. A key may be written with escapes.
fn may_have_known_key(json: &[u8]) -> bool {
    // Most quotes are within a few bytes of each other. `memchr` has a setup cost that pays off for longer distances only.
    const NEAR_BYTES: usize = 16;
    let is_special = |byte: &u8| *byte == b'"' || *byte == b'\\';
    let mut rest = json;
    loop {
        let near = rest[..rest.len().min(NEAR_BYTES)].iter().position(is_special);
        let Some(at) = near.or_else(|| memchr::memchr2(b'"', b'\\', rest)) else {
            return false;
        };
        let quote = rest[at];
        rest = &rest[at + 1..];
        let ours = match rest.first() {
            Some(b'u') => quote == b'\\',
            Some(b'r') => rest.starts_with(b"resultType\""),
            Some(b'_') => rest.starts_with(b"_meta\""),
            Some(b't') => rest.starts_with(b"ttlMs\""),
            Some(b'c') => rest.starts_with(b"cacheScope\""),
            _ => false,
        };
        if ours {
            return true;
        }
    }
}

/// An error of this era. Codes that the era lacks or reserves become `-32603`, with the original code in the data (VER-12).
pub(crate) fn error(error: &RpcError) -> Cow<'_, RpcError> {
    let ours = [
        code::HEADER_MISMATCH,
        code::MISSING_CAPABILITY,
        code::UNSUPPORTED_VERSION,
    ];
    let reserved = (-32099..=-32020).contains(&error.code) && !ours.contains(&error.code);
    if !reserved && ![code::RESOURCE_NOT_FOUND, code::URL_ELICITATION_REQUIRED].contains(&error.code) {
        return Cow::Borrowed(error);
    }
    let upstream = json!({ "code": error.code, "data": error.data });
    Cow::Owned(RpcError::internal(error.message.clone()).with_data(json!({ "upstream": upstream })))
}

fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        "server/discover"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server_info::ServerInfo;
    use serde_json::Value;

    fn done(json: &str, method: &str) -> Value {
        let message: Value = serde_json::from_str(&text(json, method).unwrap()).unwrap();
        message["result"].clone()
    }

    fn text(json: &str, method: &str) -> Result<String, RpcError> {
        let named = ServerInfo::new("s", "1").meta_member();
        let written = result(&RequestId::from(7), json.as_bytes(), method, &named)?;
        Ok(String::from_utf8(written).unwrap())
    }

    #[test]
    fn ver_13_every_result_says_its_type_and_who_answered() {
        let who = json!({ "name": "s", "version": "1" });
        for json in [
            "{}",
            "{ }",
            r#"{"content":[]}"#,
            r#"{"content":[{"type":"text","text":"a\"b"}]}"#,
        ] {
            let result = done(json, "tools/call");
            assert_eq!(result["resultType"], "complete", "{json}");
            assert_eq!(result["_meta"][SERVER_INFO], who);
            assert_eq!(result.get("ttlMs"), None, "VER-14: only where results can be kept");
        }
        assert_eq!(done(r#"{"content":[]}"#, "tools/call")["content"], json!([]));
    }

    #[test]
    fn ver_13_a_handlers_own_words_are_kept() {
        let result = done(r#"{"resultType":"task","_meta":{"x":1},"tools":[]}"#, "tools/call");
        assert_eq!(
            (&result["resultType"], &result["_meta"]["x"]),
            (&json!("task"), &json!(1))
        );
        let result = done(r#"{"ttlMs":5,"cacheScope":"public","tools":[]}"#, "tools/list");
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(5), &json!("public")));
        assert_eq!(result["resultType"], "complete");
        let nested = done(r#"{"content":[{"resultType":"x"}]}"#, "tools/call");
        assert_eq!(nested["resultType"], "complete", "a nested key is not ours");
    }

    #[test]
    fn ver_13_a_result_is_passed_on_to_the_byte() {
        for json in [
            r#"{"z":1e400,"a":123456789012345678901234567890,"t":"a\"\u00e9","_meta":{"b":1.10}}"#,
            r#"{ "_meta" : { } , "z" : [ 1 ] }"#,
        ] {
            let text = text(json, "tools/call").unwrap();
            let text = text.strip_prefix(r#"{"jsonrpc":"2.0","id":7,"result":"#).unwrap();
            let text = text.strip_suffix('}').unwrap();
            let ours = format!("\"{SERVER_INFO}\":{{\"name\":\"s\",\"version\":\"1\"}}");
            let theirs = text
                .replace("\"resultType\":\"complete\",", "")
                .replace(&format!("{ours},"), "")
                .replace(&ours, "");
            assert_eq!(theirs, json);
            assert!(text.contains(&ours));
        }
        for wrong in ["[]", "7", "", "null"] {
            assert!(text(wrong, "tools/call").is_err(), "{wrong}");
        }
    }

    #[test]
    fn ver_12_codes_that_this_era_has_not_do_not_go_out() {
        for wrong in [-32002, -32042, -32099, -32050, -32023] {
            let sent = error(&RpcError::new(wrong, "x")).into_owned();
            assert_eq!(
                (sent.code, &sent.data.unwrap()["upstream"]["code"]),
                (-32603, &json!(wrong))
            );
        }
        for right in [
            -32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022, -32100, 7,
        ] {
            assert_eq!(error(&RpcError::new(right, "x")).code, right);
        }
    }

    #[test]
    fn ver_14_cacheable_results_carry_hints() {
        for method in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "resources/read",
        ] {
            let result = done(r#"{"x":1}"#, method);
            assert_eq!(
                (&result["ttlMs"], &result["cacheScope"]),
                (&json!(0), &json!("private")),
                "{method}"
            );
        }
        assert_eq!(
            done(r#"{"resultType":"input_required"}"#, "resources/read").get("ttlMs"),
            None
        );
    }
}
