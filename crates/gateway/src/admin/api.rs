//! The paths of the admin API, behind the token.

use super::access::AccessRefusal;
use super::action::{Action, ActionOutcome};
use super::snapshot::{ChildDetail, SnapshotQuery};
use super::{Admin, Body};
use crate::auth::PeerAddress;
use crate::metrics_listener::metrics_response;
use crate::settings::AdminSettings;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::net::IpAddr;

impl Admin {
    /// The response to a request with the right token.
    pub(super) async fn respond_to_operator(
        &self,
        request: &Request<Incoming>,
        settings: &AdminSettings,
    ) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        if let Some(action) = Action::of_path(path) {
            let peer = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
            return self.act(method, (action, peer), settings).await.map(Either::Left);
        }
        let child = path.strip_prefix("/api/v1/children/").and_then(|pid| pid.parse().ok());
        let is_known = matches!(path, "/api/v1/snapshot" | "/api/v1/feed" | "/metrics") || child.is_some();
        if is_known && !matches!(*method, Method::GET | Method::HEAD) {
            return method_not_allowed("GET, HEAD").map(Either::Left);
        }
        match path {
            "/api/v1/snapshot" => {
                let query = SnapshotQuery::parse(request.uri().query().unwrap_or_default());
                let response = match query {
                    Ok(query) => match self.snapshot(&query).await {
                        Ok(snapshot) => with_actions(json(snapshot), settings.actions),
                        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
                    },
                    Err(problem) => text(StatusCode::BAD_REQUEST, &format!("{problem}\n")),
                };
                response.map(Either::Left)
            }
            "/metrics" => match &self.gateway.metrics {
                Some(metrics) => metrics_response(metrics, &self.gateway).map(Either::Left),
                None => text(StatusCode::NOT_FOUND, "nothing here\n").map(Either::Left),
            },
            "/api/v1/feed" if *method == Method::HEAD => event_stream(Either::Left(Full::default())),
            "/api/v1/feed" => match self.feed.open() {
                Some(body) => event_stream(Either::Right(body)),
                None => text(StatusCode::SERVICE_UNAVAILABLE, "too many readers of the feed\n").map(Either::Left),
            },
            _ => self.child(child).map(Either::Left),
        }
    }

    fn child(&self, pid: Option<u32>) -> Response<Full<Bytes>> {
        let table = &self.gateway.guardian.table;
        let facts = pid.and_then(|pid| table.get(pid));
        let detail = facts.map(|facts| serde_json::to_vec(&ChildDetail::new(table, facts)));
        match detail {
            Some(Ok(detail)) => json(detail),
            _ => text(StatusCode::NOT_FOUND, "nothing here\n"),
        }
    }

    async fn act(
        &self,
        method: &Method,
        (action, peer): (Action, Option<IpAddr>),
        settings: &AdminSettings,
    ) -> Response<Full<Bytes>> {
        if *method != Method::POST {
            return method_not_allowed("POST");
        }
        if !settings.actions {
            action.refuse(&self.gateway, peer);
            return text(
                StatusCode::FORBIDDEN,
                "actions are off; `actions = true` below [admin] turns them on\n",
            );
        }
        match action.perform(&self.gateway, peer).await {
            ActionOutcome::Done => text(StatusCode::OK, "done\n"),
            ActionOutcome::Begun => text(StatusCode::ACCEPTED, "begun\n"),
            ActionOutcome::NotFound | ActionOutcome::Refused => {
                text(StatusCode::NOT_FOUND, "there is no such session or child\n")
            }
        }
    }
}

/// 401 for every path without the right token, whether it exists or not.
pub(super) fn unauthorized() -> Response<Full<Bytes>> {
    let mut response = text(
        StatusCode::UNAUTHORIZED,
        "the admin API needs its token; `rethread console` prints it\n",
    );
    let challenge = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// 403 without a challenge: no token would help.
pub(super) fn forbidden(refusal: AccessRefusal) -> Response<Full<Bytes>> {
    let reason = match refusal {
        AccessRefusal::Host => "this host is not the admin listener's own; `public_url` below [admin] adds one\n",
        AccessRefusal::Origin => "pages of other sites may not use the admin API\n",
    };
    text(StatusCode::FORBIDDEN, reason)
}

fn method_not_allowed(allow: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("method not allowed; this path takes {allow}\n"),
    );
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, "");
    *response.body_mut() = Full::from(body);
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Whether the operator may act, for the console page.
fn with_actions(mut response: Response<Full<Bytes>>, actions: bool) -> Response<Full<Bytes>> {
    let value = HeaderValue::from_static(if actions { "on" } else { "off" });
    response.headers_mut().insert("rethread-actions", value);
    response
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE.as_str(), "text/event-stream"),
        (header::CACHE_CONTROL.as_str(), "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS.as_str(), "nosniff"),
        ("x-accel-buffering", "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A response that no cache stores and no browser takes for something else.
pub(super) fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_owned()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
