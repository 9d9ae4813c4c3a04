//! The handler that relays every request to a child, and the child's messages to the client.

mod bridge_metrics;
mod child_slot;
mod down;
mod header_params;
mod lease;
mod open_subscriptions;
mod session_child;
mod sessionless_child;
mod shared_child;
mod up;

use crate::auth;
use crate::child::{ChildCall, ChildMessage, ChildPool, ChildQuestion, StartError, codec, parse_child_error};
use crate::metrics::ChildCounts;
use crate::settings::IdentitySetting;
use crate::trace::{HeaderContext, ListedTools, TracedCall, Tracer};
use bytes::Bytes;
use down::DownSession;
use header_params::ToolHeaderParams;
use lease::{Lease, LeaseKey};
use open_subscriptions::{OpenSubscription, OpenSubscriptions};
use parking_lot::Mutex;
use rethread::{
    Answer, AskError, Call, Caller, Context, Handler, HandlerOptions, HeaderParams, InitializeReply, Notification,
    OpenError, Params, Peer, Principal, Reply, RpcError, ServerInfo, SessionId, SessionStart, Tag, Timing,
};
use rethread_proto::bridge::fingerprint::fingerprint;
use rethread_proto::bridge::up::{self as up_translation, ClientFacts};
use rethread_proto::bridge::{Translation, down as down_translation};
use rethread_proto::{Era, Revisions, Version};
use serde_json::json;
use serde_json::value::RawValue;
use session_child::{SessionChild, session_ended_error};
use sessionless_child::SessionlessChild;
use shared_child::SharedChild;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The pause between two warnings about requests without a session.
const SESSIONLESS_WARNING_INTERVAL: Duration = Duration::from_secs(3600);
/// How long the header params of tools are kept for callers that share nothing.
const HEADER_PARAMS_TTL: Duration = Duration::from_secs(60);
/// How many such entries are kept. Beyond: the tools are listed for each call.
const MAX_CACHED_HEADER_PARAMS: usize = 64;

/// The name in the params of a request.
#[derive(serde::Deserialize)]
struct NamedParams {
    name: Option<String>,
}

/// Relays to the children of one server.
#[derive(Clone)]
pub(crate) struct Relay(Arc<RelayState>);

struct RelayState {
    pool: ChildPool,
    info: ServerInfo,
    /// The revisions that are spoken to the server.
    spoken: Revisions,
    /// The child of a stateless caller is stopped after this time without need.
    shared_idle: Duration,
    /// One child for each session (GW-05).
    session_children: Mutex<HashMap<SessionId, Arc<SessionChild>>>,
    /// One child for all stateless requests of a caller (GW-07). Callers do not share a child: its log messages name no
    /// request, and must not reach another caller.
    shared_children: Mutex<HashMap<Principal, Arc<SharedChild>>>,
    /// One child for the requests of a principal that name no session (GW-27).
    sessionless_children: Mutex<HashMap<Principal, Arc<SessionlessChild>>>,
    /// Whether anonymous callers share a child. Only on loopback: others are strangers to each other (GW-06).
    shares_anonymous: bool,
    /// When the last warning about requests without a session was logged.
    warned: Mutex<Option<Instant>>,
    /// The sessions in front of a modern server.
    down_sessions: Mutex<HashMap<SessionId, Arc<DownSession>>>,
    /// The children of a legacy server for modern callers (GW-06).
    leases: Mutex<HashMap<LeaseKey, Arc<Lease>>>,
    /// The header params of tools, for leases of one request.
    unshared_header_params: Mutex<HashMap<String, (Instant, Arc<ToolHeaderParams>)>>,
    draining: watch::Sender<bool>,
    subscriptions: OpenSubscriptions,
    tracing: Option<RelayTracing>,
}

/// The traces of one server.
struct RelayTracing {
    tracer: Arc<Tracer>,
    tools: ListedTools,
}

impl Relay {
    /// With `child_idle = "never"` the child of a stateless caller is stopped after `session_idle`.
    pub(crate) fn new(
        pool: ChildPool,
        (info, spoken): (ServerInfo, Revisions),
        session_idle: Duration,
        shares_anonymous: bool,
        tracer: Option<Arc<Tracer>>,
    ) -> Self {
        let shared_idle = pool.spawner().server.child_idle.unwrap_or(session_idle);
        Relay(Arc::new(RelayState {
            pool,
            info,
            spoken,
            shared_idle,
            session_children: Mutex::default(),
            shared_children: Mutex::default(),
            sessionless_children: Mutex::default(),
            shares_anonymous,
            warned: Mutex::default(),
            down_sessions: Mutex::default(),
            leases: Mutex::default(),
            unshared_header_params: Mutex::default(),
            draining: watch::Sender::new(false),
            subscriptions: OpenSubscriptions::default(),
            tracing: tracer.map(|tracer| RelayTracing {
                tracer,
                tools: ListedTools::default(),
            }),
        }))
    }

    fn session_child(&self, session: &SessionId) -> Option<Arc<SessionChild>> {
        self.0.session_children.lock().get(session).cloned()
    }

    fn down_session(&self, session: &SessionId) -> Option<Arc<DownSession>> {
        self.0.down_sessions.lock().get(session).cloned()
    }

    /// The translation for clients of an era.
    fn translation(&self, client: Era) -> Translation {
        Translation::between(client, self.0.spoken)
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
        if let Some(earlier) = opening.earlier() {
            let session = keep(upstream, &self.0.info.capabilities);
            if !earlier.subscriptions.is_empty() {
                tokio::spawn(async move { session.listen().await });
            }
            return Ok(InitializeReply::standard());
        }
        let discovered = upstream.discover().await?;
        let fallback = json!({ "name": self.0.info.name, "version": self.0.info.version });
        let result = down_translation::initialize_result(&discovered, opening.version(), &fallback);
        let initialized: serde_json::Value = serde_json::from_slice(&result).unwrap_or_default();
        keep(upstream, &initialized["capabilities"]);
        Ok(InitializeReply::raw(result))
    }

    /// The lease of a modern caller. The flag says whether later requests find it again.
    fn lease(&self, caller: &Principal, facts: &ClientFacts) -> Result<(Arc<Lease>, bool), RpcError> {
        let new = || {
            let params = up_translation::initialize_params(facts, &codec::gateway_client_info());
            let params = self.params_for_child(&params, caller);
            let grace = Timing::default().cancel_grace;
            Lease::new(self.0.pool.clone(), caller.clone(), params, grace)
        };
        if caller.is_anonymous() && !self.0.shares_anonymous {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| tracing::info!("clients without a token share no process; `share = true` changes that"));
            return Ok((new(), false));
        }
        let (name, version) = facts.name_and_version();
        let key = LeaseKey {
            principal: caller.clone(),
            fingerprint: fingerprint(&facts.capabilities),
            name,
            version,
        };
        let mut leases = self.0.leases.lock();
        if let Some(lease) = leases.get(&key) {
            return Ok((Arc::clone(lease), true));
        }
        // Only a new client pays for the scan.
        leases.retain(|_, lease| Arc::strong_count(lease) > 1 || !lease.is_vacant());
        let limit = self.0.pool.spawner().server.max_children.saturating_mul(2);
        if leases.len() >= limit {
            let message = format!("{limit} clients are served already; try again later");
            return Err(RpcError::internal(message).with_data(json!({ "reason": "busy" })));
        }
        let lease = new();
        leases.insert(key, Arc::clone(&lease));
        Ok((lease, true))
    }

    async fn lease_header_params(
        &self,
        tool: &str,
        caller: &Principal,
        facts: &ClientFacts,
    ) -> Option<Arc<HeaderParams>> {
        let (lease, is_shared) = self.lease(caller, facts).ok()?;
        if is_shared {
            return lease.header_params(tool).await;
        }
        // A lease of one request cannot keep them.
        let key = fingerprint(&facts.capabilities);
        let known = {
            let mut cache = self.0.unshared_header_params.lock();
            cache.retain(|_, (since, _)| since.elapsed() < HEADER_PARAMS_TTL);
            cache.get(&key).map(|(_, known)| Arc::clone(known))
        };
        let known = match known {
            Some(known) => known,
            None => {
                let fetched = lease.tool_header_params().await.ok()?;
                let mut cache = self.0.unshared_header_params.lock();
                if cache.len() < MAX_CACHED_HEADER_PARAMS {
                    cache.insert(key, (Instant::now(), Arc::clone(&fetched)));
                }
                fetched
            }
        };
        known.get(tool).cloned()
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
        let mut result = json!({ "supportedVersions": versions, "capabilities": self.0.info.capabilities });
        if let Some(instructions) = &self.0.info.instructions {
            result["instructions"] = json!(instructions);
        }
        Reply::json(result)
    }

    /// The child of a stateless caller. Fails beyond `2 * max_children` callers.
    fn shared_child(&self, caller: &Principal) -> Result<Arc<SharedChild>, RpcError> {
        let mut children = self.0.shared_children.lock();
        if let Some(shared) = children.get(caller) {
            return Ok(Arc::clone(shared));
        }
        // Only a new caller pays for the scan.
        children.retain(|_, shared| !shared.is_expired());
        let limit = self.0.pool.spawner().server.max_children.saturating_mul(2);
        if children.len() >= limit {
            children.retain(|_, shared| !shared.is_vacant());
        }
        if children.len() >= limit {
            return Err(unavailable_error(format_args!(
                "{limit} callers are served already; try again later"
            )));
        }
        let shared = SharedChild::new(self.0.pool.clone(), caller.clone(), self.0.shared_idle);
        children.insert(caller.clone(), Arc::clone(&shared));
        Ok(shared)
    }

    /// The child for a request without a session. An anonymous caller that may share none gets one of its own, which ends with
    /// the request.
    fn sessionless_child(&self, caller: &Principal) -> Result<Arc<SessionlessChild>, RpcError> {
        self.warn_sessionless();
        let new = || SessionlessChild::new(self.0.pool.clone(), caller.clone());
        if caller.is_anonymous() && !self.0.shares_anonymous {
            return Ok(new());
        }
        let mut children = self.0.sessionless_children.lock();
        if let Some(child) = children.get(caller) {
            return Ok(Arc::clone(child));
        }
        let limit = self.0.pool.spawner().server.max_children.saturating_mul(2);
        if children.len() >= limit {
            children.retain(|_, child| !child.is_vacant());
        }
        if children.len() >= limit {
            return Err(unavailable_error(format_args!(
                "{limit} callers are served already; try again later"
            )));
        }
        Ok(Arc::clone(children.entry(caller.clone()).or_insert_with(new)))
    }

    fn warn_sessionless(&self) {
        let mut warned = self.0.warned.lock();
        if warned.is_none_or(|last| last.elapsed() >= SESSIONLESS_WARNING_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(
                server = self.0.pool.spawner().server.name,
                "a client sends no session id; its requests are served without a session"
            );
        }
    }

    /// The params of a request as the child gets them (AUTH-23).
    fn params_for_child(&self, params: &Bytes, caller: &Principal) -> Bytes {
        let is_told = self.0.pool.spawner().server.identity == IdentitySetting::Meta && !caller.is_anonymous();
        codec::set_identity(params, Some(caller).filter(|_| is_told))
    }

    /// The children of this moment.
    pub(crate) fn child_counts(&self) -> ChildCounts {
        let counts = self.0.pool.counts();
        let sessions = self.0.session_children.lock();
        ChildCounts {
            running: counts.running,
            needed: counts.needed,
            spare: counts.spare,
            hibernated: sessions.values().filter(|child| child.is_hibernated()).count(),
        }
    }

    /// Ends subscriptions, which would otherwise hold up a shutdown.
    pub(crate) fn end_subscriptions(&self) {
        self.0.draining.send_replace(true);
    }

    /// Ends the subscriptions of a caller that has lost a token. They end with their result (SUB-06).
    pub(crate) fn revoke(&self, caller: &Principal) {
        self.0.subscriptions.revoke(caller);
    }

    /// Ends all children concurrently, each in bounded time.
    pub(crate) async fn stop_children(&self) {
        let session_children = std::mem::take(&mut *self.0.session_children.lock());
        let shared_children = std::mem::take(&mut *self.0.shared_children.lock());
        let sessionless_children = std::mem::take(&mut *self.0.sessionless_children.lock());
        let leases = std::mem::take(&mut *self.0.leases.lock());
        let mut stopping = JoinSet::new();
        for child in sessionless_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        for child in session_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        for lease in leases.into_values() {
            stopping.spawn(async move { lease.stop().await });
        }
        for child in shared_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        stopping.join_all().await;
        self.0.pool.close().await;
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
        if self.translation(Era::Legacy) == Translation::Down {
            let session = self.down_session(session.id()).ok_or_else(session_ended_error)?;
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
        let tool = match call.method() {
            "tools/call" => call.raw_params().name().filter(|tool| tracing.tools.contains(tool)),
            _ => None,
        };
        let spans = tracing.tracer.begin(&TracedCall {
            server: &self.0.pool.spawner().server.name,
            method: call.method(),
            tool: tool.as_deref(),
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
        if let (Ok(reply), "tools/list") = (&result, call.method()) {
            tracing.tools.add(reply.as_json());
        }
        if let Some(spans) = spans {
            spans.end(&result);
        }
        result
    }
}

impl Handler for Relay {
    fn info(&self) -> ServerInfo {
        self.0.info.clone()
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
        if opening.earlier().is_some() {
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
            tokio::spawn(async move { session.listen().await });
            return;
        }
        let Some(child) = self.session_child(peer.id()) else {
            return;
        };
        tokio::spawn(async move {
            if let Err(error) = child.connection().await {
                tracing::warn!(%error, "child of a session does not start; the next call retries");
            }
        });
    }

    fn on_session_closed(&self, session: &SessionId) {
        self.0.down_sessions.lock().remove(session);
        let child = self.0.session_children.lock().remove(session);
        if let Some(child) = child {
            tokio::spawn(async move { child.stop().await });
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
            return session.notified(notification.method()).await;
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

/// A notification of a child, for the client of one call.
struct RelayedNotification {
    method: String,
    params: Bytes,
}

/// Relays the messages of one call to its client, until the child responds.
async fn relay_call(call: ChildCall, cx: &Context) -> Result<Reply, RpcError> {
    relay_messages(call, cx, Some).await.map(Reply::raw)
}

/// Relays the messages of one call to its client, until the child responds. `translate` changes or drops notifications other
/// than progress. Returns the result.
async fn relay_messages(
    mut call: ChildCall,
    cx: &Context,
    translate: impl Fn(RelayedNotification) -> Option<RelayedNotification>,
) -> Result<Bytes, RpcError> {
    loop {
        let message = tokio::select! {
            message = call.next() => message,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")), // dropping `call` cancels it in the child
        };
        match message {
            None => return Err(call.no_response_error()),
            Some(ChildMessage::Response(Ok(result))) => return Ok(result),
            Some(ChildMessage::Response(Err(error))) => return Err(parse_child_error(&error)),
            Some(ChildMessage::Notification { method, params }) if method == "notifications/progress" => {
                // The token is the gateway's, and a retry may bring another one (MRTR-04).
                if let Some(report) = codec::remove_progress_token(&params) {
                    cx.relay_progress(report).await?;
                }
            }
            // Its child may serve other requests of the principal, and a log message names none.
            Some(ChildMessage::Notification { .. }) if cx.is_sessionless() => {}
            Some(ChildMessage::Notification { method, params }) => {
                if let Some(relayed) = translate(RelayedNotification { method, params }) {
                    cx.notify(&relayed.method, raw_json(&relayed.params)).await?;
                }
            }
            Some(ChildMessage::Question(question)) if cx.is_sessionless() => {
                let error = RpcError::method_not_found(&question.method);
                call.connection().respond(&question.id, Err(&error)).await;
            }
            Some(ChildMessage::Question(question)) => {
                let answer = ask_client(cx.clone(), question.clone());
                call.connection().answer_question(question, answer);
            }
            Some(ChildMessage::QuestionCancelled(id)) => call.connection().cancel_question(&id),
            Some(ChildMessage::CloseConnection) => cx.close_connection().await,
            Some(ChildMessage::SubscriptionEnded) => {}
        }
    }
}

/// Relays one subscription under the client's own id (SUB-03), until one side ends it.
async fn relay_subscription(
    mut call: ChildCall,
    cx: &Context,
    subscription: &OpenSubscription<'_>,
    mut draining: watch::Receiver<bool>,
) -> Result<Reply, RpcError> {
    let id = cx.request_id();
    let mut expired = pin!(token_expired(cx));
    loop {
        let message = tokio::select! {
            message = call.next() => message,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")),
            _ = draining.wait_for(|draining| *draining) => None,
            () = &mut expired => None,
            () = subscription.revoked() => None,
        };
        let result = match message {
            Some(ChildMessage::Notification { method, params }) => {
                if let Some(params) = codec::set_subscription_id(&params, &id) {
                    cx.notify(&method, params).await?;
                }
                continue;
            }
            Some(ChildMessage::Question(_) | ChildMessage::QuestionCancelled(_) | ChildMessage::CloseConnection) => {
                continue;
            }
            Some(ChildMessage::Response(Err(error))) => return Err(parse_child_error(&error)),
            Some(ChildMessage::Response(Ok(result))) => result,
            // SUB-06: the subscription ends with a result, and the client may subscribe again.
            Some(ChildMessage::SubscriptionEnded) | None => Bytes::from_static(b"{\"resultType\":\"complete\"}"),
        };
        let result = codec::set_subscription_id(&result, &id);
        return Ok(Reply::raw(
            result.map_or_else(|| "{}".to_owned(), |r| r.get().to_owned()),
        ));
    }
}

/// Resolves when the token of the caller has expired (AUTH-21).
async fn token_expired(cx: &Context) {
    let caller = cx.extensions().get::<Caller>();
    match caller.and_then(|caller| caller.expires) {
        Some(expires) => tokio::time::sleep(expires.since(auth::wall_now())).await,
        None => std::future::pending().await,
    }
}

/// Asks the client on the stream of a call. If the call ends first, asks on a stream of the session.
async fn ask_client(cx: Context, question: ChildQuestion) -> Result<Answer, AskError> {
    let (method, params) = (&question.method, raw_json(&question.params));
    let answer = cx.request(method, params.clone()).await;
    match (answer, cx.session()) {
        (Err(AskError::Ended | AskError::ClientLeft), Some(peer)) if !cx.is_cancelled() => {
            peer.request(method, params).await
        }
        (answer, _) => answer,
    }
}

/// Raw JSON, or `None` if it is empty.
fn raw_json(json: &Bytes) -> Option<Box<RawValue>> {
    let text = String::from_utf8(json.to_vec()).ok().filter(|text| !text.is_empty())?;
    RawValue::from_string(text).ok()
}

/// The error for a request that gets no child: `busy` if one may be free soon (GW-21).
fn start_error(error: StartError) -> RpcError {
    match error {
        StartError::Busy { .. } => RpcError::internal(error.to_string()).with_data(json!({ "reason": "busy" })),
        StartError::Spawn(error) => unavailable_error(error),
    }
}

/// The error for a request that gets no child.
fn unavailable_error(reason: impl std::fmt::Display) -> RpcError {
    RpcError::internal(format!("the server behind the gateway is not available: {reason}"))
        .with_data(json!({ "reason": "server_unavailable" }))
}

/// Waits at most `limit` for a child. `action` completes "it did not …".
async fn with_timeout<T>(
    limit: Duration,
    action: &str,
    future: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let timed_out = || {
        unavailable_error(format_args!(
            "it did not {action} within {} seconds",
            limit.as_secs_f32()
        ))
    };
    tokio::time::timeout(limit, future)
        .await
        .unwrap_or_else(|_| Err(timed_out()))
}
