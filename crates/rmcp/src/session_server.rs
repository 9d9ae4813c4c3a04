//! The server of one session. It lives as long as the session.

use crate::convert::{to_rpc, version};
use crate::dispatch::{CallSetup, serve};
use crate::notification_handler::{NotificationGuard, NotificationHandler};
use crate::peer_loop::Destination;
use crate::peer_pool::{PeerLease, PeerPool, Registry};
use crate::{request, route};
use http::request::Parts;
use parking_lot::Mutex;
use rethread::{Call, Context, Notification, Peer, PreviousState, Reply, RpcError, SessionStart, Version};
use rmcp::model::{
    ClientNotification, ClientRequest, GetExtensions, GetMeta, InitializeRequest, InitializeRequestParams,
    InitializeResult, InitializedNotification, LoggingLevel, NotificationMetaObject, NumberOrString, ProtocolVersion,
    Request, ServerResult, SetLevelRequest, SetLevelRequestParams, SubscribeRequest, SubscribeRequestParams,
};
use rmcp::service::{RequestContext, Service};
use rmcp::{ErrorData, ServerHandler};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Peers that handlers may retain after their calls, per session. Beyond this, the oldest is closed.
const MAX_RETAINED_SESSION_PEERS: usize = 32;
/// Notification handlers that may run at once, per session. Beyond this, the client's POST waits.
const MAX_CONCURRENT_NOTIFICATIONS: usize = 32;

pub(crate) struct SessionServer<S> {
    server: Arc<S>,
    peer: Peer,
    pool: Arc<PeerPool>,
    info: Mutex<Arc<InitializeRequestParams>>,
    notification_permits: Arc<Semaphore>,
}

impl<S: ServerHandler> SessionServer<S> {
    /// Initializes the server for a new or a restored session.
    pub(crate) async fn open(server: S, start: &SessionStart) -> Result<(Arc<Self>, InitializeResult), RpcError> {
        let params: InitializeRequestParams = serde_json::from_slice(start.params())
            .map_err(|e| RpcError::invalid_params(format!("invalid params of initialize: {e}")))?;
        let server = Arc::new(server);
        let session = Arc::new(SessionServer {
            peer: start.peer().clone(),
            pool: PeerPool::new(
                MAX_RETAINED_SESSION_PEERS,
                Registry::Session(Arc::default()),
                NotificationHandler::of(&server),
            ),
            server,
            info: Mutex::new(Arc::new(params.clone())),
            notification_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_NOTIFICATIONS)),
        });
        let mut result = session.initialize(params.clone(), start).await.map_err(to_rpc)?;
        result.protocol_version = match start.previous_state() {
            Some(_) => version(start.version()),
            None => session.negotiate(&params, &result, start.version())?,
        };
        let negotiated = params.with_protocol_version(result.protocol_version.clone());
        *session.info.lock() = Arc::new(negotiated.clone());
        // A handler that retained the peer of `initialize` sees the negotiated version.
        session.pool.set_peer_info(&negotiated);
        if let Some(previous) = start.previous_state() {
            session.restore(previous, start.parts()).await;
        }
        Ok((session, result))
    }

    async fn initialize(
        &self,
        mut params: InitializeRequestParams,
        start: &SessionStart,
    ) -> Result<InitializeResult, ErrorData> {
        let lease = self.lease();
        let meta = params.meta.take().unwrap_or_default();
        let mut context = RequestContext::new(NumberOrString::Number(0), lease.peer());
        context.meta = meta;
        if let Some(parts) = start.parts() {
            context.extensions.insert(parts.clone());
        }
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(params));
        match Service::handle_request(&*self.server, request, context).await? {
            ServerResult::InitializeResult(result) => Ok(result),
            _ => Err(ErrorData::internal_error(
                "the server answered initialize with another result type",
                None,
            )),
        }
    }

    /// The protocol version of the session: the proposed one, unless the server does not support it.
    fn negotiate(
        &self,
        params: &InitializeRequestParams,
        result: &InitializeResult,
        proposed: Version,
    ) -> Result<ProtocolVersion, RpcError> {
        let supported = ServerHandler::supported_protocol_versions(&*self.server);
        let proposed = version(proposed);
        if supported.contains(&proposed) {
            return Ok(proposed);
        }
        let preferred = &result.protocol_version;
        if preferred.has_initialize() && supported.contains(preferred) {
            return Ok(preferred.clone());
        }
        let newest = supported.iter().filter(|version| version.has_initialize());
        let newest = newest.max_by(|a, b| a.as_str().cmp(b.as_str())).cloned();
        newest.ok_or_else(|| {
            to_rpc(ErrorData::unsupported_protocol_version(
                params.protocol_version.clone(),
                &supported,
            ))
        })
    }

    /// Replays the state of a restored session to its new server.
    ///
    /// Errors are only logged: a resource may no longer exist, and the session continues without it.
    async fn restore(&self, previous: &PreviousState, parts: Option<&Parts>) {
        if previous.initialized {
            let notification = InitializedNotification {
                method: Default::default(),
                extensions: Default::default(),
            };
            let notification = ClientNotification::InitializedNotification(notification);
            self.notify_server(notification, NotificationMetaObject::default(), parts.cloned())
                .await;
        }
        let level = previous.log_level.as_deref().map(serde_json::Value::from);
        let level: Option<LoggingLevel> = level.and_then(|level| serde_json::from_value(level).ok());
        let level = level.map(|level| {
            let request: SetLevelRequest = Request::new(SetLevelRequestParams::new(level));
            ClientRequest::SetLevelRequest(request)
        });
        let subscriptions = previous.subscriptions.iter().map(|uri| {
            let request: SubscribeRequest = Request::new(SubscribeRequestParams::new(&**uri));
            ClientRequest::SubscribeRequest(request)
        });
        for request in level.into_iter().chain(subscriptions) {
            let lease = self.lease();
            let mut context = RequestContext::new(NumberOrString::Number(0), lease.peer());
            if let Some(parts) = parts {
                context.extensions.insert(parts.clone());
            }
            let method = request.method().to_owned();
            if let Err(error) = Service::handle_request(&*self.server, request, context).await {
                tracing::debug!(method, %error, "new server rejected restored session state");
            }
        }
    }

    /// Serves a call of the session.
    pub(crate) async fn handle(&self, mut call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let destination = Destination::Call(cx.clone());
        let lease = self
            .pool
            .lease(destination, || InitializeRequestParams::clone(&self.info.lock()));
        let tokens = self.pool.tokens().zip(route::progress_token(cx));
        let _token = tokens.map(|(tokens, token)| tokens.register_call(token, cx));
        let setup = CallSetup {
            cx,
            lease: &lease,
            parts: call.take_parts(),
        };
        serve(&*self.server, &call, setup).await
    }

    /// Passes a notification to the server.
    ///
    /// Its handler runs in a task, as in rmcp: it may ask the client while the client waits for this POST.
    pub(crate) async fn on_notification(&self, mut notification: Notification) {
        let parts = notification.take_parts();
        if let Some((notification, meta)) = request::notification(&notification) {
            self.notify_server(notification, meta, parts).await;
        }
    }

    async fn notify_server(
        &self,
        mut notification: ClientNotification,
        meta: NotificationMetaObject,
        parts: Option<Parts>,
    ) {
        let Ok(permit) = Arc::clone(&self.notification_permits).acquire_owned().await else {
            return;
        };
        *notification.get_meta_mut() = meta;
        if let Some(parts) = parts {
            notification.extensions_mut().insert(parts);
        }
        // Progress on a question goes to the peer that asked, which may then extend its timeout.
        if let ClientNotification::ProgressNotification(progress) = &mut notification
            && let Some(tokens) = self.pool.tokens()
            && let Some((asker, token)) = tokens.asker(&progress.params.progress_token)
        {
            progress.params.progress_token = token;
            let (guard, start) = NotificationGuard::new(None, permit);
            notification.extensions_mut().insert(guard);
            return asker.notify_server(notification, start).await;
        }
        self.lease().notify_server(notification, permit).await;
    }

    fn lease(&self) -> PeerLease {
        let destination = Destination::Session(self.peer.clone());
        self.pool
            .lease(destination, || InitializeRequestParams::clone(&self.info.lock()))
    }

    /// Closes every peer at the end of the session.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}
