//! Answers to stateless requests, encoded for the request that waits when they are delivered.

use super::stateless_request::Direct;
use super::{decorate, request_state};
use crate::call::ask_error::AskError;
use crate::call::reply::{InputWish, Reply, ReplyKind};
use crate::node::Node;
use crate::node::telemetry;
use bytes::Bytes;
use http::StatusCode;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::{RequestId, write_error};
use rethread_proto::mrtr;
use rethread_proto::refusal::stateless_status;

/// The answer: one JSON-RPC message, and the status it has if nothing was sent before.
pub(crate) struct Outcome {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
}

impl Outcome {
    /// A result, with what the revision adds to it (VER-13).
    pub(crate) fn result(id: &RequestId, json: &[u8], method: &str, node: &Node) -> Self {
        match decorate::result(id, json, method, &node.named) {
            Ok(message) => Outcome {
                status: StatusCode::OK,
                message: message.into(),
            },
            Err(error) => Outcome::error(id, &error),
        }
    }

    /// An error; some of them fix the status, if it is not on the wire yet (HTTP-08, HTTP-12, HTTP-13).
    pub(crate) fn error(id: &RequestId, error: &RpcError) -> Self {
        let mut message = Vec::new();
        let error = &decorate::error(error);
        write_error(&mut message, Some(id), error);
        Outcome {
            status: stateless_status(error),
            message: message.into(),
        }
    }
}

/// A result for the request that waits.
pub(crate) fn result_for(direct: &Direct, json: &[u8]) -> Outcome {
    let id = direct.request(|request| request.id.clone());
    Outcome::result(&id, json, direct.method.as_str(), &direct.node)
}

/// An error for the request that waits.
pub(crate) fn error_for(direct: &Direct, error: &RpcError) -> Outcome {
    Outcome::error(&direct.request(|request| request.id.clone()), error)
}

/// The reply of a handler, for the request that waits.
pub(crate) fn encode(direct: &Direct, reply: Result<Reply, RpcError>) -> Outcome {
    match reply {
        Ok(Reply(ReplyKind::Result(json))) => result_for(direct, &json),
        Ok(Reply(ReplyKind::InputRequired(wish))) => {
            encode_wish(direct, wish).unwrap_or_else(|error| error_for(direct, &error))
        }
        Err(error) => error_for(direct, &error),
    }
}

/// A handler's own wish for input (MRTR-01, MRTR-03).
fn encode_wish(direct: &Direct, wish: InputWish) -> Result<Outcome, RpcError> {
    let (requests, own) = (&wish.requests, wish.state);
    if !mrtr::allows_input_required(direct.method.as_str()) {
        tracing::error!(target: telemetry::TARGET, method = direct.method.as_str(), "a handler asked for input where none can be asked for");
        return Err(RpcError::internal("this request cannot ask for input"));
    }
    let client = direct.request(|request| request.client);
    if let Some(missing) = requests.iter().find_map(|(_, request)| client.lacks(request)) {
        return Err(AskError::NotSupported(missing).into());
    }
    let round = direct.round + 1;
    if round > direct.node.limits.input_rounds {
        return Err(RpcError::internal("this call asked for input too many times")); // MRTR-08
    }
    let sealed = own
        .map(|bytes| request_state::seal(direct, mrtr::State::Own { round, bytes }))
        .transpose()?;
    let mut result = mrtr::input_required(requests, sealed.as_deref())?;
    if let Some(meta) = &wish.meta {
        result.pop(); // the closing brace
        result.extend_from_slice(b",\"_meta\":");
        result.extend_from_slice(meta);
        result.push(b'}');
    }
    Ok(result_for(direct, &result))
}
