//! Answers to stateless requests, encoded for the request that waits when they are delivered.

use super::stateless_request::Direct;
use super::{decorate, parked_calls as park};
use crate::call::ask::AskError;
use crate::call::handler::{Kind, Reply, RpcError, Wish};
use crate::node::Node;
use crate::node::telemetry;
use bytes::Bytes;
use http::StatusCode;
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

impl Direct {
    /// A result for the request that waits.
    pub(crate) fn result(&self, json: &[u8]) -> Outcome {
        let id = self.request(|request| request.id.clone());
        Outcome::result(&id, json, self.method.as_str(), &self.node)
    }

    /// An error for the request that waits.
    pub(crate) fn error(&self, error: &RpcError) -> Outcome {
        Outcome::error(&self.request(|request| request.id.clone()), error)
    }

    pub(super) fn encode(&self, reply: Result<Reply, RpcError>) -> Outcome {
        match reply {
            Ok(Reply(Kind::Result(json))) => self.result(&json),
            Ok(Reply(Kind::InputRequired(wish))) => self.wish(wish).unwrap_or_else(|error| self.error(&error)),
            Err(error) => self.error(&error),
        }
    }

    /// A handler's own wish for input (MRTR-01, MRTR-03).
    fn wish(&self, wish: Wish) -> Result<Outcome, RpcError> {
        let (requests, own) = (&wish.requests, wish.state);
        if !mrtr::allows_input_required(self.method.as_str()) {
            tracing::error!(target: telemetry::TARGET, method = self.method.as_str(), "a handler asked for input where none can be asked for");
            return Err(RpcError::internal("this request cannot ask for input"));
        }
        let client = self.request(|request| request.client);
        if let Some(missing) = requests.iter().find_map(|(_, request)| client.lacks(request)) {
            return Err(AskError::NotSupported(missing).into());
        }
        let round = self.round + 1;
        if round > self.node.limits.input_rounds {
            return Err(RpcError::internal("this call asked for input too many times")); // MRTR-08
        }
        let sealed = own
            .map(|bytes| park::seal(self, mrtr::State::Own { round, bytes }))
            .transpose()?;
        let mut result = mrtr::input_required(requests, sealed.as_deref())?;
        if let Some(meta) = &wish.meta {
            result.pop(); // the closing brace
            result.extend_from_slice(b",\"_meta\":");
            result.extend_from_slice(meta);
            result.push(b'}');
        }
        Ok(self.result(&result))
    }
}
