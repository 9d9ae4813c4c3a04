//! Writes messages to bytes.

use super::{Answer, Message, Notification, Request, RequestId};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// The error codes of the transport.
pub mod code {
    /// The body is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// JSON, but not a message that is accepted here.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method exists, but the arguments are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The server failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// A resource does not exist (revisions with sessions).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The user must open URLs before the call is repeated (2025-11-25).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// A header differs from the mirrored part of the body (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client lacks a capability that the call needs (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not served.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// A JSON-RPC error: returned by a handler, or by a client as the answer to a question.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, serde::Deserialize)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct RpcError {
    /// The kind of error.
    pub code: i64,
    /// The description, in one sentence.
    pub message: Cow<'static, str>,
    /// Details for programs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error with a custom code.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        RpcError {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with data for programs.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// `-32601`: no such method.
    pub fn method_not_found(method: &str) -> Self {
        RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}"))
    }

    /// `-32602`: invalid arguments.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        RpcError::new(code::INVALID_PARAMS, message)
    }

    /// `-32600`: this message is not accepted here.
    pub fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        RpcError::new(code::INVALID_REQUEST, message)
    }

    /// `-32603`: the server failed.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        RpcError::new(code::INTERNAL_ERROR, message)
    }
}

/// Writes a successful response around raw `result` JSON.
pub fn write_result(out: &mut Vec<u8>, id: &RequestId, result: &[u8]) {
    write_result_with(out, id, |out| out.extend_from_slice(result));
}

/// The bytes that [`write_result`] writes around the id and the result.
pub const RESULT_ENVELOPE_BYTES: usize = 33;

/// Writes a successful response with the `result` that `write` appends.
pub fn write_result_with<T>(out: &mut Vec<u8>, id: &RequestId, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json());
    out.extend_from_slice(b",\"result\":");
    let written = write(out);
    out.push(b'}');
    written
}

/// Writes an error response. If the id of the message could not be read, the response has no `id` (HTTP-04, T-07).
pub fn write_error(out: &mut Vec<u8>, id: Option<&RequestId>, error: &RpcError) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id.as_json());
    }
    out.extend_from_slice(b",\"error\":");
    serde_json::to_writer(&mut *out, error).expect("a JSON value can be written to memory");
    out.push(b'}');
}

/// An error response in its own buffer.
pub fn error_message(id: Option<&RequestId>, error: &RpcError) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    write_error(&mut out, id, error);
    out
}

/// Writes a notification. `params` must serialize to a JSON object.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: &impl Serialize) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    serde_json::to_writer(&mut *out, method)?;
    write_params(out, params)
}

/// Writes a request to the client.
pub fn write_request(
    out: &mut Vec<u8>,
    id: &RequestId,
    method: &str,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json());
    out.extend_from_slice(b",\"method\":");
    serde_json::to_writer(&mut *out, method)?;
    write_params(out, params)
}

/// A message of a client, as it would be on its own.
pub fn message(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    write_message(&mut out, message);
    out
}

/// A batch of messages of a client.
pub fn batch(messages: &[Message]) -> Vec<u8> {
    let mut out = vec![b'['];
    for (index, message) in messages.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_message(&mut out, message);
    }
    out.push(b']');
    out
}

fn write_message(out: &mut Vec<u8>, message: &Message) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Message::Request(Request { id, .. }) | Message::Answer(Answer { id, .. }) = message {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id.as_json());
    }
    match message {
        Message::Request(Request { method, params, .. }) | Message::Notification(Notification { method, params }) => {
            out.extend_from_slice(b",\"method\":");
            serde_json::to_writer(&mut *out, method.as_str()).expect("a text can be written to memory");
            if !params.raw().is_empty() {
                out.extend_from_slice(b",\"params\":");
                out.extend_from_slice(params.raw());
            }
        }
        Message::Answer(Answer { outcome, .. }) => {
            let (name, value) = match outcome {
                Ok(result) => (b",\"result\":".as_slice(), result),
                Err(error) => (b",\"error\":".as_slice(), error),
            };
            out.extend_from_slice(name);
            out.extend_from_slice(value);
        }
    }
    out.push(b'}');
}

fn write_params(out: &mut Vec<u8>, params: &impl Serialize) -> serde_json::Result<()> {
    let before = out.len();
    out.extend_from_slice(b",\"params\":");
    let start = out.len();
    serde_json::to_writer(&mut *out, params)?;
    if &out[start..] == b"null" {
        out.truncate(before); // `()` means no params
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn messages_equal_the_wire_examples() {
        assert_eq!(
            text(|out| {
                write_result(out, &RequestId::from(7), b"{}");
                assert_eq!(out.len(), RESULT_ENVELOPE_BYTES + 1 + 2);
            }),
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
        );
        assert_eq!(
            text(|out| write_notification(out, "notifications/x", &json!({"a": 1})).unwrap()),
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}"#
        );
        assert_eq!(
            text(|out| write_notification(out, "notifications/x", &()).unwrap()),
            r#"{"jsonrpc":"2.0","method":"notifications/x"}"#
        );
        assert_eq!(
            text(|out| write_request(out, &RequestId::from("s-1"), "roots/list", &()).unwrap()),
            r#"{"jsonrpc":"2.0","id":"s-1","method":"roots/list"}"#
        );
    }

    #[test]
    fn messages_of_a_batch_are_written_as_they_were_sent() {
        let text = r#"[{"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{"x": 1.0}},{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}},{"jsonrpc":"2.0","id":"s1-2","result":{"action":"accept"}},{"jsonrpc":"2.0","id":"s1-3","error":{"code":1,"message":"no"}}]"#;
        let body = bytes::Bytes::from_static(text.as_bytes());
        let Ok(super::super::Payload::Batch(messages)) = super::super::parse(&body, &super::super::Limits::default())
        else {
            panic!("a batch");
        };
        assert_eq!(String::from_utf8(batch(&messages)).unwrap(), text);
        let parts: Vec<_> = messages
            .iter()
            .map(|one| String::from_utf8(message(one)).unwrap())
            .collect();
        assert_eq!(format!("[{}]", parts.join(",")), text);
    }

    #[test]
    fn http_04_errors_without_an_id_have_no_id_field() {
        let error = RpcError::invalid_request("no").with_data(json!({"x": 1}));
        assert_eq!(
            text(|out| write_error(out, None, &error)),
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no","data":{"x":1}}}"#
        );
        assert_eq!(
            text(|out| write_error(out, Some(&RequestId::from("a")), &RpcError::internal("bad"))),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"bad"}}"#
        );
    }
}
