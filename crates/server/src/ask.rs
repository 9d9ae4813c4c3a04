//! Questions to the client: asked on the call's stream, answered on another POST (design D7).

use crate::call::Running;
use crate::context::Context;
use crate::handler::RpcError;
use bytes::Bytes;
use rethread_proto::jsonrpc::write_request;
use rethread_proto::session::coordinator::Question;
use rethread_proto::sse::Draft;
use rethread_store::Pin;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

/// What the client answered: the raw `result`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(Bytes);

impl Answer {
    /// The answer as `T`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        serde_json::from_slice(&self.0)
            .map_err(|e| RpcError::internal(format!("the client's answer is not what was asked for: {e}")))
    }

    /// The JSON text as the client sent it.
    pub fn raw(&self) -> &[u8] {
        &self.0
    }
}

/// Why a question was not answered.
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
    /// The question itself cannot be written as JSON.
    #[error("the question cannot be written as JSON: {0}")]
    NotJson(String),
}

impl From<AskError> for RpcError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused(error) => error,
            other => RpcError::internal(other.to_string()),
        }
    }
}

impl Context {
    /// Asks the client's model to continue a conversation: `sampling/createMessage`. `params` are
    /// `CreateMessageRequestParams` of the MCP schema.
    pub async fn sample(&self, params: impl Serialize) -> Result<Answer, AskError> {
        let params = value(params)?;
        let client = &self.call.session().client;
        if !client.sampling {
            return Err(AskError::NotSupported("sampling"));
        }
        let with_tools = params.get("tools").is_some() || params.get("toolChoice").is_some();
        if with_tools && !client.sampling_tools {
            return Err(AskError::NotSupported("sampling with tools"));
        }
        self.ask("sampling/createMessage", &params).await
    }

    /// Asks the client's user: `elicitation/create`. `params` are `ElicitRequestParams` of the MCP schema; a form unless
    /// their `mode` is `url`.
    pub async fn elicit(&self, params: impl Serialize) -> Result<Answer, AskError> {
        let mut params = value(params)?;
        let (version, client) = (self.version(), &self.call.session().client);
        if !version.has_elicitation() {
            return Err(AskError::NotSupported("elicitation"));
        }
        let by_url = params.get("mode").is_some_and(|mode| mode == "url");
        if by_url && !(client.elicitation_url && version.has_elicitation_modes()) {
            return Err(AskError::NotSupported("elicitation by URL"));
        }
        if !by_url && !client.elicitation_form {
            return Err(AskError::NotSupported("elicitation"));
        }
        if let Some(params) = params.as_object_mut().filter(|_| !version.has_elicitation_modes()) {
            params.remove("mode");
        }
        self.ask("elicitation/create", &params).await
    }

    /// Asks the client which directories it works in: `roots/list`.
    pub async fn roots(&self) -> Result<Answer, AskError> {
        if !self.call.session().client.roots {
            return Err(AskError::NotSupported("roots"));
        }
        self.ask("roots/list", &()).await
    }

    /// Asks whether the client is there.
    pub async fn ping(&self) -> Result<(), AskError> {
        self.ask("ping", &()).await.map(drop)
    }

    /// Asks on this call's stream. If the connection breaks, the question is asked again on the client's return, under
    /// the same id. Dropping the future withdraws the question.
    async fn ask(&self, method: &str, params: &impl Serialize) -> Result<Answer, AskError> {
        let session = self.call.session();
        let deadline = tokio::time::sleep(session.node.timing.question);
        tokio::pin!(deadline);
        if method != "ping" {
            tokio::select! {
                () = session.ready() => {} // SES-08
                () = self.call.pointless() => return Err(self.why_pointless()),
                () = &mut deadline => return Err(AskError::TimedOut),
            }
        }
        let (waiter, answer) = oneshot::channel();
        let question = self.call.ask(waiter).map_err(|_| AskError::TooMany)?;
        let mut asked = Asked {
            call: &self.call,
            question,
            heard: false,
        };
        let mut problem = None;
        let draft = Draft::new(256, |out| {
            problem = write_request(out, &question.id(), method, params).err();
        });
        if let Some(error) = problem {
            return Err(AskError::NotJson(error.to_string()));
        }
        let said = match self.call.outlet.say(draft, Pin::Question) {
            Ok(Some(said)) => said,
            Ok(None) => return Err(AskError::ClientLeft),
            Err(_) => return Err(AskError::Ended),
        };
        asked.heard = true;
        let outcome = tokio::select! {
            biased;
            outcome = answer => outcome.map_err(|_| AskError::Ended),
            () = self.call.pointless() => Err(self.why_pointless()),
            () = &mut deadline => Err(AskError::TimedOut),
        };
        said.stream.release(said.seq);
        match outcome? {
            Ok(result) => Ok(Answer(result)),
            Err(error) => Err(AskError::Refused(read_error(&error))),
        }
    }

    fn why_pointless(&self) -> AskError {
        if self.is_cancelled() {
            AskError::Ended
        } else {
            AskError::ClientLeft
        }
    }
}

/// A question that is withdrawn when nobody waits for its answer any more (S2C-06).
struct Asked<'a> {
    call: &'a Running,
    question: Question,
    heard: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.heard {
            self.call.withdraw(self.question);
        } else {
            self.call.forget(self.question);
        }
    }
}

fn value(params: impl Serialize) -> Result<Value, AskError> {
    serde_json::to_value(params).map_err(|e| AskError::NotJson(e.to_string()))
}

fn read_error(raw: &[u8]) -> RpcError {
    serde_json::from_slice(raw).unwrap_or_else(|_| RpcError::internal("the client answered with a malformed error"))
}
