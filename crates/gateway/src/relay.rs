//! The handler that relays every request to a child, and the child's messages to the client.

mod bridge_metrics;
mod call;
mod child_slot;
mod children;
mod down;
mod lease;
mod open_subscriptions;
mod session_child;
mod sessionless_child;
mod shared_child;
mod tool_list;
mod unavailable;
mod up;

use crate::child::ChildPool;
use crate::probe::ServerProfile;
use crate::settings::IdentitySetting;
use crate::task;
use crate::trace::{HeaderContext, ListedNames, TracedCall, Tracer};
use crate::upstream::codec;
use bytes::Bytes;
use call::{relay_call, relay_subscription};
use down::DownSession;
use lease::{Lease, LeaseKey};
use open_subscriptions::OpenSubscriptions;
use parking_lot::{Mutex, RwLock};
use rethread::{
    Call, Context, Handler, HandlerOptions, HeaderParams, InitializeReply, Notification, OpenError, Params, Peer,
    Principal, Reply, RpcError, ServerInfo, SessionId, SessionStart, Tag,
};
use rethread_proto::bridge::up::{self as up_translation, ClientFacts};
use rethread_proto::bridge::{Translation, down as down_translation};
use rethread_proto::{Era, Revisions, Version};
use serde_json::json;
use session_child::{SessionChild, session_ended_error};
use sessionless_child::SessionlessChild;
use shared_child::SharedChild;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tool_list::ToolList;

/// The name in the params of a request.
#[derive(serde::Deserialize)]
struct NamedParams {
    name: Option<String>,
}

/// Relays to the children of one server.
#[derive(Clone)]
pub(crate) struct Relay(Arc<RelayState>);

/// A reference that does not keep a relay.
pub(crate) struct WeakRelay(Weak<RelayState>);

impl WeakRelay {
    pub(crate) fn upgrade(&self) -> Option<Relay> {
        self.0.upgrade().map(Relay)
    }
}

struct RelayState {
    pool: ChildPool,
    /// The latest probe. A new one applies to new sessions and to requests without one (GW-25).
    profile: RwLock<ServerProfile>,
    /// The child of a stateless caller is stopped after this time without need.
    shared_idle: Duration,
    /// One child for each session (GW-05).
    session_children: Mutex<HashMap<SessionId, Arc<SessionChild>>>,
    /// One child for all stateless requests of a caller (GW-07). Callers do not share a child: its log messages name no
    /// request, and must not reach another caller.
    shared_children: Mutex<HashMap<Principal, Arc<SharedChild>>>,
    /// One child for the requests of a principal that name no session (GW-27).
    sessionless_children: Mutex<HashMap<Principal, Arc<SessionlessChild>>>,
    /// Whether anonymous callers share a child. Only on loopback: elsewhere they may be different people (GW-06).
    shares_anonymous: bool,
    /// When the last warning about requests without a session was logged.
    warned: Mutex<Option<Instant>>,
    /// The sessions in front of a modern server.
    down_sessions: Mutex<HashMap<SessionId, Arc<DownSession>>>,
    /// The children of a legacy server for modern callers (GW-06).
    leases: Mutex<HashMap<LeaseKey, Arc<Lease>>>,
    /// The tools, for leases of one request.
    unshared_tools: Mutex<HashMap<String, (Instant, Arc<ToolList>)>>,
    draining: watch::Sender<bool>,
    subscriptions: OpenSubscriptions,
    tracing: Option<RelayTracing>,
}

/// The traces of one server.
struct RelayTracing {
    tracer: Arc<Tracer>,
    tools: ListedNames,
    prompts: ListedNames,
}

impl Relay {
    /// With `child_idle = "never"` the child of a stateless caller is stopped after `session_idle`.
    pub(crate) fn new(
        pool: ChildPool,
        profile: ServerProfile,
        session_idle: Duration,
        shares_anonymous: bool,
        tracer: Option<Arc<Tracer>>,
    ) -> Self {
        bridge_metrics::describe();
        let shared_idle = pool.spawner().server.child_idle.unwrap_or(session_idle);
        Relay(Arc::new(RelayState {
            pool,
            profile: RwLock::new(profile),
            shared_idle,
            session_children: Mutex::default(),
            shared_children: Mutex::default(),
            sessionless_children: Mutex::default(),
            shares_anonymous,
            warned: Mutex::default(),
            down_sessions: Mutex::default(),
            leases: Mutex::default(),
            unshared_tools: Mutex::default(),
            draining: watch::Sender::new(false),
            subscriptions: OpenSubscriptions::default(),
            tracing: tracer.map(|tracer| RelayTracing {
                tracer,
                tools: ListedNames::default(),
                prompts: ListedNames::default(),
            }),
        }))
    }

    fn session_child(&self, session: &SessionId) -> Option<Arc<SessionChild>> {
        self.0.session_children.lock().get(session).cloned()
    }

    fn down_session(&self, session: &SessionId) -> Option<Arc<DownSession>> {
        self.0.down_sessions.lock().get(session).cloned()
    }

    /// For a task that must not keep it.
    pub(crate) fn downgrade(&self) -> WeakRelay {
        WeakRelay(Arc::downgrade(&self.0))
    }

    pub(crate) fn pool(&self) -> &ChildPool {
        &self.0.pool
    }

    /// The outcome of the latest probe.
    pub(crate) fn profile(&self) -> ServerProfile {
        self.0.profile.read().clone()
    }

    /// A new probe has another outcome. Sessions that exist keep their translation (GW-25).
    pub(crate) fn set_profile(&self, profile: ServerProfile) {
        *self.0.profile.write() = profile;
    }

    /// The translation for clients of an era.
    fn translation(&self, client: Era) -> Translation {
        Translation::between(client, self.0.profile.read().revisions)
    }

    /// Opens a session in front of a modern server. It needs no child: `server/discover` answers `initialize`.
    async fn open_down(&self, opening: &SessionStart) -> Result<InitializeReply, OpenError> {
        let upstream = self.shared_child(opening.principal())?;
        let id = opening.peer().id().clone();
        let server = &self.0.pool.spawner().server;
        let keep = |upstream, capabilities| {
            let session = DownSession::new(&server.name, upstream, opening, server.bridge.log_default, capabilities);
            self.0.down_sessions.lock().insert(id, Arc::clone(&session));
            session
        };
        if let Some(previous) = opening.previous_state() {
            let session = keep(upstream, &self.info().capabilities);
            if !previous.subscriptions.is_empty() {
                task::spawn(async move { session.listen().await });
            }
            return Ok(InitializeReply::standard());
        }
        let discovered = upstream.discover().await?;
        let info = self.info();
        let fallback = json!({ "name": info.name, "version": info.version });
        let result = down_translation::initialize_result(&discovered, opening.version(), &fallback);
        let initialized: serde_json::Value = serde_json::from_slice(&result).unwrap_or_default();
        keep(upstream, &initialized["capabilities"]);
        Ok(InitializeReply::raw(result))
    }

    /// A stateless request in front of a legacy server.
    async fn handle_up(&self, call: &Call, params: Bytes, cx: &Context) -> Result<Reply, RpcError> {
        let facts = ClientFacts::read(&params);
        up::check_state(call, &facts)?;
        let (lease, is_shared) = self.lease(&cx.principal(), &facts)?;
        match call.method() {
            "server/discover" if is_shared => up::discover(&lease).await,
            "server/discover" => Ok(self.discover_reply()),
            "subscriptions/listen" => up::listen(&lease, call.raw_params(), cx, self.0.draining.subscribe()).await,
            method => {
                let name = call.params::<NamedParams>().ok().and_then(|params| params.name);
                let asks = &self.0.pool.spawner().server.bridge.asks;
                let alone =
                    up_translation::may_ask(method, cx.client()) && asks.may_ask(method, &name.unwrap_or_default());
                up::call(&lease, method, &params, &facts, alone, cx).await
            }
        }
    }

    /// The reply to `server/discover` that is the same for everybody.
    fn discover_reply(&self) -> Reply {
        let versions: Vec<_> = Revisions::BOTH.newest_first().map(Version::as_str).collect();
        let info = self.info();
        let mut result = json!({ "supportedVersions": versions, "capabilities": info.capabilities });
        if let Some(instructions) = &info.instructions {
            result["instructions"] = json!(instructions);
        }
        Reply::json(result)
    }

    /// The params of a request as the child gets them (AUTH-23).
    fn params_for_child(&self, params: &Bytes, caller: &Principal) -> Bytes {
        let is_told = self.0.pool.spawner().server.identity == IdentitySetting::Meta && !caller.is_anonymous();
        codec::set_identity(params, Some(caller).filter(|_| is_told))
    }

    /// Ends subscriptions, which would otherwise hold up a shutdown.
    pub(crate) fn end_subscriptions(&self) {
        self.0.draining.send_replace(true);
    }

    /// Ends the subscriptions of a caller that has lost a token. They end with their result (SUB-06).
    pub(crate) fn revoke(&self, caller: &Principal) {
        self.0.subscriptions.revoke(caller);
    }
}

impl Relay {
    async fn relay(&self, call: &Call, params: Bytes, cx: &Context) -> Result<Reply, RpcError> {
        if cx.is_sessionless() && self.translation(Era::Legacy) == Translation::Down {
            let upstream = self.shared_child(&cx.principal())?;
            return down::call_without_session(&upstream, call.method(), params, cx).await;
        }
        if cx.is_sessionless() {
            let child = self.sessionless_child(&cx.principal())?;
            let connection = child.connection().await?;
            return relay_call(connection.call(call.method(), &params).await?, cx).await;
        }
        let Some(session) = cx.session() else {
            if self.translation(Era::Modern) == Translation::Up {
                return self.handle_up(call, params, cx).await;
            }
            if call.method() == "server/discover" {
                return Ok(self.discover_reply());
            }
            let connection = self.shared_child(&cx.principal())?.connection().await?;
            let child_call = connection.call(call.method(), &params).await?;
            if call.method() == "subscriptions/listen" {
                let subscription = self.0.subscriptions.add(cx.principal());
                return relay_subscription(child_call, cx, &subscription, self.0.draining.subscribe()).await;
            }
            return relay_call(child_call, cx).await;
        };
        // A session keeps the translation with which it was opened.
        if let Some(session) = self.down_session(session.id()) {
            return session.call(call, params, cx).await;
        }
        let child = self.session_child(session.id()).ok_or_else(session_ended_error)?;
        let connection = child.connection().await?;
        relay_call(connection.call(call.method(), &params).await?, cx).await
    }

    /// The same with a span for the call, and one for the child. The child gets the context of its span.
    async fn relay_traced(
        &self,
        tracing: &RelayTracing,
        call: &Call,
        params: Bytes,
        cx: &Context,
    ) -> Result<Reply, RpcError> {
        let listed = match call.method() {
            "tools/call" => Some(&tracing.tools),
            "prompts/get" => Some(&tracing.prompts),
            _ => None,
        };
        let name = listed.and_then(|_| call.raw_params().name());
        let target = name.filter(|name| listed.is_some_and(|listed| listed.contains(name)));
        let spans = tracing.tracer.begin(&TracedCall {
            server: &self.0.pool.spawner().server.name,
            method: call.method(),
            id: &cx.request_id(),
            target: target.as_deref(),
            version: cx.version(),
            session: cx.session().map(|session| Tag::of_session(session.id())),
            parent: codec::trace_context(&params).as_deref(),
            header: cx.extensions().get::<HeaderContext>().copied(),
        });
        let params = match &spans {
            Some(spans) => codec::set_trace_context(&params, &spans.child_context()),
            None => params,
        };
        let result = self.relay(call, params, cx).await;
        match (&result, call.method()) {
            (Ok(reply), "tools/list") => tracing.tools.add(reply.tool_names()),
            (Ok(reply), "prompts/list") => tracing.prompts.add(reply.prompt_names()),
            _ => {}
        }
        if let Some(spans) = spans {
            spans.end(&result);
        }
        result
    }
}

impl Handler for Relay {
    fn info(&self) -> ServerInfo {
        self.0.profile.read().info.clone()
    }

    fn options(&self) -> HandlerOptions {
        HandlerOptions::new().relays().answers_discover()
    }

    /// GW-05: the child itself answers `initialize`.
    ///
    /// A restored session starts no child: stored events are served at once, and the first call or GET starts the process.
    async fn open(&self, opening: &SessionStart) -> Result<InitializeReply, OpenError> {
        if self.translation(Era::Legacy) == Translation::Down {
            return self.open_down(opening).await;
        }
        let (peer, id) = (opening.peer().clone(), opening.peer().id().clone());
        let params = self.params_for_child(opening.params(), opening.principal());
        let child = SessionChild::new(self.0.pool.clone(), peer, params);
        if opening.previous_state().is_some() {
            self.0.session_children.lock().insert(id, child);
            return Ok(InitializeReply::standard());
        }
        let initialize_result = child.open().await?;
        self.0.session_children.lock().insert(id, child);
        Ok(InitializeReply::raw(initialize_result))
    }

    /// The child may push on the stream.
    fn on_push_stream_opened(&self, peer: &Peer) {
        if let Some(session) = self.down_session(peer.id()) {
            task::spawn(async move { session.listen().await });
            return;
        }
        let Some(child) = self.session_child(peer.id()) else {
            return;
        };
        task::spawn(async move {
            if let Err(error) = child.connection().await {
                tracing::warn!(%error, "child of a session does not start; the next call retries");
            }
        });
    }

    /// A session leaves the memory after its process: work and messages of the process must not be lost.
    fn may_unload(&self, peer: &Peer) -> bool {
        let child = self.session_child(peer.id());
        child.is_none_or(|child| child.has_no_process())
    }

    fn on_session_closed(&self, session: &SessionId) {
        self.0.down_sessions.lock().remove(session);
        let child = self.0.session_children.lock().remove(session);
        if let Some(child) = child {
            task::spawn(async move { child.stop().await });
        }
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let params = Bytes::copy_from_slice(call.raw_params().as_json());
        let params = self.params_for_child(&params, &cx.principal());
        match &self.0.tracing {
            None => self.relay(&call, params, cx).await,
            Some(tracing) => Box::pin(self.relay_traced(tracing, &call, params, cx)).await,
        }
    }

    /// GW-11: the schemas are the child's, and are known before the first call that needs them.
    async fn header_params(&self, tool: &str, params: &Params, caller: &Principal) -> Option<Arc<HeaderParams>> {
        if self.translation(Era::Modern) == Translation::Up {
            let facts = ClientFacts::read(&Bytes::copy_from_slice(params.as_json()));
            return self.lease_header_params(tool, caller, &facts).await;
        }
        self.shared_child(caller).ok()?.header_params(tool).await
    }

    async fn on_notification(&self, notification: Notification, peer: &Peer) {
        if let Some(session) = self.down_session(peer.id()) {
            return session.handle_notification(notification.method()).await;
        }
        let Some(child) = self.session_child(peer.id()) else {
            return;
        };
        // Does not start a child: a restart replays the state that matters.
        if let Some(connection) = child.live_connection().await {
            let params = Bytes::copy_from_slice(notification.raw_params().as_json());
            let params = codec::set_identity(&params, None);
            let _ = connection.notify(notification.method(), &params).await;
        }
    }
}
