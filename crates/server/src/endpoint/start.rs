//! The start of a server: its tasks, and the entry of requests that other nodes forward.

use super::forward::ServeForwarded;
use super::read_body::WholeBody;
use super::server::Server;
use super::{background, cluster, http_sse};
use crate::stream::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use rethread_proto::cluster::mail::ForwardEndpoint;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Server {
    /// Starts the node's tasks, with the first request: before that there may be no runtime to start them on.
    pub(crate) fn start_background(self: &Arc<Self>) {
        if !self.background.swap(true, Ordering::Relaxed) {
            background::start(self);
            cluster::start(self);
        }
    }
}

impl ServeForwarded for Server {
    async fn serve_forwarded(self: Arc<Self>, request: Request<Bytes>, endpoint: ForwardEndpoint) -> Response<Body> {
        match endpoint {
            ForwardEndpoint::Mcp => {
                let request = request.map(WholeBody::new);
                let served = Arc::clone(&self).serve(request, &self.forwarded_policy, None).await;
                served.unwrap_or_else(|never| match never {})
            }
            ForwardEndpoint::Messages => http_sse::serve_forwarded(&self, request).await,
        }
    }
}
