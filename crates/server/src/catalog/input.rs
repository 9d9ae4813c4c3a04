//! Functions that ask the client for input and are called again with it.

use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::Inputs;
use bytes::Bytes;
use rethread_proto::jsonrpc::RpcError;
use rethread_proto::mrtr::InputRequests;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;

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
    state: Option<Vec<u8>>,
}

impl Ask {
    /// An empty request.
    pub fn new() -> Self {
        Ask::default()
    }

    /// Asks the user: `params` are `ElicitRequestParams` of the MCP schema.
    ///
    /// # Panics
    /// If the key is in use, or `params` are not a JSON object.
    pub fn elicit(self, key: &str, params: impl Serialize) -> Self {
        self.with(key, "elicitation/create", params)
    }

    /// Asks the model: `params` are `CreateMessageRequestParams` of the MCP schema.
    ///
    /// # Panics
    /// If the key is in use, or `params` are not a JSON object.
    pub fn sample(self, key: &str, params: impl Serialize) -> Self {
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

    /// Asks all questions now, on the stream of the call, as revisions before 2026-07-28 do.
    async fn answers(self, cx: &Context) -> Result<Inputs, RpcError> {
        let mut responses = BTreeMap::new();
        for (key, request) in self.requests.iter() {
            let params = request.params.as_deref().map(serde_json::from_slice::<Value>);
            let params = params.transpose().ok().flatten();
            let answer = match request.method.as_str() {
                "elicitation/create" => cx.elicit(params).await?,
                "sampling/createMessage" => cx.sample(params).await?,
                _ => cx.roots().await?,
            };
            responses.insert(key.to_owned(), Bytes::copy_from_slice(answer.raw()));
        }
        Ok(Inputs {
            responses,
            state: self.state.map(Bytes::from),
        })
    }
}

/// Why a function has no result: it needs input, or it failed. `?` converts an [`Ask`], and everything that converts to an
/// [`RpcError`].
#[derive(Clone, Debug, PartialEq)]
pub enum NeedsInput {
    /// The client is asked, and the function is called again with the answers.
    NeedsInput(Ask),
    /// The call is answered with a JSON-RPC error.
    Failed(RpcError),
}

impl From<Ask> for NeedsInput {
    fn from(ask: Ask) -> Self {
        NeedsInput::NeedsInput(ask)
    }
}

impl<E: Into<RpcError>> From<E> for NeedsInput {
    fn from(error: E) -> Self {
        NeedsInput::Failed(error.into())
    }
}

/// Calls `run` until it has a result, or until the client must call again with the input. In a session the client is asked at
/// once.
pub(super) async fn finish<Fut>(
    mut inputs: Inputs,
    cx: &Context,
    run: impl Fn(Inputs) -> Result<Fut, RpcError> + Send,
) -> Result<Reply, RpcError>
where
    Fut: Future<Output = Result<Reply, NeedsInput>> + Send,
{
    for _ in 0..=cx.call.exchange.node.limits.input_rounds {
        match run(inputs)?.await {
            Ok(reply) => return Ok(reply),
            Err(NeedsInput::Failed(error)) => return Err(error),
            Err(NeedsInput::NeedsInput(ask)) if cx.session().is_some() => inputs = ask.answers(cx).await?,
            Err(NeedsInput::NeedsInput(ask)) => return Ok(Reply::input_required(ask.requests, ask.state)),
        }
    }
    Err(RpcError::internal("this call asked for input too many times")) // MRTR-08
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn questions_are_kept_under_their_keys() {
        let ask = Ask::new()
            .elicit("name", json!({ "message": "Who?" }))
            .sample("greeting", json!({ "maxTokens": 5 }))
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
        let _ = Ask::new().roots("a").elicit("a", json!({}));
    }

    #[test]
    #[should_panic(
        expected = "the client cannot be asked for `a`: the params of `elicitation/create` must be an object"
    )]
    fn params_are_an_object() {
        let _ = Ask::new().elicit("a", "Who?");
    }
}
