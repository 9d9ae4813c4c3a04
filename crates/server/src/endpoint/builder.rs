//! Configuring an endpoint. Everything has a default, and the defaults are safe.

use crate::call::handler::Handler;
use crate::endpoint::authenticate::Authenticate;
use crate::endpoint::server::Server;
use crate::endpoint::service::McpService;
use crate::node::limits::{Limits, Timing};
use crate::node::observe::Observe;
use crate::node::restore_policy::Restore;
use crate::node::telemetry::ServerMetrics;
use crate::node::unused_sessions::UnusedSessions;
use crate::node::{Node, NodeConfig, random};
use crate::session::notifier::Notifier;
use crate::session::registry::Registry;
use rethread_proto::event_id::{EventIdFormat, Plain};
use rethread_proto::exchange::SseUpgradeDelay;
use rethread_proto::gate::{AccessHints, BadEntry, HeadPolicy, HostPolicy, OriginPolicy};
use rethread_proto::mrtr::Seal;
use rethread_proto::{Revisions, SessionId};
use rethread_store::{MemoryStore, Store};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Configures an [`McpService`].
pub struct Builder<H> {
    handler: H,
    store: Option<Arc<dyn Store>>,
    limits: Limits,
    timing: Timing,
    upgrade_after: SseUpgradeDelay,
    ids: Arc<dyn EventIdFormat>,
    policy: HeadPolicy,
    authenticator: Option<Arc<dyn Authenticate>>,
    disable_proxy_buffering: bool,
    restore: Restore,
    unused: UnusedSessions,
    sessionless: bool,
    behind_gateway: bool,
    name: Box<str>,
    new_session_id: Box<dyn Fn() -> SessionId + Send + Sync>,
    key: Option<[u8; 32]>,
    wrong: Option<BadEntry>,
    server_label: Option<Arc<str>>,
    names_tools: bool,
    observer: Option<Arc<dyn Observe>>,
}

impl McpService {
    /// Starts to configure an endpoint for `handler`.
    pub fn builder<H: Handler>(handler: H) -> Builder<H> {
        Builder::new(handler)
    }
}

impl<H: Handler> Builder<H> {
    pub(crate) fn new(handler: H) -> Self {
        Builder {
            handler,
            store: None,
            limits: Limits::default(),
            timing: Timing::default(),
            upgrade_after: SseUpgradeDelay::default(),
            ids: Arc::new(Plain),
            policy: HeadPolicy::default(),
            authenticator: None,
            disable_proxy_buffering: false,
            restore: Restore::default(),
            unused: UnusedSessions::default(),
            sessionless: false,
            behind_gateway: false,
            name: "0".into(),
            new_session_id: Box::new(random_session_id),
            key: None,
            wrong: None,
            server_label: None,
            names_tools: false,
            observer: None,
        }
    }

    /// Lets pages at `origin`, such as `https://app.example`, use this endpoint. Loopback origins and the endpoint's
    /// own host may always (SEC-01).
    #[must_use]
    pub fn allow_origin(mut self, origin: &str) -> Self {
        if let Err(wrong) = self.policy.origins.allow(origin) {
            self.wrong.get_or_insert(wrong);
        }
        self
    }

    /// Lets this endpoint be reached as `host`, such as `mcp.example` or `mcp.example:8443`. Loopback names always work
    /// (SEC-02).
    #[must_use]
    pub fn allow_host(mut self, host: &str) -> Self {
        if let Err(wrong) = self.policy.hosts.allow(host) {
            self.wrong.get_or_insert(wrong);
        }
        self
    }

    /// Lets pages at any origin use this endpoint. Any website that a user visits can then use the user's access to
    /// it, unless another layer checks credentials that a browser does not send on its own.
    #[must_use]
    pub fn dangerous_allow_any_origin(mut self) -> Self {
        self.policy.origins = OriginPolicy::Any;
        self
    }

    /// Lets this endpoint be reached under any name. A website can then reach it through DNS rebinding.
    #[must_use]
    pub fn dangerous_allow_any_host(mut self) -> Self {
        self.policy.hosts = HostPolicy::Any;
        self
    }

    /// The text in a refusal about the way to allow a host or an origin, such as the flag of a program. The default
    /// names the methods of this builder.
    #[must_use]
    pub fn access_hints(mut self, hints: AccessHints) -> Self {
        self.policy.hints = hints;
        self
    }

    /// Lets `authenticator` identify the caller of every request, and refuse callers. Without it the caller is the
    /// [`Principal`](crate::Principal) in the extensions of the request, or anonymous.
    ///
    /// The `Authorization` header is removed before a handler sees the head of the request.
    #[must_use]
    pub fn authenticate(mut self, authenticator: impl Authenticate) -> Self {
        self.authenticator = Some(Arc::new(authenticator));
        self
    }

    /// The label `server` of this endpoint's metrics, and the field `server` of its log lines. The default is the name in
    /// [`Handler::info`].
    #[must_use]
    pub fn server_label(mut self, name: &str) -> Self {
        self.server_label = Some(name.into());
        self
    }

    /// Adds the label `tool` to the durations of calls. Its values are names that the server has listed, at most 200, and
    /// `other`.
    #[must_use]
    pub fn label_tools(mut self) -> Self {
        self.names_tools = true;
        self
    }

    /// Notifies `observer` of sessions, calls and refusals.
    #[must_use]
    pub fn observe(mut self, observer: Arc<dyn Observe>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Keeps events and sessions in `store`. The default is a [`MemoryStore`].
    #[must_use]
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Keeps events and sessions in a shared store, for example one that the endpoint that replaces this one opens
    /// later. One endpoint at a time may serve the sessions of a store.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// The policy for sessions of an earlier process that the store still has: they are restored on first
    /// use, unless set otherwise.
    #[must_use]
    pub fn restore(mut self, restore: Restore) -> Self {
        self.restore = restore;
        self
    }

    /// The policy for sessions that nobody uses. By default they stay in memory until they are idle.
    #[must_use]
    pub fn unused_sessions(mut self, unused: UnusedSessions) -> Self {
        self.unused = unused;
        self
    }

    /// Serves requests of the session era that carry no `Mcp-Session-Id`, without a session: [`Context::session`] is `None` and
    /// [`Context::is_sessionless`] is true. Nothing can be asked, and no stream can be resumed. Otherwise such a request gets
    /// 400 (SES-03), which is the default.
    ///
    /// [`Context::session`]: crate::Context::session
    /// [`Context::is_sessionless`]: crate::Context::is_sessionless
    #[must_use]
    pub fn serve_without_session(mut self, yes: bool) -> Self {
        self.sessionless = yes;
        self
    }

    /// For a server on stdio behind the `rethread` gateway: the gateway does what only the transport to the
    /// client can do, such as [`Context::close_connection`](crate::Context::close_connection). The gateway sets the environment
    /// variable [`BEHIND_GATEWAY`](crate::BEHIND_GATEWAY) for its children.
    #[must_use]
    pub fn behind_gateway(mut self, yes: bool) -> Self {
        self.behind_gateway = yes;
        self
    }

    /// Bounds on everything that can grow.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The bounds of all waits.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// The reconnection delay that clients are asked to keep: [`Timing::retry`].
    #[must_use]
    pub fn retry(mut self, delay: Duration) -> Self {
        self.timing.retry = delay;
        self
    }

    /// When a silent call becomes a stream. Zero makes every call resumable from its first byte.
    #[must_use]
    pub fn upgrade_after(mut self, after: SseUpgradeDelay) -> Self {
        self.upgrade_after = after;
        self
    }

    /// How event ids look: [`Plain`] unless set.
    #[must_use]
    pub fn event_ids(mut self, format: impl EventIdFormat + 'static) -> Self {
        self.ids = Arc::new(format);
        self
    }

    /// This node's name, for event id formats that show it.
    #[must_use]
    pub fn node_name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sends `X-Accel-Buffering: no` with every stream, for proxies that would hold events back otherwise (SSE-03).
    #[must_use]
    pub fn disable_proxy_buffering(mut self) -> Self {
        self.disable_proxy_buffering = true;
        self
    }

    /// Refuses GET with 405: no push, and no resumption (GET-01).
    #[must_use]
    pub fn without_get(mut self) -> Self {
        self.policy.push = false;
        self
    }

    /// Refuses DELETE with 405: clients cannot end their sessions.
    #[must_use]
    pub fn without_delete(mut self) -> Self {
        self.policy.delete = false;
        self
    }

    /// Which revisions to serve: all of them, unless set.
    #[must_use]
    pub fn revisions(mut self, revisions: Revisions) -> Self {
        self.policy.revisions = revisions;
        self
    }

    /// The key that seals `requestState`, which clients of 2026-07-28 carry from one request to the next. Processes
    /// behind one address must share it. It is random by default. A store for several nodes has a key of its own.
    #[must_use]
    pub fn state_key(mut self, key: [u8; 32]) -> Self {
        self.key = Some(key);
        self
    }

    /// Takes session ids from `source`, for tests that compare bytes. Without authentication, anyone who can guess a session
    /// id can use the session.
    #[must_use]
    pub fn dangerous_session_ids(mut self, source: impl Fn() -> SessionId + Send + Sync + 'static) -> Self {
        self.new_session_id = Box::new(source);
        self
    }

    /// Makes the endpoint.
    ///
    /// # Panics
    /// If an allowed origin or host is malformed; [`Builder::try_build`] returns the error instead.
    pub fn build(self) -> McpService {
        match self.try_build() {
            Ok(service) => service,
            Err(wrong) => panic!("{wrong}"),
        }
    }

    /// Makes the endpoint.
    ///
    /// # Errors
    /// If an allowed origin or host is malformed.
    pub fn try_build(mut self) -> Result<McpService, BadEntry> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        self.policy.max_header_bytes = self.limits.header_bytes;
        self.policy.max_headers = self.limits.headers;
        let handler = Arc::new(self.handler);
        // A handler may hold peers, which hold the node. A handler that is dropped has nothing left to release.
        let closed = {
            let handler = Arc::downgrade(&handler);
            move |session: &SessionId| {
                if let Some(handler) = handler.upgrade() {
                    handler.on_session_closed(session);
                }
            }
        };
        let key = self.key.unwrap_or_else(random);
        let info = handler.info();
        let server_label = self.server_label.unwrap_or_else(|| info.name.as_str().into());
        let metrics = ServerMetrics::new(server_label, self.policy.revisions, self.names_tools);
        let node = Node::new(NodeConfig {
            name: self.name.into(),
            store: self.store.unwrap_or_else(|| Arc::new(MemoryStore::default())),
            limits: self.limits,
            timing: self.timing,
            upgrade_after: self.upgrade_after,
            ids: self.ids,
            revisions: self.policy.revisions,
            disable_proxy_buffering: self.disable_proxy_buffering,
            restore: self.restore,
            unused: self.unused,
            sessionless: self.sessionless,
            behind_gateway: self.behind_gateway,
            info,
            handler: handler.options(),
            closed: Box::new(closed),
            seal: if handler.options().relays {
                Seal::for_relay(key)
            } else {
                Seal::new(key)
            },
            metrics,
            observer: self.observer,
        });
        let node = Arc::new(node);
        handler.on_start(&Notifier::new(Arc::clone(&node)));
        let mut forwarded_policy = self.policy.clone();
        forwarded_policy.hosts = HostPolicy::Any;
        forwarded_policy.origins = OriginPolicy::Any;
        // The node that received the request has counted its headers, by the limits that it has at that moment.
        forwarded_policy.max_header_bytes = usize::MAX;
        forwarded_policy.max_headers = usize::MAX;
        let inner = Server {
            node,
            sessions: Arc::new(Registry::new()),
            parked: Arc::default(),
            handler,
            new_session_id: self.new_session_id,
            background: AtomicBool::new(false),
            forwards: Arc::default(),
            forwarded_policy,
        };
        Ok(McpService {
            inner: Arc::new(inner),
            policy: Arc::new(self.policy),
            authenticator: self.authenticator,
        })
    }
}

impl<H> std::fmt::Debug for Builder<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn random_session_id() -> SessionId {
    SessionId::from_random(random())
}
