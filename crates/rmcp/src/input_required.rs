//! Handlers that return an input-required result (rmcp's MRTR), on every revision.
//!
//! On 2026-07-28 the result goes to the client, which calls again. The handler's state is sealed both ways (MRTR-05).
//! In a session this module asks the questions on the call's stream and calls the handler again.

use crate::convert::to_rpc;
use crate::dispatch::{CallSetup, MultiRoundRequest, call_server, reply};
use crate::request;
use crate::route::method_and_params;
use bytes::Bytes;
use rethread::{Call, Context, Inputs, Reply, RpcError};
use rmcp::ServerHandler;
use rmcp::model::{InputRequest, InputRequests, InputRequiredResult, InputResponses, RequestMetaObject, ServerResult};
use std::time::Duration;

/// Input rounds of one call in a session. Without a session the transport enforces the limit (MRTR-08).
const MAX_INPUT_ROUNDS: u32 = 16;
/// Delay before a retry without questions. It grows by this step each round.
const RETRY_DELAY_STEP: Duration = Duration::from_millis(100);

/// Whether this method may have an input-required result (MRTR-01).
pub(crate) fn may_require_input(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

pub(crate) async fn serve<S: ServerHandler>(server: &S, call: &Call, setup: CallSetup<'_>) -> Result<Reply, RpcError> {
    if setup.cx.session().is_some() {
        serve_in_session(server, call, setup).await
    } else {
        serve_stateless(server, call, setup).await
    }
}

async fn serve_stateless<S: ServerHandler>(
    server: &S,
    call: &Call,
    mut setup: CallSetup<'_>,
) -> Result<Reply, RpcError> {
    let (mut request, meta) = read(call)?;
    request.set_state_from(call.inputs());
    let parts = setup.parts.take();
    let context = setup.context(call, meta, parts);
    let result = call_server(server, request, context, setup.cx, || declares_tasks(call, &setup)).await;
    match result.map_err(to_rpc)? {
        ServerResult::InputRequiredResult(required) => input_required_reply(required),
        result => reply(&result),
    }
}

async fn serve_in_session<S: ServerHandler>(server: &S, call: &Call, setup: CallSetup<'_>) -> Result<Reply, RpcError> {
    let (mut responses, mut state) = (None, None);
    for round in 0..MAX_INPUT_ROUNDS {
        let (mut request, meta) = read(call)?;
        request.set_inputs(responses.take(), state.take());
        let context = setup.context(call, meta, setup.parts.clone());
        let result = call_server(server, request, context, setup.cx, || declares_tasks(call, &setup)).await;
        let required = match result.map_err(to_rpc)? {
            ServerResult::InputRequiredResult(required) => required,
            result => return reply(&result),
        };
        match required.input_requests {
            Some(requests) => responses = Some(ask_all(setup.cx, &requests).await?),
            None => tokio::time::sleep(RETRY_DELAY_STEP * (round + 1)).await,
        }
        state = required.request_state;
    }
    Err(RpcError::internal("the call required input too many times"))
}

/// Asks every question on the stream of the call.
async fn ask_all(cx: &Context, requests: &InputRequests) -> Result<InputResponses, RpcError> {
    let mut responses = InputResponses::new();
    for (key, request) in requests {
        let (_, params) = method_and_params(request).ok_or_else(not_serializable)?;
        let answer = match request {
            InputRequest::CreateMessage(_) => cx.sample_json(params).await?,
            InputRequest::Elicitation(_) => cx.elicit_json(params).await?,
            InputRequest::ListRoots(_) => cx.roots_json().await?,
            _ => return Err(RpcError::internal("this question is not supported during a call")),
        };
        responses.insert(key.clone(), answer.json()?);
    }
    Ok(responses)
}

fn input_required_reply(required: InputRequiredResult) -> Result<Reply, RpcError> {
    let mut requests = rethread::InputRequests::new();
    for (key, request) in required.input_requests.iter().flatten() {
        let (method, params) = method_and_params(request).ok_or_else(not_serializable)?;
        let params = if params.is_null() {
            Bytes::new()
        } else {
            params.to_string().into()
        };
        let added = requests.ask(key, &method, &params);
        added.map_err(|e| RpcError::internal(format!("the server returned an invalid input request: {e}")))?;
    }
    let reply = Reply::input_required(requests, required.request_state.map(String::into_bytes));
    Ok(match required.meta {
        Some(meta) => reply.with_meta(meta),
        None => reply,
    })
}

fn not_serializable() -> RpcError {
    RpcError::internal("the server's question cannot be serialized as JSON")
}

fn read(call: &Call) -> Result<(MultiRoundRequest, RequestMetaObject), RpcError> {
    Ok(match call.method() {
        "tools/call" => {
            let (params, meta) = request::params(call)?;
            (MultiRoundRequest::Tool(params), meta)
        }
        "prompts/get" => {
            let (params, meta) = request::params(call)?;
            (MultiRoundRequest::Prompt(params), meta)
        }
        _ => {
            let (params, meta) = request::params(call)?;
            (MultiRoundRequest::Resource(params), meta)
        }
    })
}

impl MultiRoundRequest {
    /// Sets the state that the transport has unsealed. Sealing guarantees that this handler wrote it.
    fn set_state_from(&mut self, inputs: &Inputs) {
        let state = inputs.state().map(|state| String::from_utf8_lossy(state).into_owned());
        *self.fields().1 = state;
    }

    fn set_inputs(&mut self, responses: Option<InputResponses>, state: Option<String>) {
        let fields = self.fields();
        *fields.0 = responses;
        *fields.1 = state;
    }

    fn fields(&mut self) -> (&mut Option<InputResponses>, &mut Option<String>) {
        match self {
            MultiRoundRequest::Tool(params) => (&mut params.input_responses, &mut params.request_state),
            MultiRoundRequest::Prompt(params) => (&mut params.input_responses, &mut params.request_state),
            MultiRoundRequest::Resource(params) => (&mut params.input_responses, &mut params.request_state),
        }
    }
}

/// Whether the client declares tasks, in this request or else in `initialize`.
fn declares_tasks(call: &Call, setup: &CallSetup<'_>) -> bool {
    let in_request = read(call).ok().and_then(|(_, meta)| meta.client_capabilities());
    let in_session = || setup.lease.peer().peer_info().map(|info| info.capabilities.clone());
    in_request
        .or_else(in_session)
        .is_some_and(|capabilities| capabilities.supports_tasks())
}
