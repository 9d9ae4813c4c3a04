//! Serves the messages of a session, for every transport: a POST, a batch, `/sse` or stdio.

use crate::call::active_call::ActiveCall;
use crate::call::exchange::{Exchange, ReplyResult};
use crate::call::peer::Peer;
use crate::call::reply::Reply;
use crate::call::request::{Call, Notification};
use crate::call::run::{self, HandlerFuture};
use crate::call::unhandled_call::UnhandledCall;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::server::Server;
use crate::session::{CancelHandle, Session};
use http::Extensions;
use rethread_proto::jsonrpc::{self, Request, RpcError, code};
use rethread_proto::refusal::Reason;
use rethread_proto::{LogLevel, Refusal};
use std::sync::Arc;
use std::time::Instant;

/// The part that serves a request in a session.
pub(crate) enum Route {
    /// The transport.
    Builtin,
    /// The handler.
    Handler,
}

/// The table of methods that the transport serves itself.
pub(crate) fn route(session: &Session, request: &Request) -> Route {
    let handler = &session.node.handler;
    match request.method.as_str() {
        "ping" => Route::Builtin,
        "logging/setLevel" if !handler.relays && !handler.receives_all && session.declares("logging") => Route::Builtin,
        _ => Route::Handler,
    }
}

/// Serves a request of [`Route::Builtin`].
pub(crate) async fn handle_builtin(
    session: &Session,
    request: &Request,
    extensions: &Extensions,
) -> Result<Reply, RpcError> {
    #[derive(serde::Deserialize)]
    struct SetLevel {
        level: LogLevel,
    }
    let (call, started) = (UnhandledCall::in_session(session, request, extensions), Instant::now());
    if request.method.as_str() == "logging/setLevel" {
        let set = request.params.read::<SetLevel>();
        let set = set.map_err(|error| RpcError::invalid_params(format!("invalid params: {error}")));
        let set = set.inspect_err(|error| call.failed(started, error))?;
        session.set_log_level(set.level).await;
    }
    call.succeeded(started);
    Ok(Reply::empty())
}

/// Why a call did not start.
pub(crate) enum NotStarted {
    /// Its id is in flight (SES-10): the first call keeps it, and the second gets an error.
    DuplicateId(RpcError),
    Refused(Reason),
}

impl NotStarted {
    /// As the reply to the request.
    pub(crate) fn into_error(self) -> RpcError {
        match self {
            NotStarted::DuplicateId(error) => error,
            NotStarted::Refused(reason) => {
                let message = Refusal::new(reason).error().message;
                RpcError::new(code::INTERNAL_ERROR, message)
            }
        }
    }
}

/// Starts the call of the request `index` of an exchange in a session. Nothing runs until the returned future is polled.
pub(crate) fn start_call(
    server: &Server,
    session: &Arc<Session>,
    exchange: &Arc<Exchange>,
    index: usize,
    request: Request,
    request_head: RequestHead,
) -> Result<(Arc<ActiveCall>, HandlerFuture), NotStarted> {
    let node = &server.node;
    // A session of one connection is not routed, and cannot be handed over.
    let accepted = match session.is_kept() {
        true => node.accept_routed_work(),
        false => node.accept_work(),
    };
    accepted.map_err(NotStarted::Refused)?;
    node.begin_call(&session.key.principal).map_err(NotStarted::Refused)?;
    let (extensions, parts) = request_head.open();
    let running = ActiveCall::new(Arc::clone(exchange), index, request.method.clone(), extensions);
    let handle = Arc::clone(&running) as Arc<dyn CancelHandle>;
    let refused = match session.start_call(&request.id, &handle) {
        Ok(true) => {
            session.draw_ordinals_if_low();
            let call = Call::new(request, parts);
            let work = Arc::clone(&server.handler).run(call, Arc::clone(&running));
            return Ok((running, work));
        }
        Ok(false) => {
            let message = format!("a request with id {} is in flight in this session", request.id);
            let error = RpcError::invalid_request(message);
            UnhandledCall::in_session(session, &request, running.extensions.get()).failed(Instant::now(), &error);
            NotStarted::DuplicateId(error)
        }
        Err(reason) => NotStarted::Refused(reason),
    };
    node.end_call(&session.key.principal);
    Err(refused)
}

/// Serves one request whose response is a stream already: the reply goes there. A request that is refused is returned: the
/// transport chooses how to say it.
pub(crate) async fn serve_on_stream(
    server: &Server,
    session: &Arc<Session>,
    slot: ReplySlot,
    request: Request,
    request_head: RequestHead,
) -> Result<(), (ReplySlot, Reason)> {
    if let Route::Builtin = route(session, &request) {
        let reply = handle_builtin(session, &request, request_head.extensions()).await;
        slot.reply(reply).await;
        return Ok(());
    }
    match start_call(server, session, &slot.exchange, slot.index, request, request_head) {
        Ok((running, work)) => {
            slot.close();
            tokio::spawn(run::run_detached(work, running));
        }
        Err(NotStarted::Refused(reason)) => return Err((slot, reason)),
        Err(duplicate) => slot.reply(Err(duplicate.into_error())).await,
    }
    Ok(())
}

/// The place of one reply in a response that is a stream. Dropping it replies with an error, so that the stream ends.
pub(crate) struct ReplySlot {
    exchange: Arc<Exchange>,
    index: usize,
    is_open: bool,
}

impl ReplySlot {
    pub(crate) fn new(exchange: &Arc<Exchange>, index: usize) -> Self {
        ReplySlot {
            exchange: Arc::clone(exchange),
            index,
            is_open: true,
        }
    }

    /// Replies. Waits if the stream has no room.
    pub(crate) async fn reply(mut self, reply: Result<Reply, RpcError>) {
        run::reply(&self.exchange, self.index, reply).await;
        self.is_open = false;
    }

    /// Something else replies.
    pub(crate) fn close(mut self) {
        self.is_open = false;
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        if self.is_open {
            let error = RpcError::internal("the connection closed before this request was served");
            if let ReplyResult::NoRoom(_, error) = self.exchange.reply(self.index, Err(error)) {
                let (exchange, index) = (Arc::clone(&self.exchange), self.index);
                tokio::spawn(async move { run::reply(&exchange, index, error).await });
            }
        }
    }
}

/// A notification of the client.
pub(crate) async fn notified(
    server: &Server,
    session: &Arc<Session>,
    note: jsonrpc::Notification,
    request_head: &RequestHead,
) {
    let handler = &session.node.handler;
    let method = note.method.as_str();
    let is_initialized = method == "notifications/initialized";
    let is_cancelled = method == "notifications/cancelled";
    if is_cancelled && let Some(id) = note.params.cancelled_request() {
        session.cancel(&id); // CAN-01: malformed params and unknown ids are ignored
    }
    let is_passed_on = match method {
        "notifications/initialized" => handler.relays || handler.receives_all,
        "notifications/cancelled" => handler.receives_all,
        _ => true,
    };
    if is_passed_on {
        let (peer, parts) = (Peer(Arc::clone(session)), request_head.parts());
        server
            .handler
            .on_notification(Notification { note, parts }, &peer)
            .await;
    }
    if is_initialized {
        session.mark_initialized().await;
    }
}
