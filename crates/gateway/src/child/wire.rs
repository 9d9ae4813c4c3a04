//! Messages as lines: one message, one line, no newline inside (GW-01); and the few words in them that are rewritten
//! (GW-02).

use bytes::Bytes;
use rethread_proto::jsonrpc::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A request under the gateway's own number.
pub(crate) fn request(number: u64, method: &str, params: &[u8]) -> Bytes {
    message(&[b"\"id\":", number.to_string().as_bytes()], Some(method), params)
}

/// A notification.
pub(crate) fn notification(method: &str, params: &[u8]) -> Bytes {
    message(&[], Some(method), params)
}

/// The answer to a question of the child.
pub(crate) fn answer(id: &RequestId, outcome: Result<&[u8], &[u8]>) -> Bytes {
    let (name, json) = match outcome {
        Ok(result) => (&b",\"result\":"[..], result),
        Err(error) => (&b",\"error\":"[..], error),
    };
    message(&[b"\"id\":", id.as_json(), name, json], None, &[])
}

fn message(parts: &[&[u8]], method: Option<&str>, params: &[u8]) -> Bytes {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let mut line = Vec::with_capacity(64 + size + method.map_or(0, str::len) + params.len());
    line.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if !parts.is_empty() {
        line.push(b',');
    }
    for part in parts {
        line.extend_from_slice(part);
    }
    if let Some(method) = method {
        line.extend_from_slice(b",\"method\":");
        serde_json::to_writer(&mut line, method).expect("a string is JSON");
    }
    if !params.is_empty() {
        line.extend_from_slice(b",\"params\":");
        line.extend_from_slice(params);
    }
    line.push(b'}');
    // Outside of strings a line break is a blank, and inside of them it cannot stand: JSON has it escaped there.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Bytes::from(line)
}

/// An object whose values are left as they are. Keys come out in order; nobody may rely on theirs.
type Object<'a> = BTreeMap<String, &'a RawValue>;

fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.to_owned()).ok()
}

fn object(json: &[u8]) -> Option<Object<'_>> {
    serde_json::from_slice(json).ok()
}

/// `params` with `_meta.progressToken` replaced by a number, if there is one. Anything else is left alone.
pub(crate) fn with_progress_token(params: &Bytes, number: u64) -> Bytes {
    // Most calls have none, and to look for the letters is cheaper than to parse. A key may be written with escapes.
    let may_have_one = |text: &str| text.contains("progressToken") || text.contains("\\u");
    if !std::str::from_utf8(params).is_ok_and(may_have_one) {
        return params.clone();
    }
    let rewritten = || {
        let mut outer = object(params)?;
        let meta = outer.get("_meta")?.get();
        let mut inner = object(meta.as_bytes())?;
        let token = raw(&number.to_string())?;
        *inner.get_mut("progressToken")? = &token;
        let meta = raw(&serde_json::to_string(&inner).ok()?)?;
        outer.insert("_meta".to_owned(), &meta);
        serde_json::to_vec(&outer).ok().map(Bytes::from)
    };
    rewritten().unwrap_or_else(|| params.clone())
}

/// The number under which progress is reported.
pub(crate) fn progress_number(params: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: u64,
    }
    serde_json::from_slice::<Progress>(params)
        .ok()
        .map(|progress| progress.progress_token)
}

/// A progress report without the gateway's token.
pub(crate) fn progress_without_token(params: &[u8]) -> Option<Box<RawValue>> {
    let mut report = object(params)?;
    report.remove("progressToken");
    raw(&serde_json::to_string(&report).ok()?)
}

/// The key under which a notification names its subscription.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The number of the subscription that a notification belongs to.
pub(crate) fn subscription_number(params: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Tagged {
        #[serde(rename = "_meta")]
        meta: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: u64,
    }
    let tagged = serde_json::from_slice::<Tagged>(params).ok();
    tagged.map(|tagged| tagged.meta.subscription)
}

/// `params` or a result under the client's own name for its subscription, its type restored (T-25).
pub(crate) fn with_subscription(json: &[u8], id: &RequestId) -> Option<Box<RawValue>> {
    let mut outer = object(json)?;
    let meta = outer.get("_meta").map_or("{}", |meta| meta.get());
    let mut inner = object(meta.as_bytes())?;
    let id = raw(std::str::from_utf8(id.as_json()).ok()?)?;
    inner.insert(SUBSCRIPTION.to_owned(), &id);
    let meta = raw(&serde_json::to_string(&inner).ok()?)?;
    outer.insert("_meta".to_owned(), &meta);
    raw(&serde_json::to_string(&outer).ok()?)
}

/// The request that a cancellation names.
pub(crate) fn cancelled(params: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: RequestId,
    }
    serde_json::from_slice::<Cancelled>(params).ok().map(|c| c.request_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_01_a_message_is_one_line() {
        let line = request(7, "tools/call", b"{\r\n \"name\": \"a\\nb\"\n}");
        assert_eq!(
            line,
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{   \"name\": \"a\\nb\" }}\n"
        );
        assert_eq!(notification("x", b""), "{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n");
        assert_eq!(
            answer(&RequestId::from("q"), Ok(b"{}")),
            "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{}}\n"
        );
        assert_eq!(
            answer(&RequestId::from(1), Err(br#"{"code":1,"message":"no"}"#)),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"no\"}}\n"
        );
    }

    #[test]
    fn gw_02_tokens_are_rewritten_and_nothing_else() {
        let params =
            Bytes::from(r#"{"name":"x","_meta":{"progressToken":"mine","other":1},"arguments":{"b":1,"a":2.50}}"#);
        let rewritten = with_progress_token(&params, 9);
        let value: serde_json::Value = serde_json::from_slice(&rewritten).unwrap();
        assert_eq!(value["_meta"], serde_json::json!({ "progressToken": 9, "other": 1 }));
        assert!(std::str::from_utf8(&rewritten).unwrap().contains(r#"{"b":1,"a":2.50}"#));
        let none = Bytes::from(r#"{"name":"x"}"#);
        assert_eq!(with_progress_token(&none, 9), none);
        let escaped = Bytes::from(r#"{"_meta":{"progress\u0054oken":"mine"}}"#);
        assert_eq!(with_progress_token(&escaped, 9), r#"{"_meta":{"progressToken":9}}"#);
        let unasked = Bytes::from(r#"{"name":"x","_meta":{"other":1}}"#);
        assert_eq!(with_progress_token(&unasked, 9), unasked);

        let report = br#"{"progressToken":9,"progress":1,"total":2}"#;
        assert_eq!(progress_number(report), Some(9));
        assert_eq!(progress_number(br#"{"progressToken":"9","progress":1}"#), None);
        let bare = progress_without_token(report).unwrap();
        assert_eq!(bare.get(), r#"{"progress":1,"total":2}"#);
        assert_eq!(cancelled(br#"{"requestId":"a"}"#), Some(RequestId::from("a")));

        let tagged = br#"{"_meta":{"io.modelcontextprotocol/subscriptionId":4,"x":1},"uri":"a"}"#;
        assert_eq!(subscription_number(tagged), Some(4));
        assert_eq!(subscription_number(b"{}"), None);
        let back = with_subscription(tagged, &RequestId::from("7")).unwrap();
        assert_eq!(
            back.get(),
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"7","x":1},"uri":"a"}"#
        );
        let fresh = with_subscription(b"{}", &RequestId::from(7)).unwrap();
        assert_eq!(fresh.get(), r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#);
    }
}
