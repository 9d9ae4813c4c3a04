//! The listener for monitoring: `/metrics`, `/healthz`, `/readyz`, and nothing else.

use crate::accept::{self, Listener, PeerLimiter};
use crate::gateway::Gateway;
use crate::health;
use crate::metrics::{self, Metrics};
use crate::tls::ListenerTls;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Open connections of one address. A monitor needs one or two.
const MAX_CONNECTIONS_PER_PEER: usize = 64;

/// Serves until the process ends, also while the gateway drains: a monitor must see that.
pub(crate) async fn serve(listener: TcpListener, metrics: Metrics, gateway: Arc<Gateway>) {
    let handler = move |request: Request<Incoming>| {
        let (metrics, gateway) = (metrics.clone(), Arc::clone(&gateway));
        async move { respond(&request, &metrics, &gateway) }
    };
    let never = std::future::pending;
    let peers = PeerLimiter::new(MAX_CONNECTIONS_PER_PEER, Vec::new());
    let sockets = Listener::new(listener, ListenerTls::plain(), peers);
    accept::serve(sockets, handler, never(), never()).await;
}

fn respond(request: &Request<Incoming>, metrics: &Metrics, gateway: &Gateway) -> Response<Full<Bytes>> {
    let (method, path) = (request.method(), request.uri().path());
    if let Some(response) = health::respond(method, path, || gateway.health()) {
        return response;
    }
    match path {
        "/metrics" if health::is_read(method) => metrics_response(metrics, gateway),
        "/metrics" => health::method_not_allowed(),
        _ => health::text(StatusCode::NOT_FOUND, "nothing here\n".to_owned()),
    }
}

/// The response of `/metrics`, on any listener.
pub(crate) fn metrics_response(metrics: &Metrics, gateway: &Gateway) -> Response<Full<Bytes>> {
    let mut response = health::text(StatusCode::OK, metrics.render(gateway));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
