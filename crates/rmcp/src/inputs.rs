//! Handlers that ask for input in their answers (rmcp's MRTR), on every revision.
//!
//! On 2026-07-28 such an answer goes to the client, which calls again; the handler's own state is sealed on its way there
//! and back (MRTR-05). In a session the questions are asked on the call's stream, and the handler is called again here.

use crate::convert::to_rpc;
use crate::request;
use crate::route::spelled;
use crate::server::{Asking, Setting, ask, reply};
use bytes::Bytes;
use rethread::{Call, Context, Inputs, Reply, RpcError};
use rmcp::ServerHandler;
use rmcp::model::{InputRequest, InputRequests, InputRequiredResult, InputResponses, RequestMetaObject, ServerResult};
use std::time::Duration;

/// How often a call may ask in a session; without one the transport counts (MRTR-08).
const ROUNDS: u32 = 16;
/// A server that only wants to be called again is, after this, and later each time.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether this request may be answered with a wish for input (MRTR-01).
pub(crate) fn may_ask(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

pub(crate) async fn serve<S: ServerHandler>(server: &S, call: &Call, setting: Setting<'_>) -> Result<Reply, RpcError> {
    if setting.cx.session().is_some() {
        in_session(server, call, setting).await
    } else {
        in_request(server, call, setting).await
    }
}

async fn in_request<S: ServerHandler>(server: &S, call: &Call, mut setting: Setting<'_>) -> Result<Reply, RpcError> {
    let (mut asking, meta) = read(call)?;
    asking.came_with(call.inputs());
    let parts = setting.parts.take();
    let context = setting.context(call, meta, parts);
    let result = ask(server, asking, context, setting.cx, || declares_tasks(call, &setting)).await;
    match result.map_err(to_rpc)? {
        ServerResult::InputRequiredResult(wish) => wished(wish),
        result => reply(&result),
    }
}

async fn in_session<S: ServerHandler>(server: &S, call: &Call, setting: Setting<'_>) -> Result<Reply, RpcError> {
    let (mut responses, mut state) = (None, None);
    for round in 0..ROUNDS {
        let (mut asking, meta) = read(call)?;
        asking.brings(responses.take(), state.take());
        let context = setting.context(call, meta, setting.parts.clone());
        let result = ask(server, asking, context, setting.cx, || declares_tasks(call, &setting)).await;
        let wish = match result.map_err(to_rpc)? {
            ServerResult::InputRequiredResult(wish) => wish,
            result => return reply(&result),
        };
        match wish.input_requests {
            Some(requests) => responses = Some(answers(setting.cx, &requests).await?),
            None => tokio::time::sleep(PAUSE * (round + 1)).await,
        }
        state = wish.request_state;
    }
    Err(RpcError::internal("this call asked for input too many times"))
}

/// Asks everything that is wished for on the stream of the call.
async fn answers(cx: &Context, requests: &InputRequests) -> Result<InputResponses, RpcError> {
    let mut responses = InputResponses::new();
    for (key, request) in requests {
        let (_, params) = spelled(request).ok_or_else(unwritable)?;
        let answer = match request {
            InputRequest::CreateMessage(_) => cx.sample(params).await?,
            InputRequest::Elicitation(_) => cx.elicit(params).await?,
            InputRequest::ListRoots(_) => cx.roots().await?,
            _ => return Err(RpcError::internal("this cannot be asked for in the middle of a call")),
        };
        responses.insert(key.clone(), answer.json()?);
    }
    Ok(responses)
}

fn wished(wish: InputRequiredResult) -> Result<Reply, RpcError> {
    let mut requests = rethread::InputRequests::new();
    for (key, request) in wish.input_requests.iter().flatten() {
        let (method, params) = spelled(request).ok_or_else(unwritable)?;
        let params = if params.is_null() {
            Bytes::new()
        } else {
            params.to_string().into()
        };
        let asked = requests.ask(key, &method, &params);
        asked
            .map_err(|e| RpcError::internal(format!("the server asked for something that cannot be asked for: {e}")))?;
    }
    let reply = Reply::input_required(requests, wish.request_state.map(String::into_bytes));
    Ok(match wish.meta {
        Some(meta) => reply.with_meta(meta),
        None => reply,
    })
}

fn unwritable() -> RpcError {
    RpcError::internal("the server's question cannot be written as JSON")
}

fn read(call: &Call) -> Result<(Asking, RequestMetaObject), RpcError> {
    Ok(match call.method() {
        "tools/call" => {
            let (params, meta) = request::params(call)?;
            (Asking::Tool(params), meta)
        }
        "prompts/get" => {
            let (params, meta) = request::params(call)?;
            (Asking::Prompt(params), meta)
        }
        _ => {
            let (params, meta) = request::params(call)?;
            (Asking::Resource(params), meta)
        }
    })
}

impl Asking {
    /// What the transport opened: the state is the handler's own again, and no other than its own.
    fn came_with(&mut self, inputs: &Inputs) {
        let state = inputs.state().map(|state| String::from_utf8_lossy(state).into_owned());
        *self.fields().1 = state;
    }

    fn brings(&mut self, responses: Option<InputResponses>, state: Option<String>) {
        let fields = self.fields();
        *fields.0 = responses;
        *fields.1 = state;
    }

    fn fields(&mut self) -> (&mut Option<InputResponses>, &mut Option<String>) {
        match self {
            Asking::Tool(params) => (&mut params.input_responses, &mut params.request_state),
            Asking::Prompt(params) => (&mut params.input_responses, &mut params.request_state),
            Asking::Resource(params) => (&mut params.input_responses, &mut params.request_state),
        }
    }
}

/// Whether the client knows tasks: as this request says, or as the session knows.
fn declares_tasks(call: &Call, setting: &Setting<'_>) -> bool {
    let said = read(call).ok().and_then(|(_, meta)| meta.client_capabilities());
    let known = || setting.lease.peer().peer_info().map(|info| info.capabilities.clone());
    said.or_else(known)
        .is_some_and(|capabilities| capabilities.supports_tasks())
}
