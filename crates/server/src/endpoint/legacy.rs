//! The session era: revisions up to 2025-11-25. POST, GET and DELETE within a session that `initialize` opened.

use crate::call::exchange::Exchange;
use crate::call::opening::OpenError;
use crate::call::peer::Peer;
use crate::call::request_meta::RequestMeta;
use crate::call::response_future::ResponseFuture;
use crate::call::run::{self, HandlerEnd};
use crate::call::unhandled_call::UnhandledCall;
use crate::call::waiting_client::WaitingClient;
use crate::endpoint::dispatch::{self, NotStarted, ReplySlot, Route};
use crate::endpoint::open_session::open_session;
use crate::endpoint::pending_response::PendingResponse;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::respond;
use crate::endpoint::server::Server;
use crate::node::Node;
use crate::node::acknowledgements::ENDED;
use crate::node::observe::ResumeFacts;
use crate::node::session_end::SessionEnd;
use crate::session::view::wait_for_views;
use crate::session::{Session, Transport};
use crate::stream::body::Body;
use http::Response;
use rethread_proto::gate::Head;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{Message, Payload, Request};
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Refusal, StreamKind, Version};
use rethread_store::SessionKey;
use std::sync::Arc;
use std::time::Instant;

/// `initialize`: opens a session (SES-01, SES-07, VER-01).
pub(crate) async fn initialize(
    inner: &Server,
    principal: Principal,
    request: Request,
    request_head: &RequestHead,
) -> Result<Response<Body>, Refusal> {
    let started = Instant::now();
    let refuse = |reason| Refusal::new(reason).about(Some(&request.id));
    inner.node.accept_routed_work().map_err(refuse)?;
    inner.node.check_lease().map_err(refuse)?;
    let asked = match asked_version(&inner.node, &request) {
        Ok(asked) => asked,
        Err(error) => {
            let (version, extensions) = (Version::V2025_11_25, request_head.extensions());
            UnhandledCall::without_session(&inner.node, version, &principal, &request, extensions)
                .failed(started, &error);
            return Ok(respond::error(&request.id, &error));
        }
    };
    let served = inner.node.revisions;
    let Some(version) = served.negotiate(&asked) else {
        return Err(refuse(Reason::UnsupportedVersion {
            requested: asked,
            served,
        }));
    };
    let place = inner.sessions.reserve(&inner.node, &principal).map_err(refuse)?;
    check_stored_sessions(&inner.node, &principal).await.map_err(refuse)?;
    let key = SessionKey {
        session: (inner.new_session_id)(),
        principal,
    };
    let session = Session::new(&inner.node, key, Transport::Streamable);
    request_head.present_to(&session);
    let opened = match open_session(inner, &session, &request, version, request_head).await {
        Ok(opened) => opened,
        Err(OpenError::Refused(error)) => {
            let (principal, extensions) = (&session.key.principal, request_head.extensions());
            UnhandledCall::without_session(&inner.node, version, principal, &request, extensions)
                .failed(started, &error);
            return Ok(respond::error(&request.id, &error));
        }
        Err(unavailable) => return Err(refuse(unavailable.into_reason())),
    };
    let created = inner
        .node
        .store
        .create(&session.key, session.record(), session.has_owner())
        .await;
    let view = created.map_err(|_| refuse(Reason::StoreUnavailable))?;
    session.set_view(&view);
    session.begin_stored_queue();
    session.touch(); // the handler may have needed longer than a session may be idle
    place.fill(&session);
    session.opened(request_head.extensions(), false);
    UnhandledCall::in_session(&session, &request, request_head.extensions()).succeeded(started);
    let response = respond::result(&request.id, &opened.keep());
    Ok(respond::with_session(response, &session.key.session))
}

/// Counts the sessions of all nodes, with the refusals of [`Registry::reserve`](crate::session::registry::Registry::reserve).
/// Sessions that are opened at once count each other only when they are stored, so they may exceed a limit by their number.
pub(crate) async fn check_stored_sessions(node: &Node, principal: &Principal) -> Result<(), Reason> {
    let Some(cluster) = node.cluster() else {
        return Ok(());
    };
    let sessions = cluster.count_sessions(principal).await;
    let sessions = sessions.map_err(|_| Reason::StoreUnavailable)?;
    if sessions.total >= node.limits.sessions() {
        return Err(Reason::Overloaded("sessions"));
    }
    if !principal.is_anonymous() && sessions.of_principal >= node.limits.sessions_per_principal() {
        return Err(Reason::TooMany("sessions of this caller"));
    }
    Ok(())
}

/// The revision that an `initialize` asks for.
pub(crate) fn asked_version(node: &Node, request: &Request) -> Result<String, RpcError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialize {
        protocol_version: String,
    }
    let limit = node.limits.initialize_bytes();
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
pub(crate) fn post(
    inner: &Server,
    session: Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    if has_request(&payload) {
        session.mark_used();
    }
    match payload {
        Payload::One(Message::Request(request)) => call(inner, session, request, request_head),
        Payload::One(Message::Notification(note)) => Ok(PendingResponse::later(async move {
            dispatch::notified(inner, &session, note, &request_head).await;
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

fn has_request(payload: &Payload) -> bool {
    let is_request = |message: &Message| matches!(message, Message::Request(_));
    match payload {
        Payload::One(message) => is_request(message),
        Payload::Batch(messages) => messages.iter().any(is_request),
    }
}

fn call(
    inner: &Server,
    session: Arc<Session>,
    request: Request,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    let exchange = Exchange::in_session(&session, RequestMeta::in_session(&request));
    if let Route::Builtin = dispatch::route(&session, &request) {
        return Ok(PendingResponse::later(async move {
            let reply = dispatch::handle_builtin(&session, &request, request_head.extensions()).await;
            Ok(match run::reply(&exchange, 0, reply).await {
                HandlerEnd::Json(json) => respond::json_with(json.status, json.message),
                HandlerEnd::Elsewhere => respond::accepted(), // cannot happen: nothing else uses the exchange
            })
        }));
    }
    let id = request.id.clone();
    match dispatch::start_call(inner, &session, &exchange, 0, request, request_head) {
        Ok((running, work)) => {
            let upgrade_after = inner.node.upgrade_after.delay(session.version(), true);
            let client = WaitingClient::in_session(running);
            let response = ResponseFuture::new(Some(work), client, upgrade_after);
            Ok(PendingResponse::Call(response))
        }
        Err(NotStarted::Refused(reason)) => Err(Refusal::new(reason).about(Some(&id))),
        Err(duplicate) => Ok(PendingResponse::Done(respond::error(&id, &duplicate.into_error()))),
    }
}

/// HTTP-09: one stream, one reply for each request, closed after the last.
async fn batch(
    inner: &Server,
    session: Arc<Session>,
    messages: Vec<Message>,
    request_head: &RequestHead,
) -> Result<Response<Body>, Refusal> {
    let mut requests = Vec::new();
    for message in messages {
        match message {
            Message::Request(request) => requests.push(request),
            Message::Notification(note) => dispatch::notified(inner, &session, note, request_head).await,
            Message::Answer(answer) => session.answer(answer)?,
        }
    }
    if requests.is_empty() {
        return Ok(respond::accepted());
    }
    inner.node.accept_routed_work()?;
    // The transport's own replies come first: a client that leaves meanwhile leaves no stream behind.
    let mut replies = Vec::with_capacity(requests.len());
    for request in &requests {
        replies.push(match dispatch::route(&session, request) {
            Route::Builtin => Some(dispatch::handle_builtin(&session, request, request_head.extensions()).await),
            Route::Handler => None,
        });
    }
    let waiting = requests.iter().map(RequestMeta::in_session).collect();
    let (exchange, reader) = Exchange::batch(&session, waiting);
    // All of them first: a client that leaves while one reply waits for room must not leave an unsealed stream behind.
    let slots: Vec<_> = (0..requests.len())
        .map(|index| ReplySlot::new(&exchange, index))
        .collect();
    for (slot, (request, reply)) in slots.into_iter().zip(requests.into_iter().zip(replies)) {
        match reply {
            Some(reply) => slot.reply(reply).await,
            None => {
                let (head, refused) = (request_head.clone(), request.clone());
                if let Err((slot, reason)) = dispatch::serve_on_stream(inner, &session, slot, request, head).await {
                    UnhandledCall::in_session(&session, &refused, request_head.extensions())
                        .refused(&Refusal::new(reason.clone()));
                    slot.reply(Err(NotStarted::Refused(reason).into_error())).await;
                }
            }
        }
    }
    Ok(respond::stream(reader, session.version(), &inner.node))
}

/// A GET in a session: a push stream, or the resumption of any stream.
pub(crate) async fn get(
    inner: &Server,
    session: Arc<Session>,
    (head, request_head): (&Head, &RequestHead),
    is_draining: bool,
) -> Result<Response<Body>, Refusal> {
    let (node, started) = (&inner.node, Instant::now());
    if node.connections.now() >= node.limits.connections() {
        return Err(Reason::Overloaded("open streams").into());
    }
    let last_event_id = head.last_event_id.as_deref();
    let id = last_event_id.and_then(|text| node.ids.parse(&session.key.session, text));
    let is_push = id.is_none_or(|id| id.ordinal.kind() == StreamKind::Push);
    if is_draining && is_push {
        // Calls may still finish, and their clients come back for the answers; nothing new begins.
        return Err(Reason::ShuttingDown.into());
    }
    session.mark_used();
    let opened = session.open_get(last_event_id).await?;
    if let (Some(observer), Some(resumed)) = (&node.observer, &opened.resumed) {
        observer.stream_resumed(&ResumeFacts {
            session: session.tag(),
            principal: &session.key.principal,
            version: session.version(),
            calls: &resumed.calls,
            has_gap: opened.gap.is_some(),
            duration: started.elapsed(),
            extensions: request_head.extensions(),
        });
    }
    if is_push && session.is_open_in_handler() {
        inner.handler.on_push_stream_opened(&Peer(Arc::clone(&session)));
    }
    let response = respond::stream(opened.reader, session.version(), node);
    Ok(respond::with_gap(response, opened.gap))
}

/// A DELETE: the session ends (SES-05). The client gets its answer once the session cannot be restored, not even after a restart.
pub(crate) async fn delete(inner: &Server, session: &Session) -> Result<Response<Body>, Refusal> {
    let expected = session.expect_acknowledgements();
    let pending_end = inner.sessions.end(session, SessionEnd::Deleted);
    let views = pending_end.wait().await.map_err(|_| Reason::StoreUnavailable)?;
    wait_for_views(&inner.node, expected, &views, ENDED).await;
    Ok(respond::no_content())
}
