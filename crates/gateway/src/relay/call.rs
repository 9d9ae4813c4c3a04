//! Relays the messages of one call between its child and its client.

use super::open_subscriptions::OpenSubscription;
use crate::auth;
use crate::upstream::{UpstreamCall, UpstreamMessage, UpstreamQuestion, codec, parse_upstream_error};
use bytes::Bytes;
use rethread::{Answer, AskError, Caller, Context, Reply, RpcError};
use serde_json::value::RawValue;
use std::pin::pin;
use tokio::sync::watch;

/// A notification of a child, for the client of one call.
pub(super) struct RelayedNotification {
    pub(super) method: String,
    pub(super) params: Bytes,
}

/// Relays the messages of one call to its client, until the child responds.
pub(super) async fn relay_call(call: UpstreamCall, cx: &Context) -> Result<Reply, RpcError> {
    relay_messages(call, cx, Some).await.map(Reply::raw)
}

/// Relays the messages of one call to its client, until the child responds. `translate` changes or drops notifications other
/// than progress. Returns the result.
pub(super) async fn relay_messages(
    mut call: UpstreamCall,
    cx: &Context,
    translate: impl Fn(RelayedNotification) -> Option<RelayedNotification>,
) -> Result<Bytes, RpcError> {
    loop {
        let message = tokio::select! {
            message = call.next() => message,
            () = cx.cancelled() => return Err(RpcError::internal("cancelled")), // dropping `call` cancels it in the child
        };
        match message {
            None => return Err(call.no_response_error()),
            Some(UpstreamMessage::Response(Ok(result))) => return Ok(result),
            Some(UpstreamMessage::Response(Err(error))) => return Err(parse_upstream_error(&error)),
            Some(UpstreamMessage::Notification { method, params }) if method == "notifications/progress" => {
                // The token is the gateway's, and a retry may bring another one (MRTR-04).
                if let Some(report) = codec::remove_progress_token(&params) {
                    cx.relay_progress(report).await?;
                }
            }
            // Its child may serve other requests of the principal, and a log message names none.
            Some(UpstreamMessage::Notification { .. }) if cx.is_sessionless() => {}
            Some(UpstreamMessage::Notification { method, params }) => {
                if let Some(relayed) = translate(RelayedNotification { method, params }) {
                    cx.notify(&relayed.method, raw_json(&relayed.params)).await?;
                }
            }
            Some(UpstreamMessage::Question(question)) if cx.is_sessionless() => {
                let error = RpcError::method_not_found(&question.method);
                call.upstream().answer(&question.id, Err(&error)).await;
            }
            Some(UpstreamMessage::Question(question)) => {
                let answer = ask_client(cx.clone(), question.clone());
                call.upstream().answer_question(question, answer);
            }
            Some(UpstreamMessage::QuestionCancelled(id)) => call.upstream().cancel_question(&id),
            Some(UpstreamMessage::CloseConnection) => cx.close_connection().await,
            Some(UpstreamMessage::SubscriptionEnded) => {}
        }
    }
}

/// Relays one subscription under the client's own id (SUB-03), until one side ends it.
pub(super) async fn relay_subscription(
    mut call: UpstreamCall,
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
            Some(UpstreamMessage::Notification { method, params }) => {
                if let Some(params) = codec::set_subscription_id(&params, &id) {
                    cx.notify(&method, params).await?;
                }
                continue;
            }
            Some(
                UpstreamMessage::Question(_) | UpstreamMessage::QuestionCancelled(_) | UpstreamMessage::CloseConnection,
            ) => {
                continue;
            }
            Some(UpstreamMessage::Response(Err(error))) => return Err(parse_upstream_error(&error)),
            Some(UpstreamMessage::Response(Ok(result))) => result,
            // SUB-06: the subscription ends with a result, and the client may subscribe again.
            Some(UpstreamMessage::SubscriptionEnded) | None => Bytes::from_static(b"{\"resultType\":\"complete\"}"),
        };
        let result = codec::set_subscription_id(&result, &id);
        return Ok(Reply::raw(
            result.map_or_else(|| "{}".to_owned(), |r| r.get().to_owned()),
        ));
    }
}

/// Resolves when the token of the caller has expired (AUTH-21).
pub(super) async fn token_expired(cx: &Context) {
    let caller = cx.extensions().get::<Caller>();
    match caller.and_then(|caller| caller.expires) {
        Some(expires) => tokio::time::sleep(expires.since(auth::wall_now())).await,
        None => std::future::pending().await,
    }
}

/// Asks the client on the stream of a call. If the call ends first, asks on a stream of the session.
async fn ask_client(cx: Context, question: UpstreamQuestion) -> Result<Answer, AskError> {
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
pub(super) fn raw_json(json: &Bytes) -> Option<Box<RawValue>> {
    let text = String::from_utf8(json.to_vec()).ok().filter(|text| !text.is_empty())?;
    RawValue::from_string(text).ok()
}
