//! Questions that a handler asks the client: sampling, elicitation, roots and custom requests.

use crate::convert::from_rpc;
use crate::peer_loop::{Destination, LoopState};
use crate::peer_pool::Registry;
use crate::progress_tokens::QuestionTokenGuard;
use crate::route::method_and_params;
use rethread::{Answer, AskError, Context, Peer, RpcError};
use rmcp::ErrorData;
use rmcp::model::{ClientResult, CustomResult, ElicitResult, EmptyResult, JsonRpcMessage, RequestId, ServerRequest};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Questions that may be open through one peer. Beyond this, a question fails.
const MAX_OPEN_QUESTIONS: usize = 64;

/// Open questions of one peer, by the ids that rmcp gave them.
#[derive(Debug, Default)]
pub(crate) struct OpenQuestions(parking_lot::Mutex<HashMap<RequestId, AbortHandle>>);

impl OpenQuestions {
    /// Cancels a question: the client is notified, and its answer is ignored (S2C-06).
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(task) = self.0.lock().remove(id) {
            task.abort();
        }
    }

    pub(crate) fn cancel_all(&self) {
        for task in std::mem::take(&mut *self.0.lock()).into_values() {
            task.abort();
        }
    }
}

/// Asks the client in a task. The answer arrives in the inbox of the peer loop.
pub(crate) fn spawn(asker: &Arc<LoopState>, destination: Destination, id: RequestId, request: ServerRequest) {
    let shared = Arc::clone(asker);
    let mut open = asker.questions.0.lock();
    let full = open.len() >= MAX_OPEN_QUESTIONS;
    let own_id = id.clone();
    let task = tokio::spawn(async move {
        let outcome = if full {
            Err(from_rpc(AskError::TooMany.into()))
        } else {
            ask(&shared, &destination, &request).await
        };
        shared.questions.0.lock().remove(&id);
        let message = match outcome {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(error) => JsonRpcMessage::error(error, Some(id)),
        };
        let _ = shared.inbox.send(message).await; // fails only if the peer is closed
    });
    if !full {
        open.insert(own_id, task.abort_handle()); // before the task removes it: `open` is still locked
    }
}

async fn ask(
    asker: &Arc<LoopState>,
    destination: &Destination,
    request: &ServerRequest,
) -> Result<ClientResult, ErrorData> {
    let Some((method, mut params)) = method_and_params(request) else {
        return Err(ErrorData::internal_error(
            "the question cannot be serialized as JSON",
            None,
        ));
    };
    let _token = register_token(asker, &mut params);
    let answer = match destination {
        Destination::Call(cx) => match ask_in_call(cx, request, &method, &params).await {
            // The call ended before the question went out, but the session is still open.
            Err(AskError::Ended | AskError::ClientLeft) if !cx.is_cancelled() && cx.session().is_some() => {
                ask_in_session(cx.session(), request, &method, &params).await
            }
            answer => answer,
        },
        other => ask_in_session(other.session(), request, &method, &params).await,
    };
    let answer = answer.map_err(|error| from_rpc(RpcError::from(error)))?;
    Ok(typed_result(request, &answer))
}

/// Replaces the progress token that rmcp puts into every question.
///
/// In a session the client sees a session-wide token. Without a session the token is removed: no request stays open
/// that progress could refer to.
fn register_token(asker: &Arc<LoopState>, params: &mut Value) -> Option<QuestionTokenGuard> {
    let fields = params.as_object_mut()?;
    let Some(Value::Object(meta)) = fields.get_mut("_meta") else {
        return None;
    };
    if let Registry::Session(tokens) = &asker.registry {
        return tokens.register_question(asker, meta.get_mut("progressToken")?);
    }
    meta.remove("progressToken");
    if meta.is_empty() {
        fields.remove("_meta");
    }
    if fields.is_empty() {
        *params = Value::Null;
    }
    None
}

async fn ask_in_call(cx: &Context, request: &ServerRequest, method: &str, params: &Value) -> Result<Answer, AskError> {
    match request {
        ServerRequest::CreateMessageRequest(_) => cx.sample_json(params).await,
        ServerRequest::ElicitRequest(_) => cx.elicit_json(params).await,
        ServerRequest::ListRootsRequest(_) if !cx.client().roots => Err(AskError::NotSupported("roots")),
        _ => cx.request(method, params).await,
    }
}

async fn ask_in_session(
    peer: Option<&Peer>,
    request: &ServerRequest,
    method: &str,
    params: &Value,
) -> Result<Answer, AskError> {
    let peer = peer.ok_or(AskError::Ended)?;
    if let Some(capability) = missing_capability(peer, request, params) {
        return Err(AskError::NotSupported(capability));
    }
    peer.request(method, params).await
}

/// The capability that the client lacks for this question (S2C-05).
fn missing_capability(peer: &Peer, request: &ServerRequest, params: &Value) -> Option<&'static str> {
    let declared = peer.capabilities();
    let by_url = params.get("mode").is_some_and(|mode| mode == "url");
    match request {
        ServerRequest::CreateMessageRequest(_) if !declared.sampling => Some("sampling"),
        ServerRequest::ElicitRequest(_) if by_url && !declared.elicitation_url => Some("elicitation by URL"),
        ServerRequest::ElicitRequest(_) if !by_url && !declared.elicitation_form => Some("elicitation"),
        ServerRequest::ListRootsRequest(_) if !declared.roots => Some("roots"),
        _ => None,
    }
}

/// The answer in the type that the request expects. On a mismatch rmcp gets the raw value and refuses it.
fn typed_result(request: &ServerRequest, answer: &Answer) -> ClientResult {
    let raw = answer.raw();
    let typed = match request {
        ServerRequest::CreateMessageRequest(_) => serde_json::from_slice(raw).map(ClientResult::CreateMessageResult),
        ServerRequest::ListRootsRequest(_) => serde_json::from_slice(raw).map(ClientResult::ListRootsResult),
        ServerRequest::ElicitRequest(_) => serde_json::from_slice::<ElicitResult>(raw).map(ClientResult::ElicitResult),
        ServerRequest::PingRequest(_) => Ok(ClientResult::EmptyResult(EmptyResult {})),
        _ => serde_json::from_slice(raw).map(|value| ClientResult::CustomResult(CustomResult::new(value))),
    };
    typed.unwrap_or_else(|_| {
        let value = serde_json::from_slice(raw).unwrap_or(Value::Null);
        ClientResult::CustomResult(CustomResult::new(value))
    })
}
