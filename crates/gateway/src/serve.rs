//! `rethread serve`: from settings to a listening gateway, and its orderly end. `reload.rs` changes it while it runs.

use crate::accept::{self, Peers};
use crate::child::Guardian;
use crate::mount::{Mount, path_prefix};
use crate::settings::Settings;
use crate::stores::Stores;
use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower::Service as _;

/// What open connections get to be written out when everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Body = Either<rethread::Body, Full<Bytes>>;

/// The gateway while it runs.
pub(crate) struct Gateway {
    /// As they are in force now.
    pub(crate) settings: RwLock<Arc<Settings>>,
    pub(crate) guardian: Guardian,
    pub(crate) stores: Stores,
    pub(crate) peers: Arc<Peers>,
    /// By the path before `/mcp`. One that is being closed stays until it is: it answers 503, not 404.
    pub(crate) mounts: RwLock<BTreeMap<String, Arc<Mount>>>,
    ready: AtomicBool,
}

impl Gateway {
    /// Starts every server once, and opens its store.
    pub(crate) async fn open(settings: Settings) -> anyhow::Result<Arc<Self>> {
        let guardian = Guardian::start().context("cannot start the guardian of the children")?;
        let stores = Stores::default();
        let mut mounts = BTreeMap::new();
        for server in &settings.servers {
            let mount = Mount::open(&settings, server, &guardian, &stores, Duration::ZERO).await?;
            mounts.insert(path_prefix(server), Arc::new(mount));
        }
        Ok(Arc::new(Gateway {
            peers: Peers::new(settings.max_connections_per_peer),
            settings: RwLock::new(Arc::new(settings)),
            guardian,
            stores,
            mounts: RwLock::new(mounts),
            ready: AtomicBool::new(true),
        }))
    }

    /// The servers, as they are mounted now.
    pub(crate) fn mounts(&self) -> Vec<Arc<Mount>> {
        self.mounts.read().values().cloned().collect()
    }

    /// The settings that are in force now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Serves until `stop` resolves, then drains.
    pub(crate) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let gateway = Arc::clone(&self);
        let answer = move |request| {
            let gateway = Arc::clone(&gateway);
            async move { gateway.answer(request).await }
        };
        let quiet = Arc::new(Notify::new());
        let closing = Arc::clone(&quiet);
        let closed = async move { closing.notified().await };
        let peers = Arc::clone(&self.peers);
        let serving = tokio::spawn(accept::serve(listener, peers, answer, closed, LAST_WORDS));
        stop.await;
        self.ready.store(false, Ordering::Relaxed);
        tracing::info!("draining: running calls may finish");
        let mut closing = JoinSet::new();
        for mount in self.mounts() {
            let deadline = self.settings().drain;
            closing.spawn(async move { mount.close(deadline).await });
        }
        closing.join_all().await;
        quiet.notify_one();
        Ok(serving.await?)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        match path {
            "/healthz" => return health(request.method(), StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Relaxed) => {
                return health(request.method(), StatusCode::OK, "ready\n");
            }
            "/readyz" => return health(request.method(), StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            _ => {}
        }
        let (prefix, endpoint) = path.rsplit_once('/').unwrap_or_default();
        let mount = self.mounts.read().get(prefix).cloned();
        match (mount, endpoint) {
            (Some(mount), "mcp") => into_body(mount.mcp.clone().call(request).await),
            (Some(mount), "sse" | "messages") => into_body(mount.sse.clone().call(request).await),
            _ => self.not_found(),
        }
    }

    /// Says where to look instead.
    fn not_found(&self) -> Response<Body> {
        let mounts = self.mounts.read();
        let places: Vec<String> = mounts.keys().map(|prefix| format!("{prefix}/mcp")).collect();
        text(
            StatusCode::NOT_FOUND,
            &format!("nothing here; MCP is at {}\n", places.join(", ")),
        )
    }
}

/// How the gateway is, as of now: an answer that nobody may keep.
fn health(method: &Method, status: StatusCode, body: &str) -> Response<Body> {
    let asks = matches!(*method, Method::GET | Method::HEAD);
    let mut response = if asks {
        text(status, body)
    } else {
        text(
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed; this path takes GET and HEAD\n",
        )
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !asks {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn into_body(answer: Result<Response<rethread::Body>, Infallible>) -> Response<Body> {
    match answer {
        Ok(response) => response.map(Either::Left),
        Err(never) => match never {},
    }
}

fn text(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::from(body.to_owned())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
