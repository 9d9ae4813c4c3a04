//! The handler that relays every request to a child, and the child's messages to the client.

mod child_slot;
mod header_params;
mod open_subscriptions;
mod restart_backoff;
mod session_child;
mod shared_child;

use crate::auth;
use crate::child::{ChildCall, ChildMessage, ChildQuestion, ChildSpawner, codec, parse_child_error};
use crate::metrics::ChildCounts;
use crate::settings::IdentitySetting;
use crate::trace::{HeaderContext, ListedTools, TracedCall, Tracer};
use bytes::Bytes;
use open_subscriptions::{OpenSubscription, OpenSubscriptions};
use parking_lot::Mutex;
use rethread::{
    Answer, AskError, Call, Caller, Context, Handler, HandlerOptions, HeaderParams, InitializeReply, Notification,
    OpenError, Peer, Principal, Reply, RpcError, ServerInfo, SessionId, SessionStart, Tag,
};
use serde_json::json;
use serde_json::value::RawValue;
use session_child::{SessionChild, session_ended_error};
use shared_child::SharedChild;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Relays to the children of one server.
#[derive(Clone)]
pub(crate) struct Relay(Arc<RelayState>);

struct RelayState {
    spawner: ChildSpawner,
    info: ServerInfo,
    idle_timeout: Duration,
    /// One child for each session (GW-05).
    session_children: Mutex<HashMap<SessionId, Arc<SessionChild>>>,
    /// One child for all stateless requests of a caller (GW-07). Callers do not share a child: its log messages name no
    /// request, and must not reach another caller.
    shared_children: Mutex<HashMap<Principal, Arc<SharedChild>>>,
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
    /// The child of a stateless caller ends after `idle_timeout` without a request.
    pub(crate) fn new(
        spawner: ChildSpawner,
        info: ServerInfo,
        idle_timeout: Duration,
        tracer: Option<Arc<Tracer>>,
    ) -> Self {
        Relay(Arc::new(RelayState {
            spawner,
            info,
            idle_timeout,
            session_children: Mutex::default(),
            shared_children: Mutex::default(),
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

    /// The child of a stateless caller. Fails beyond `2 * max_children` callers.
    fn shared_child(&self, caller: &Principal) -> Result<Arc<SharedChild>, RpcError> {
        let mut children = self.0.shared_children.lock();
        if let Some(shared) = children.get(caller) {
            return Ok(Arc::clone(shared));
        }
        // Only a new caller pays for the scan.
        children.retain(|_, shared| !shared.is_expired());
        let limit = self.0.spawner.server.max_children.saturating_mul(2);
        if children.len() >= limit {
            children.retain(|_, shared| !shared.is_vacant());
        }
        if children.len() >= limit {
            return Err(unavailable_error(format_args!(
                "{limit} callers are served already; try again later"
            )));
        }
        let shared = SharedChild::new(self.0.spawner.for_caller(caller), self.0.idle_timeout);
        children.insert(caller.clone(), Arc::clone(&shared));
        Ok(shared)
    }

    /// The params of a request as the child gets them (AUTH-23).
    fn params_for_child(&self, params: &Bytes, caller: &Principal) -> Bytes {
        let is_told = self.0.spawner.server.identity == IdentitySetting::Meta && !caller.is_anonymous();
        codec::set_identity(params, Some(caller).filter(|_| is_told))
    }

    /// The children of this moment.
    pub(crate) fn child_counts(&self) -> ChildCounts {
        let sessions = self.0.session_children.lock().len();
        let shared = self.0.shared_children.lock();
        ChildCounts {
            running: self.0.spawner.running(),
            needed: sessions + shared.values().filter(|shared| !shared.is_vacant()).count(),
            ..ChildCounts::default()
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
        let mut stopping = JoinSet::new();
        for child in session_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        for child in shared_children.into_values() {
            stopping.spawn(async move { child.stop().await });
        }
        stopping.join_all().await;
    }
}

impl Relay {
    async fn relay(&self, call: &Call, params: Bytes, cx: &Context) -> Result<Reply, RpcError> {
        let Some(session) = cx.session() else {
            let connection = self.shared_child(&cx.principal())?.connection().await?;
            let child_call = connection.call(call.method(), &params).await?;
            if call.method() == "subscriptions/listen" {
                let subscription = self.0.subscriptions.add(cx.principal());
                return relay_subscription(child_call, cx, &subscription, self.0.draining.subscribe()).await;
            }
            return relay_call(child_call, cx).await;
        };
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
            server: &self.0.spawner.server.name,
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
        HandlerOptions::new().relays()
    }

    /// GW-05: the child itself answers `initialize`.
    ///
    /// A restored session does not wait for its child: stored events are served at once, and only calls wait for the
    /// process.
    async fn open(&self, opening: &SessionStart) -> Result<InitializeReply, OpenError> {
        let (peer, id) = (opening.peer().clone(), opening.peer().id().clone());
        let params = self.params_for_child(opening.params(), opening.principal());
        let spawner = self.0.spawner.for_caller(opening.principal()).for_session(&id);
        let child = SessionChild::new(spawner, peer, params);
        if opening.earlier().is_some() {
            self.0.session_children.lock().insert(id, Arc::clone(&child));
            tokio::spawn(async move {
                if let Err(error) = child.connection().await {
                    tracing::warn!(%error, "child of a restored session does not start; the next call retries");
                }
            });
            return Ok(InitializeReply::standard());
        }
        let permit = self.0.spawner.acquire_permit().await;
        let permit = permit.map_err(|full| OpenError::Unavailable(full.to_string()))?;
        let initialize_result = child.open(permit).await?;
        self.0.session_children.lock().insert(id, child);
        Ok(InitializeReply::raw(initialize_result))
    }

    fn on_session_closed(&self, session: &SessionId) {
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
    async fn header_params(&self, tool: &str, caller: &Principal) -> Option<Arc<HeaderParams>> {
        self.shared_child(caller).ok()?.header_params(tool).await
    }

    async fn on_notification(&self, notification: Notification, peer: &Peer) {
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

/// Relays the messages of one call to its client, until the child responds.
async fn relay_call(mut call: ChildCall, cx: &Context) -> Result<Reply, RpcError> {
    loop {
        let message = tokio::select! {
            message = call.next() => message,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")), // dropping `call` cancels it in the child
        };
        match message {
            None => return Err(call.no_response_error()),
            Some(ChildMessage::Response(Ok(result))) => return Ok(Reply::raw(result)),
            Some(ChildMessage::Response(Err(error))) => return Err(parse_child_error(&error)),
            Some(ChildMessage::Notification { method, params }) if method == "notifications/progress" => {
                // The token is the gateway's, and a retry may bring another one (MRTR-04).
                if let Some(report) = codec::remove_progress_token(&params) {
                    cx.relay_progress(report).await?;
                }
            }
            Some(ChildMessage::Notification { method, params }) => cx.notify(&method, raw_json(&params)).await?,
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
