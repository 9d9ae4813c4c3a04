//! What a handler asks of the client.

use crate::convert::from_rpc;
use crate::line::{Place, Shared};
use crate::pool::Ledger;
use crate::route::spelled;
use crate::tokens::Renamed;
use rethread::{Answer, AskError, Context, Peer, RpcError};
use rmcp::ErrorData;
use rmcp::model::{ClientResult, CustomResult, ElicitResult, EmptyResult, JsonRpcMessage, RequestId, ServerRequest};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// Questions that may be open on one line. Beyond: the question fails.
const OPEN: usize = 64;

/// The open questions of a line, by rmcp's ids.
#[derive(Debug, Default)]
pub(crate) struct Questions(parking_lot::Mutex<HashMap<RequestId, AbortHandle>>);

impl Questions {
    /// Nobody waits for the answer any more: the client is told, and what it answers is ignored (S2C-06).
    pub(crate) fn withdraw(&self, id: &RequestId) {
        if let Some(task) = self.0.lock().remove(id) {
            task.abort();
        }
    }

    pub(crate) fn drop_all(&self) {
        for task in std::mem::take(&mut *self.0.lock()).into_values() {
            task.abort();
        }
    }
}

/// Puts a question to the client. The answer comes back through the line's inbox.
pub(crate) fn put(shared: &Arc<Shared>, place: Place, id: RequestId, request: ServerRequest) {
    let line = Arc::clone(shared);
    let mut open = shared.questions.0.lock();
    let full = open.len() >= OPEN;
    let own_id = id.clone();
    let task = tokio::spawn(async move {
        let outcome = if full {
            Err(from_rpc(AskError::TooMany.into()))
        } else {
            ask(&line, &place, &request).await
        };
        line.questions.0.lock().remove(&id);
        let message = match outcome {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(error) => JsonRpcMessage::error(error, Some(id)),
        };
        let _ = line.inbox.send(message).await; // the line is closed: nobody waits
    });
    if !full {
        open.insert(own_id, task.abort_handle()); // the task is not past its own lock before this
    }
}

async fn ask(line: &Arc<Shared>, place: &Place, request: &ServerRequest) -> Result<ClientResult, ErrorData> {
    let Some((method, mut params)) = spelled(request) else {
        return Err(ErrorData::internal_error(
            "the question cannot be written as JSON",
            None,
        ));
    };
    let _renamed = renamed(line, &mut params);
    let answer = match place {
        Place::Call(cx) => match ask_in_call(cx, request, &method, &params).await {
            // The call was over before it could be asked. The session is not.
            Err(AskError::Ended | AskError::ClientLeft) if !cx.is_cancelled() && cx.session().is_some() => {
                ask_in_session(cx.session(), request, &method, &params).await
            }
            answer => answer,
        },
        elsewhere => ask_in_session(elsewhere.session(), request, &method, &params).await,
    };
    let answer = answer.map_err(|error| from_rpc(RpcError::from(error)))?;
    Ok(read(request, &answer))
}

/// rmcp puts a token into every question. In a session the client sees another name for it; without one, nothing is in
/// flight whose progress could be reported.
fn renamed(line: &Arc<Shared>, params: &mut Value) -> Option<Renamed> {
    let fields = params.as_object_mut()?;
    let Some(Value::Object(meta)) = fields.get_mut("_meta") else {
        return None;
    };
    if let Ledger::Session(tokens) = &line.ledger {
        return tokens.rename(line, meta.get_mut("progressToken")?);
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
        ServerRequest::CreateMessageRequest(_) => cx.sample(params).await,
        ServerRequest::ElicitRequest(_) => cx.elicit(params).await,
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
    lacks(peer, request, params).map_or(Ok(()), |what| Err(AskError::NotSupported(what)))?;
    peer.request(method, params).await
}

/// S2C-05: nothing is asked that the client did not say it can answer.
fn lacks(peer: &Peer, request: &ServerRequest, params: &Value) -> Option<&'static str> {
    let can = peer.capabilities();
    let by_url = params.get("mode").is_some_and(|mode| mode == "url");
    match request {
        ServerRequest::CreateMessageRequest(_) if !can.sampling => Some("sampling"),
        ServerRequest::ElicitRequest(_) if by_url && !can.elicitation_url => Some("elicitation by URL"),
        ServerRequest::ElicitRequest(_) if !by_url && !can.elicitation_form => Some("elicitation"),
        ServerRequest::ListRootsRequest(_) if !can.roots => Some("roots"),
        _ => None,
    }
}

/// The answer as what was asked for. One that is something else is rmcp's to refuse.
fn read(request: &ServerRequest, answer: &Answer) -> ClientResult {
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
