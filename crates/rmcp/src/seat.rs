//! A session's own server: made when the session begins, gone when it ends.

use crate::convert::{to_rpc, version};
use crate::ears::{Ears, Hold};
use crate::line::Place;
use crate::pool::{Lease, Ledger, Pool};
use crate::request;
use crate::server::{Setting, serve};
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

/// Lines that a handler may keep beyond their calls, in one session. Beyond: the one kept longest is closed.
const KEPT: usize = 32;
/// Notifications that may be at work in one session. Beyond: the client's POST waits.
const NOTICES: usize = 32;

pub(crate) struct Seat<S> {
    server: Arc<S>,
    peer: Peer,
    pool: Arc<Pool>,
    info: Mutex<Arc<InitializeRequestParams>>,
    notices: Arc<Semaphore>,
}

impl<S: ServerHandler> Seat<S> {
    /// Lets the server begin the session, or begin it again.
    pub(crate) async fn open(server: S, opening: &SessionStart) -> Result<(Arc<Self>, InitializeResult), RpcError> {
        let hello: InitializeRequestParams = serde_json::from_slice(opening.params())
            .map_err(|e| RpcError::invalid_params(format!("invalid params of initialize: {e}")))?;
        let server = Arc::new(server);
        let seat = Arc::new(Seat {
            peer: opening.peer().clone(),
            pool: Pool::new(KEPT, Ledger::Session(Arc::default()), Ears::of(&server)),
            server,
            info: Mutex::new(Arc::new(hello.clone())),
            notices: Arc::new(Semaphore::new(NOTICES)),
        });
        let mut welcome = seat.initialize(hello.clone(), opening).await.map_err(to_rpc)?;
        welcome.protocol_version = match opening.earlier() {
            Some(_) => version(opening.version()),
            None => seat.agree(&hello, &welcome, opening.version())?,
        };
        let agreed = hello.with_protocol_version(welcome.protocol_version.clone());
        *seat.info.lock() = Arc::new(agreed.clone());
        // Whoever kept the peer of `initialize` sees what was agreed.
        seat.pool.tell(&agreed);
        if let Some(earlier) = opening.earlier() {
            seat.take_up(earlier, opening.parts()).await;
        }
        Ok((seat, welcome))
    }

    async fn initialize(
        &self,
        mut hello: InitializeRequestParams,
        opening: &SessionStart,
    ) -> Result<InitializeResult, ErrorData> {
        let lease = self.lease();
        let meta = hello.meta.take().unwrap_or_default();
        let mut context = RequestContext::new(NumberOrString::Number(0), lease.peer());
        context.meta = meta;
        if let Some(parts) = opening.parts() {
            context.extensions.insert(parts.clone());
        }
        let request = ClientRequest::InitializeRequest(InitializeRequest::new(hello));
        match Service::handle_request(&*self.server, request, context).await? {
            ServerResult::InitializeResult(welcome) => Ok(welcome),
            _ => Err(ErrorData::internal_error(
                "initialize was answered with something else",
                None,
            )),
        }
    }

    /// The revision for this session: the one proposed, unless the server does not speak it.
    fn agree(
        &self,
        hello: &InitializeRequestParams,
        welcome: &InitializeResult,
        proposed: Version,
    ) -> Result<ProtocolVersion, RpcError> {
        let supported = ServerHandler::supported_protocol_versions(&*self.server);
        let proposed = version(proposed);
        if supported.contains(&proposed) {
            return Ok(proposed);
        }
        let own = &welcome.protocol_version;
        if own.has_initialize() && supported.contains(own) {
            return Ok(own.clone());
        }
        let newest = supported.iter().filter(|version| version.has_initialize());
        let newest = newest.max_by(|a, b| a.as_str().cmp(b.as_str())).cloned();
        newest.ok_or_else(|| {
            to_rpc(ErrorData::unsupported_protocol_version(
                hello.protocol_version.clone(),
                &supported,
            ))
        })
    }

    /// Tells a new server what the one before it knew. A resource may be gone by now; the session goes on without it.
    async fn take_up(&self, earlier: &PreviousState, parts: Option<&Parts>) {
        if earlier.initialized {
            let note = InitializedNotification {
                method: Default::default(),
                extensions: Default::default(),
            };
            let note = ClientNotification::InitializedNotification(note);
            self.hear(note, NotificationMetaObject::default(), parts.cloned()).await;
        }
        let level = earlier.log_level.as_deref().map(serde_json::Value::from);
        let level: Option<LoggingLevel> = level.and_then(|level| serde_json::from_value(level).ok());
        let level = level.map(|level| {
            let request: SetLevelRequest = Request::new(SetLevelRequestParams::new(level));
            ClientRequest::SetLevelRequest(request)
        });
        let subscriptions = earlier.subscriptions.iter().map(|uri| {
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
                tracing::debug!(method, %error, "a new server does not take up what the one before had agreed to");
            }
        }
    }

    /// Serves a call of the session.
    pub(crate) async fn handle(&self, mut call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let place = Place::Call(cx.clone());
        let lease = self
            .pool
            .take(place, || InitializeRequestParams::clone(&self.info.lock()));
        let tokens = self.pool.tokens().zip(crate::route::token_of(cx));
        let _reporting = tokens.map(|(tokens, token)| tokens.enter(token, cx));
        let setting = Setting {
            cx,
            lease: &lease,
            parts: call.take_parts(),
        };
        serve(&*self.server, &call, setting).await
    }

    /// Passes a notification on. It is worked on in a task, as rmcp does: a handler may ask the client something, and the
    /// client may be waiting for its POST to be answered.
    pub(crate) async fn on_notification(&self, mut notice: Notification) {
        let parts = notice.take_parts();
        if let Some((note, meta)) = request::notification(&notice) {
            self.hear(note, meta, parts).await;
        }
    }

    async fn hear(&self, mut note: ClientNotification, meta: NotificationMetaObject, parts: Option<Parts>) {
        let Ok(permit) = Arc::clone(&self.notices).acquire_owned().await else {
            return;
        };
        *note.get_meta_mut() = meta;
        if let Some(parts) = parts {
            note.extensions_mut().insert(parts);
        }
        // What the client reports of a question goes to the peer that asked it, which may wait the longer for its answer.
        if let ClientNotification::ProgressNotification(progress) = &mut note
            && let Some(tokens) = self.pool.tokens()
            && let Some((line, token)) = tokens.asker(&progress.params.progress_token)
        {
            progress.params.progress_token = token;
            let (hold, begun) = Hold::new(None, permit);
            note.extensions_mut().insert(hold);
            return line.hear(note, begun).await;
        }
        self.lease().hear(note, permit).await;
    }

    fn lease(&self) -> Lease {
        let place = Place::Session(self.peer.clone());
        self.pool
            .take(place, || InitializeRequestParams::clone(&self.info.lock()))
    }

    /// The session has ended: whoever kept a peer is told that its transport is closed.
    pub(crate) fn close(&self) {
        self.pool.close();
    }
}
