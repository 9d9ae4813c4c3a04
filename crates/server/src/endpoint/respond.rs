//! From decisions to HTTP responses.

use crate::call::exchange::Exchange;
use crate::call::response_future::CallResponse;
use crate::node::{Node, telemetry};
use crate::stream::body::{Body, Chunks};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use rethread_proto::gate::head::header::MCP_SESSION_ID;
use rethread_proto::jsonrpc::{RequestId, RpcError, error_message, write_result};
use rethread_proto::{Refusal, SessionId, Version, sse};

const RETHREAD_GAP: HeaderName = HeaderName::from_static("rethread-gap");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A JSON object.
pub(crate) fn json(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// A JSON object with a status of its own.
pub(crate) fn json_with(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = json(body);
    *response.status_mut() = status;
    response
}

/// The answer to a request that needed no handler.
pub(crate) fn result(id: &RequestId, result: &[u8]) -> Response<Body> {
    let mut body = Vec::with_capacity(result.len() + 64);
    write_result(&mut body, id, result);
    json(body.into())
}

/// A JSON-RPC error that is an answer like any other: status 200 (HTTP-11).
pub(crate) fn error(id: &RequestId, error: &RpcError) -> Response<Body> {
    json(error_message(Some(id), error).into())
}

/// A message was taken that needs no answer (HTTP-05).
pub(crate) fn accepted() -> Response<Body> {
    status(StatusCode::ACCEPTED)
}

/// Done, nothing to say.
pub(crate) fn no_content() -> Response<Body> {
    status(StatusCode::NO_CONTENT)
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A connection that reads a stream.
pub(crate) fn stream(chunks: Box<dyn Chunks>, version: Version, node: &Node) -> Response<Body> {
    events(Body::stream(chunks), version, node)
}

/// The response to a call.
pub(crate) fn answer(answer: CallResponse, exchange: &Exchange) -> Response<Body> {
    let (version, node) = (exchange.version, &*exchange.node);
    match answer {
        CallResponse::Json(json) => json_with(json.status, json.message),
        CallResponse::Events(bytes) => events(Body::events(bytes), version, node),
        CallResponse::Logged(reader) => stream(reader, version, node),
        CallResponse::Direct(body) => stream(body, version, node),
        CallResponse::Empty => events(Body::empty(), version, node),
    }
}

fn events(body: Body, version: Version, node: &Node) -> Response<Body> {
    let mut response = Response::new(body);
    sse::apply_stream_headers(response.headers_mut(), version, node.disables_proxy_buffering());
    response
}

/// The session's name, with the answer to `initialize` (SES-01).
pub(crate) fn with_session(mut response: Response<Body>, id: &SessionId) -> Response<Body> {
    let value = HeaderValue::from_str(id.as_str()).expect("a session id is visible ASCII");
    response.headers_mut().insert(MCP_SESSION_ID.clone(), value);
    response
}

/// Announces a gap to the client: events after its cursor were evicted, and `oldest` is the oldest retained one (D4).
pub(crate) fn with_gap(mut response: Response<Body>, oldest: Option<String>) -> Response<Body> {
    if let Some(value) = oldest.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(RETHREAD_GAP, value);
    }
    response
}

/// A forwarded request is for another node. Only nodes see this response.
pub(crate) fn misdirected() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response
}

/// The same error on each of several requests.
pub(crate) fn errors(ids: &[RequestId], error: &RpcError) -> Response<Body> {
    let errors: Vec<_> = ids.iter().map(|id| error_message(Some(id), error)).collect();
    let body = [b"[".as_slice(), &errors.join(&b","[..]), b"]"].concat();
    json(body.into())
}

/// In the extensions of a response that refuses a request: the reason in one word, as in the metric `rethread_refusals_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalLabel(pub &'static str);

/// The response that refuses a request.
pub(crate) fn refusal(refusal: &Refusal) -> Response<Body> {
    telemetry::refused(refusal);
    let mut response = json(refusal.body().into());
    *response.status_mut() = refusal.status();
    response.extensions_mut().insert(RefusalLabel(refusal.label()));
    let headers = response.headers_mut();
    if let Some(allow) = refusal.allow() {
        headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    if let Some(challenge) = refusal.www_authenticate() {
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(seconds) = refusal.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Answers a browser that asks first (HTTP-14). The origin has passed the gate.
pub(crate) fn preflight(requested: Option<&HeaderValue>, offers: &'static str) -> Response<Body> {
    let mut response = no_content();
    let headers = response.headers_mut();
    let mut allowed = String::from(
        "Content-Type, Accept, Authorization, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, Mcp-Method, Mcp-Name",
    );
    let requested = requested.and_then(|value| value.to_str().ok()).unwrap_or_default();
    for name in requested.split(',').map(str::trim) {
        if name.len() < 128 && name.to_ascii_lowercase().starts_with("mcp-param-") {
            allowed.push_str(", ");
            allowed.push_str(name);
        }
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(offers));
    if let Ok(value) = HeaderValue::try_from(allowed) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, value);
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Lets the page at an allowed origin read the answer (HTTP-14).
pub(crate) fn for_origin(mut response: Response<Body>, origin: Option<HeaderValue>) -> Response<Body> {
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate, Rethread-Gap"),
        );
    }
    response
}
