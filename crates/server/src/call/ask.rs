//! Questions to the client: asked on the call's stream, answered on another POST (D7).

use crate::call::active_call::ActiveCall;
use crate::call::ask_error::{Answer, AskError, WITHDRAWN};
use crate::call::call_scope::{CallScope, StatelessScope};
use crate::call::context::Context;
#[cfg(feature = "schemars")]
use crate::call::elicited::{self, Elicited};
#[cfg(feature = "schemars")]
use crate::call::form;
use crate::call::peer::Peer;
use crate::call::response_sink::Emitted;
use crate::call::root::{Root, Roots};
use crate::call::sampling::{SampledMessage, SamplingRequest};
#[cfg(feature = "schemars")]
use crate::call::schema::Schema;
use crate::session::Session;
use bytes::Bytes;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::jsonrpc::write_request;
use rethread_proto::mrtr::{self, InputMethod};
use rethread_proto::questions::Question;
use rethread_proto::sse::Draft;
use rethread_store::Retain;
#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::Serialize;
#[cfg(feature = "schemars")]
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

impl Context {
    /// Asks the client's model to continue a conversation: `sampling/createMessage`.
    ///
    /// ```
    /// use rethread::{AskError, Context, SamplingRequest};
    ///
    /// async fn capital(cx: &Context) -> Result<String, AskError> {
    ///     let request = SamplingRequest::new("What is the capital of France?", 100);
    ///     Ok(cx.sample(request).await?.text())
    /// }
    /// ```
    pub async fn sample(&self, request: SamplingRequest) -> Result<SampledMessage, AskError> {
        let answer = self.sample_json(request).await?;
        answer.json().map_err(AskError::InvalidAnswer)
    }

    /// Asks the client's model, with `CreateMessageRequestParams` of the MCP schema.
    pub async fn sample_json(&self, params: impl Serialize) -> Result<Answer, AskError> {
        let params = value(params)?;
        self.require(InputMethod::Sample, &params)?;
        self.ask("sampling/createMessage", &params).await
    }

    /// Asks the client's user to fill in a form: `elicitation/create`. The fields of `T` are the fields of the form.
    /// [`form_schema`](crate::form_schema) describes the types that can be asked for.
    ///
    /// ```
    /// use rethread::{AskError, Context, Elicited};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Booking {
    ///     /// Your name
    ///     name: String,
    ///     seats: Option<u8>,
    /// }
    ///
    /// async fn book(cx: &Context) -> Result<String, AskError> {
    ///     Ok(match cx.elicit::<Booking>("Who travels?").await? {
    ///         Elicited::Accept(booking) => format!("a seat for {}", booking.name),
    ///         Elicited::Decline | Elicited::Cancel => "no seat".to_owned(),
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`AskError::InvalidForm`] if a form cannot ask for `T`; [`AskError::InvalidAnswer`] if the answer violates the schema of
    /// the form or is not a `T`; otherwise as the other questions.
    #[cfg(feature = "schemars")]
    pub async fn elicit<T: JsonSchema + DeserializeOwned>(
        &self,
        message: impl Into<String>,
    ) -> Result<Elicited<T>, AskError> {
        let invalid = |why: &dyn std::fmt::Display| AskError::InvalidForm(why.to_string());
        let form = form::form_schema::<T>().map_err(|why| invalid(&why))?;
        let schema = Schema::compile(&form).map_err(|why| invalid(&why))?;
        let Some(shown) = form::for_version(form, self.version()) else {
            return Err(AskError::NotSupported("forms with lists of choices"));
        };
        let params = serde_json::json!({ "message": message.into(), "requestedSchema": shown });
        let answer = self.elicit_json(params).await?;
        let one_line = |problems: String| problems.trim_start_matches("- ").replace("\n- ", "; ");
        elicited::read(answer.raw(), |content| schema.check(content).map_err(one_line))
            .map_err(|why| AskError::InvalidAnswer(answer.invalid(&why)))
    }

    /// Asks the client's user, with `ElicitRequestParams` of the MCP schema: a form unless their `mode` is `url`.
    pub async fn elicit_json(&self, params: impl Serialize) -> Result<Answer, AskError> {
        let mut params = value(params)?;
        let version = self.version();
        let by_url = params.get("mode").is_some_and(|mode| mode == "url");
        if !version.has_elicitation() || (by_url && !version.has_elicitation_modes()) {
            return Err(AskError::NotSupported("elicitation"));
        }
        self.require(InputMethod::Elicit, &params)?;
        if let Some(params) = params.as_object_mut().filter(|_| !version.has_elicitation_modes()) {
            params.remove("mode");
        }
        self.ask("elicitation/create", &params).await
    }

    /// Asks the client which directories it works in: `roots/list`.
    pub async fn roots(&self) -> Result<Vec<Root>, AskError> {
        let roots: Roots = self.roots_json().await?.json().map_err(AskError::InvalidAnswer)?;
        Ok(roots.roots)
    }

    /// Asks the client which directories it works in. The answer is a `ListRootsResult` of the MCP schema.
    pub async fn roots_json(&self) -> Result<Answer, AskError> {
        self.require(InputMethod::Roots, &Value::Null)?;
        self.ask("roots/list", &()).await
    }

    /// Sends any request to the client, for handlers that relay. The client's capabilities are not checked.
    pub async fn request(&self, method: &str, params: impl Serialize) -> Result<Answer, AskError> {
        self.ask(method, &params).await
    }

    /// Sends `ping` and waits for the answer.
    pub async fn ping(&self) -> Result<(), AskError> {
        self.ask("ping", &()).await.map(drop)
    }

    /// S2C-05, MRTR-03: a question needs a capability that the client has declared.
    fn require(&self, method: InputMethod, params: &Value) -> Result<(), AskError> {
        let lacks = self.call.client().lacks_for(method, params);
        lacks.map_or(Ok(()), |what| Err(AskError::NotSupported(what)))
    }

    /// Asks on this call's stream. If the connection breaks, the question is asked again on the client's return, under
    /// the same id. Dropping the future withdraws the question.
    async fn ask(&self, method: &str, params: &impl Serialize) -> Result<Answer, AskError> {
        match &self.call.exchange.scope {
            CallScope::Session(session) => self.ask_on_stream(session, method, params).await,
            CallScope::Stateless(scope) => self.ask_by_parking(scope, method, params).await,
        }
    }

    async fn ask_by_parking(
        &self,
        scope: &StatelessScope,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Answer, AskError> {
        let params = serde_json::to_vec(params).map_err(|e| AskError::NotJson(e.to_string()))?;
        let params = if params == b"null" { Bytes::new() } else { params.into() };
        let method = InputMethod::from_name(method).filter(|_| mrtr::allows_input_required(scope.method.as_str()));
        let method = method.ok_or(AskError::NotSupported("this question during this request"))?;
        let answer = self.call.exchange.ask(method.as_str(), params)?;
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(json) => Ok(Answer { json, in_params: true }),
                Err(_) => Err(AskError::TimedOut),
            },
            () = self.call.cancelled() => Err(AskError::Ended),
        }
    }

    async fn ask_on_stream(
        &self,
        session: &Session,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Answer, AskError> {
        let deadline = tokio::time::sleep(session.node.timing.question);
        tokio::pin!(deadline);
        if method != "ping" {
            tokio::select! {
                () = session.ready() => {} // SES-08
                () = self.call.unreadable() => return Err(self.why_unreadable()),
                () = &mut deadline => return Err(AskError::TimedOut),
            }
        }
        // A stream without a log keeps everything that is emitted, and this future may be dropped after that. So a question waits
        // for room before it is asked.
        while let Some(sink) = self.call.exchange.sink().filter(|sink| !sink.takes_reply()) {
            tokio::select! {
                _ = Box::pin(sink.wait_for_room()) => {}
                () = self.call.unreadable() => return Err(self.why_unreadable()),
                () = &mut deadline => return Err(AskError::TimedOut),
            }
        }
        let (waiter, answer) = oneshot::channel();
        let question = self.call.ask(session, waiter)?;
        let mut asked = QuestionGuard {
            call: &self.call,
            question,
            emitted: None,
        };
        let mut problem = None;
        let draft = Draft::new(256, |out| {
            problem = write_request(out, &question.id(), method, params).err();
        });
        if let Some(error) = problem {
            return Err(AskError::NotJson(error.to_string()));
        }
        match self.call.exchange.emit(draft, Retain::Question) {
            Ok(Some(emitted)) => asked.emitted = Some(emitted),
            Ok(None) => return Err(AskError::ClientLeft),
            Err(_) => return Err(AskError::Ended),
        }
        let outcome = tokio::select! {
            biased;
            outcome = answer => outcome.map_err(|_| AskError::Ended),
            () = self.call.unreadable() => Err(self.why_unreadable()),
            () = &mut deadline => Err(AskError::TimedOut),
        };
        match outcome? {
            Ok(json) => Ok(Answer { json, in_params: false }),
            Err(error) => Err(AskError::Refused(read_error(&error))),
        }
    }

    fn why_unreadable(&self) -> AskError {
        if self.is_cancelled() {
            AskError::Ended
        } else {
            AskError::ClientLeft
        }
    }
}

/// A question that is withdrawn when nobody waits for its answer any more (S2C-06), and released however it ends: answered,
/// given up in time, or dropped (D4).
struct QuestionGuard<'a> {
    call: &'a ActiveCall,
    question: Question,
    /// Where it was asked.
    emitted: Option<Emitted>,
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        let Some(Emitted { sink, emission }) = self.emitted.take() else {
            self.call.forget(self.question);
            return;
        };
        self.call.withdraw(self.question);
        sink.release(emission.seq);
    }
}

impl Peer {
    /// Asks the client something that belongs to no call: on one of the session's GET streams, or the next one that is
    /// opened. The client's capabilities are not checked. Dropping the future withdraws the question.
    pub async fn request(&self, method: &str, params: impl Serialize) -> Result<Answer, AskError> {
        let session = &self.0;
        let deadline = tokio::time::sleep(session.node.timing.question);
        let (waiter, answer) = oneshot::channel();
        let question = session.questions.lock().ask(waiter).map_err(|_| AskError::TooMany)?;
        let _withdrawn = PeerQuestionGuard { peer: self, question };
        let mut problem = None;
        let draft = Draft::new(256, |out| {
            problem = write_request(out, &question.id(), method, &params).err();
        });
        if let Some(error) = problem {
            return Err(AskError::NotJson(error.to_string()));
        }
        session.offer_question(draft);
        tokio::select! {
            biased;
            answer = answer => match answer.map_err(|_| AskError::Ended)? {
                Ok(json) => Ok(Answer { json, in_params: false }),
                Err(error) => Err(AskError::Refused(read_error(&error))),
            },
            () = deadline => Err(AskError::TimedOut),
        }
    }
}

/// A question of no call, withdrawn when nobody waits for its answer any more (S2C-06).
struct PeerQuestionGuard<'a> {
    peer: &'a Peer,
    question: Question,
}

impl Drop for PeerQuestionGuard<'_> {
    fn drop(&mut self) {
        if self.peer.0.questions.lock().abandon(self.question) {
            let params = serde_json::json!({ "requestId": self.question.id(), "reason": WITHDRAWN });
            let _ = self.peer.push("notifications/cancelled", params); // the session has ended: so has the question
        }
    }
}

fn value(params: impl Serialize) -> Result<Value, AskError> {
    serde_json::to_value(params).map_err(|e| AskError::NotJson(e.to_string()))
}

fn read_error(raw: &[u8]) -> RpcError {
    serde_json::from_slice(raw).unwrap_or_else(|_| RpcError::internal("the client answered with a malformed error"))
}
