//! The session era: revisions up to 2025-11-25. POST, GET and DELETE within a session that `initialize` opened.

use crate::call::active_call::ActiveCall;
use crate::call::answering::Answering;
use crate::call::calling::Calling;
use crate::call::handler::Handler;
use crate::call::opening::OpenError;
use crate::call::outlet::Outlet;
use crate::call::peer::Peer;
use crate::call::request::{Call, Notification};
use crate::call::run;
use crate::endpoint::open_session::open_session;
use crate::endpoint::pending_response::PendingResponse;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::respond;
use crate::endpoint::server::Server;
use crate::node::Node;
use crate::session::{CancelHandle, Session, Transport};
use crate::stream::body::Body;
use http::{Extensions, Response};
use rethread_proto::LogLevel;
use rethread_proto::gate::Head;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{self, Message, Payload, Request, RequestId, code, write_error, write_result};
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Refusal, StreamKind};
use rethread_store::SessionKey;
use std::sync::Arc;

/// `initialize`: opens a session (SES-01, SES-07, VER-01).
pub(crate) async fn initialize<H: Handler>(
    inner: &Server<H>,
    principal: Principal,
    request: Request,
    request_head: &RequestHead,
) -> Result<Response<Body>, Refusal> {
    let refuse = |reason| Refusal::new(reason).about(Some(&request.id));
    if inner.node.is_draining() {
        return Err(refuse(Reason::ShuttingDown));
    }
    let asked = match asked_version(&inner.node, &request) {
        Ok(asked) => asked,
        Err(error) => return Ok(respond::error(&request.id, &error)),
    };
    let served = inner.node.revisions;
    let Some(version) = served.negotiate(&asked) else {
        return Err(refuse(Reason::UnsupportedVersion {
            requested: asked,
            served,
        }));
    };
    let place = inner.sessions.reserve(&inner.node, &principal).map_err(refuse)?;
    let key = SessionKey {
        session: (inner.new_session_id)(),
        principal,
    };
    let session = Session::new(&inner.node, key, Transport::Streamable);
    let welcomed = match open_session(inner, &session, &request, version, request_head).await {
        Ok(welcomed) => welcomed,
        Err(OpenError::Refused(error)) => return Ok(respond::error(&request.id, &error)),
        Err(unavailable) => return Err(refuse(unavailable.into_reason())),
    };
    if inner.node.store.create(&session.key, session.record()).await.is_err() {
        return Err(refuse(Reason::StoreUnavailable));
    }
    session.begin_stored_queue();
    place.fill(&session);
    let response = respond::result(&request.id, &welcomed.keep());
    Ok(respond::with_session(response, &session.key.session))
}

/// The revision that an `initialize` asks for.
pub(crate) fn asked_version(node: &Node, request: &Request) -> Result<String, RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialize {
        protocol_version: String,
    }
    let limit = node.limits.initialize_bytes;
    if request.params.raw().len() > limit {
        let message = format!("the params of initialize are longer than {limit} bytes");
        return Err(RpcError::invalid_params(message));
    }
    let asked = request
        .params
        .read::<Initialize>()
        .map(|params| params.protocol_version);
    asked.map_err(|e| RpcError::invalid_params(format!("invalid params of initialize: {e}")))
}

/// A POST in a session: calls, notifications, answers, and batches of them where they exist.
pub(crate) fn post<H: Handler>(
    inner: &Server<H>,
    session: Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    match payload {
        Payload::One(Message::Request(request)) => call(inner, session, request, request_head),
        Payload::One(Message::Notification(note)) => Ok(PendingResponse::later(async move {
            notified(inner, &session, note, &request_head).await;
            Ok(respond::accepted())
        })),
        Payload::One(Message::Answer(answer)) => {
            session.answer(answer)?;
            Ok(PendingResponse::Done(respond::accepted()))
        }
        Payload::Batch(_) if !session.version().accepts_batches() => {
            let what = format!("batches are not part of protocol version {}", session.version());
            Err(Reason::InvalidRequest(what.into()).into())
        }
        Payload::Batch(messages) => Ok(PendingResponse::later(async move {
            batch(inner, session, messages, &request_head).await
        })),
    }
}

fn call<H: Handler>(
    inner: &Server<H>,
    session: Arc<Session>,
    request: Request,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    if is_ours(&session, &request) {
        return Ok(PendingResponse::later(async move {
            Ok(match answer_ourselves(&session, &request).await {
                Ok(()) => respond::result(&request.id, b"{}"),
                Err(error) => respond::error(&request.id, &error),
            })
        }));
    }
    let id = request.id.clone();
    let refuse = |reason| Refusal::new(reason).about(Some(&id));
    let outlet = Outlet::single(&session, id.clone());
    let (extensions, parts) = request_head.open();
    let Some(running) = begin(inner, &session, &request, Arc::clone(&outlet), extensions).map_err(refuse)? else {
        return Ok(PendingResponse::Done(respond::error(&id, &in_flight(&id))));
    };
    let call = Call::new(request, parts);
    let work = run::work(Arc::clone(&inner.handler), call, Arc::clone(&running));
    let upgrade_after = inner.node.upgrade_after.delay(session.version(), true);
    let answering = Answering::new(work, running, outlet, upgrade_after);
    Ok(PendingResponse::Call(Calling::new(answering, session, id)))
}

/// Takes note of a call that is about to run. `None` if its id is in flight.
pub(crate) fn begin<H: Handler>(
    inner: &Server<H>,
    session: &Arc<Session>,
    request: &Request,
    outlet: Arc<Outlet>,
    extensions: Extensions,
) -> Result<Option<Arc<ActiveCall>>, Reason> {
    let node = &inner.node;
    if node.is_draining() {
        return Err(Reason::ShuttingDown);
    }
    if !node.calls.enter(node.limits.calls) {
        return Err(Reason::Overloaded("calls"));
    }
    let running = ActiveCall::in_session(request, outlet, extensions);
    let handle = Arc::clone(&running) as Arc<dyn CancelHandle>;
    match session.start_call(&request.id, &handle) {
        Ok(true) => Ok(Some(running)),
        Ok(false) => {
            node.calls.leave();
            Ok(None)
        }
        Err(reason) => {
            node.calls.leave();
            Err(reason)
        }
    }
}

/// SES-10: the first call keeps its id, the second learns why it gets no answer.
pub(crate) fn in_flight(id: &RequestId) -> RpcError {
    RpcError::invalid_request(format!("a request with id {id} is in flight in this session"))
}

/// Whether the transport answers a request itself.
pub(crate) fn is_ours(session: &Session, request: &Request) -> bool {
    let node = &session.node;
    match request.method.as_str() {
        "ping" => true,
        "logging/setLevel" => !node.handler.relays && !node.handler.receives_all && session.declares("logging"),
        _ => false,
    }
}

/// Answers such a request.
pub(crate) async fn answer_ourselves(session: &Session, request: &Request) -> Result<(), RpcError> {
    #[derive(serde::Deserialize)]
    struct SetLevel {
        level: LogLevel,
    }
    if request.method.as_str() == "logging/setLevel" {
        let set = request.params.read::<SetLevel>();
        let set = set.map_err(|error| RpcError::invalid_params(format!("invalid params: {error}")))?;
        session.set_log_level(set.level).await;
    }
    Ok(())
}

/// HTTP-09: one stream, one answer event per request, closed after the last.
async fn batch<H: Handler>(
    inner: &Server<H>,
    session: Arc<Session>,
    messages: Vec<Message>,
    request_head: &RequestHead,
) -> Result<Response<Body>, Refusal> {
    let mut requests = Vec::new();
    for message in messages {
        match message {
            Message::Request(request) => requests.push(request),
            Message::Notification(note) => notified(inner, &session, note, request_head).await,
            Message::Answer(answer) => session.answer(answer)?,
        }
    }
    if requests.is_empty() {
        return Ok(respond::accepted());
    }
    if inner.node.is_draining() {
        return Err(Reason::ShuttingDown.into());
    }
    let ids = requests.iter().map(|request| request.id.clone()).collect();
    let (ours, calls): (Vec<_>, Vec<_>) = requests.into_iter().partition(|request| is_ours(&session, request));
    let mut answers = Vec::with_capacity(ours.len());
    for request in ours {
        let answer = answer_ourselves(&session, &request).await;
        answers.push((request.id, answer));
    }
    // From here on nothing is awaited: a client that leaves cannot leave a stream behind that nobody ends.
    let (outlet, reader) = Outlet::batch(&session, ids);
    let fail = |id: &RequestId, error: &RpcError| drop(outlet.end(|out| write_error(out, Some(id), error), 160));
    for (id, answer) in &answers {
        match answer {
            Ok(()) => drop(outlet.end(|out| write_result(out, id, b"{}"), 64)),
            Err(error) => fail(id, error),
        }
    }
    for request in calls {
        let id = request.id.clone();
        let (extensions, parts) = request_head.clone().open();
        match begin(inner, &session, &request, Arc::clone(&outlet), extensions) {
            Ok(Some(running)) => {
                let call = Call::new(request, parts);
                let work = run::work(Arc::clone(&inner.handler), call, Arc::clone(&running));
                tokio::spawn(run::run_detached(work, running));
            }
            Ok(None) => fail(&id, &in_flight(&id)),
            Err(reason) => {
                let message = Refusal::new(reason).error().message;
                fail(&id, &RpcError::new(code::INTERNAL_ERROR, message));
            }
        }
    }
    Ok(respond::stream(reader, session.version(), inner.node.is_unbuffered()))
}

pub(crate) async fn notified<H: Handler>(
    inner: &Server<H>,
    session: &Arc<Session>,
    note: jsonrpc::Notification,
    request_head: &RequestHead,
) {
    let node = &session.node;
    match note.method.as_str() {
        "notifications/initialized" if !node.handler.relays && !node.handler.receives_all => {
            session.mark_initialized().await;
        }
        "notifications/cancelled" => {
            // CAN-01: malformed params and unknown ids are ignored.
            if let Some(id) = note.params.cancelled_request() {
                session.cancel(&id);
            }
            if node.handler.receives_all {
                tell(inner, session, note, request_head).await;
            }
        }
        method => {
            let begins = method == "notifications/initialized";
            tell(inner, session, note, request_head).await;
            if begins {
                session.mark_initialized().await;
            }
        }
    }
}

async fn tell<H: Handler>(
    inner: &Server<H>,
    session: &Arc<Session>,
    note: jsonrpc::Notification,
    request_head: &RequestHead,
) {
    let peer = Peer(Arc::clone(session));
    let parts = request_head.parts();
    inner.handler.on_notification(Notification { note, parts }, &peer).await;
}

/// A GET in a session: a push stream, or the resumption of any stream.
pub(crate) async fn get<H: Handler>(
    inner: &Server<H>,
    session: Arc<Session>,
    head: &Head,
) -> Result<Response<Body>, Refusal> {
    let node = &inner.node;
    if node.connections.now() >= node.limits.connections {
        return Err(Reason::Overloaded("open streams").into());
    }
    let last_event_id = head.last_event_id.as_deref();
    if node.is_draining() {
        // Calls may still finish, and their clients come back for the answers; nothing new begins.
        let id = last_event_id.and_then(|text| node.ids.parse(&session.key.session, text));
        if id.is_none_or(|id| id.ordinal.kind() == StreamKind::Push) {
            return Err(Reason::ShuttingDown.into());
        }
    }
    let opened = session.open_get(last_event_id).await?;
    let response = respond::stream(opened.reader, session.version(), node.is_unbuffered());
    Ok(respond::with_gap(response, opened.gap))
}

/// A DELETE: the session ends (SES-05). The client is told so once it can no longer come back, not even after a restart.
pub(crate) async fn delete<H: Handler>(inner: &Server<H>, session: &Session) -> Result<Response<Body>, Refusal> {
    let pending_end = inner.sessions.end(session, "deleted");
    pending_end.wait().await.map_err(|_| Reason::StoreUnavailable)?;
    Ok(respond::no_content())
}
