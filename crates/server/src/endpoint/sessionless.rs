//! Requests of the session era that name no session (GW-27). Some hosts initialize and then never send the session id.
//!
//! A request is served like a stateless one: nothing is stored, a stream has no ids, and a disconnect cancels. Its messages have
//! the form of the session era. Nothing can be asked: the client has declared no capabilities here.

use crate::call::active_call::ActiveCall;
use crate::call::call_scope::StatelessScope;
use crate::call::exchange::Exchange;
use crate::call::request::Call;
use crate::call::request_meta::RequestMeta;
use crate::call::response_future::ResponseFuture;
use crate::call::unhandled_call::UnhandledCall;
use crate::call::waiting_client::WaitingClient;
use crate::endpoint::pending_response::PendingResponse;
use crate::endpoint::request_head::RequestHead;
use crate::endpoint::respond;
use crate::endpoint::server::Server;
use rethread_proto::jsonrpc::{Message, Payload, Request, RpcError};
use rethread_proto::refusal::Reason;
use rethread_proto::{Principal, Refusal, Version};
use std::sync::Arc;
use std::time::Instant;

/// The rules of a response without a session are those of the stateless revision.
const RULES: Version = Version::V2026_07_28;

/// A POST without a session.
pub(crate) fn post(
    inner: &Server,
    principal: Principal,
    payload: Payload,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Refusal> {
    match payload {
        Payload::One(Message::Request(request)) => {
            inner.node.metrics.sessionless_request();
            let id = request.id.clone();
            call(inner, principal, request, request_head).map_err(|reason| Refusal::new(reason).about(Some(&id)))
        }
        // Nothing remembers what a notification would change.
        Payload::One(Message::Notification(_)) => Ok(PendingResponse::Done(respond::accepted())),
        Payload::One(Message::Answer(_)) => Err(Reason::UnknownQuestion.into()),
        Payload::Batch(_) => Err(Reason::MissingSession.into()),
    }
}

fn call(
    inner: &Server,
    principal: Principal,
    request: Request,
    request_head: RequestHead,
) -> Result<PendingResponse<'_>, Reason> {
    let (node, started) = (&inner.node, Instant::now());
    let unhandled = UnhandledCall::without_session(node, RULES, &principal, &request, request_head.extensions());
    match request.method.as_str() {
        // There is no session whose level it could set, and no stream for log messages.
        "ping" | "logging/setLevel" => {
            unhandled.succeeded(started);
            return Ok(PendingResponse::Done(respond::result(&request.id, b"{}")));
        }
        method @ ("resources/subscribe" | "resources/unsubscribe") => {
            let error = RpcError::method_not_found(method);
            unhandled.failed(started, &error);
            return Ok(PendingResponse::Done(respond::error(&request.id, &error)));
        }
        _ => {}
    }
    node.accept_routed_work()?;
    node.begin_call(&principal)?;
    let meta = RequestMeta::in_session(&request);
    let scope = StatelessScope {
        method: request.method.clone(),
        params: request.params.clone(),
        principal,
        round: 0,
        is_sessionless: true,
        tables: inner.stateless_tables(),
    };
    let (extensions, parts) = request_head.open();
    let exchange = Exchange::stateless(node, RULES, scope, meta);
    let running = ActiveCall::new(exchange, 0, request.method.clone(), extensions);
    let call = Call {
        request,
        inputs: None,
        parts,
    };
    let work = Arc::clone(&inner.handler).run(call, Arc::clone(&running));
    let client = WaitingClient::stateless(running, &inner.parked);
    let upgrade_after = node.upgrade_after.delay(RULES, false);
    Ok(PendingResponse::Call(ResponseFuture::new(
        Some(work),
        client,
        upgrade_after,
    )))
}
