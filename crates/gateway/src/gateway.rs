//! The running gateway: its mounts, its routes and its shutdown. `reload.rs` changes it while it runs.

use crate::accept::{self, Listener, PeerLimiter};
use crate::admin::{RefusalRow, Refusals};
use crate::audit::AuditLog;
use crate::auth::metadata::MetadataDocuments;
use crate::auth::{self, ProviderKeys, Providers};
use crate::child::Guardian;
use crate::config::Problems;
use crate::health::{self, Health};
use crate::landing_page;
use crate::metrics::Metrics;
use crate::mount::{Front, Mount, ProbedServer, path_prefix};
use crate::settings::Settings;
use crate::store_registry::StoreRegistry;
use crate::tape::{Tape, TapedBody};
use crate::task::{self, AbortOnDrop};
use crate::tls::ListenerTls;
use crate::trace::{HeaderContext, SpanContext, Tracer};
use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use parking_lot::RwLock;
use rethread::{RefusalLabel, SessionId, Tag};
use rethread_auth::STATIC_PROVIDER;
use rethread_proto::gate;
use rethread_proto::gate::head::header::MCP_SESSION_ID;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower_service::Service as _;

/// How long open connections may take to flush after all servers are closed. Beyond: they are cut.
const CONNECTION_FLUSH_GRACE: Duration = Duration::from_secs(1);

type PlainBody = Either<rethread::Body, Full<Bytes>>;
type Body = TapedBody<PlainBody>;

/// The parts that record the work of the gateway. Each part is off unless the operator asks for it.
#[derive(Clone, Default)]
pub(crate) struct Recorders {
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) tape: Option<Arc<Tape>>,
    /// The recorder, if a listener shows it.
    pub(crate) metrics: Option<Metrics>,
}

/// The gateway while it runs.
pub(crate) struct Gateway {
    /// The settings in force.
    pub(crate) settings: RwLock<Arc<Settings>>,
    /// The providers of identities. `None`: everybody may call.
    pub(crate) providers: RwLock<Option<Arc<Providers>>>,
    pub(crate) metadata: RwLock<Arc<MetadataDocuments>>,
    /// The address of the listener.
    pub(crate) bound: SocketAddr,
    pub(crate) guardian: Guardian,
    pub(crate) stores: StoreRegistry,
    pub(crate) peers: Arc<PeerLimiter>,
    pub(crate) tls: Arc<ListenerTls>,
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) tape: Option<Arc<Tape>>,
    /// By path prefix. A mount stays while it closes: it answers 503, not 404.
    pub(crate) mounts: RwLock<BTreeMap<String, Arc<Mount>>>,
    ready: AtomicBool,
    /// Whether there is an admin listener.
    has_admin: bool,
    /// The requests of operators.
    pub(crate) operator: OperatorRequests,
    /// The last refusals, for operators.
    pub(crate) refusals: Arc<Refusals>,
}

/// Requests of operators that take their time.
#[derive(Default)]
pub(crate) struct OperatorRequests {
    /// Stop, as after SIGTERM.
    pub(crate) drain: Notify,
    /// Read the configuration again, as after SIGHUP.
    pub(crate) reload: Notify,
}

impl Gateway {
    /// Opens all servers of `settings`.
    pub(crate) async fn open(settings: Settings, bound: SocketAddr, recorders: Recorders) -> anyhow::Result<Arc<Self>> {
        let Recorders {
            audit,
            tracer,
            tape,
            metrics,
        } = recorders;
        let providers = settings
            .auth
            .as_ref()
            .map(|auth| Providers::open(&settings, auth, None));
        let providers = providers.transpose();
        let providers = providers.map_err(|problem| Problems(vec![problem]))?;
        let tls = ListenerTls::open(settings.tls.as_ref()).map_err(|problem| Problems(vec![problem]))?;
        let guardian = Guardian::start().context("cannot start the guardian of the children")?;
        let stores = StoreRegistry::new(&settings.store).await?;
        let mut mounts = BTreeMap::new();
        let front = Front {
            settings: &settings,
            bound,
            providers: providers.as_ref(),
            audit: audit.as_ref(),
            tracer: tracer.as_ref(),
        };
        name_providers(&settings, audit.as_deref());
        for probed in ProbedServer::probe_all(&settings.servers, &settings.store, &guardian).await? {
            let prefix = path_prefix(probed.settings());
            let mount = Mount::serve(&front, probed, &stores, Duration::ZERO).await?;
            mounts.insert(prefix, Arc::new(mount));
        }
        for mount in mounts.values() {
            mount.join(&settings).await?;
        }
        Ok(Arc::new(Gateway {
            peers: PeerLimiter::new(settings.max_connections_per_peer, settings.trusted_proxies.clone()),
            audit,
            tracer,
            tape,
            metrics,
            metadata: RwLock::new(Arc::new(auth::documents(&settings, bound))),
            has_admin: settings.admin.is_some(),
            settings: RwLock::new(Arc::new(settings)),
            providers: RwLock::new(providers),
            bound,
            guardian,
            stores,
            tls,
            mounts: RwLock::new(mounts),
            ready: AtomicBool::new(true),
            operator: OperatorRequests::default(),
            refusals: Arc::default(),
        }))
    }

    pub(crate) fn mounts(&self) -> Vec<Arc<Mount>> {
        self.mounts.read().values().cloned().collect()
    }

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
        let handler = move |request| {
            let gateway = Arc::clone(&gateway);
            async move { gateway.respond(request).await }
        };
        let (drained, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let until = |event: &Arc<Notify>| {
            let event = Arc::clone(event);
            async move { event.notified().await }
        };
        let peers = Arc::clone(&self.peers);
        let sockets = Listener::new(listener, Arc::clone(&self.tls), peers);
        let accepting = accept::serve(sockets, handler, until(&drained), until(&answered));
        let mut accepting = task::spawn(accepting);
        let tls = Arc::clone(&self.tls);
        let _watching = AbortOnDrop::new(task::spawn(async move { tls.watch().await }));
        tokio::select! {
            () = stop => {}
            failure = self.stores.replaced() => return Err(failure.into()), // the guardian ends the children
        }
        self.ready.store(false, Ordering::Relaxed);
        let drain = self.settings().drain;
        let deadline = Instant::now() + drain;
        tracing::info!(?drain, "draining");
        self.for_each_mount(move |mount| async move {
            mount.drain(drain).await;
            mount.stop_children().await;
        })
        .await;
        drained.notify_one();
        tokio::select! {
            accepted = &mut accepting => accepted?,
            () = self.answer_last_requests(deadline) => {
                answered.notify_one();
                accepting.await?;
            }
        }
        // Last: a member passes on the requests that still reach it.
        self.for_each_mount(|mount| async move { mount.leave().await }).await;
        Ok(())
    }

    /// Waits for requests that arrived while the listener was open. Other gateways serve them.
    async fn answer_last_requests(&self, deadline: Instant) {
        tokio::time::sleep(accept::FIRST_REQUEST_GRACE).await;
        self.for_each_mount(move |mount| async move {
            let left = deadline.saturating_duration_since(Instant::now());
            mount.finish_forwards(left).await;
        })
        .await;
        tokio::time::sleep(CONNECTION_FLUSH_GRACE).await;
    }

    /// Runs `work` for all mounts at the same time.
    async fn for_each_mount<Fut>(&self, work: impl Fn(Arc<Mount>) -> Fut)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let running: JoinSet<()> = self.mounts().into_iter().map(work).collect();
        running.join_all().await;
    }

    async fn respond(&self, mut request: Request<Incoming>) -> Response<Body> {
        if self.audit.is_some()
            && let Some(client) = auth::forwarded_address(&request, &self.settings().trusted_proxies)
        {
            request.extensions_mut().insert(client);
        }
        if self.tracer.is_some()
            && let Some(context) = header_context(request.headers())
        {
            request.extensions_mut().insert(context);
        }
        let (number, recorder) = match &self.tape {
            Some(tape) => {
                let (number, recorder) = tape.request(&request);
                (number, Some(recorder))
            }
            None => (0, None),
        };
        let request = request.map(|body| TapedBody::new(body, recorder));
        let response = self.route(request).await;
        let recorder = self.tape.as_ref().map(|tape| tape.response(number, &response));
        let mut response = response.map(|body| TapedBody::new(body, recorder));
        if !self.ready.load(Ordering::Relaxed) {
            // A client that reuses the connection could send a request while it is closed.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    async fn route(&self, request: Request<TapedBody<Incoming>>) -> Response<PlainBody> {
        let path = request.uri().path();
        if let Some(response) = self.health_response(request.method(), path) {
            return response.map(Either::Right);
        }
        if path.starts_with(auth::metadata::WELL_KNOWN) {
            let documents = Arc::clone(&self.metadata.read());
            if let Some(response) = documents.respond(request.method(), path) {
                return response.map(Either::Right);
            }
        }
        let (prefix, endpoint) = path.rsplit_once('/').unwrap_or_default();
        let mount = self.mounts.read().get(prefix).cloned();
        // `/mcp` is a guess of a person even if each server has a path of its own.
        let has_page = path == "/" || path == "/mcp" || (mount.is_some() && endpoint == "mcp");
        // The page names the servers, and nobody may know them without a token (AUTH-03).
        let is_open = self.providers.read().is_none();
        if has_page
            && is_open
            && gate::is_page_request(request.method(), request.headers())
            && let Some(page) = landing_page::respond(&self.settings(), request.headers())
        {
            return page.map(Either::Right);
        }
        match (mount, endpoint) {
            (Some(mount), "mcp") => {
                // Only operators need it, and only for a refusal.
                let session = request
                    .headers()
                    .get(&MCP_SESSION_ID)
                    .filter(|_| self.has_admin)
                    .cloned();
                let response = into_body(mount.mcp.clone().call(request).await);
                self.note_refusal(&mount, &response, session.as_ref());
                response
            }
            (Some(mount), "sse" | "messages") => {
                let response = into_body(mount.sse.clone().call(request).await);
                self.note_refusal(&mount, &response, None);
                response
            }
            _ if !is_open => text_response(StatusCode::NOT_FOUND, "nothing here\n"),
            _ => self.not_found(),
        }
    }

    /// Keeps a refusal for operators.
    fn note_refusal(&self, mount: &Mount, response: &Response<PlainBody>, session: Option<&HeaderValue>) {
        let Some(RefusalLabel(reason)) = response.extensions().get().filter(|_| self.has_admin) else {
            return;
        };
        let session = session.and_then(|id| SessionId::parse(id.to_str().ok()?));
        let (server, status) = (mount.server.name.as_str().into(), response.status().as_u16());
        let tag = session.map(|id| Tag::of_session(&id));
        self.refusals.record(RefusalRow::new(server, reason, status, tag));
    }

    /// The response to a health path, on every listener. `None` for any other path.
    pub(crate) fn health_response(&self, method: &Method, path: &str) -> Option<Response<Full<Bytes>>> {
        health::respond(method, path, || self.health())
    }

    /// The state in one word, for operators.
    pub(crate) fn state_word(&self) -> &'static str {
        self.health().word()
    }

    /// The keys of all providers, for operators.
    pub(crate) fn provider_keys(&self) -> Vec<ProviderKeys> {
        let providers = self.providers.read().clone();
        providers.map(|providers| providers.keys()).unwrap_or_default()
    }

    /// The state that monitors ask for.
    pub(crate) fn health(&self) -> Health {
        Health {
            is_draining: !self.ready.load(Ordering::Relaxed),
            lacks_keys: !self.has_keys(),
            store_failed: self.mounts.read().values().any(|mount| !mount.mcp.stats().store_up),
        }
    }

    /// Sets the gauges of the keys of each issuer to the values of this moment.
    pub(crate) fn record_key_gauges(&self) {
        if let Some(providers) = &*self.providers.read() {
            providers.record_gauges();
        }
    }

    /// Whether callers with the tokens of every issuer can be served.
    fn has_keys(&self) -> bool {
        self.providers
            .read()
            .as_ref()
            .is_none_or(|providers| providers.has_keys())
    }

    /// 404 with the paths that exist.
    fn not_found(&self) -> Response<PlainBody> {
        let mounts = self.mounts.read();
        let paths: Vec<String> = mounts.keys().map(|prefix| format!("{prefix}/mcp")).collect();
        text_response(
            StatusCode::NOT_FOUND,
            &format!("nothing here; MCP is at {}\n", paths.join(", ")),
        )
    }
}

/// The names of the providers of `settings` in the audit log.
pub(crate) fn name_providers(settings: &Settings, audit: Option<&AuditLog>) {
    let (Some(auth), Some(audit)) = (&settings.auth, audit) else {
        return;
    };
    let issuers = auth
        .jwt
        .iter()
        .map(|jwt| (jwt.rules.issuer.to_string(), Arc::clone(&jwt.rules.name)));
    let tokens = auth
        .tokens
        .iter()
        .map(|_| (STATIC_PROVIDER.to_owned(), STATIC_PROVIDER.into()));
    audit.set_providers(issuers.chain(tokens).collect());
}

/// The context of the HTTP request. The span of a call links to it: its parent is in the message.
fn header_context(headers: &HeaderMap) -> Option<HeaderContext> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    SpanContext::parse(text).map(HeaderContext)
}

fn into_body(response: Result<Response<rethread::Body>, Infallible>) -> Response<PlainBody> {
    match response {
        Ok(response) => response.map(Either::Left),
        Err(never) => match never {},
    }
}

fn text_response(status: StatusCode, body: &str) -> Response<PlainBody> {
    health::text(status, body.to_owned()).map(Either::Right)
}
