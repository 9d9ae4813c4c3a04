//! Replies as messages, encoded for the request that waits when they are delivered.

use super::call_scope::{CallScope, StatelessScope};
use super::request_meta::RequestMeta;
use super::{decorate, request_state};
use crate::call::ask_error::AskError;
use crate::call::reply::{InputRequired, Reply, ReplyKind};
use crate::node::Node;
use crate::node::telemetry;
use bytes::Bytes;
use http::StatusCode;
use rethread_proto::jsonrpc::{RESULT_ENVELOPE_BYTES, RequestId, RpcError, code, write_error, write_result};
use rethread_proto::mrtr;
use rethread_proto::refusal::stateless_status;
use rethread_proto::sse::{self, EncodeMessage};

/// A response that is one JSON-RPC message, and its status if it is the body.
pub(crate) struct JsonResponse {
    pub(crate) status: StatusCode,
    pub(crate) message: Bytes,
}

impl JsonResponse {
    /// A result of a stateless request, with what the revision adds to it (VER-13).
    pub(crate) fn result(id: &RequestId, json: &[u8], method: &str, node: &Node) -> Self {
        match decorate::result(id, json, method, &node.named) {
            Ok(message) => JsonResponse {
                status: StatusCode::OK,
                message: message.into(),
            },
            Err(error) => JsonResponse::error(id, &error),
        }
    }

    /// An error of a stateless request; some of them fix the status (HTTP-08, HTTP-12, HTTP-13).
    pub(crate) fn error(id: &RequestId, error: &RpcError) -> Self {
        let mut message = Vec::new();
        let error = &decorate::error(error);
        write_error(&mut message, Some(id), error);
        JsonResponse {
            status: stateless_status(error),
            message: message.into(),
        }
    }
}

/// The reply of a call in a session.
pub(crate) struct SessionReply<'a> {
    id: &'a RequestId,
    reply: Result<Bytes, RpcError>,
}

impl<'a> SessionReply<'a> {
    pub(crate) fn new(id: &'a RequestId, reply: Result<Reply, RpcError>) -> Self {
        let reply = reply.and_then(Reply::into_result).map_err(|mut error| {
            if error.code == code::MISSING_CAPABILITY {
                error.code = code::INTERNAL_ERROR; // sessions have no such code
            }
            error
        });
        SessionReply { id, reply }
    }

    fn write_lines(&self, out: &mut Vec<u8>) {
        match &self.reply {
            Ok(result) => write_result(out, self.id, result),
            Err(error) => write_error(out, Some(self.id), error),
        }
    }

    /// The message as a JSON body. An error is a response like any other: status 200 (HTTP-11).
    pub(crate) fn json(&self) -> JsonResponse {
        let mut body = Vec::with_capacity(self.size());
        self.write_lines(&mut body);
        JsonResponse {
            status: StatusCode::OK,
            message: body.into(),
        }
    }
}

/// The message as an event.
impl EncodeMessage for SessionReply<'_> {
    /// Exact for a result: a stored reply wastes no byte.
    fn size(&self) -> usize {
        match &self.reply {
            Ok(result) => result.len() + self.id.as_json().len() + RESULT_ENVELOPE_BYTES,
            Err(_) => 160,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        sse::write_one_line(out, |out| self.write_lines(out));
    }
}

/// The reply of a handler as a message for `request`.
pub(crate) fn encode(
    node: &Node,
    scope: &CallScope,
    request: &RequestMeta,
    reply: Result<Reply, RpcError>,
) -> JsonResponse {
    let scope = match scope {
        CallScope::Session(_) => return SessionReply::new(&request.id, reply).json(),
        CallScope::Stateless(scope) if scope.is_sessionless => return SessionReply::new(&request.id, reply).json(),
        CallScope::Stateless(scope) => scope,
    };
    let result = |json: &[u8]| JsonResponse::result(&request.id, json, scope.method.as_str(), node);
    let encoded = match reply {
        Ok(Reply(ReplyKind::Result(json))) => return result(&request_state::name_node(node, &scope.principal, json)),
        Ok(Reply(ReplyKind::InputRequired(required))) => input_required(node, scope, request, required),
        Err(error) => Err(error),
    };
    match encoded {
        Ok(json) => result(&json),
        Err(error) => JsonResponse::error(&request.id, &error),
    }
}

/// The result that carries a handler's own request for input (MRTR-01, MRTR-03).
fn input_required(
    node: &Node,
    scope: &StatelessScope,
    request: &RequestMeta,
    required: InputRequired,
) -> Result<Vec<u8>, RpcError> {
    let requests = &required.requests;
    if !mrtr::allows_input_required(scope.method.as_str()) {
        tracing::error!(target: telemetry::TARGET, method = scope.method.as_str(), "a handler asked for input where none can be asked for");
        return Err(RpcError::internal("this request cannot ask for input"));
    }
    let client = request.client.capabilities;
    if let Some(missing) = requests.iter().find_map(|(_, request)| client.lacks(request)) {
        return Err(AskError::NotSupported(missing).into());
    }
    let round = scope.round + 1;
    if round > node.limits.input_rounds() {
        return Err(RpcError::internal("this call asked for input too many times")); // MRTR-08
    }
    let sealed = required
        .state
        .map(|bytes| request_state::seal(node, scope, mrtr::State::Own { round, bytes }))
        .transpose()?;
    let mut result = mrtr::input_required(requests, sealed.as_deref())?;
    if let Some(meta) = &required.meta {
        result.pop(); // the closing brace
        result.extend_from_slice(b",\"_meta\":");
        result.extend_from_slice(meta);
        result.push(b'}');
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body keeps the text of the handler. An event has one `data:` line.
    #[test]
    fn sse_02_reply_with_newlines_is_one_line_as_an_event_only() {
        let id = RequestId::from(7);
        let reply = SessionReply::new(&id, Ok(Reply::raw("{\"a\":\n1}")));
        assert!(reply.json().message.ends_with(b"{\"a\":\n1}}"));
        let mut event = Vec::new();
        reply.write(&mut event);
        assert!(event.ends_with(b"{\"a\": 1}}"));
        assert_eq!(event.len(), reply.size(), "a stored reply wastes no byte");
    }
}
