//! Answers to questions, and the reasons for a missing answer.

use crate::call::elicited::{self, Elicited};
use bytes::Bytes;
use rethread_proto::jsonrpc::{RpcError, code};
use serde::de::DeserializeOwned;

/// The reason in the cancellation of a question.
pub(crate) const WITHDRAWN: &str = "the server no longer waits for this answer";

/// The client's answer: the raw `result`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub(super) json: Bytes,
    /// The answer came as a parameter of a request, so a wrong one is that request's fault (MRTR-06).
    pub(super) in_params: bool,
}

impl Answer {
    /// The answer as `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        serde_json::from_slice(&self.json).map_err(|error| self.invalid(&error.to_string()))
    }

    /// The answer to an `elicitation/create`.
    pub fn elicited<T: DeserializeOwned>(&self) -> Result<Elicited<T>, RpcError> {
        elicited::read(&self.json, |_| Ok(())).map_err(|why| self.invalid(&why))
    }

    pub(super) fn invalid(&self, why: &str) -> RpcError {
        let message = format!("the client's answer is not what was asked for: {why}");
        if self.in_params {
            RpcError::invalid_params(message)
        } else {
            RpcError::internal(message)
        }
    }

    /// The JSON text as the client sent it.
    pub fn raw(&self) -> &[u8] {
        &self.json
    }
}

/// The reason why a question was not answered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The client did not declare that it can answer this.
    #[error("the client does not support {0}")]
    NotSupported(&'static str),
    /// The client answered with an error.
    #[error("the client refused: {0}")]
    Refused(RpcError),
    /// No answer came in time.
    #[error("the client did not answer in time")]
    TimedOut,
    /// The call was cancelled, or has ended.
    #[error("the call has ended")]
    Ended,
    /// The client left before it could be asked, and cannot come back for the question.
    #[error("the client has left")]
    ClientLeft,
    /// Too many questions are open in this session.
    #[error("too many open questions to the client")]
    TooMany,
    /// The answer does not match the question.
    #[error("{0}")]
    InvalidAnswer(RpcError),
    /// The type of the answer cannot be asked for in a form.
    #[error("{0}")]
    InvalidForm(String),
    /// The question itself cannot be written as JSON.
    #[error("the question cannot be written as JSON: {0}")]
    NotJson(String),
}

impl From<AskError> for RpcError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(error) | AskError::InvalidAnswer(error) => error,
            AskError::NotSupported(what) => missing_capability(what),
            other => RpcError::internal(other.to_string()),
        }
    }
}

/// The error of a call whose client lacks a capability (VER-11). In a session the code becomes `-32603`.
pub(crate) fn missing_capability(what: &str) -> RpcError {
    let required = match what {
        "sampling" => serde_json::json!({ "sampling": {} }),
        "sampling with tools" => serde_json::json!({ "sampling": { "tools": {} } }),
        "elicitation by URL" => serde_json::json!({ "elicitation": { "url": {} } }),
        "elicitation" => serde_json::json!({ "elicitation": {} }),
        "roots" => serde_json::json!({ "roots": {} }),
        // No capability would help: a ping on 2026-07-28, say.
        other => return RpcError::internal(format!("the client does not support {other}")),
    };
    RpcError::new(code::MISSING_CAPABILITY, format!("the client does not support {what}"))
        .with_data(serde_json::json!({ "requiredCapabilities": required }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VER-11: the error names only capabilities that a client can declare.
    #[test]
    fn ver_11_a_question_that_cannot_be_asked_at_all_lacks_no_capability() {
        let error = |what| RpcError::from(AskError::NotSupported(what));
        assert_eq!(error("roots").code, code::MISSING_CAPABILITY);
        let ping = error("this question during this request");
        assert_eq!((ping.code, ping.data), (code::INTERNAL_ERROR, None));
    }
}
