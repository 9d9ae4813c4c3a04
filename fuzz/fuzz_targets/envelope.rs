//! HTTP-04: the parser accepts or refuses any bytes, and an accepted message equals its `serde_json` value.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use rethread_proto::jsonrpc::{EnvelopeError, Limits, Message, Params, Payload, RequestId, parse};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

fuzz_target!(|body: &[u8]| {
    match parse(&Bytes::copy_from_slice(body), &Limits::default()) {
        Ok(Payload::One(message)) => {
            // Raw parts may contain values that a `Value` cannot represent, such as `1e999`. These are not compared.
            if let Ok(value) = serde_json::from_slice::<Value>(body) {
                compare(&message, &value);
            }
        }
        Ok(Payload::Batch(messages)) => assert!((1..=Limits::default().batch).contains(&messages.len())),
        Err(EnvelopeError::NotJson(_)) => {
            let is_json = |text| serde_json::from_str::<IgnoredAny>(text).is_ok();
            assert!(!std::str::from_utf8(body).is_ok_and(is_json), "valid JSON was refused");
        }
        Err(_) => {}
    }
});

fn compare(message: &Message, value: &Value) {
    assert_eq!(value["jsonrpc"], "2.0");
    match message {
        Message::Request(request) => {
            same_id(&request.id, &value["id"]);
            assert_eq!(value["method"], request.method.as_str());
            same_params(&request.params, &value["params"]);
        }
        Message::Notification(notification) => {
            assert_eq!(value.get("id"), None);
            assert_eq!(value["method"], notification.method.as_str());
            same_params(&notification.params, &value["params"]);
        }
        Message::Answer(answer) => {
            same_id(&answer.id, &value["id"]);
            let (name, raw) = match &answer.outcome {
                Ok(raw) => ("result", raw),
                Err(raw) => ("error", raw),
            };
            assert_eq!(value.get(name), Some(&read(raw)));
        }
    }
}

fn same_id(id: &RequestId, value: &Value) {
    let text = id.to_string();
    match value {
        Value::Number(number) if number.is_f64() => {
            // Beyond 64 bits a `Value` loses digits, but an id must not (T-35).
            let digits = text.strip_prefix('-').unwrap_or(&text);
            assert!(digits.bytes().all(|b| b.is_ascii_digit()), "{text} is not an integer");
            assert_eq!(text.parse::<f64>().ok(), number.as_f64());
        }
        Value::Number(_) | Value::String(_) => assert_eq!(text, value.to_string()),
        other => panic!("{other} is not an id"),
    }
}

fn same_params(params: &Params, value: &Value) {
    let expected = if value.is_null() { &json!({}) } else { value };
    assert_eq!(&read(params.as_json()), expected);
}

fn read(raw: &[u8]) -> Value {
    serde_json::from_slice(raw).expect("a part of an accepted body is JSON")
}
