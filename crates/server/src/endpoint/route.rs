//! Where a request runs: here, or on another node. The decisions are in `rethread_proto::cluster`.
//!
//! Only a request of a client is routed. A forwarded one is served where it arrives, or sent back.

use crate::call::request_state;
use crate::endpoint::forward::outgoing::Outgoing;
use crate::endpoint::forward::receiving::ForwardError;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::restore::place_of_call;
use crate::endpoint::server::Server;
use crate::endpoint::{legacy, respond};
use crate::node::random;
use crate::session::Session;
use crate::session::orphan::OrphanCause;
use crate::stream::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use rethread_proto::cluster::mail::ForwardEndpoint;
use rethread_proto::cluster::{
    AnswerPlace, CallPlace, NodePlace, RetryNode, SessionViews, any_other_node, place_of_answer, place_of_retry,
    places_of_notification,
};
use rethread_proto::jsonrpc::{self, Message, Payload, Request, RequestId};
use rethread_proto::mrtr::{self, State};
use rethread_proto::questions::Question;
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Refusal};
use rethread_store::Incarnation;
use std::sync::Arc;
use std::time::Duration;

/// How long a notification waits until the other nodes have it.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_millis(500);

/// A request of a client, as another node would get it.
#[derive(Clone)]
pub(crate) struct Routing {
    outgoing: Outgoing,
    principal: Principal,
    body: Bytes,
}

impl Routing {
    pub(crate) fn new(outgoing: Outgoing, principal: &Principal, body: &Bytes) -> Self {
        Routing {
            outgoing,
            principal: principal.clone(),
            body: body.clone(),
        }
    }

    /// The same request with a part of its body.
    fn with_body(&self, body: Vec<u8>) -> Self {
        Routing {
            outgoing: self.outgoing.clone(),
            principal: self.principal.clone(),
            body: body.into(),
        }
    }
}

/// Whether a POST in a session may concern another node.
pub(crate) fn may_leave(session: &Session, payload: &Payload) -> bool {
    let concerns_others = |message: &Message| match message {
        Message::Request(_) => false,
        Message::Notification(note) => note.method.as_str() != "notifications/initialized",
        Message::Answer(answer) => {
            Question::parse(&answer.id).is_some_and(|question| question.epoch() != session.epoch)
        }
    };
    session.node.is_draining()
        || !session.is_served_here()
        || match payload {
            Payload::One(message) => concerns_others(message),
            Payload::Batch(messages) => messages.iter().any(concerns_others),
        }
}

/// Serves a POST in a session, here or on the nodes that it concerns.
pub(crate) async fn post(
    server: &Server,
    session: Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
    routing: Routing,
) -> Result<Response<Body>, Refusal> {
    match payload {
        Payload::One(Message::Answer(answer)) => {
            let id = answer.id.clone();
            let payload = Payload::One(Message::Answer(answer));
            answer_question(server, session, &id, payload, request_head, &routing).await
        }
        Payload::Batch(messages) if session.version().accepts_batches() => {
            batch(server, session, messages, request_head, routing).await
        }
        payload => call_or_notification(server, session, payload, request_head, routing).await,
    }
}

/// HTTP-09: each answer goes to the node that asked, each notification to all nodes. All calls run on one node, because they
/// share a stream.
async fn batch(
    server: &Server,
    session: Arc<Session>,
    messages: Vec<Message>,
    request_head: RequestHead,
    routing: Routing,
) -> Result<Response<Body>, Refusal> {
    let is_call = |message: &Message| matches!(message, Message::Request(_));
    let (calls, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_call);
    for message in others {
        let routing = routing.with_body(jsonrpc::message(&message));
        let part = (Arc::clone(&session), request_head.clone());
        let response = match message {
            Message::Answer(answer) => {
                let id = answer.id.clone();
                let payload = Payload::One(Message::Answer(answer));
                answer_question(server, part.0, &id, payload, part.1, &routing).await?
            }
            message => call_or_notification(server, part.0, Payload::One(message), part.1, routing).await?,
        };
        if !response.status().is_success() {
            return Ok(response);
        }
    }
    if calls.is_empty() {
        return Ok(respond::accepted());
    }
    let routing = routing.with_body(jsonrpc::batch(&calls));
    call_or_notification(server, session, Payload::Batch(calls), request_head, routing).await
}

/// Calls go to the node that runs them, notifications to all nodes.
async fn call_or_notification(
    server: &Server,
    session: Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
    routing: Routing,
) -> Result<Response<Body>, Refusal> {
    let ids = request_ids(&payload);
    if ids.is_empty() && !session.has_owner() {
        // A cancellation names a call that may run on any node, and other notifications concern every handler.
        forward_to_views(server, &session, &routing).await;
        return legacy::post(server, session, payload, request_head)?.response().await;
    }
    let mut avoided = Vec::new();
    loop {
        let place = place_of_call(server, &session, &request_head, &avoided).await;
        let target = match place.map_err(|reason| Refusal::new(reason).about(ids.first()))? {
            CallPlace::Forward(node) => node,
            CallPlace::NoNode => return Err(Refusal::new(Reason::ShuttingDown).about(ids.first())),
            _ => return legacy::post(server, session, payload, request_head)?.response().await,
        };
        match forward(server, &target, &routing, Some(&session)).await {
            Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => {
                // The owner has changed, or a node without the session drains. The view is read again, and that node is avoided,
                // so this ends.
                if !session.is_owned_by(&target) {
                    avoided.push(target);
                }
                session.refresh_view().await.map_err(|_| Reason::StoreUnavailable)?;
            }
            Ok(response) => return Ok(response),
            Err(ForwardError::NotRun) => {} // its node died before it ran: this one may become the owner
            Err(ForwardError::Died | ForwardError::LeaseEnded) => return Ok(may_have_run(&ids)),
            Err(ForwardError::Refused(reason)) => return Err(Refusal::new(reason).about(ids.first())),
        }
    }
}

/// Serves a POST that another node has forwarded. If this node is the wrong one, the response is 421.
pub(crate) async fn post_forwarded(
    server: &Server,
    session: Arc<Session>,
    payload: Payload,
    request_head: RequestHead,
) -> Result<Response<Body>, Refusal> {
    let is_call = !request_ids(&payload).is_empty();
    if server.node.is_draining() && !session.is_served_here() {
        return Ok(respond::misdirected()); // this node has handed the session over
    }
    if is_call && place_of_call(server, &session, &request_head, &[]).await? == CallPlace::Moved {
        return Ok(respond::misdirected());
    }
    legacy::post(server, session, payload, request_head)?.response().await
}

/// Serves a stateless request on the node that its state names, or on any other while this node drains. `None` if it is
/// served here.
pub(crate) async fn stateless(
    server: &Server,
    request: &Request,
    principal: &Principal,
    routing: &Routing,
) -> Option<Result<Response<Body>, Refusal>> {
    let outgoing = match request.method.as_str() {
        "subscriptions/listen" => routing.outgoing.without_end(),
        _ => routing.outgoing.with_error_on_death(&request.id),
    };
    let routing = &Routing {
        outgoing,
        principal: routing.principal.clone(),
        body: routing.body.clone(),
    };
    let named = node_of_retry(server, request, principal);
    if let Some(named) = &named
        && let Some(response) = retry(server, named, &request.id, routing).await
    {
        return Some(response);
    }
    if !server.node.is_draining() || matches!(named, Some(RetryNode::Parked(_))) {
        return None;
    }
    let served = while_draining(server, routing, None).await;
    Some(served.unwrap_or(Err(Reason::ShuttingDown.into())))
}

/// Whether a forwarded request goes back because this node drains, too. The retry of a call that is parked here is served: no
/// other node has the call.
pub(crate) fn goes_back(server: &Server, request: &Request, principal: &Principal) -> bool {
    server.node.is_draining() && !matches!(node_of_retry(server, request, principal), Some(RetryNode::Parked(_)))
}

/// Serves a request on another node while this one drains. `None` if no other node takes it.
pub(crate) async fn while_draining(
    server: &Server,
    routing: &Routing,
    session: Option<&Arc<Session>>,
) -> Option<Result<Response<Body>, Refusal>> {
    let membership = &server.node.membership;
    let here = membership.current()?;
    let mut avoided = Vec::new();
    loop {
        let random = u64::from_le_bytes(random());
        let other = membership.with_members(|members| any_other_node(&here, &avoided, members, random))?;
        match forward(server, &other, routing, session).await {
            Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => {} // it drains, too
            Ok(response) => return Some(Ok(response)),
            Err(ForwardError::NotRun) => {} // it has left or died
            Err(ForwardError::Died | ForwardError::LeaseEnded) => return Some(Err(Reason::ShuttingDown.into())),
            Err(ForwardError::Refused(reason)) => return Some(Err(reason.into())),
        }
        avoided.push(other);
    }
}

/// The node that the state of a retry names.
fn node_of_retry(server: &Server, request: &Request, principal: &Principal) -> Option<RetryNode> {
    let text = mrtr::request_state(&request.params).ok()??;
    if let Some(relayed) = request_state::open_relayed(&server.node, &text, principal) {
        return Some(RetryNode::Relayed(relayed.ok()?.node));
    }
    let (method, params) = (request.method.as_str(), &request.params);
    match request_state::open(&server.node, &text, principal, method, params).ok()? {
        State::Parked { node, .. } => node.map(RetryNode::Parked),
        State::Own { .. } => None,
    }
}

/// Serves a retry on the node that its state names. `None` if that is this node, or if the retry did not run there.
async fn retry(
    server: &Server,
    named: &RetryNode,
    id: &RequestId,
    routing: &Routing,
) -> Option<Result<Response<Body>, Refusal>> {
    let membership = &server.node.membership;
    let (cluster, here) = server.node.cluster().zip(membership.current())?;
    loop {
        match membership.with_members(|members| place_of_retry(named.node(), &here, members)) {
            NodePlace::Here | NodePlace::Dead => return None,
            NodePlace::Check(node) => {
                if membership.check(cluster, &node).await.is_err() {
                    return Some(Err(Reason::StoreUnavailable.into()));
                }
            }
            NodePlace::Forward(node) => {
                return match (forward(server, &node, routing, None).await, named) {
                    // It drains. A call that is parked there would have been served.
                    (Ok(response), _) if response.status() == StatusCode::MISDIRECTED_REQUEST => None,
                    (Ok(response), _) => Some(Ok(response)),
                    (Err(ForwardError::NotRun), _) | (Err(ForwardError::Died), RetryNode::Parked(_)) => None,
                    // Another process could run the call a second time.
                    (Err(ForwardError::Died), RetryNode::Relayed(_)) => {
                        Some(Ok(may_have_run(std::slice::from_ref(id))))
                    }
                    (Err(ForwardError::LeaseEnded), _) => Some(Err(Reason::StoreUnavailable.into())),
                    (Err(ForwardError::Refused(reason)), _) => Some(Err(reason.into())),
                };
            }
        }
    }
}

/// Passes the answer to a question to the node that asked it. An answer to a question of a dead node is too late (S2C-04).
async fn answer_question(
    server: &Server,
    session: Arc<Session>,
    id: &RequestId,
    payload: Payload,
    request_head: RequestHead,
    routing: &Routing,
) -> Result<Response<Body>, Refusal> {
    let membership = &server.node.membership;
    let (Some(cluster), Some(here)) = (server.node.cluster(), membership.current()) else {
        return Err(Reason::StoreUnavailable.into());
    };
    let views = cluster.views(&session.key).await;
    let views = views.map_err(|_| Reason::StoreUnavailable)?;
    let views = SessionViews {
        here: &here,
        epoch: session.epoch,
        last_epoch: views.last_epoch,
        views: &views.open,
    };
    loop {
        match membership.with_members(|members| place_of_answer(id, &views, members)) {
            AnswerPlace::Check(node) => {
                let checked = membership.check(cluster, &node).await;
                checked.map_err(|_| Reason::StoreUnavailable)?;
            }
            AnswerPlace::Here => return legacy::post(server, session, payload, request_head)?.response().await,
            AnswerPlace::Late => return Ok(respond::accepted()),
            AnswerPlace::NeverAsked => return Err(Reason::UnknownQuestion.into()),
            AnswerPlace::Forward(asker) => {
                return match forward(server, &asker, routing, None).await {
                    // The asker has handed the session over, so nobody waits for the answer.
                    Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST => Ok(respond::accepted()),
                    Ok(response) => Ok(response),
                    Err(ForwardError::NotRun | ForwardError::Died) => Ok(respond::accepted()), // too late
                    Err(ForwardError::LeaseEnded) => Err(Reason::StoreUnavailable.into()),
                    Err(ForwardError::Refused(reason)) => Err(reason.into()),
                };
            }
        }
    }
}

/// Passes a notification to every other node that has a view of the session.
async fn forward_to_views(server: &Server, session: &Arc<Session>, routing: &Routing) {
    let membership = &server.node.membership;
    let (Some(cluster), Some(here)) = (server.node.cluster(), membership.current()) else {
        return;
    };
    let Ok(views) = cluster.views(&session.key).await else {
        return;
    };
    let nodes = session.with_place(&here, false, &[], |place| {
        membership.with_members(|members| places_of_notification(place, &views.open, members))
    });
    // Each in a task of its own: a node that is paused takes its message later, and delays nobody.
    let mut tasks = tokio::task::JoinSet::new();
    for to in nodes {
        let (forwards, node) = (Arc::clone(&server.forwards), Arc::clone(&server.node));
        let routing = routing.clone();
        tasks.spawn(async move {
            let request = (&routing.outgoing, &routing.principal);
            let (endpoint, body) = (ForwardEndpoint::Mcp, routing.body);
            // A node that dies has nothing to cancel.
            let _ = forwards.forward(&node, &to, request, endpoint, body, None).await;
        });
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(NOTIFICATION_TIMEOUT, all).await.is_err() {
        tasks.detach_all();
    }
}

async fn forward(
    server: &Server,
    to: &Incarnation,
    routing: &Routing,
    session: Option<&Arc<Session>>,
) -> Result<Response<Body>, ForwardError> {
    let request = (&routing.outgoing, &routing.principal);
    let (endpoint, body) = (ForwardEndpoint::Mcp, routing.body.clone());
    server
        .forwards
        .forward(&server.node, to, request, endpoint, body, session)
        .await
}

fn request_ids(payload: &Payload) -> Vec<RequestId> {
    let messages = match payload {
        Payload::One(message) => std::slice::from_ref(message),
        Payload::Batch(messages) => messages,
    };
    messages.iter().filter_map(Message::request_id).cloned().collect()
}

/// The node that ran the calls has died, or this node cannot get their replies.
fn may_have_run(ids: &[RequestId]) -> Response<Body> {
    match ids {
        [id] => respond::error(id, &OrphanCause::Restarted.error()),
        ids => respond::errors(ids, &OrphanCause::Restarted.error()),
    }
}
