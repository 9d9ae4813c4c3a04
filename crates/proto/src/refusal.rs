//! Every refusal. Only this module knows HTTP statuses and the JSON-RPC codes that go with them.

use crate::auth::AuthRefusal;
use crate::jsonrpc::{EnvelopeError, RequestId, RpcError, code, error_message};
use crate::version::{Era, Revisions};
use http::{HeaderValue, StatusCode};
use serde_json::json;
use std::borrow::Cow;

/// The reason why a request is not served. [`Refusal::status`] and [`Refusal::body`] make the response.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The id of the request, if it was read.
    pub id: Option<RequestId>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The `Origin` is not allowed (SEC-01).
    Origin {
        /// The refused origin.
        origin: Box<str>,
        /// How to allow it.
        hint: &'static str,
    },
    /// The `Host` is not allowed (SEC-02).
    Host {
        /// The refused host.
        host: Box<str>,
        /// How to allow it.
        hint: &'static str,
    },
    /// The caller is not known, or may not call (AUTH-01 to AUTH-24).
    Auth(Box<AuthRefusal>),
    /// The HTTP method is not offered (HTTP-01, VER-09).
    Method {
        /// The value of `Allow`.
        allow: &'static str,
    },
    /// `Accept` does not admit the response (HTTP-02).
    NotAcceptable {
        /// The media types that must be admitted.
        needs: &'static str,
    },
    /// `Content-Type` is not `application/json` (HTTP-03).
    UnsupportedMediaType,
    /// The body is larger than the limit (HTTP-03).
    BodyTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The headers are larger than the limit (SEC-06).
    HeadersTooLarge,
    /// The body did not arrive completely or in time.
    BodyIncomplete,
    /// The body is not JSON (HTTP-04).
    NotJson(String),
    /// JSON, but not a message that is accepted here (HTTP-04, HTTP-09, HTTP-10).
    InvalidRequest(Cow<'static, str>),
    /// Ambiguous `params`, for any method (HTTP-04).
    InvalidParams(Cow<'static, str>),
    /// A header differs from the body (VER-04, HDR-*).
    HeaderMismatch(Cow<'static, str>),
    /// `_meta` lacks a member that every stateless request must have (VER-04 row 5, VER-05).
    MissingMeta(Cow<'static, str>),
    /// The protocol version is not served (VER-02, VER-04, VER-06).
    UnsupportedVersion {
        /// The requested version, verbatim.
        requested: String,
        /// The served versions.
        served: Revisions,
    },
    /// A session header is required (SES-03).
    MissingSession,
    /// The session is unknown, expired, ended or belongs to another principal (SES-04, SES-06).
    UnknownSession,
    /// The stream of the event id existed and is completely forgotten (RES-07).
    StreamForgotten,
    /// The stream of the event id has ended, and the client has seen all of it (RES-07).
    StreamEnded,
    /// A limit is reached. The text names it (SEC-06, SES-09).
    TooMany(&'static str),
    /// The caller sends more messages than its rate allows.
    RateLimited {
        /// Seconds until there is a permit.
        retry_after: u32,
    },
    /// A limit of the whole server is reached. The text names it.
    Overloaded(&'static str),
    /// The server is shutting down (T-38).
    ShuttingDown,
    /// The store is needed and cannot be reached (D10).
    StoreUnavailable,
    /// The server behind this one cannot be reached. The text describes it.
    Upstream(Cow<'static, str>),
    /// An answer to a question that was never asked (S2C-04).
    UnknownQuestion,
}

impl Refusal {
    /// A refusal without a request id.
    pub fn new(reason: Reason) -> Self {
        Refusal { reason, id: None }
    }

    /// The same refusal with the id of the request.
    #[must_use]
    pub fn about(mut self, id: Option<&RequestId>) -> Self {
        self.id = id.cloned();
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match &self.reason {
            Reason::Origin { .. } | Reason::Host { .. } => StatusCode::FORBIDDEN,
            Reason::Auth(auth) => auth.status(),
            Reason::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Reason::NotAcceptable { .. } => StatusCode::NOT_ACCEPTABLE,
            Reason::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Reason::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Reason::BodyIncomplete
            | Reason::NotJson(_)
            | Reason::InvalidRequest(_)
            | Reason::InvalidParams(_)
            | Reason::HeaderMismatch(_)
            | Reason::MissingMeta(_)
            | Reason::UnsupportedVersion { .. }
            | Reason::MissingSession
            | Reason::StreamForgotten
            | Reason::StreamEnded
            | Reason::UnknownQuestion => StatusCode::BAD_REQUEST,
            Reason::UnknownSession => StatusCode::NOT_FOUND,
            Reason::TooMany(_) | Reason::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Reason::Overloaded(_) | Reason::ShuttingDown | Reason::StoreUnavailable | Reason::Upstream(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The value of `Allow`, if the status needs one.
    pub fn allow(&self) -> Option<&'static str> {
        match self.reason {
            Reason::Method { allow } => Some(allow),
            _ => None,
        }
    }

    /// The value of `WWW-Authenticate`, if the refusal has a challenge.
    pub fn www_authenticate(&self) -> Option<HeaderValue> {
        match &self.reason {
            Reason::Auth(auth) => auth.www_authenticate(),
            _ => None,
        }
    }

    /// Seconds after which a retry may succeed, if it may.
    pub fn retry_after(&self) -> Option<u32> {
        match &self.reason {
            Reason::Auth(auth) => auth.retry_after(),
            Reason::RateLimited { retry_after } => Some(*retry_after),
            Reason::TooMany(_) | Reason::Overloaded(_) | Reason::StoreUnavailable | Reason::Upstream(_) => Some(1),
            Reason::ShuttingDown => Some(2),
            _ => None,
        }
    }

    /// Every value of [`label`](Self::label).
    pub const LABELS: [&'static str; 31] = [
        "origin",
        "host",
        "authorization",
        "scope",
        "principal",
        "slowed",
        "keys_unavailable",
        "unauthenticated",
        "method",
        "accept",
        "content_type",
        "body_too_large",
        "headers_too_large",
        "body_incomplete",
        "not_json",
        "invalid_request",
        "invalid_params",
        "header_mismatch",
        "missing_meta",
        "version",
        "missing_session",
        "unknown_session",
        "stream_forgotten",
        "stream_ended",
        "too_many",
        "overloaded",
        "shutting_down",
        "store_unavailable",
        "upstream",
        "unknown_question",
        "rate_limited",
    ];

    /// The value that was refused, for the log. `None` if it could be a secret, an argument, or part of one (OPS-15).
    pub fn detail(&self) -> Option<Cow<'_, str>> {
        match &self.reason {
            Reason::Origin { origin: value, .. } | Reason::Host { host: value, .. } => Some(Cow::Borrowed(value)),
            Reason::Auth(auth) => Some(Cow::Borrowed(&auth.provider)),
            Reason::Method { allow: text } | Reason::NotAcceptable { needs: text } => Some(Cow::Borrowed(text)),
            Reason::BodyTooLarge { limit } => Some(Cow::Owned(limit.to_string())),
            Reason::UnsupportedVersion { requested, .. } => Some(Cow::Borrowed(requested)),
            Reason::TooMany(limit) | Reason::Overloaded(limit) => Some(Cow::Borrowed(limit)),
            _ => None,
        }
    }

    /// The reason in one word, for metrics and logs.
    pub fn label(&self) -> &'static str {
        match &self.reason {
            Reason::Origin { .. } => "origin",
            Reason::Host { .. } => "host",
            Reason::Auth(auth) => auth.label(),
            Reason::Method { .. } => "method",
            Reason::NotAcceptable { .. } => "accept",
            Reason::UnsupportedMediaType => "content_type",
            Reason::BodyTooLarge { .. } => "body_too_large",
            Reason::HeadersTooLarge => "headers_too_large",
            Reason::BodyIncomplete => "body_incomplete",
            Reason::NotJson(_) => "not_json",
            Reason::InvalidRequest(_) => "invalid_request",
            Reason::InvalidParams(_) => "invalid_params",
            Reason::HeaderMismatch(_) => "header_mismatch",
            Reason::MissingMeta(_) => "missing_meta",
            Reason::UnsupportedVersion { .. } => "version",
            Reason::MissingSession => "missing_session",
            Reason::UnknownSession => "unknown_session",
            Reason::StreamForgotten => "stream_forgotten",
            Reason::StreamEnded => "stream_ended",
            Reason::TooMany(_) => "too_many",
            Reason::RateLimited { .. } => "rate_limited",
            Reason::Overloaded(_) => "overloaded",
            Reason::ShuttingDown => "shutting_down",
            Reason::StoreUnavailable => "store_unavailable",
            Reason::Upstream(_) => "upstream",
            Reason::UnknownQuestion => "unknown_question",
        }
    }

    /// The JSON-RPC error in the body.
    pub fn error(&self) -> RpcError {
        fn invalid(message: impl Into<Cow<'static, str>>) -> RpcError {
            RpcError::invalid_request(message)
        }
        match &self.reason {
            Reason::Origin { origin, hint } => invalid(format!(
                "origin `{origin}` is not allowed; {hint} if pages at that origin may call this server"
            )),
            Reason::Host { host, hint } => invalid(format!(
                "host `{host}` is not allowed; {hint} if clients reach this server under that name"
            )),
            Reason::Auth(auth) => invalid(auth.text()),
            Reason::Method { allow } => invalid(format!("method not allowed; this endpoint takes {allow}")),
            Reason::NotAcceptable { needs } => invalid(format!("not acceptable: `Accept` must admit {needs}")),
            Reason::UnsupportedMediaType => invalid("unsupported media type: `Content-Type` must be application/json"),
            Reason::BodyTooLarge { limit } => invalid(format!("the body is larger than the limit of {limit} bytes")),
            Reason::HeadersTooLarge => invalid("the headers are larger than this server's limit"),
            Reason::BodyIncomplete => invalid("the body did not arrive whole"),
            Reason::NotJson(why) => RpcError::new(code::PARSE_ERROR, format!("parse error: {why}")),
            Reason::InvalidRequest(what) => invalid(format!("invalid request: {what}")),
            Reason::HeaderMismatch(what) => RpcError::new(code::HEADER_MISMATCH, what.clone()),
            Reason::InvalidParams(what) | Reason::MissingMeta(what) => RpcError::invalid_params(what.clone()),
            Reason::UnsupportedVersion { requested, served } => {
                // VER-07: a stateless request with a legacy revision gets only the stateless ones. Otherwise it would retry
                // the revision that was refused.
                let legacy_asked = requested
                    .parse::<crate::Version>()
                    .is_ok_and(|v| v.era() == Era::Legacy && served.serves_era(Era::Modern));
                let supported: Vec<_> = served
                    .newest_first()
                    .filter(|v| !legacy_asked || v.era() == Era::Modern)
                    .map(crate::Version::as_str)
                    .collect();
                RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version")
                    .with_data(json!({ "supported": supported, "requested": requested }))
            }
            Reason::MissingSession => invalid(
                "missing session: send the `Mcp-Session-Id` that the answer to `initialize` carried, or `initialize` first",
            ),
            Reason::UnknownSession => invalid("session not found: it has ended or expired; send a new `initialize`"),
            Reason::StreamForgotten => invalid(
                "this stream can no longer be resumed: its events are gone; send the request again if it is safe to",
            ),
            Reason::StreamEnded => invalid("this stream has ended, and nothing follows this event"),
            Reason::TooMany(what) => invalid(format!("too many {what}; try again later")),
            Reason::RateLimited { retry_after } => invalid(format!(
                "too many messages of this caller; try again in {retry_after} s"
            )),
            Reason::Overloaded(what) => invalid(format!("the server is full: too many {what}; try again later")),
            Reason::ShuttingDown => invalid("the server is shutting down; try again"),
            Reason::Upstream(what) => RpcError::internal(what.clone()),
            Reason::StoreUnavailable => RpcError::internal("the event store cannot be reached; try again"),
            Reason::UnknownQuestion => invalid("this answers no question that was asked in this session"),
        }
    }

    /// The body of the response.
    pub fn body(&self) -> Vec<u8> {
        error_message(self.id.as_ref(), &self.error())
    }
}

/// The HTTP status of a JSON-RPC error that answers a stateless request, if nothing was sent before it (HTTP-12, HTTP-13,
/// VER-11). In a session every such error has status 200 (HTTP-11).
pub fn stateless_status(error: &RpcError) -> StatusCode {
    match error.code {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        code::MISSING_CAPABILITY => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Refusal::new(reason)
    }
}

impl From<AuthRefusal> for Refusal {
    fn from(auth: AuthRefusal) -> Self {
        Refusal::new(Reason::Auth(Box::new(auth)))
    }
}

impl From<EnvelopeError> for Refusal {
    fn from(error: EnvelopeError) -> Self {
        match error {
            EnvelopeError::NotJson(why) => Refusal::new(Reason::NotJson(why)),
            EnvelopeError::Invalid { id, what } => Refusal {
                reason: Reason::InvalidRequest(what),
                id,
            },
            EnvelopeError::InvalidParams { id, what } => Refusal {
                reason: Reason::InvalidParams(what),
                id,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ver_06_unsupported_version_has_served_and_requested_versions() {
        let refusal = |requested: &str, served| {
            let reason = Reason::UnsupportedVersion {
                requested: requested.into(),
                served,
            };
            Refusal::new(reason).error().data.unwrap()
        };
        let both = refusal("2027-01-01", Revisions::BOTH);
        assert_eq!(both["requested"], "2027-01-01");
        assert_eq!(both["supported"][0], "2026-07-28");
        assert_eq!(both["supported"].as_array().unwrap().len(), 5);
        // VER-07
        let legacy = refusal("2025-11-25", Revisions::BOTH);
        assert_eq!(legacy["supported"], serde_json::json!(["2026-07-28"]));
        let legacy_only = refusal("2026-07-28", Revisions::LEGACY);
        assert_eq!(legacy_only["supported"][0], "2025-11-25");
    }

    #[test]
    fn http_13_only_some_errors_fix_the_status_of_a_stateless_answer() {
        for (code, status) in [(-32601, 404), (-32021, 400), (-32602, 200), (-32603, 200), (7, 200)] {
            assert_eq!(stateless_status(&RpcError::new(code, "x")).as_u16(), status, "{code}");
        }
    }

    /// OPS-05: an alert on a rate needs the zero of every label before the first refusal.
    #[test]
    fn ops_05_list_of_labels_is_complete() {
        let sources = [include_str!("refusal.rs"), include_str!("auth/outcome.rs")];
        let labels = sources.iter().flat_map(|source| {
            let body = source.split("fn label(&self) -> &'static str {").nth(1).unwrap();
            let body = body.split("\n    }\n").next().unwrap();
            body.split("=> \"").skip(1).map(|rest| rest.split('"').next().unwrap())
        });
        let mut labels: Vec<_> = labels.collect();
        let mut listed = Refusal::LABELS.to_vec();
        labels.sort_unstable();
        labels.dedup();
        listed.sort_unstable();
        assert_eq!(labels, listed);
    }

    /// RES-07, HTTP-11, T-04: 404 means that the session is gone, so no other reason may use it.
    #[test]
    fn http_11_only_an_unknown_session_is_404() {
        for (reason, status) in [
            (Reason::UnknownSession, 404),
            (Reason::StreamForgotten, 400),
            (Reason::StreamEnded, 400),
            (Reason::MissingSession, 400),
            (Reason::UnknownQuestion, 400),
            (Reason::StoreUnavailable, 503),
            (Reason::Upstream("it cannot be started".into()), 503),
        ] {
            assert_eq!(Refusal::new(reason).status().as_u16(), status);
        }
    }
}
