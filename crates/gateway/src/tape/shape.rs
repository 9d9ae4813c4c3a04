//! A message on a tape: its shape, or its payload without secrets. Pure.

use rethread_proto::jsonrpc::Method;
use serde_json::{Map, Value, json};

/// Members of `params` and `result` whose names belong to the protocol. Other names may be data of a user.
const KNOWN_MEMBERS: [&str; 24] = [
    "_meta",
    "arguments",
    "capabilities",
    "clientInfo",
    "content",
    "contents",
    "cursor",
    "inputRequests",
    "inputResponses",
    "instructions",
    "isError",
    "level",
    "message",
    "messages",
    "name",
    "nextCursor",
    "progress",
    "progressToken",
    "protocolVersion",
    "requestId",
    "resultType",
    "serverInfo",
    "structuredContent",
    "tools",
];
/// Parts of member names whose values are never on a tape.
const SECRET_WORDS: [&str; 10] = [
    "apikey",
    "api_key",
    "authorization",
    "cookie",
    "credential",
    "password",
    "requeststate",
    "secret",
    "taskid",
    "token",
];
/// Members that contain one of the words and are no secrets.
const NOT_SECRET: [&str; 2] = ["progresstoken", "maxtokens"];
/// Nested members that are redacted. Beyond: the payload is not shown.
const MAX_DEPTH: usize = 64;

/// The shape of a JSON-RPC message: kinds and sizes, no value of a user.
pub(super) fn shape(message: &[u8]) -> Value {
    match serde_json::from_slice(message) {
        Ok(Value::Array(batch)) => json!({ "batch": batch.iter().map(shape_one).collect::<Vec<_>>() }),
        Ok(message) => shape_one(&message),
        Err(_) => json!("not JSON"),
    }
}

fn shape_one(message: &Value) -> Value {
    let mut shape = Map::new();
    if let Some(method) = message["method"].as_str() {
        shape.insert("method".to_owned(), Method::from(method).label().into());
    }
    if let Some(id) = message.get("id") {
        shape.insert("id".to_owned(), kind(id).into());
    }
    for part in ["params", "result"] {
        if let Some(Value::Object(members)) = message.get(part) {
            shape.insert(part.to_owned(), members_of(members));
        }
    }
    if let Some(code) = message["error"]["code"].as_i64() {
        shape.insert("error".to_owned(), code.into());
    }
    shape.into()
}

fn members_of(members: &Map<String, Value>) -> Value {
    let mut known = Map::new();
    let mut others = 0;
    for (name, value) in members {
        match KNOWN_MEMBERS.contains(&name.as_str()) {
            true => {
                known.insert(name.clone(), kind(value).into());
            }
            false => others += 1,
        }
    }
    if others > 0 {
        known.insert("others".to_owned(), others.into());
    }
    known.into()
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(text) => format!("string of {}", text.len()),
        Value::Array(items) => format!("list of {}", items.len()),
        Value::Object(members) => format!("object of {}", members.len()),
    }
}

/// The whole message without the values of members that name a secret.
pub(super) fn payload(message: &[u8]) -> Value {
    match serde_json::from_slice(message) {
        Ok(mut message) => {
            redact(&mut message, 0);
            message
        }
        Err(_) => json!("not JSON"),
    }
}

fn redact(value: &mut Value, depth: usize) {
    match value {
        _ if depth > MAX_DEPTH => *value = Value::Null,
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, depth + 1)),
        Value::Object(members) => {
            for (name, value) in members {
                match is_secret(name) {
                    true => *value = json!("…"),
                    false => redact(value, depth + 1),
                }
            }
        }
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    !NOT_SECRET.contains(&name.as_str()) && SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_15_shape_has_no_value_of_a_user() {
        let call = br#"{"jsonrpc":"2.0","id":"planted","method":"tools/call","params":{"name":"planted","planted":1,"arguments":{"a":"planted"}}}"#;
        let shape = shape(call);
        assert!(!shape.to_string().contains("planted"), "{shape}");
        assert_eq!(shape["method"], "tools/call");
        assert_eq!(
            shape["params"],
            json!({ "name": "string of 7", "arguments": "object of 1", "others": 1 })
        );
        let odd = super::shape(br#"{"method":"planted/x","id":1}"#);
        assert_eq!(odd, json!({ "method": "other", "id": "number" }));
        let failed = super::shape(br#"{"id":1,"error":{"code":-32601,"message":"planted"}}"#);
        assert_eq!(failed, json!({ "id": "number", "error": -32601 }));
        assert_eq!(super::shape(b"planted"), "not JSON");
        assert_eq!(super::shape(br#"[{"id":1,"result":{}}]"#)["batch"][0]["id"], "number");
    }

    #[test]
    fn ops_15_payload_has_no_secret() {
        let call = br#"{"params":{"requestState":"planted","taskId":"planted","arguments":{"api-key":"planted","list":[{"Password":"planted"}],"text":"shown"},"_meta":{"progressToken":7}}}"#;
        let payload = payload(call);
        assert!(!payload.to_string().contains("planted"), "{payload}");
        assert_eq!(payload["params"]["arguments"]["text"], "shown");
        assert_eq!(payload["params"]["_meta"]["progressToken"], 7);
    }
}
