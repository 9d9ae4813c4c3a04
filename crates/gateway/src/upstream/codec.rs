//! Encodes messages as lines (GW-01) and rewrites ids and tokens inside them (GW-02).

use super::call::CallId;
use bytes::Bytes;
use rethread::{Principal, Version};
use rethread_proto::jsonrpc::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Encodes a request under the gateway's own id.
pub(crate) fn encode_request(call_id: CallId, method: &str, params: &[u8]) -> Bytes {
    encode_line(&[b"\"id\":", call_id.to_string().as_bytes()], Some(method), params)
}

/// Encodes a notification.
pub(crate) fn encode_notification(method: &str, params: &[u8]) -> Bytes {
    encode_line(&[], Some(method), params)
}

/// Encodes the response to a question of the child. Both sides of `outcome` are raw JSON.
pub(crate) fn encode_response(id: &RequestId, outcome: Result<&[u8], &[u8]>) -> Bytes {
    let (member, json) = match outcome {
        Ok(result) => (&b",\"result\":"[..], result),
        Err(error) => (&b",\"error\":"[..], error),
    };
    encode_line(&[b"\"id\":", id.as_json(), member, json], None, &[])
}

fn encode_line(parts: &[&[u8]], method: Option<&str>, params: &[u8]) -> Bytes {
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
    // Outside of strings JSON allows a space for a line break. Inside of strings line breaks are escaped.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Bytes::from(line)
}

/// A JSON object with raw values. Encoding sorts the keys.
type Object<'a> = BTreeMap<String, &'a RawValue>;

fn raw_value(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.to_owned()).ok()
}

fn parse_object(json: &[u8]) -> Option<Object<'_>> {
    serde_json::from_slice(json).ok()
}

/// Replaces `_meta.progressToken` of `params`, if present, by `call_id`.
pub(crate) fn replace_progress_token(params: &Bytes, call_id: CallId) -> Bytes {
    // Most calls have no token, and a text search is cheaper than parsing. `\u` may hide an escaped key.
    let may_have_token = |text: &str| text.contains("progressToken") || text.contains("\\u");
    if !std::str::from_utf8(params).is_ok_and(may_have_token) {
        return params.clone();
    }
    let rewritten = || {
        let mut outer = parse_object(params)?;
        let meta = outer.get("_meta")?.get();
        let mut inner = parse_object(meta.as_bytes())?;
        let token = raw_value(&call_id.to_string())?;
        *inner.get_mut("progressToken")? = &token;
        let meta = raw_value(&serde_json::to_string(&inner).ok()?)?;
        outer.insert("_meta".to_owned(), &meta);
        serde_json::to_vec(&outer).ok().map(Bytes::from)
    };
    rewritten().unwrap_or_else(|| params.clone())
}

/// Keys of `_meta` that only the gateway sets.
const OWN_KEYS: &str = "io.rethread/";
const PRINCIPAL_KEY: &str = "io.rethread/principal";

/// Removes the gateway's own keys from `_meta` of a client's `params`, and sets the caller if the child may know it. Keys are
/// compared after parsing, so that JSON escapes do not hide one.
pub(crate) fn set_identity(params: &Bytes, caller: Option<&Principal>) -> Bytes {
    let params = match may_have_own_keys(params)
        .then(|| without_own_keys_in_answers(params))
        .flatten()
    {
        Some(clean) => &Bytes::from(clean),
        None => params,
    };
    if caller.is_none() && !may_have_own_keys(params) {
        return params.clone();
    }
    let rewritten = || {
        let empty = raw_value("{}")?;
        let mut outer = parse_object(params)?;
        let meta = outer.get("_meta").copied().filter(|meta| meta.get() != "null");
        let meta = meta.or(caller.map(|_| &*empty))?;
        let mut inner = parse_object(meta.get().as_bytes())?;
        let before = inner.len();
        inner.retain(|key, _| !key.starts_with(OWN_KEYS));
        let identity =
            caller.map(|caller| json!({ "issuer": caller.issuer(), "subject": caller.subject() }).to_string());
        let identity = identity.as_deref().and_then(raw_value);
        if identity.is_none() && inner.len() == before {
            return None;
        }
        inner.extend(identity.as_deref().map(|identity| (PRINCIPAL_KEY.to_owned(), identity)));
        let meta = raw_value(&serde_json::to_string(&inner).ok()?)?;
        outer.insert("_meta".to_owned(), &meta);
        serde_json::to_vec(&outer).ok().map(Bytes::from)
    };
    rewritten().unwrap_or_else(|| params.clone())
}

/// Most messages have no such key, and a text search is cheaper than parsing.
fn may_have_own_keys(json: &[u8]) -> bool {
    let may_have_key = |text: &str| text.contains(OWN_KEYS) || text.contains('\\');
    std::str::from_utf8(json).is_ok_and(may_have_key)
}

/// Removes the gateway's own keys from `_meta` of a client's answer to a question.
pub(crate) fn remove_own_keys(answer: &[u8]) -> Cow<'_, [u8]> {
    let clean = may_have_own_keys(answer).then(|| without_own_keys(answer)).flatten();
    clean.map_or(Cow::Borrowed(answer), Cow::Owned)
}

/// The object without the gateway's own keys in its `_meta`. `None` if it has none.
fn without_own_keys(object: &[u8]) -> Option<Vec<u8>> {
    let mut outer = parse_object(object)?;
    let mut inner = parse_object(outer.get("_meta")?.get().as_bytes())?;
    let before = inner.len();
    inner.retain(|key, _| !key.starts_with(OWN_KEYS));
    if inner.len() == before {
        return None;
    }
    let meta = raw_value(&serde_json::to_string(&inner).ok()?)?;
    outer.insert("_meta".to_owned(), &meta);
    serde_json::to_vec(&outer).ok()
}

/// A retry of 2026-07-28 carries answers in its params. `None` if no answer has such a key.
fn without_own_keys_in_answers(params: &[u8]) -> Option<Vec<u8>> {
    let mut outer = parse_object(params)?;
    let answers = parse_object(outer.get("inputResponses")?.get().as_bytes())?;
    let clean = answers.iter().filter_map(|(key, answer)| {
        let clean = without_own_keys(answer.get().as_bytes())?;
        Some((key.clone(), raw_value(std::str::from_utf8(&clean).ok()?)?))
    });
    let clean: BTreeMap<String, Box<RawValue>> = clean.collect();
    if clean.is_empty() {
        return None;
    }
    let mut merged = answers;
    merged.extend(clean.iter().map(|(key, answer)| (key.clone(), &**answer)));
    let merged = raw_value(&serde_json::to_string(&merged).ok()?)?;
    outer.insert("inputResponses".to_owned(), &merged);
    serde_json::to_vec(&outer).ok()
}

/// Sets `_meta.traceparent` of `params`, so that the span of the child is the parent of the spans of the server (OPS-20).
pub(crate) fn set_trace_context(params: &Bytes, traceparent: &str) -> Bytes {
    let rewritten = || {
        let empty = raw_value("{}")?;
        let params: &[u8] = if params.is_empty() { b"{}" } else { params };
        let mut outer = parse_object(params)?;
        let meta = outer.get("_meta").copied().filter(|meta| meta.get() != "null");
        let mut inner = parse_object(meta.unwrap_or(&*empty).get().as_bytes())?;
        let context = raw_value(&json!(traceparent).to_string())?;
        inner.insert(TRACEPARENT_KEY.to_owned(), &context);
        let meta = raw_value(&serde_json::to_string(&inner).ok()?)?;
        outer.insert("_meta".to_owned(), &meta);
        serde_json::to_vec(&outer).ok().map(Bytes::from)
    };
    rewritten().unwrap_or_else(|| params.clone())
}

/// `_meta.traceparent` of `params`.
pub(crate) fn trace_context(params: &[u8]) -> Option<String> {
    let outer = parse_object(params)?;
    let inner = parse_object(outer.get("_meta")?.get().as_bytes())?;
    serde_json::from_str(inner.get(TRACEPARENT_KEY)?.get()).ok()
}

const TRACEPARENT_KEY: &str = "traceparent";

/// The call that a progress notification belongs to.
pub(crate) fn progress_call_id(params: &[u8]) -> Option<CallId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: CallId,
    }
    serde_json::from_slice::<Progress>(params)
        .ok()
        .map(|progress| progress.progress_token)
}

/// Removes the gateway's token from the params of a progress notification.
pub(crate) fn remove_progress_token(params: &[u8]) -> Option<Box<RawValue>> {
    let mut report = parse_object(params)?;
    report.remove("progressToken");
    raw_value(&serde_json::to_string(&report).ok()?)
}

const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// The subscription call that a notification belongs to.
pub(crate) fn subscription_call_id(params: &[u8]) -> Option<CallId> {
    #[derive(Deserialize)]
    struct Tagged {
        #[serde(rename = "_meta")]
        meta: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: CallId,
    }
    let tagged = serde_json::from_slice::<Tagged>(params).ok();
    tagged.map(|tagged| tagged.meta.subscription)
}

/// Replaces the subscription id in params or a result by the client's own id, with its JSON type (T-25).
pub(crate) fn set_subscription_id(json: &[u8], id: &RequestId) -> Option<Box<RawValue>> {
    let mut outer = parse_object(json)?;
    let meta = outer.get("_meta").map_or("{}", |meta| meta.get());
    let mut inner = parse_object(meta.as_bytes())?;
    let id = raw_value(std::str::from_utf8(id.as_json()).ok()?)?;
    inner.insert(SUBSCRIPTION_ID_KEY.to_owned(), &id);
    let meta = raw_value(&serde_json::to_string(&inner).ok()?)?;
    outer.insert("_meta".to_owned(), &meta);
    raw_value(&serde_json::to_string(&outer).ok()?)
}

/// The `requestId` of a notification.
pub(crate) fn notified_request_id(params: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        request_id: RequestId,
    }
    serde_json::from_slice::<Params>(params)
        .ok()
        .map(|params| params.request_id)
}

/// The `clientInfo` of the gateway itself.
pub(crate) fn gateway_client_info() -> Value {
    json!({ "name": "rethread", "version": env!("CARGO_PKG_VERSION") })
}

/// The `_meta` of stateless requests of the gateway itself.
pub(crate) fn gateway_request_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": Version::V2026_07_28.as_str(),
        "io.modelcontextprotocol/clientInfo": gateway_client_info(),
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_23_own_keys_of_a_client_are_removed_and_the_caller_is_set() {
        let ada = Principal::new("https://idp", "ada");
        let set = |params: &'static str, caller| set_identity(&Bytes::from_static(params.as_bytes()), caller);
        for (params, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"b":"\n","a":1}"#, r#"{"b":"\n","a":1}"#),
            (
                r#"{"_meta":{"io.rethread/principal":{"subject":"x"},"k":1}}"#,
                r#"{"_meta":{"k":1}}"#,
            ),
            (r#"{"_meta":{"io.rethread/other":1}}"#, r#"{"_meta":{}}"#),
            (r#"{"_meta":{"io.rethread\/principal":1}}"#, r#"{"_meta":{}}"#),
            (r#"{"_m\u0065ta":{"io.rethr\u0065ad/principal":1}}"#, r#"{"_meta":{}}"#),
            (
                r#"{"arguments":{"io.rethread/x":1}}"#,
                r#"{"arguments":{"io.rethread/x":1}}"#,
            ),
            ("[1]", "[1]"),
        ] {
            assert_eq!(set(params, None), expected, "{params}");
        }
        let told = r#"{"_meta":{"io.rethread/principal":{"issuer":"https://idp","subject":"ada"}}}"#;
        for params in [
            "{}",
            r#"{"_meta":null}"#,
            r#"{"_meta":{}}"#,
            r#"{"_meta":{"io.rethread/principal":{"issuer":"https://idp","subject":"root"},"io.rethread/x":1}}"#,
        ] {
            assert_eq!(set(params, Some(&ada)), told, "{params}");
        }
    }

    #[test]
    fn ops_20_trace_context_is_replaced_and_nothing_else() {
        let set = |params: &'static str| {
            let set = set_trace_context(&Bytes::from_static(params.as_bytes()), "new");
            String::from_utf8(set.to_vec()).unwrap()
        };
        assert_eq!(set(""), r#"{"_meta":{"traceparent":"new"}}"#);
        assert_eq!(set(r#"{"a":1}"#), r#"{"_meta":{"traceparent":"new"},"a":1}"#);
        let full = set(r#"{"_meta":{"tracestate":"x=1","traceparent":"old","baggage":"b"}}"#);
        assert_eq!(
            full,
            r#"{"_meta":{"baggage":"b","traceparent":"new","tracestate":"x=1"}}"#
        );
        assert_eq!(set("[1]"), "[1]");
        assert_eq!(trace_context(full.as_bytes()).as_deref(), Some("new"));
        assert_eq!(trace_context(br#"{"_meta":{"traceparent":7}}"#), None);
    }

    #[test]
    fn gw_01_encoded_message_is_one_line() {
        let line = encode_request(7, "tools/call", b"{\r\n \"name\": \"a\\nb\"\n}");
        assert_eq!(
            line,
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{   \"name\": \"a\\nb\" }}\n"
        );
        assert_eq!(
            encode_notification("x", b""),
            "{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n"
        );
        assert_eq!(
            encode_response(&RequestId::from("q"), Ok(b"{}")),
            "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{}}\n"
        );
        assert_eq!(
            encode_response(&RequestId::from(1), Err(br#"{"code":1,"message":"no"}"#)),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"no\"}}\n"
        );
    }

    #[test]
    fn gw_02_rewrite_changes_tokens_and_nothing_else() {
        let params =
            Bytes::from(r#"{"name":"x","_meta":{"progressToken":"mine","other":1},"arguments":{"b":1,"a":2.50}}"#);
        let rewritten = replace_progress_token(&params, 9);
        let value: serde_json::Value = serde_json::from_slice(&rewritten).unwrap();
        assert_eq!(value["_meta"], serde_json::json!({ "progressToken": 9, "other": 1 }));
        assert!(std::str::from_utf8(&rewritten).unwrap().contains(r#"{"b":1,"a":2.50}"#));
        let none = Bytes::from(r#"{"name":"x"}"#);
        assert_eq!(replace_progress_token(&none, 9), none);
        let escaped = Bytes::from(r#"{"_meta":{"progress\u0054oken":"mine"}}"#);
        assert_eq!(replace_progress_token(&escaped, 9), r#"{"_meta":{"progressToken":9}}"#);
        let unasked = Bytes::from(r#"{"name":"x","_meta":{"other":1}}"#);
        assert_eq!(replace_progress_token(&unasked, 9), unasked);

        let report = br#"{"progressToken":9,"progress":1,"total":2}"#;
        assert_eq!(progress_call_id(report), Some(9));
        assert_eq!(progress_call_id(br#"{"progressToken":"9","progress":1}"#), None);
        let bare = remove_progress_token(report).unwrap();
        assert_eq!(bare.get(), r#"{"progress":1,"total":2}"#);
        assert_eq!(notified_request_id(br#"{"requestId":"a"}"#), Some(RequestId::from("a")));

        let tagged = br#"{"_meta":{"io.modelcontextprotocol/subscriptionId":4,"x":1},"uri":"a"}"#;
        assert_eq!(subscription_call_id(tagged), Some(4));
        assert_eq!(subscription_call_id(b"{}"), None);
        let back = set_subscription_id(tagged, &RequestId::from("7")).unwrap();
        assert_eq!(
            back.get(),
            r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"7","x":1},"uri":"a"}"#
        );
        let fresh = set_subscription_id(b"{}", &RequestId::from(7)).unwrap();
        assert_eq!(fresh.get(), r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#);
    }

    /// AUTH-23: answers to questions lose the gateway's own keys, wherever they travel and however the key is written.
    #[test]
    fn auth_23_answers_lose_the_keys_of_the_gateway() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for (answer, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"_meta":{"x":1},"a":1}"#, r#"{"_meta":{"x":1},"a":1}"#),
            (
                r#"{"_meta":{"io.rethread/principal":{},"x":1}}"#,
                r#"{"_meta":{"x":1}}"#,
            ),
            (r#"{"_meta":{"io.rethread\u002fprincipal":{}}}"#, r#"{"_meta":{}}"#),
            (r#"{"_meta":"io.rethread/"}"#, r#"{"_meta":"io.rethread/"}"#),
            ("[1]", "[1]"),
        ] {
            assert_eq!(text(&remove_own_keys(answer.as_bytes())), expected);
            let params = format!(r#"{{"inputResponses":{{"q":{answer},"r":{{}}}},"name":"t"}}"#);
            let expected = format!(r#"{{"inputResponses":{{"q":{expected},"r":{{}}}},"name":"t"}}"#);
            assert_eq!(text(&set_identity(&Bytes::from(params), None)), expected);
        }
    }
}
