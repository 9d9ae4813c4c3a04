//! The listener for operators: health, the admin API, its feed, and the console page.
//!
//! It has its own token, which gives access to nothing else (OPS-07), and answers nobody from a foreign host or origin (OPS-08).

mod access;
mod action;
mod api;
mod feed;
mod page;
mod refusals;
mod snapshot;
mod token;

pub(crate) use refusals::{RefusalRow, Refusals};
pub(crate) use token::{AdminToken, read as read_token};

use crate::accept::{self, Listener, PeerLimiter};
use crate::gateway::Gateway;
use crate::task::{self, AbortOnDrop};
use crate::tls::ListenerTls;
use bytes::Bytes;
use feed::{Feed, FeedBody};
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use parking_lot::RwLock;
use rethread::Wall;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Open connections of one operator's address. Beyond: 429, and the connection closes.
const MAX_CONNECTIONS_PER_PEER: usize = 64;

type Body = Either<Full<Bytes>, FeedBody>;

/// The admin listener while it runs.
pub(crate) struct Admin {
    gateway: Arc<Gateway>,
    /// The address of the listener.
    bound: SocketAddr,
    token: RwLock<AdminToken>,
    feed: Arc<Feed>,
    started: Wall,
}

impl Admin {
    pub(crate) fn new(gateway: Arc<Gateway>, bound: SocketAddr, token: AdminToken) -> Arc<Self> {
        Arc::new(Admin {
            feed: Feed::new(&gateway),
            gateway,
            bound,
            token: RwLock::new(token),
            started: snapshot::now(),
        })
    }

    /// The configuration was read again: the token may be another one. A file that cannot be read changes nothing.
    pub(crate) fn reload(&self) {
        let Some(settings) = self.gateway.settings().admin.clone() else {
            return;
        };
        match AdminToken::open(&settings.token_file) {
            Ok(token) => *self.token.write() = token,
            Err(error) => tracing::error!(error = error.message, "admin token not changed"),
        }
    }

    /// Serves until the task is aborted.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        // The certificate names the public host, and no browser would accept it for loopback.
        let tls = match self.bound.ip().is_loopback() {
            true => ListenerTls::plain(),
            false => Arc::clone(&self.gateway.tls),
        };
        let feed = task::spawn(Arc::clone(&self.feed).run());
        let _ends_with_its_listener = AbortOnDrop::new(feed);
        let handler = move |request: Request<Incoming>| {
            let admin = Arc::clone(&self);
            async move { admin.respond(&request).await }
        };
        let never = std::future::pending;
        let peers = PeerLimiter::new(MAX_CONNECTIONS_PER_PEER, Vec::new());
        accept::serve(Listener::new(listener, tls, peers), handler, never(), never()).await;
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let settings = self.gateway.settings();
        let Some(admin) = &settings.admin else {
            return api::text(http::StatusCode::NOT_FOUND, "nothing here\n").map(Either::Left);
        };
        let rules = access::AccessRules {
            bound: self.bound,
            public_url: admin.public_url.as_deref(),
        };
        if let Err(refusal) = rules.admit(request.headers()) {
            return api::forbidden(refusal).map(Either::Left);
        }
        if let Some(response) = page::respond(request.method(), request.uri().path()) {
            return response.map(Either::Left);
        }
        if let Some(response) = self.gateway.health_response(request.method(), request.uri().path()) {
            return response.map(Either::Left);
        }
        if !self.token.read().admits(request.headers()) {
            return api::unauthorized().map(Either::Left);
        }
        self.respond_to_operator(request, admin).await
    }
}
