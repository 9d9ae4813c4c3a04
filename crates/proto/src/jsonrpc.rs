//! The JSON-RPC envelope, parsed from raw bytes and written to raw bytes.
//!
//! Only the parts that a rule needs are parsed: `jsonrpc`, `id`, `method`, and the positions of `params`, `result` and
//! `error`. These three remain slices of the body, so that a payload goes from socket to store to socket without another
//! parse (D14).

mod fields;
mod method;
mod object;
mod parse;
mod progress;
mod scalar;
mod scan;
mod unique;
mod write;

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

pub(crate) use fields::Fields;
pub use method::Method;
pub(crate) use object::Object;
pub use parse::{EnvelopeError, Limits, parse};
pub use progress::{Progress, Report};
pub use scalar::{ProgressToken, RequestId};
use scan::{META_PROGRESS_TOKEN, META_VERSION, Span};
pub(crate) use scan::{Members, plain_text};
pub use write::{
    RESULT_ENVELOPE_BYTES, RpcError, batch, code, error_message, message, write_error, write_notification,
    write_request, write_result, write_result_with,
};

/// The content of one HTTP body.
#[derive(Clone, Debug)]
pub enum Payload {
    /// One message.
    One(Message),
    /// A batch. Never empty.
    Batch(Vec<Message>),
}

impl Payload {
    /// All messages.
    pub fn messages(&self) -> &[Message] {
        match self {
            Payload::One(message) => std::slice::from_ref(message),
            Payload::Batch(messages) => messages,
        }
    }
}

/// A JSON-RPC object.
#[derive(Clone, Debug)]
pub enum Message {
    /// Expects an answer.
    Request(Request),
    /// Expects no answer.
    Notification(Notification),
    /// Answers a question of the server.
    Answer(Answer),
}

/// A request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The id that the client chose.
    pub id: RequestId,
    /// The method.
    pub method: Method,
    /// The params.
    pub params: Params,
}

/// A notification.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Notification {
    /// The method.
    pub method: Method,
    /// The params.
    pub params: Params,
}

/// The client's answer to a question of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The id of the question.
    pub id: RequestId,
    /// The raw `result`, or the raw `error`.
    pub outcome: Result<Bytes, Bytes>,
}

/// The raw `params` of a message. Empty if it has none.
#[derive(Clone, Debug, Default)]
pub struct Params {
    json: Bytes,
    /// The positions of their members, if the scan has found them. Shared, because a call keeps a copy of its params.
    members: Option<Arc<Members>>,
    /// The position of their `name`, if the scan has found one: an audit log asks for the tool of each call.
    name: Span,
}

impl Params {
    /// Wraps raw JSON.
    pub fn from_raw(json: Bytes) -> Self {
        Params {
            json,
            ..Params::default()
        }
    }

    fn scanned(json: Bytes, members: Option<Members>, name: Span) -> Self {
        let members = members.map(Arc::new);
        Params { json, members, name }
    }

    /// The positions of their members. `None` if they need the slow path or have no `_meta`.
    pub(crate) fn members(&self) -> Option<Members> {
        match &self.members {
            Some(members) => Some(**members),
            None => Members::find(std::str::from_utf8(&self.json).ok()?),
        }
    }

    /// The JSON text, or `{}` if the message has no params.
    pub fn as_json(&self) -> &[u8] {
        if self.json.is_empty() { b"{}" } else { &self.json }
    }

    /// The JSON text as it was sent. Empty if the message has no params.
    pub fn raw(&self) -> &Bytes {
        &self.json
    }

    /// Deserializes the params as `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match std::str::from_utf8(self.as_json()) {
            Ok(text) => serde_json::from_str(text), // checks UTF-8 once, not for each string
            Err(_) => serde_json::from_slice(self.as_json()),
        }
    }

    /// The request's `_meta.progressToken`, if it is a string or an integer (PRG-01).
    pub fn progress_token(&self) -> Option<ProgressToken> {
        #[derive(serde::Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, rename = "progressToken")]
            progress_token: Option<&'a RawValue>,
        }
        if let Some(members) = &self.members {
            return ProgressToken::from_json(members.in_meta(&self.json, META_PROGRESS_TOKEN)?);
        }
        let meta: Meta<'_> = self.meta()?;
        ProgressToken::from_json(meta.progress_token?.get())
    }

    /// The `name`, if it is a string: the tool of `tools/call`. Escapes are resolved, so that a name has one spelling.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        #[derive(serde::Deserialize)]
        struct Named {
            name: Option<serde_json::Value>,
        }
        let (from, to) = self.name;
        let scanned = self.json.get(from as usize..to as usize).filter(|raw| !raw.is_empty());
        let plain = scanned.and_then(|raw| plain_text(std::str::from_utf8(raw).ok()?));
        if let Some(name) = plain {
            return Some(Cow::Borrowed(name));
        }
        let Object(named) = serde_json::from_slice::<Object<Named>>(self.as_json()).ok()?;
        match named.name? {
            serde_json::Value::String(name) => Some(Cow::Owned(name)),
            _ => None,
        }
    }

    /// The request that a `notifications/cancelled` refers to, if any (CAN-01).
    pub fn cancelled_request(&self) -> Option<RequestId> {
        #[derive(serde::Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let Object(cancelled) = serde_json::from_slice::<Object<Cancelled<'_>>>(self.as_json()).ok()?;
        RequestId::from_json(cancelled.request_id.get())
    }

    /// The version in `_meta` (VER-04's `M`), if it has one.
    pub fn meta_protocol_version(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Meta {
            #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
            version: Option<serde_json::Value>,
        }
        let version = match &self.members {
            Some(members) => serde_json::from_str(members.in_meta(&self.json, META_VERSION)?).ok(),
            None => self.meta::<Meta>()?.version,
        };
        match version? {
            serde_json::Value::String(version) => Some(version),
            other => Some(other.to_string()),
        }
    }

    /// Reads `_meta`. Free if there is none: most calls have no `_meta`, and a search for the letters is much cheaper than a
    /// second parse. Also finds a key with escapes (`"\u005fmeta"`).
    fn meta<'a, T: serde::Deserialize<'a>>(&'a self) -> Option<T> {
        #[derive(serde::Deserialize)]
        struct WithMeta<T> {
            #[serde(rename = "_meta")]
            meta: Option<Object<T>>,
        }
        static META: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("_meta"));
        if META.find(&self.json).is_none() && memchr::memchr(b'\\', &self.json).is_none() {
            return None;
        }
        let Object(params) = serde_json::from_slice::<Object<WithMeta<T>>>(&self.json).ok()?;
        params.meta.map(|Object(meta)| meta)
    }
}

impl Message {
    /// The id of a request. `None` for other messages.
    pub fn request_id(&self) -> Option<&RequestId> {
        match self {
            Message::Request(request) => Some(&request.id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &'static str) -> Params {
        Params::from_raw(Bytes::from_static(json.as_bytes()))
    }

    /// PRG-01, T-35.
    #[test]
    fn prg_01_progress_tokens_keep_their_type() {
        let token = |json| params(json).progress_token().map(|t| t.to_string());
        assert_eq!(token(r#"{"_meta":{"progressToken":1}}"#).as_deref(), Some("1"));
        assert_eq!(token(r#"{"_meta":{"progressToken":"1"}}"#).as_deref(), Some("\"1\""));
        assert_eq!(
            token(r#"{"a":1,"_meta":{"x":[],"progressToken":9007199254740993}}"#).as_deref(),
            Some("9007199254740993")
        );
        assert_eq!(
            token(r#"{"\u005fmeta":{"progressToken":"t"}}"#).as_deref(),
            Some("\"t\"")
        );
        for none in [
            "",
            "{}",
            r#"{"_meta":{}}"#,
            r#"{"_meta":null}"#,
            r#"{"_meta":{"progressToken":null}}"#,
            r#"{"_meta":{"progressToken":1.5}}"#,
            r#"{"_meta":{"progressToken":{}}}"#,
            r#"{"_meta":7}"#,
            r#"{"arguments":{"_meta":{"progressToken":1}}}"#,
            "[1]",
            r#"{"_meta":[1]}"#,
            r#"[{"progressToken":1}]"#,
        ] {
            assert_eq!(token(none), None, "{none}");
        }
    }

    #[test]
    fn can_01_cancelled_request_is_optional() {
        let named = |json| params(json).cancelled_request().map(|id| id.to_string());
        assert_eq!(named(r#"{"requestId":7,"reason":"x"}"#).as_deref(), Some("7"));
        assert_eq!(named(r#"{"requestId":"7"}"#).as_deref(), Some("\"7\""));
        for none in ["", "{}", r#"{"requestId":null}"#, r#"{"requestId":[]}"#, "[7]"] {
            assert_eq!(named(none), None, "{none}");
        }
    }

    #[test]
    fn auth_15_name_is_read_with_its_escapes_resolved() {
        let name = |json| params(json).name().map(Cow::into_owned);
        for json in [
            r#"{"name":"write"}"#,
            r#"{"a":[1],"name":"writ\u0065"}"#,
            r#"{"nam\u0065":"write"}"#,
            r#" {"arguments":{"name":"x"},"name" : "write","_meta":{"a":1}} "#,
        ] {
            assert_eq!(name(json).as_deref(), Some("write"), "{json}");
        }
        for none in [
            "",
            "{}",
            r#"{"name":1}"#,
            r#"{"name":null}"#,
            r#"["write"]"#,
            r#"{"arguments":{"name":"write"}}"#,
            r#"{"name":"write","name":"write"}"#,
            r#"{"name":"write"} x"#,
        ] {
            assert_eq!(name(none), None, "{none}");
        }
    }

    /// The scan of a message finds the name, so that nobody parses the params again.
    #[test]
    fn auth_15_name_of_a_scanned_message_is_that_of_its_params() {
        for (params, name) in [
            (r#"{"name":"write"}"#, Some("write")),
            (
                r#"{"arguments":{"name":"x"},"name" : "write","_meta":{"a":1}}"#,
                Some("write"),
            ),
            (r#"{"name":"writ\u0065","arguments":{}}"#, Some("write")),
            (r#"{"nam\u0065":"write"}"#, Some("write")),
            (r#"{"name":7}"#, None),
            (r#"{"arguments":{"name":"write"}}"#, None),
            ("{}", None),
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"params": {params},"method":"tools/call"}}"#);
            let parsed = parse(&Bytes::from(message), &Limits::default());
            let Ok(Payload::One(Message::Request(request))) = parsed else {
                panic!("{params}")
            };
            assert_eq!(request.params.name().as_deref(), name, "{params}");
        }
    }

    #[test]
    fn ver_04_reads_the_version_from_meta() {
        let version = |json| params(json).meta_protocol_version();
        assert_eq!(
            version(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#).as_deref(),
            Some("2026-07-28")
        );
        assert_eq!(
            version(r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#).as_deref(),
            Some("7")
        );
        assert_eq!(version(r#"{"_meta":{"progressToken":7}}"#), None);
        assert_eq!(version(""), None);
    }
}
