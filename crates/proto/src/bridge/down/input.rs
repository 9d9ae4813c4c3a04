//! Questions of a modern server: input requests as real requests, and their answers in a retry (requirements 4.2).

use crate::Version;
use crate::bridge::members::{Member, member, mentions, rewrite_or_keep, write_text};
use crate::jsonrpc::{Fields, RpcError};
use crate::mrtr::InputMethod;
use bytes::Bytes;
use serde_json::{Value, json};

/// A result that asks for input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequired {
    /// The questions, with the keys of their answers.
    pub requests: Vec<(String, InputMethod, Bytes)>,
    /// The raw `requestState`, exactly as the server wrote it.
    pub state: Option<Bytes>,
}

/// Reads a result that asks for input. `None` for any other result. An error if it cannot be carried out.
pub fn input_required(json: &Bytes) -> Option<Result<InputRequired, RpcError>> {
    if !mentions(json, &["input_required"]) {
        return None;
    }
    let fields = Fields::read(std::str::from_utf8(json).ok()?)?;
    if fields.find("resultType")?.get() != "\"input_required\"" {
        return None;
    }
    let raw = |value: &str| json.slice_ref(value.as_bytes());
    let state = fields.find("requestState").map(|state| raw(state.get()));
    let asked = fields.find("inputRequests").map_or("{}", |asked| asked.get());
    let malformed = || RpcError::internal("the server asked for input in a form that is not known");
    let Some(asked) = Fields::read(asked) else {
        return Some(Err(malformed()));
    };
    let mut requests = Vec::with_capacity(asked.0.len());
    for (key, request) in asked.0 {
        let method = member(request.get().as_bytes(), "method").and_then(|m| serde_json::from_str::<String>(m).ok());
        let Some(method) = method.as_deref().and_then(InputMethod::from_name) else {
            return Some(Err(malformed()));
        };
        let params = member(request.get().as_bytes(), "params").map_or_else(Bytes::new, raw);
        requests.push((key.into_owned(), method, params));
    }
    if requests.is_empty() && state.is_none() {
        return Some(Err(malformed()));
    }
    Some(Ok(InputRequired { requests, state }))
}

/// The params of a question for a client of `version`. `elicitation_id` names an elicitation by URL, which has an id only in
/// sessions. An error if the revision cannot ask it.
pub fn question_params(
    method: InputMethod,
    params: &Bytes,
    version: Version,
    elicitation_id: &str,
) -> Result<Bytes, RpcError> {
    match method {
        InputMethod::Roots => Ok(params.clone()),
        InputMethod::Elicit => {
            let is_url = member(params, "mode") == Some("\"url\"");
            if !version.has_elicitation() || (is_url && !version.has_elicitation_modes()) {
                let what = if is_url { "elicitation by URL" } else { "elicitation" };
                return Err(RpcError::internal(format!(
                    "the server asked for {what}, which protocol version {version} does not have"
                )));
            }
            if is_url {
                let added = json!({ "elicitationId": elicitation_id }).to_string();
                let added = added.trim_start_matches('{').trim_end_matches('}').as_bytes().to_vec();
                return Ok(rewrite_or_keep(params, &added, |name, _| match name {
                    "elicitationId" => Member::Remove,
                    _ => Member::Keep,
                }));
            }
            if version.has_elicitation_modes() {
                return Ok(params.clone());
            }
            Ok(rewrite_or_keep(params, b"", |name, _| match name {
                "mode" => Member::Remove,
                _ => Member::Keep,
            }))
        }
        InputMethod::Sample if version.has_elicitation_modes() => Ok(params.clone()),
        InputMethod::Sample => Ok(rewrite_or_keep(params, b"", |name, raw| match name {
            "messages" => split_messages(raw),
            _ => Member::Keep,
        })),
    }
}

/// Messages whose content is a list, as consecutive messages with one content each.
fn split_messages(messages: &str) -> Member {
    let Ok(messages) = serde_json::from_str::<Vec<Value>>(messages) else {
        return Member::Keep;
    };
    if !messages.iter().any(|message| message["content"].is_array()) {
        return Member::Keep;
    }
    let split = messages
        .into_iter()
        .flat_map(|message| match message["content"].as_array() {
            Some(contents) => {
                let one = |content: &Value| {
                    let mut single = message.clone();
                    single["content"] = content.clone();
                    single
                };
                contents.iter().map(one).collect()
            }
            None => vec![message],
        });
    Member::Replace(Value::Array(split.collect()).to_string().into())
}

/// The effect of a client's answer on its round.
#[derive(Clone, Debug, PartialEq)]
pub enum RoundAnswer {
    /// The raw result for the retry.
    Response(Bytes),
    /// The call fails: the modern era has no form for this error.
    Fails(RpcError),
}

/// The answer to a question of `method`. An error of an elicitation counts as cancelled by the user.
pub fn answer(method: InputMethod, answered: Result<Bytes, RpcError>) -> RoundAnswer {
    match (method, answered) {
        (_, Ok(response)) => RoundAnswer::Response(response),
        (InputMethod::Elicit, Err(_)) => RoundAnswer::Response(Bytes::from_static(b"{\"action\":\"cancel\"}")),
        (InputMethod::Sample | InputMethod::Roots, Err(error)) => RoundAnswer::Fails(error),
    }
}

/// The params of a retry: the original ones, the answers of this round only, and the exact state.
pub fn retry_params(original: &Bytes, responses: &[(String, Bytes)], state: Option<&Bytes>) -> Bytes {
    let mut added = Vec::new();
    if !responses.is_empty() {
        added.extend_from_slice(b"\"inputResponses\":{");
        for (n, (key, response)) in responses.iter().enumerate() {
            if n > 0 {
                added.push(b',');
            }
            write_text(&mut added, key);
            added.push(b':');
            added.extend_from_slice(response);
        }
        added.push(b'}');
    }
    if let Some(state) = state {
        if !added.is_empty() {
            added.push(b',');
        }
        added.extend_from_slice(b"\"requestState\":");
        added.extend_from_slice(state);
    }
    rewrite_or_keep(original, &added, |_, _| Member::Keep)
}
