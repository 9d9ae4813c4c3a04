//! Prompts and their functions.

use super::Content;
use super::function::{FunctionFuture, params};
use super::input::{self, NeedsInput};
use super::page::Listing;
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::{Call, Inputs};
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// The description of a prompt for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prompt {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Argument {
    name: String,
    description: String,
    required: bool,
}

impl Prompt {
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Prompt {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
        }
    }

    /// The title for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The purpose of the prompt.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>, required: bool) -> Self {
        self.arguments.push(Argument {
            name: name.into(),
            description: description.into(),
            required,
        });
        self
    }

    pub(super) fn into_name(self) -> String {
        self.name
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptMessage {
    role: Role,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

impl PromptMessage {
    /// A message of the user.
    pub fn user(content: impl Into<Content>) -> Self {
        PromptMessage {
            role: Role::User,
            content: content.into(),
        }
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        PromptMessage {
            role: Role::Assistant,
            content: content.into(),
        }
    }
}

impl From<PromptMessage> for Vec<PromptMessage> {
    fn from(message: PromptMessage) -> Self {
        vec![message]
    }
}

type Arguments = BTreeMap<String, String>;

type Make = dyn Fn(Arguments, &Call, Context) -> FunctionFuture + Send + Sync;

/// The function of a prompt, and its required arguments.
pub(super) struct PromptEntry {
    required: Vec<String>,
    make: Box<Make>,
}

#[derive(Serialize)]
struct Made<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    messages: Vec<PromptMessage>,
}

impl PromptEntry {
    pub(super) fn new<F, Fut, R>(prompt: &Prompt, make: F) -> Self
    where
        F: Fn(Arguments, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let description = prompt.description.clone();
        PromptEntry::making(prompt, move |arguments, _, cx| {
            let making = make(arguments, cx);
            let description = description.clone();
            Box::pin(async move { Ok(reply(description.as_deref(), making.await?)) })
        })
    }

    pub(super) fn with_inputs<F, Fut, R>(prompt: &Prompt, make: F) -> Self
    where
        F: Fn(Arguments, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let (make, description) = (Arc::new(make), prompt.description.clone());
        PromptEntry::making(prompt, move |arguments, call, cx| {
            let (make, description, inputs) = (Arc::clone(&make), description.clone(), call.inputs().clone());
            Box::pin(async move {
                let description = description.as_deref();
                let again = |inputs| {
                    let making = make(arguments.clone(), inputs, cx.clone());
                    Ok(async move { making.await.map(|made| reply(description, made)) })
                };
                input::finish(inputs, &cx, again).await
            })
        })
    }

    fn making<F>(prompt: &Prompt, make: F) -> Self
    where
        F: Fn(Arguments, &Call, Context) -> FunctionFuture + Send + Sync + 'static,
    {
        assert!(!prompt.name.is_empty(), "a prompt needs a name");
        let required = prompt.arguments.iter().filter(|a| a.required).map(|a| a.name.clone());
        PromptEntry {
            required: required.collect(),
            make: Box::new(make),
        }
    }

    fn check(&self, arguments: &Arguments) -> Result<(), RpcError> {
        match self.required.iter().find(|name| !arguments.contains_key(*name)) {
            Some(name) => Err(RpcError::invalid_params(format!("missing argument: {name}"))),
            None => Ok(()),
        }
    }
}

fn reply(description: Option<&str>, made: impl Into<Vec<PromptMessage>>) -> Reply {
    let messages = made.into();
    Reply::json(Made { description, messages })
}

#[derive(Deserialize)]
struct GetParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    arguments: Option<Arguments>,
}

/// Starts a `prompts/get`.
pub(super) fn get(prompts: &Listing<PromptEntry>, call: &Call, cx: &Context) -> Result<FunctionFuture, RpcError> {
    let GetParams { name, arguments } = params(call)?;
    let arguments = arguments.unwrap_or_default();
    let prompt = prompts
        .get(&name)
        .ok_or_else(|| RpcError::invalid_params(format!("unknown prompt: {name}")))?;
    prompt.check(&arguments)?;
    Ok((prompt.make)(arguments, call, cx.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prompts_have_the_shape_of_the_schema() {
        let prompt = Prompt::new("p")
            .description("d")
            .argument("a", "an a", true)
            .argument("b", "a b", false);
        let arguments = json!([
            { "name": "a", "description": "an a", "required": true },
            { "name": "b", "description": "a b", "required": false },
        ]);
        assert_eq!(
            serde_json::to_value(&prompt).unwrap(),
            json!({ "name": "p", "description": "d", "arguments": arguments })
        );
        assert_eq!(serde_json::to_value(Prompt::new("p")).unwrap(), json!({ "name": "p" }));
        assert_eq!(
            serde_json::to_value([PromptMessage::user("hi"), PromptMessage::assistant("yes")]).unwrap(),
            json!([
                { "role": "user", "content": { "type": "text", "text": "hi" } },
                { "role": "assistant", "content": { "type": "text", "text": "yes" } },
            ])
        );
    }

    #[test]
    fn required_arguments_must_be_present() {
        let prompt = Prompt::new("p").argument("a", "", true).argument("b", "", false);
        let entry = PromptEntry::new(&prompt, |_, _| async { Ok(PromptMessage::user("")) });
        let with = |name: &str| BTreeMap::from([(name.to_owned(), String::new())]);
        assert_eq!(entry.check(&with("a")), Ok(()));
        let error = entry.check(&with("b")).unwrap_err();
        assert_eq!((error.code, error.message.as_ref()), (-32602, "missing argument: a"));
    }
}
