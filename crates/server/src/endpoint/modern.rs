//! The stateless era: 2026-07-28. Every request carries what is needed to answer it, and nothing is remembered (HTTP-15).

use crate::call::active_call::ActiveCall;
use crate::call::call_scope::StatelessScope;
use crate::call::exchange::Exchange;
use crate::call::json_response::JsonResponse;
use crate::call::parked_calls::ParkedCall;
use crate::call::request::{Call, Inputs};
use crate::call::request_meta::{ClientMeta, RequestMeta};
use crate::call::request_state;
use crate::call::response_future::ResponseFuture;
use crate::call::unhandled_call::UnhandledCall;
use crate::call::waiting_client::WaitingClient;
use crate::endpoint::pending_response::PendingResponse;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::respond;
use crate::endpoint::server::Server;
use crate::node::Node;
use crate::session::subscriptions::SubscriptionStream;
use crate::stream::body::Body;
use crate::stream::events::Events;
use http::{Extensions, HeaderMap, Response};
use rethread_proto::clock::Wall;
use rethread_proto::gate::mirror::{self, Field, HeaderParams, Stateless};
use rethread_proto::jsonrpc::{Notification, ProgressToken, Request, RpcError};
use rethread_proto::mrtr::{self, InputResponses};
use rethread_proto::refusal::Reason;
use rethread_proto::stream::Framing;
use rethread_proto::subscription::{Filter, Offered};
use rethread_proto::{Principal, Refusal, Version};
use serde_json::json;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A request of this era. VER-05: checked in this order, then answered.
pub(crate) fn post(
    inner: &Server,
    principal: Principal,
    version: Version,
    request: Request,
    parts: Result<Box<Stateless>, Reason>,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    let refuse = |reason| Refusal::new(reason).about(Some(&request.id));
    let parts = parts.map_err(refuse)?;
    check(request_head.headers(), &request, &parts).map_err(refuse)?;
    let admitted = admit(
        &inner.node,
        (version, principal),
        &request,
        &parts,
        request_head.extensions(),
    );
    let sender = match admitted.map_err(refuse)? {
        Ok(sender) => sender,
        Err(json) => return Ok(PendingResponse::json(json)),
    };
    let stateless = StatelessRequest {
        version,
        request,
        sender,
        framing: Framing::Numbered,
    };
    let tool = match &parts.name {
        Field::Text(tool) if stateless.request.method.as_str() == "tools/call" => tool.clone(),
        _ => return respond_to(inner, stateless, request_head),
    };
    let handler = Arc::clone(&inner.handler);
    let params = stateless.request.params.clone();
    let mut params = handler.header_params(tool, params, stateless.sender.principal.clone());
    let serve = move |params: Option<Arc<HeaderParams>>| {
        check_header_params(params, &stateless, &parts, &request_head)?;
        respond_to(inner, stateless, request_head)
    };
    // Most handlers know the params at once, so that their calls need no future around that of the call.
    match params.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(params) => serve(params),
        Poll::Pending => Ok(PendingResponse::later(
            async move { serve(params.await)?.response().await },
        )),
    }
}

/// Begins to serve a request over HTTP.
fn respond_to(
    inner: &Server,
    stateless: StatelessRequest,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    let (version, id) = (stateless.version, stateless.request.id.clone());
    let begun = begin(inner, stateless, request_head);
    Ok(match begun.map_err(|reason| Refusal::new(reason).about(Some(&id)))? {
        StatelessResponse::Answered(json) => PendingResponse::json(json),
        StatelessResponse::Call(response) => PendingResponse::Call(response),
        StatelessResponse::Subscribed(subscription) => {
            let node = &inner.node;
            let events = Events::new(subscription, node.timing.keep_alive);
            PendingResponse::Done(respond::stream(Box::new(events), version, node))
        }
    })
}

/// HDR-04: arguments that the tool's schema mirrors into headers.
fn check_header_params(
    params: Option<Arc<HeaderParams>>,
    stateless: &StatelessRequest,
    parts: &Stateless,
    request_head: &RequestHead,
) -> Result<(), Refusal> {
    let checked = params.map_or(Ok(()), |params| {
        params.check(request_head.headers(), parts.arguments.as_deref())
    });
    checked.map_err(|reason| Refusal::new(reason).about(Some(&stateless.request.id)))
}

/// A request that was [admitted](admit).
pub(crate) struct StatelessRequest {
    pub(crate) version: Version,
    pub(crate) request: Request,
    pub(crate) sender: Sender,
    /// The framing of a stream on the transport that brought it.
    pub(crate) framing: Framing,
}

/// The principal of a request, and the facts of its client.
pub(crate) struct Sender {
    principal: Principal,
    client: ClientMeta,
    progress_token: Option<ProgressToken>,
    /// The request brings input that was asked for.
    is_retry: bool,
}

fn check(headers: &HeaderMap, request: &Request, parts: &Stateless) -> Result<(), Reason> {
    let method = request.method.as_str();
    parts.capabilities()?;
    mirror::check_method(headers, method)?;
    mirror::check_name(headers, method, parts)
}

/// VER-05, the rows that every transport has: the client's capabilities are there, the method is known, the log level is
/// valid. A method of no revision may be the handler's own, so it counts as unknown only if something else is wrong.
/// For an unknown method, the response is returned.
pub(crate) fn admit(
    node: &Node,
    (version, principal): (Version, Principal),
    request: &Request,
    parts: &Stateless,
    extensions: &Extensions,
) -> Result<Result<Sender, JsonResponse>, Reason> {
    parts.capabilities()?;
    let method = request.method.as_str();
    if is_removed(method) || (!request.method.is_standard() && parts.log_level().is_err()) {
        let error = RpcError::method_not_found(method);
        UnhandledCall::without_session(node, version, &principal, request, extensions).failed(Instant::now(), &error);
        return Ok(Err(JsonResponse::error(&request.id, &error)));
    }
    Ok(Ok(Sender {
        principal,
        client: ClientMeta::read(parts)?,
        progress_token: parts.progress_token.clone(),
        is_retry: parts.is_retry(),
    }))
}

/// The beginning of a response.
#[allow(clippy::large_enum_variant)] // the largest is the rule
pub(crate) enum StatelessResponse {
    Answered(JsonResponse),
    Subscribed(SubscriptionStream),
    Call(ResponseFuture),
}

/// Begins to serve a request, over HTTP or on lines.
pub(crate) fn begin(
    inner: &Server,
    stateless: StatelessRequest,
    request_head: RequestHead,
) -> Result<StatelessResponse, Reason> {
    let (node, started) = (&inner.node, Instant::now());
    let StatelessRequest {
        version,
        request,
        sender,
        ..
    } = &stateless;
    let unhandled =
        UnhandledCall::without_session(node, *version, &sender.principal, request, request_head.extensions());
    match request.method.as_str() {
        "server/discover" if !node.handler.receives_all && !node.handler.answers_discover => {
            node.accept_routed_work()?;
            unhandled.succeeded(started);
            Ok(StatelessResponse::Answered(discover(node, request)))
        }
        "subscriptions/listen" => {
            // A handler that serves it itself keeps the filter as long as the transport would: the bounds are the same.
            let filter = match Filter::read(&request.params, node.limits.filter()) {
                Ok(filter) => filter,
                Err(error) => {
                    unhandled.failed(started, &error);
                    return Ok(StatelessResponse::Answered(JsonResponse::error(&request.id, &error)));
                }
            };
            if inner.handler.serves_subscription(&request.params, &sender.principal) {
                return serve(inner, stateless, request_head);
            }
            node.accept_routed_work()?;
            listen(
                inner,
                request,
                &filter,
                (sender.principal.clone(), request_head.expiry().flatten()),
            )
        }
        _ => serve(inner, stateless, request_head),
    }
}

/// A notification of this era: taken and dropped (HTTP-06, CAN-04). Ids are not unique over clients, so nothing here can
/// cancel a call.
pub(crate) fn notified(headers: &HeaderMap, note: &Notification) -> Result<Response<Body>, Refusal> {
    mirror::check_method_if_sent(headers, note.method.as_str())?;
    Ok(respond::accepted())
}

/// HTTP-12: methods of the session era that this one has not.
fn is_removed(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "ping"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "tasks/list"
            | "tasks/result"
    )
}

/// `server/discover`: who we are, what we can do, and in which revisions (VER-07).
fn discover(node: &Node, request: &Request) -> JsonResponse {
    let versions: Vec<_> = node.revisions.newest_first().map(Version::as_str).collect();
    let mut result = json!({ "supportedVersions": versions, "capabilities": node.info.capabilities });
    if let Some(instructions) = &node.info.instructions {
        result["instructions"] = json!(instructions);
    }
    let result = result.to_string();
    JsonResponse::result(&request.id, result.as_bytes(), "server/discover", node)
}

/// `subscriptions/listen`: a stream of changes.
fn listen(
    inner: &Server,
    request: &Request,
    filter: &Filter,
    owner: (Principal, Option<Wall>),
) -> Result<StatelessResponse, Reason> {
    let node = &inner.node;
    let declares = |capability: &str| node.info.declares(capability);
    let filter = filter.honour(Offered {
        tools: declares("tools.listChanged"),
        prompts: declares("prompts.listChanged"),
        resources: declares("resources.listChanged"),
        subscribe: declares("resources.subscribe"),
    });
    let opened = inner
        .sessions
        .subscriptions
        .open(node, request.id.clone(), filter, owner);
    opened.map(StatelessResponse::Subscribed)
}

/// A request for the handler: a new call, or the retry of one that waits for input.
fn serve(inner: &Server, stateless: StatelessRequest, request_head: RequestHead) -> Result<StatelessResponse, Reason> {
    let StatelessRequest {
        version,
        mut request,
        sender,
        framing,
    } = stateless;
    let (node, started) = (&inner.node, Instant::now());
    let input = if sender.is_retry {
        request_input(inner, &mut request, &sender.principal)
    } else {
        Ok(RequestInput::Call { inputs: None, round: 0 })
    };
    let fail = |principal: &Principal, request: &Request, error: &RpcError| {
        UnhandledCall::without_session(node, version, principal, request, request_head.extensions())
            .failed(started, error);
        Ok(StatelessResponse::Answered(JsonResponse::error(&request.id, error)))
    };
    let meta = RequestMeta::new(request.id.clone(), sender.progress_token, framing, sender.client);
    let (running, work) = match input {
        Err(error) => return fail(&sender.principal, &request, &error),
        Ok(RequestInput::Parked(ParkedCall { running, .. }, responses)) => {
            if !running.exchange.retry(meta, &responses) {
                let gone = request_state::refused(node, mrtr::Invalid::Gone);
                return fail(&sender.principal, &request, &gone);
            }
            (running, None)
        }
        Ok(RequestInput::Call { inputs, round }) => {
            node.accept_routed_work()?; // a parked call may still have its input
            node.begin_call(&sender.principal)?;
            let scope = StatelessScope {
                method: request.method.clone(),
                params: request.params.clone(),
                principal: sender.principal,
                round,
                is_sessionless: false,
                tables: inner.stateless_tables(),
            };
            let (extensions, parts) = request_head.open();
            let exchange = Exchange::stateless(node, version, scope, meta);
            let running = ActiveCall::new(exchange, 0, request.method.clone(), extensions);
            let call = Call { request, inputs, parts };
            let work = Arc::clone(&inner.handler).run(call, Arc::clone(&running));
            (running, Some(work))
        }
    };
    let client = WaitingClient::stateless(running, &inner.parked);
    let upgrade_after = node.upgrade_after.delay(version, false);
    Ok(StatelessResponse::Call(ResponseFuture::new(
        work,
        client,
        upgrade_after,
    )))
}

/// The input that a request carries.
enum RequestInput {
    /// A call for the handler, with input that it asked for in an answer of its own, if any.
    Call { inputs: Option<Box<Inputs>>, round: u32 },
    /// A call that waits, and input for it.
    Parked(ParkedCall, InputResponses),
}

/// Reads the input and the state of a retry, and checks that the state is the caller's own (MRTR-05). A relay passes on a state
/// that it has not sealed: it belongs to the server behind the relay (GW-07). If the state names a node, the server gets it
/// without that name (GW-19).
fn request_input(inner: &Server, request: &mut Request, principal: &Principal) -> Result<RequestInput, RpcError> {
    let node = &inner.node;
    let state = mrtr::request_state(&request.params);
    if let Ok(Some(text)) = &state
        && let Some(relayed) = request_state::open_relayed(node, text, principal)
    {
        request.params = mrtr::with_state(&request.params, &relayed?.text);
        return Ok(RequestInput::Call { inputs: None, round: 0 });
    }
    let params = &request.params;
    if node.handler.relays && !matches!(&state, Ok(Some(text)) if node.seal().looks_sealed(text)) {
        return Ok(RequestInput::Call { inputs: None, round: 0 });
    }
    let responses = InputResponses::read(params)?;
    let (round, state) = match state? {
        None => (0, None),
        Some(text) => match request_state::open(node, &text, principal, request.method.as_str(), params)? {
            mrtr::State::Own { round, bytes } => (round, Some(bytes.into())),
            mrtr::State::Parked { id, .. } => {
                // Single use: a second retry, or one after a restart (RST-05), finds nothing.
                let park = inner.parked.take(id);
                let park = park.ok_or_else(|| request_state::refused(node, mrtr::Invalid::Gone))?;
                return Ok(RequestInput::Parked(park, responses));
            }
        },
    };
    let responses = responses.iter().map(|(key, raw)| (key.to_owned(), raw.clone()));
    let inputs = Inputs {
        responses: responses.collect(),
        state,
    };
    Ok(RequestInput::Call {
        inputs: Some(Box::new(inputs)),
        round,
    })
}
