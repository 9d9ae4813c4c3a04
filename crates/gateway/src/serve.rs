//! `rethread serve`: from settings to a listening gateway, and its orderly end.

use crate::child::Guardian;
use crate::mount::{Mount, path_prefix};
use crate::settings::Settings;
use anyhow::Context as _;
use axum::body::Body;
use axum::serve::ListenerExt as _;
use http::{Request, Response, StatusCode, header};
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

/// How long a server that takes another's place waits for its store.
const HANDOVER: Duration = Duration::from_secs(10);

/// The gateway while it runs.
pub(crate) struct Gateway {
    settings: Settings,
    guardian: Guardian,
    /// By the path before `/mcp`.
    mounts: RwLock<BTreeMap<String, Mount>>,
    ready: AtomicBool,
}

impl Gateway {
    /// Starts every server once, and opens its store.
    pub(crate) async fn open(settings: Settings) -> anyhow::Result<Arc<Self>> {
        let guardian = Guardian::start().context("cannot start the guardian of the children")?;
        let mut mounts = BTreeMap::new();
        for server in &settings.servers {
            let mount = Mount::open(&settings, server, &guardian, Duration::ZERO).await?;
            mounts.insert(path_prefix(server), mount);
        }
        Ok(Arc::new(Gateway {
            settings,
            guardian,
            mounts: RwLock::new(mounts),
            ready: AtomicBool::new(true),
        }))
    }

    /// The servers, as they are mounted now.
    pub(crate) fn mounts(&self) -> Vec<Mount> {
        self.mounts.read().values().cloned().collect()
    }

    /// Serves until `stop` resolves, then drains.
    pub(crate) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let (gateway, quiet) = (Arc::clone(&self), Arc::new(Notify::new()));
        let routes = tower::service_fn(move |request| {
            let gateway = Arc::clone(&gateway);
            async move { Ok::<_, Infallible>(gateway.answer(request).await) }
        });
        let app = axum::Router::new().fallback_service(routes);
        let listener = listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true); // a slower event is better than none
        });
        let closing = Arc::clone(&quiet);
        let serving = axum::serve(listener, app).with_graceful_shutdown(async move { closing.notified().await });
        let mut serving = tokio::spawn(async move { serving.await });
        tokio::select! {
            ended = &mut serving => return Ok(ended??),
            () = stop => {}
        }
        self.ready.store(false, Ordering::Relaxed);
        tracing::info!("draining: running calls may finish");
        let mut closing = JoinSet::new();
        for mount in self.mounts() {
            let deadline = self.settings.drain;
            closing.spawn(async move { mount.close(deadline).await });
        }
        closing.join_all().await;
        quiet.notify_one();
        let _ = tokio::time::timeout(LAST_WORDS, serving).await; // who still listens by then is cut off
        Ok(())
    }

    /// Takes up a new configuration: servers that did not change go on undisturbed, sessions and all.
    pub(crate) async fn reload(&self, settings: &Settings) -> anyhow::Result<()> {
        let wanted: BTreeMap<String, _> = settings.servers.iter().map(|s| (path_prefix(s), s)).collect();
        let unchanged = |prefix: &String, mount: &Mount| wanted.get(prefix).is_some_and(|s| **s == *mount.server);
        let leaving: Vec<Mount> = {
            let mut mounts = self.mounts.write();
            let gone: Vec<String> = mounts
                .iter()
                .filter(|(p, m)| !unchanged(p, m))
                .map(|(p, _)| p.clone())
                .collect();
            gone.iter().filter_map(|prefix| mounts.remove(prefix)).collect()
        };
        for mount in leaving {
            tracing::info!(server = mount.server.name, "server leaves");
            // Its store must be free before its successor opens it.
            mount.close(self.settings.drain).await;
        }
        for (prefix, server) in wanted {
            if self.mounts.read().contains_key(&prefix) {
                continue;
            }
            let mount = Mount::open(settings, server, &self.guardian, HANDOVER).await?;
            tracing::info!(server = server.name, eras = mount.found.eras(), "server joins");
            self.mounts.write().insert(prefix, mount);
        }
        Ok(())
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        match path {
            "/healthz" => return text(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Relaxed) => return text(StatusCode::OK, "ready\n"),
            "/readyz" => return text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            _ => {}
        }
        let (prefix, endpoint) = path.rsplit_once('/').unwrap_or_default();
        let mount = self.mounts.read().get(prefix).cloned();
        match (mount, endpoint) {
            (Some(mut mount), "mcp") => into_body(mount.mcp.call(request).await),
            (Some(mut mount), "sse" | "messages") => into_body(mount.sse.call(request).await),
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

fn into_body(answer: Result<Response<rethread::Body>, Infallible>) -> Response<Body> {
    match answer {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

fn text(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
