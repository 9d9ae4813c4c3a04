//! The stateless era: 2026-07-28. Every request carries what is needed to answer it, and nothing is remembered (HTTP-15).

mod decorate;
mod direct;
mod events;
mod listen;
mod park;
mod serving;

pub(crate) use decorate::naming;
pub(crate) use direct::Direct;
pub(crate) use listen::{Listeners, Listening, changed};
pub(crate) use park::Parks;

use crate::body::Body;
use crate::call::{self, Running};
use crate::handler::{Call, Handler, Inputs, RpcError};
use crate::node::Node;
use crate::respond;
use crate::service::Inner;
use crate::wrapping::Wrapping;
pub(crate) use direct::Asker;
use events::Events;
pub(crate) use events::Messages;
use http::{HeaderMap, Response};
use park::Park;
use rethread_proto::gate::mirror::{self, Field, Stateless};
use rethread_proto::jsonrpc::{Notification, Request, error_message};
use rethread_proto::mrtr::{self, InputResponses};
use rethread_proto::refusal::{Reason, stateless_status};
use rethread_proto::subscription::{Filter, Offered};
use rethread_proto::{Principal, Refusal, Version};
use serde_json::json;
pub(crate) use serving::{Served, Serving};
use std::sync::Arc;

/// A request of this era. VER-05: checked in this order, then answered.
pub(crate) async fn post<H: Handler>(
    inner: &Inner<H>,
    owner: Principal,
    version: Version,
    request: Request,
    parts: Result<Box<Stateless>, Reason>,
    wrapping: Wrapping,
) -> Result<Response<Body>, Refusal> {
    let id = request.id.clone();
    let refuse = |reason| Refusal::new(reason).about(Some(&id));
    let parts = parts.map_err(refuse)?;
    check(wrapping.headers(), &request, &parts).map_err(refuse)?;
    if is_removed(request.method.as_str()) {
        return Ok(unknown(&request));
    }
    let asker = Asker::read(owner, &parts).map_err(refuse)?;
    if request.method.as_str() == "tools/call"
        && let Some(tool) = parts.name.as_str()
        && let Some(params) = inner.handler.header_params(tool, &asker.principal).await
    {
        let arguments = parts.arguments.as_deref();
        params.check(wrapping.headers(), arguments).map_err(refuse)?;
    }
    match begin(inner, version, request, asker, &parts, wrapping).map_err(refuse)? {
        Begun::Done(response) => Ok(response),
        Begun::Serving(serving) => Ok(match serving.await {
            Served::Answered(outcome) => respond::json_with(outcome.status, outcome.message),
            Served::Stream(flow) => {
                let pause = flow.keep_alive();
                respond::stream(Events::new(flow, pause), version, inner.node.is_unbuffered())
            }
        }),
    }
}

fn check(headers: &HeaderMap, request: &Request, parts: &Stateless) -> Result<(), Reason> {
    let method = request.method.as_str();
    parts.capabilities()?;
    mirror::check_method(headers, method)?;
    mirror::check_name(headers, method, parts)
}

/// What a request leads to.
#[allow(clippy::large_enum_variant)] // the largest is the rule
enum Begun {
    Done(Response<Body>),
    Serving(Serving),
}

fn begin<H: Handler>(
    inner: &Inner<H>,
    version: Version,
    request: Request,
    asker: Asker,
    parts: &Stateless,
    wrapping: Wrapping,
) -> Result<Begun, Reason> {
    let node = &inner.node;
    if node.is_draining() && parts.request_state == Field::Absent {
        return Err(Reason::ShuttingDown); // but a call that waits for its input may still have it
    }
    match request.method.as_str() {
        "server/discover" if !node.hears_all => {
            let message = discover_message(node, &request);
            Ok(Begun::Done(respond::json(message.into())))
        }
        "subscriptions/listen" if !inner.handler.listens(&request.params, &asker.principal) => {
            Ok(Begun::Done(match listen(node, &request, asker.principal)? {
                Ok(listening) => {
                    let events = Events::new(listening, node.timing.keep_alive);
                    respond::stream(events, version, node.is_unbuffered())
                }
                Err(error) => respond::error(&request.id, &error),
            }))
        }
        _ => serve(inner, request, version, asker, wrapping).map(Begun::Serving),
    }
}

/// A notification of this era: taken and dropped (HTTP-06, CAN-04). Ids are not unique over clients, so nothing here can
/// cancel a call.
pub(crate) fn notified(headers: &HeaderMap, note: &Notification) -> Result<Response<Body>, Refusal> {
    mirror::check_method_if_sent(headers, note.method.as_str())?;
    Ok(respond::accepted())
}

/// HTTP-12: methods of the session era that this one has not.
pub(crate) fn is_removed(method: &str) -> bool {
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

fn unknown(request: &Request) -> Response<Body> {
    let error = RpcError::method_not_found(request.method.as_str());
    respond::json_with(
        stateless_status(&error),
        error_message(Some(&request.id), &error).into(),
    )
}

/// `server/discover`: who we are, what we can do, and in which revisions (VER-07).
pub(crate) fn discover_message(node: &Node, request: &Request) -> Vec<u8> {
    let versions: Vec<_> = node.revisions.newest_first().map(Version::as_str).collect();
    let mut result = json!({ "supportedVersions": versions, "capabilities": node.info.capabilities });
    if let Some(instructions) = &node.info.instructions {
        result["instructions"] = json!(instructions);
    }
    let result = result.to_string();
    decorate::result(&request.id, result.as_bytes(), "server/discover", &node.named).unwrap_or_default()
}

/// `subscriptions/listen`: a stream of changes.
pub(crate) fn listen(
    node: &Arc<Node>,
    request: &Request,
    owner: Principal,
) -> Result<Result<Listening, RpcError>, Reason> {
    let filter = match Filter::read(&request.params, node.limits.uris_per_subscription) {
        Ok(filter) => filter,
        Err(error) => return Ok(Err(error)),
    };
    let declares = |capability: &str| node.info.declares(capability);
    let filter = filter.honour(Offered {
        tools: declares("tools.listChanged"),
        prompts: declares("prompts.listChanged"),
        resources: declares("resources.listChanged"),
        subscribe: declares("resources.subscribe"),
    });
    node.listeners.open(node, request.id.clone(), filter, owner).map(Ok)
}

/// A request for the handler: a new call, or one that waited for what this request brings.
pub(crate) fn serve<H: Handler>(
    inner: &Inner<H>,
    request: Request,
    version: Version,
    asker: Asker,
    wrapping: Wrapping,
) -> Result<Serving, Reason> {
    let node = &inner.node;
    let is_retry = asker.is_retry;
    let direct = Direct::new(node, version, &request, asker);
    // Who passes requests on leaves to others what they carry.
    let brought = if node.relays || !is_retry {
        Ok(Brought::Inputs(None))
    } else {
        inputs(&direct)
    };
    match brought {
        Err(error) => Ok(Serving::answered(direct.error(&error))),
        Ok(Brought::Parked(park, responses)) => Ok(take_up(park, &direct, &responses)),
        Ok(Brought::Inputs(inputs)) => {
            if !node.calls.enter(node.limits.calls) {
                return Err(Reason::Overloaded("calls"));
            }
            let (extensions, parts) = wrapping.open();
            let running = Running::in_request(Arc::clone(&direct), extensions);
            let call = Call { request, inputs, parts };
            let work = call::work(Arc::clone(&inner.handler), call, Arc::clone(&running));
            Ok(Serving::waiting(Some(work), running, direct, 0))
        }
    }
}

/// What a request brings along beside its arguments.
enum Brought {
    /// Input for a handler that starts anew, or none.
    Inputs(Option<Box<Inputs>>),
    /// A call that waits, and input for it.
    Parked(Park, InputResponses),
}

/// Reads what the client brings back, and checks that it is its own (MRTR-05).
fn inputs(direct: &Direct) -> Result<Brought, RpcError> {
    let responses = InputResponses::read(&direct.params)?;
    let state = match mrtr::request_state(&direct.params)? {
        None => None,
        Some(text) => match park::open(direct, &text)? {
            mrtr::State::Own { round, bytes } => {
                direct.is_in_round(round);
                Some(bytes.into())
            }
            mrtr::State::Parked { id, .. } => {
                // Single use: whoever comes second, or after a restart (RST-05), finds nothing.
                let park = direct
                    .node
                    .parks
                    .take(id)
                    .ok_or_else(|| park::refused(mrtr::Invalid::Gone))?;
                return Ok(Brought::Parked(park, responses));
            }
        },
    };
    Ok(Brought::Inputs(Some(Box::new(Inputs {
        responses: responses
            .iter()
            .map(|(key, raw)| (key.to_owned(), raw.clone()))
            .collect(),
        state,
    }))))
}

/// Goes on with a parked call: what was asked and is answered goes to those who wait; what is not is asked again
/// (MRTR-06).
fn take_up(park: Park, direct: &Arc<Direct>, responses: &InputResponses) -> Serving {
    let running = park.running;
    running.move_to(direct);
    let mut open = Vec::new();
    for asked in park.asked {
        match responses.get(&asked.key) {
            Some(response) => drop(asked.waiter.send(response.clone())), // nobody waits any more: the call moved on
            None => open.push(asked),
        }
    }
    if open.is_empty() {
        Serving::waiting(None, running, Arc::clone(direct), park.round)
    } else {
        Serving::answered(park::park(&running, direct, open, park.round + 1))
    }
}
