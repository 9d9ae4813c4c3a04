//! Functions that ask the client for input and are called again with it.

use super::ToolError;
#[cfg(feature = "schemars")]
use crate::call::ask_error::AskError;
use crate::call::context::Context;
#[cfg(feature = "schemars")]
use crate::call::form;
use crate::call::reply::Reply;
use crate::call::request::Inputs;
use crate::call::sampling::SamplingRequest;
use bytes::Bytes;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::mrtr::InputRequests;
use serde::Serialize;
use serde_json::Value;
#[cfg(feature = "schemars")]
use serde_json::json;
use std::collections::BTreeMap;
#[cfg(feature = "schemars")]
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// The input that a function needs from the client before it can continue, each under its own key.
///
/// ```
/// use rethread::catalog::{Ask, NoArgs, NeedsInput};
/// use rethread::{Context, Inputs};
/// use serde_json::{Value, json};
///
/// async fn roots(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
///     let roots: Value = inputs.response("roots")?.ok_or_else(|| Ask::new().roots("roots"))?;
///     Ok(roots["roots"].to_string())
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Ask {
    requests: InputRequests,
    /// The keys of the questions whose form was made from a type.
    #[cfg(feature = "schemars")]
    forms: BTreeSet<String>,
    state: Option<Vec<u8>>,
}

impl Ask {
    /// An empty request.
    pub fn new() -> Self {
        Ask::default()
    }

    /// Asks the user to fill in a form, as [`Context::elicit`] does. [`Inputs::elicited`] has the answer.
    ///
    /// ```
    /// use rethread::catalog::{Ask, NeedsInput, NoArgs};
    /// use rethread::{Context, Elicited, Inputs};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Name {
    ///     name: String,
    /// }
    ///
    /// async fn greet(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    ///     let answer = inputs.elicited("name")?;
    ///     Ok(match answer.ok_or_else(|| Ask::new().elicit::<Name>("name", "What is your name?"))? {
    ///         Elicited::Accept(Name { name }) => format!("hello, {name}"),
    ///         Elicited::Decline | Elicited::Cancel => "hello".to_owned(),
    ///     })
    /// }
    /// ```
    ///
    /// # Panics
    /// If the key is in use, or if a form cannot ask for `T`: see [`form_schema`](crate::form_schema).
    #[cfg(feature = "schemars")]
    pub fn elicit<T: schemars::JsonSchema>(mut self, key: &str, message: impl Into<String>) -> Self {
        let schema = form::form_schema::<T>().unwrap_or_else(|why| panic!("{why}"));
        self.forms.insert(key.to_owned());
        self.elicit_json(key, json!({ "message": message.into(), "requestedSchema": schema }))
    }

    /// Asks the user: `params` are `ElicitRequestParams` of the MCP schema.
    ///
    /// # Panics
    /// If the key is in use, or `params` are not a JSON object.
    pub fn elicit_json(self, key: &str, params: impl Serialize) -> Self {
        self.with(key, "elicitation/create", params)
    }

    /// Asks the model. [`Inputs::response`] has the answer, a [`SampledMessage`](crate::SampledMessage).
    ///
    /// # Panics
    /// If the key is in use.
    pub fn sample(self, key: &str, request: SamplingRequest) -> Self {
        self.sample_json(key, request)
    }

    /// Asks the model: `params` are `CreateMessageRequestParams` of the MCP schema.
    ///
    /// # Panics
    /// If the key is in use, or `params` are not a JSON object.
    pub fn sample_json(self, key: &str, params: impl Serialize) -> Self {
        self.with(key, "sampling/createMessage", params)
    }

    /// Asks for the directories that the client works in.
    ///
    /// # Panics
    /// If the key is in use.
    pub fn roots(self, key: &str) -> Self {
        self.with(key, "roots/list", serde_json::Map::new())
    }

    /// State that the function finds again in [`Inputs::state`].
    pub fn state(mut self, state: impl Into<Vec<u8>>) -> Self {
        self.state = Some(state.into());
        self
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn with(mut self, key: &str, method: &str, params: impl Serialize) -> Self {
        let params = serde_json::to_vec(&params).unwrap_or_default(); // an empty text is not an object
        if let Err(why) = self.requests.ask(key, method, &params.into()) {
            panic!("the client cannot be asked for `{key}`: {why}");
        }
        self
    }

    /// Asks all questions at once, on the stream of the call, as revisions before 2026-07-28 do.
    async fn answers(self, cx: &Context) -> Result<Inputs, RpcError> {
        let mut waiting = Vec::new();
        for (key, request) in self.requests.iter() {
            let params = request.params.as_deref().map(serde_json::from_slice::<Value>);
            let params = params.transpose().ok().flatten();
            #[cfg(feature = "schemars")]
            let params = match params {
                Some(params) if self.forms.contains(key) => Some(form_params(params, cx.version())?),
                other => other,
            };
            let answer = async move {
                match request.method.as_str() {
                    "elicitation/create" => cx.elicit_json(params).await,
                    "sampling/createMessage" => cx.sample_json(params).await,
                    _ => cx.roots_json().await,
                }
            };
            waiting.push((key, Box::pin(answer)));
        }
        let mut responses = BTreeMap::new();
        // In order, so that the first poll asks the questions in the order of the function.
        poll_fn(|task| {
            let mut failed = None;
            waiting.retain_mut(|(key, answer)| match answer.as_mut().poll(task) {
                Poll::Pending => true,
                Poll::Ready(Ok(answer)) => {
                    responses.insert((*key).to_owned(), Bytes::copy_from_slice(answer.raw()));
                    false
                }
                Poll::Ready(Err(error)) => {
                    failed = Some(error);
                    false
                }
            });
            match failed {
                Some(error) => Poll::Ready(Err(error)),
                None if waiting.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await?;
        Ok(Inputs {
            responses,
            state: self.state.map(Bytes::from),
        })
    }
}

/// The params of a form for clients of `version`.
#[cfg(feature = "schemars")]
fn form_params(mut params: Value, version: rethread_proto::Version) -> Result<Value, AskError> {
    let schema = form::for_version(params["requestedSchema"].take(), version);
    params["requestedSchema"] = schema.ok_or(AskError::NotSupported("forms with lists of choices"))?;
    Ok(params)
}

/// Why a function has no result: it needs input, or it failed. `?` converts an [`Ask`], and every error, as [`ToolError`]
/// describes.
#[derive(Debug)]
pub enum NeedsInput {
    /// The client is asked, and the function is called again with the answers.
    NeedsInput(Ask),
    /// The function failed.
    Failed(ToolError),
}

impl From<Ask> for NeedsInput {
    fn from(ask: Ask) -> Self {
        NeedsInput::NeedsInput(ask)
    }
}

impl<E: Into<ToolError>> From<E> for NeedsInput {
    fn from(error: E) -> Self {
        NeedsInput::Failed(error.into())
    }
}

/// Calls `run` until it has a result, or until the client must call again with the input. In a session the client is asked at
/// once.
pub(super) async fn finish<Fut>(
    mut inputs: Inputs,
    cx: &Context,
    run: impl Fn(Inputs) -> Fut + Send,
) -> Result<Reply, ToolError>
where
    Fut: Future<Output = Result<Reply, NeedsInput>> + Send,
{
    for _ in 0..=cx.call.exchange.node.limits.input_rounds() {
        match run(inputs).await {
            Ok(reply) => return Ok(reply),
            Err(NeedsInput::Failed(error)) => return Err(error),
            Err(NeedsInput::NeedsInput(ask)) if cx.session().is_some() => inputs = ask.answers(cx).await?,
            Err(NeedsInput::NeedsInput(ask)) => return Ok(Reply::input_required(ask.requests, ask.state)),
        }
    }
    Err(RpcError::internal("this call asked for input too many times").into()) // MRTR-08
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn questions_are_kept_under_their_keys() {
        let ask = Ask::new()
            .elicit_json("name", json!({ "message": "Who?" }))
            .sample("greeting", SamplingRequest::new("Greet", 5))
            .roots("roots")
            .state("s");
        let asked: Vec<_> = ask.requests.iter().map(|(key, r)| (key, r.method.as_str())).collect();
        let expected = [
            ("name", "elicitation/create"),
            ("greeting", "sampling/createMessage"),
            ("roots", "roots/list"),
        ];
        assert_eq!(asked, expected);
        assert_eq!(ask.state.as_deref(), Some(&b"s"[..]));
        assert!(!ask.is_empty() && Ask::new().is_empty());
    }

    #[test]
    #[should_panic(expected = "the client cannot be asked for `a`: the key `a` is used twice")]
    fn a_key_is_used_once() {
        let _ = Ask::new().roots("a").elicit_json("a", json!({}));
    }

    #[test]
    #[should_panic(
        expected = "the client cannot be asked for `a`: the params of `elicitation/create` must be an object"
    )]
    fn params_are_an_object() {
        let _ = Ask::new().elicit_json("a", "Who?");
    }
}
