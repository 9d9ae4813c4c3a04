//! The health paths, the same on every listener.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;

/// The facts that decide whether new work should be sent here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) is_draining: bool,
    /// Callers with the tokens of some issuer cannot be served.
    pub(crate) lacks_keys: bool,
    pub(crate) store_failed: bool,
}

impl Health {
    /// The state in one word, for people and the console.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Health { is_draining: true, .. } => "draining",
            Health { lacks_keys: true, .. } => "keys",
            Health { store_failed: true, .. } => "degraded",
            _ => "ready",
        }
    }

    /// The status and the body of `/readyz` (OPS-02). A node without its store still serves stateless requests.
    fn readiness(self) -> (StatusCode, String) {
        let mut text = String::new();
        if self.is_draining {
            text.push_str("draining\n");
        }
        if self.lacks_keys {
            text.push_str("keys\n");
        }
        if !text.is_empty() {
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        text.push_str("ready\n");
        if self.store_failed {
            text.push_str("degraded: store\n");
        }
        (StatusCode::OK, text)
    }
}

/// The response to a health path. `None` for any other path. No cache may store it (OPS-01).
pub(crate) fn respond(method: &Method, path: &str, health: impl FnOnce() -> Health) -> Option<Response<Full<Bytes>>> {
    let (status, body) = match path {
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => health().readiness(),
        _ => return None,
    };
    if !is_read(method) {
        return Some(method_not_allowed());
    }
    let mut response = text(status, body);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Some(response)
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

pub(crate) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The response to another method than GET and HEAD.
pub(crate) fn method_not_allowed() -> Response<Full<Bytes>> {
    let message = "method not allowed; this path takes GET and HEAD\n";
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, message.to_owned());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// A response in plain text.
pub(crate) fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_02_readiness_has_one_word_per_line() {
        let health = |is_draining, lacks_keys, store_failed| Health {
            is_draining,
            lacks_keys,
            store_failed,
        };
        for (health, status, body) in [
            (health(false, false, false), 200, "ready\n"),
            (health(true, false, false), 503, "draining\n"),
            (health(false, true, false), 503, "keys\n"),
            (health(true, true, true), 503, "draining\nkeys\n"),
            (health(false, false, true), 200, "ready\ndegraded: store\n"),
        ] {
            let (found, text) = health.readiness();
            assert_eq!((found.as_u16(), text.as_str()), (status, body), "{health:?}");
        }
    }
}
