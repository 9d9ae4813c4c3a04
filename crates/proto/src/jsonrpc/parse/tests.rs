use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn read(text: &str) -> Result<Payload, EnvelopeError> {
    parse(&Bytes::copy_from_slice(text.as_bytes()), &Limits::default())
}

fn one(text: &str) -> Message {
    match read(text) {
        Ok(Payload::One(message)) => message,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn reads_the_three_kinds() {
    let Message::Request(request) = one(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":[1]}}"#) else {
        panic!()
    };
    assert_eq!(request.id, RequestId::from(7));
    assert_eq!(request.method.as_str(), "tools/call");
    assert_eq!(request.params.as_json(), br#"{"a":[1]}"#);

    let Message::Notification(note) = one(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#) else {
        panic!()
    };
    assert_eq!(note.params.as_json(), b"{}");

    let Message::Answer(answer) = one(r#"{"jsonrpc":"2.0","id":"s-1","result":{"x":1}}"#) else {
        panic!()
    };
    assert_eq!(answer.outcome, Ok(Bytes::from_static(br#"{"x":1}"#)));
    let Message::Answer(answer) = one(r#"{"error":{"code":1,"message":"no"},"id":2,"jsonrpc":"2.0"}"#) else {
        panic!()
    };
    assert!(answer.outcome.is_err());
}

#[test]
fn escaped_method_names_and_keys_are_read() {
    let Message::Request(request) = one(r#"{"jsonrpc":"2.0","id":1,"\u006dethod":"pi\u006eg"}"#) else {
        panic!()
    };
    assert_eq!(request.method.as_str(), "ping");
}

/// The error code of a refused body, and the id in the refusal.
fn refused(text: &str) -> Option<(i64, Option<RequestId>)> {
    let refusal = crate::Refusal::from(read(text).err()?);
    let code = refusal.error().code;
    assert_eq!(refusal.status(), 400);
    Some((code, refusal.id))
}

/// HTTP-04: a reader may take the first or the last of two equal members, so such `params` are refused.
#[test]
fn http_04_params_with_a_repeated_member_are_invalid_params() {
    let meta = "io.modelcontextprotocol/protocolVersion";
    for params in [
        r#"{"name":"echo","name":"meta"}"#,
        r#"{"name":"echo","arguments":{},"n\u0061me":"meta"}"#,
        r#"{"n\u0061me":"echo","\u006eame":"meta"}"#,
        r#"{"name":"echo","name":"echo"}"#,
        r#"{"_meta":{},"_meta":{}}"#,
        r#"{"\u005fmeta":{"progressToken":1},"name":"x","_meta":null}"#,
        r#"{"uri":"a","uri":"b"}"#,
        r#"{"arguments":{},"arguments":{"a":1}}"#,
        r#"{"level":"error","level":"debug"}"#,
        r#"{"requestId":1,"requestId":2}"#,
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"capabilities":{"sampling":{}}}"#,
        r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
        r#"{"_meta":{"progressToken":1,"progress\u0054oken":2}}"#,
        &format!(r#"{{"_meta":{{"{meta}":"2026-07-28","{meta}":"2025-11-25"}}}}"#),
        // A key that is not valid text cannot be compared with the others.
        r#"{"name":"echo","\ud800":1}"#,
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        let id = Some(RequestId::from(7));
        assert_eq!(refused(&request), Some((-32602, id.clone())), "{request}");
        let note = format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{params}}}"#);
        assert_eq!(refused(&note), Some((-32602, None)), "{note}");
        assert_eq!(
            refused(&format!("[{request}]")),
            Some((-32602, id)),
            "in a batch: {request}"
        );
    }
    for params in [
        r#"{"name":"echo","arguments":{"name":"a","_meta":{},"a":1,"a":2}}"#,
        r#"{"n\u0061me":"echo","_meta":{"name":1,"_meta":{"x":1,"x":2}}}"#,
        r#"{"name":"a","Name":"b","name ":"c"}"#,
        r#"{"_meta":["a","a"]}"#,
        r#"["name","name"]"#,
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
        assert_eq!(refused(&request), None, "{request}");
    }
    let doubled = r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{},"params":{}}"#;
    assert_eq!(
        refused(doubled).map(|(code, _)| code),
        Some(-32600),
        "the envelope itself"
    );
}

/// HTTP-04: invalid JSON is -32700, everything else is -32600 with the id if it could be read.
#[test]
fn http_04_malformed_bodies() {
    for text in [
        "",
        "   ",
        "{",
        "nope",
        "{\"jsonrpc\":\"2.0\",}",
        "{\"a\":1}{\"b\":2}",
        "[",
        "[1,]",
        "\u{feff}{}",
    ] {
        assert!(matches!(read(text), Err(EnvelopeError::NotJson(_))), "{text:?}");
    }
    let seven = Some(RequestId::from(7));
    let cases: [(&str, Option<RequestId>); 20] = [
        ("{}", None),
        ("1", None),
        ("null", None),
        ("\"x\"", None),
        (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, seven.clone()),
        (r#"{"id":7,"method":"m"}"#, seven.clone()),
        (r#"{"jsonrpc":2,"id":7,"method":"m"}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","id":7}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","id":7,"method":5}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","id":7,"method":["m"]}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, None),
        (r#"{"jsonrpc":"2.0","id":7,"result":1,"error":{}}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","result":1}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","result":1}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":3}"#, seven.clone()),
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"n"}"#, seven),
    ];
    for (text, expected) in cases {
        match read(text) {
            Err(EnvelopeError::Invalid { id, .. }) => assert_eq!(id, expected, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn http_03_bytes_that_are_not_utf8_are_not_json() {
    let body = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}");
    assert!(matches!(
        parse(&body, &Limits::default()),
        Err(EnvelopeError::NotJson(_))
    ));
    let body = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"x\":\"\xc3\x28\"}}");
    assert!(matches!(
        parse(&body, &Limits::default()),
        Err(EnvelopeError::NotJson(_))
    ));
}

/// SEC-06: ids and progress tokens outlive the request's body, so they are bounded. A refusal does not repeat the id.
#[test]
fn sec_06_ids_and_progress_tokens_are_bounded_in_bytes() {
    let limit = Limits::default().id_bytes;
    let text = |len: usize| format!("\"{}\"", "i".repeat(len - 2));
    let request = |id: &str, token: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"_meta":{{"progressToken":{token}}}}}}}"#)
    };
    let escaped = |json: &str| json.replace("_meta", "\\u005fmeta");
    for message in [request(&text(limit), "1"), request("7", &text(limit))] {
        assert!(read(&message).is_ok() && read(&escaped(&message)).is_ok(), "{message}");
    }
    let batch = |message: &str| format!("[{message}]");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, text(limit + 1));
    let long_id = request(&text(limit + 1), "1");
    for body in [long_id.clone(), escaped(&long_id), batch(&long_id), answer] {
        match read(&body) {
            Err(EnvelopeError::Invalid { id: None, what }) => assert!(what.contains("`id` is longer"), "{what}"),
            other => panic!("{other:?}"),
        }
    }
    let long_token = request("7", &text(limit + 1));
    for body in [long_token.clone(), escaped(&long_token), batch(&long_token)] {
        match read(&body) {
            Err(EnvelopeError::InvalidParams { id, what }) => {
                assert_eq!(id, Some(RequestId::from(7)));
                assert!(what.contains("`progressToken` is longer"), "{what}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn http_09_batches() {
    let Ok(Payload::Batch(all)) = read(
        r#" [{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":"c","result":{}}]"#,
    ) else {
        panic!()
    };
    assert_eq!(all.len(), 3);
    assert!(matches!(read("[]"), Err(EnvelopeError::Invalid { .. })));
    assert!(matches!(read("[1]"), Err(EnvelopeError::Invalid { .. })));
    let many = |n: usize| format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"m"}"#; n].join(","));
    assert!(read(&many(100)).is_ok());
    assert!(matches!(read(&many(101)), Err(EnvelopeError::Invalid { .. })));
}

#[test]
fn sec_06_deep_nesting_is_refused_without_recursion() {
    let nested = |n: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":{}{}}}"#,
            "[".repeat(n),
            "]".repeat(n)
        )
    };
    assert!(read(&nested(63)).is_ok());
    assert!(matches!(read(&nested(64)), Err(EnvelopeError::Invalid { .. })));
    assert!(matches!(read(&nested(1_000_000)), Err(EnvelopeError::Invalid { .. })));
    let in_a_string = format!(
        r#"{{"jsonrpc":"2.0","method":"m","params":{{"x":"\"{}"}}}}"#,
        "[".repeat(500)
    );
    assert!(read(&in_a_string).is_ok());
}

/// The reference implementation of the envelope with `serde_json::Value`.
fn reference(value: &Value) -> Option<&'static str> {
    let object = value.as_object()?;
    (object.get("jsonrpc")? == "2.0").then_some(())?;
    let id = match object.get("id") {
        None => false,
        Some(Value::String(_)) => true,
        Some(Value::Number(n)) if n.is_i64() || n.is_u64() => true,
        Some(_) => return None,
    };
    let answer = object.contains_key("result") as u8 + object.contains_key("error") as u8;
    match object.get("method") {
        Some(Value::Null) | None => (id && answer == 1).then_some("answer"),
        Some(Value::String(_)) if answer == 0 => match object.get("params") {
            None | Some(Value::Null | Value::Object(_) | Value::Array(_)) => {
                Some(if id { "request" } else { "notification" })
            }
            Some(_) => None,
        },
        Some(_) => None,
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u32..99).prop_map(|n| Value::from(f64::from(n) / 4.0)), // exact in binary and in text
        "[a-z\\\\\"\n\u{e9}]{0,6}".prop_map(Value::from),
        Just(Value::from("2.0")),
    ]
}

fn envelope() -> impl Strategy<Value = Value> {
    let tree = scalar().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map("[a-z_]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let field = |likely: BoxedStrategy<Value>| prop_oneof![3 => likely.prop_map(Some), 1 => tree.clone().prop_map(Some), 2 => Just(None)];
    (
        field(Just(Value::from("2.0")).boxed()),
        field(any::<u32>().prop_map(Value::from).boxed()),
        field("[a-z/]{1,12}".prop_map(Value::from).boxed()),
        field(Just(serde_json::json!({"name": "x", "_meta": {"progressToken": 3}})).boxed()),
        prop_oneof![4 => Just(None), 1 => tree.clone().prop_map(Some)],
        prop_oneof![4 => Just(None), 1 => tree.clone().prop_map(Some)],
    )
        .prop_map(|(jsonrpc, id, method, params, result, error)| {
            let fields = [
                ("jsonrpc", jsonrpc),
                ("id", id),
                ("method", method),
                ("params", params),
                ("result", result),
                ("error", error),
            ];
            Value::Object(
                fields
                    .into_iter()
                    .filter_map(|(k, v)| Some((k.to_owned(), v?)))
                    .collect(),
            )
        })
}

proptest! {
    /// Params are refused exactly if two members are equal, for any number and spelling of members.
    #[test]
    fn http_04_params_are_refused_exactly_if_a_member_is_repeated(
        keys in proptest::collection::vec(("[a-c]{1,2}|name|_meta", any::<bool>()), 0..40),
        in_meta: bool,
    ) {
        let written = |(key, escaped): &(String, bool)| {
            let first = key.chars().next().unwrap();
            let first = if *escaped { format!("\\u{:04x}", u32::from(first)) } else { first.to_string() };
            format!("\"{first}{}\":1", &key[1..])
        };
        let members: Vec<_> = keys.iter().map(written).collect();
        let object = format!("{{{}}}", members.join(","));
        let params = if in_meta { format!("{{\"_meta\":{object}}}") } else { object };
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x","params":{params}}}"#);
        let distinct: std::collections::HashSet<_> = keys.iter().map(|(key, _)| key).collect();
        let expected = (distinct.len() < keys.len()).then(|| (-32602, Some(RequestId::from(7))));
        prop_assert_eq!(refused(&text), expected, "{}", text);
    }

    #[test]
    fn agrees_with_serde_json_values(value in envelope()) {
        let text = value.to_string();
        let kind = match read(&text) {
            Ok(Payload::One(Message::Request(r))) => {
                prop_assert_eq!(r.id.to_string(), value["id"].to_string());
                prop_assert_eq!(r.method.as_str(), value["method"].as_str().unwrap());
                let params: Value = serde_json::from_slice(r.params.as_json()).unwrap();
                let expected = match &value["params"] { Value::Null => serde_json::json!({}), some => some.clone() };
                prop_assert_eq!(params, expected);
                Some("request")
            }
            Ok(Payload::One(Message::Notification(_))) => Some("notification"),
            Ok(Payload::One(Message::Answer(a))) => {
                let (name, raw) = match &a.outcome { Ok(raw) => ("result", raw), Err(raw) => ("error", raw) };
                prop_assert_eq!(&serde_json::from_slice::<Value>(raw).unwrap(), &value[name]);
                Some("answer")
            }
            Ok(other) => panic!("{other:?}"),
            Err(EnvelopeError::NotJson(why)) => panic!("{text} is JSON: {why}"),
            Err(_) => None,
        };
        prop_assert_eq!(kind, reference(&value), "{}", text);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&Bytes::from(bytes), &Limits::default());
    }
}
