//! Parses bytes to messages.

use super::scan::{Members, NOWHERE, Scan, Span, plain_text, scan};
use super::unique;
use super::{Answer, Message, Method, Notification, Params, Payload, Request, RequestId};
use bytes::Bytes;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Limits of a body (SEC-06).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Nesting depth of objects and arrays.
    pub depth: usize,
    /// Messages of a batch (HTTP-09).
    pub batch: usize,
    /// Bytes of an `id`, and of a `progressToken`, as JSON text. Both are stored while the call runs, the id also in its
    /// stream.
    pub id_bytes: usize,
}

impl Limits {
    /// Limits of nesting, messages of a batch and bytes of an id.
    pub const fn new(depth: usize, batch: usize, id_bytes: usize) -> Self {
        Limits { depth, batch, id_bytes }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            depth: 64,
            batch: 100,
            id_bytes: 1024,
        }
    }
}

/// Why a body is not a JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Not UTF-8, or not JSON.
    #[error("the body is not valid JSON: {0}")]
    NotJson(String),
    /// JSON, but not a JSON-RPC message.
    #[error("{what}")]
    Invalid {
        /// The id, if it could be read (HTTP-04).
        id: Option<RequestId>,
        /// The error.
        what: Cow<'static, str>,
    },
    /// A JSON-RPC message whose `params` are ambiguous.
    #[error("{what}")]
    InvalidParams {
        /// The id, if the message is a request.
        id: Option<RequestId>,
        /// The error.
        what: Cow<'static, str>,
    },
}

impl EnvelopeError {
    fn invalid(what: &'static str) -> Self {
        EnvelopeError::Invalid {
            id: None,
            what: what.into(),
        }
    }
}

/// Parses the message or the batch in `body`.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Payload, EnvelopeError> {
    let text = std::str::from_utf8(body).map_err(|e| EnvelopeError::NotJson(e.to_string()))?;
    if let Some(message) = usual(body, text, limits) {
        return Ok(Payload::One(message));
    }
    if nests_deeper_than(body, limits.depth) {
        return Err(EnvelopeError::Invalid {
            id: None,
            what: format!("the body nests deeper than {} levels", limits.depth).into(),
        });
    }
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'[') => batch(body, text, limits),
        _ => message(body, text, limits).map(Payload::One),
    }
}

/// The fast path for a usual message. `None` if it needs the slow path.
fn usual(body: &Bytes, text: &str, limits: &Limits) -> Option<Message> {
    let message = accept(body, &Wire::usual(text, limits.depth)?, limits).ok()?;
    has_short_token(&message, limits).then_some(message)
}

fn batch(body: &Bytes, text: &str, limits: &Limits) -> Result<Payload, EnvelopeError> {
    let parts: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| EnvelopeError::NotJson(e.to_string()))?;
    if parts.is_empty() {
        return Err(EnvelopeError::invalid("the batch is empty"));
    }
    if parts.len() > limits.batch {
        let what = format!(
            "the batch holds {} messages, at most {} are allowed",
            parts.len(),
            limits.batch
        );
        return Err(EnvelopeError::Invalid {
            id: None,
            what: what.into(),
        });
    }
    let messages = parts.into_iter().map(|part| message(body, part.get(), limits));
    messages.collect::<Result<_, _>>().map(Payload::Batch)
}

/// The members of a message, raw where that suffices.
struct Wire<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    id: Option<&'a str>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a str>,
    /// The positions of the members of the params, if known.
    members: Option<Members>,
    /// The position of `name` in the params, if known.
    name: Span,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Wire<'a> {
    /// The fast path for a usual message. `None` if it needs the slow path.
    fn usual(text: &'a str, depth: usize) -> Option<Self> {
        let Scan {
            members: [jsonrpc, id, method, params, result, error],
            params: members,
            name,
        } = scan(text, depth)?;
        let string = |raw: Option<&'a str>| match raw {
            Some(raw) => plain_text(raw).map(|text| Some(Cow::Borrowed(text))),
            None => Some(None),
        };
        Some(Wire {
            jsonrpc: string(jsonrpc)?,
            id,
            method: string(method)?,
            params: params.filter(|raw| *raw != "null"),
            members,
            name,
            result,
            error,
        })
    }

    /// The slow path for any message.
    fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            jsonrpc: Option<Text<'a>>,
            #[serde(borrow, default, deserialize_with = "even_null")]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Text<'a>>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "even_null")]
            result: Option<&'a RawValue>,
            #[serde(borrow, default, deserialize_with = "even_null")]
            error: Option<&'a RawValue>,
        }
        let members: Members<'a> = serde_json::from_str(text)?;
        Ok(Wire {
            jsonrpc: members.jsonrpc.map(|Text(text)| text),
            id: members.id.map(RawValue::get),
            method: members.method.map(|Text(text)| text),
            params: members.params.map(RawValue::get),
            members: None,
            name: NOWHERE,
            result: members.result.map(RawValue::get),
            error: members.error.map(RawValue::get),
        })
    }
}

/// A string that is copied only if it has escapes. (Serde borrows a `Cow`, but not one in an `Option`.)
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// `"id": null` is an invalid id, not a missing one.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn message(body: &Bytes, text: &str, limits: &Limits) -> Result<Message, EnvelopeError> {
    let wire = Wire::read(text).map_err(|error| explain(text, &error, limits))?;
    let id = || wire.id.and_then(|raw| short_id(raw, limits));
    let message = accept(body, &wire, limits).map_err(|what| EnvelopeError::Invalid { id: id(), what })?;
    let invalid_params = |what: String| EnvelopeError::InvalidParams {
        id: id(),
        what: what.into(),
    };
    wire.params
        .map_or(Ok(()), unique::check_params)
        .map_err(invalid_params)?;
    if !has_short_token(&message, limits) {
        let what = format!("`progressToken` is longer than {} bytes", limits.id_bytes);
        return Err(invalid_params(what));
    }
    Ok(message)
}

/// An id within the limit.
fn short_id(raw: &str, limits: &Limits) -> Option<RequestId> {
    RequestId::from_json(raw).filter(|id| id.as_json().len() <= limits.id_bytes)
}

/// Whether a message has no progress token, or one within the limit. Short params need no check.
fn has_short_token(message: &Message, limits: &Limits) -> bool {
    let Message::Request(Request { params, .. }) = message else {
        return true;
    };
    params.raw().len() <= limits.id_bytes
        || params
            .progress_token()
            .is_none_or(|token| token.as_json().len() <= limits.id_bytes)
}

fn accept(body: &Bytes, wire: &Wire<'_>, limits: &Limits) -> Result<Message, Cow<'static, str>> {
    if wire.jsonrpc.as_deref() != Some("2.0") {
        return Err("`jsonrpc` must be \"2.0\"".into());
    }
    let id = match wire.id {
        Some(raw) if raw.len() > limits.id_bytes && short_id(raw, limits).is_none() => {
            return Err(format!("`id` is longer than {} bytes", limits.id_bytes).into());
        }
        Some(raw) => Some(RequestId::from_json(raw).ok_or("`id` must be a string or an integer")?),
        None => None,
    };
    let slice = |raw: &str| body.slice_ref(raw.as_bytes());
    if let Some(name) = &wire.method {
        if wire.result.is_some() || wire.error.is_some() {
            return Err("a message has either `method` or `result`/`error`, not both".into());
        }
        let method = Method::from(name.as_ref());
        let params = match wire.params {
            Some(raw) if raw.starts_with(['{', '[']) => Params::scanned(slice(raw), wire.members, wire.name),
            Some(_) => return Err("`params` must be an object".into()),
            None => Params::default(),
        };
        return Ok(match id {
            Some(id) => Message::Request(Request { id, method, params }),
            None => Message::Notification(Notification { method, params }),
        });
    }
    let outcome = match (wire.result, wire.error) {
        (Some(result), None) => Ok(slice(result)),
        (None, Some(error)) => Err(slice(error)),
        (Some(_), Some(_)) => return Err("a response has either `result` or `error`, not both".into()),
        (None, None) => return Err("a message needs a `method`, a `result` or an `error`".into()),
    };
    let id = id.ok_or("a response needs the `id` it answers")?;
    Ok(Message::Answer(Answer { id, outcome }))
}

/// The error of an invalid body: invalid JSON or an invalid message, with the id if it can be read.
fn explain(text: &str, error: &serde_json::Error, limits: &Limits) -> EnvelopeError {
    if let Err(syntax) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return EnvelopeError::NotJson(syntax.to_string());
    }
    let id = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .and_then(|value| short_id(&value.get("id")?.to_string(), limits));
    EnvelopeError::Invalid {
        id,
        what: format!("the body is not a JSON-RPC message: {error}").into(),
    }
}

/// Whether brackets nest deeper than `depth`. Short bodies and bodies with few brackets are accepted without parsing strings.
fn nests_deeper_than(body: &[u8], depth: usize) -> bool {
    if body.len() < 2 * depth {
        return false;
    }
    if memchr::memchr2_iter(b'{', b'[', body).nth(depth).is_none() {
        return false;
    }
    let (mut level, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                level += 1;
                if level > depth {
                    return true;
                }
            }
            b'}' | b']' if !in_string => level = level.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
