//! Prompts and their functions.

use super::function::{FunctionFuture, params};
use super::input::{self, NeedsInput};
use super::listing::{Listing, Shown};
use super::{Content, EntryError, Icon, Role};
use crate::call::context::Context;
use crate::call::reply::Reply;
use crate::call::request::{Call, Inputs};
use rethread_proto::Version;
use rethread_proto::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

/// The description of a prompt for clients.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Prompt {
    name: String,
    title: Option<String>,
    description: Option<String>,
    arguments: Vec<Argument>,
    icons: Vec<Icon>,
    meta: Option<Map<String, Value>>,
}

/// `Prompt` of the MCP schema.
#[derive(Serialize)]
struct ShownPrompt<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "<[Argument]>::is_empty")]
    arguments: &'a [Argument],
    #[serde(skip_serializing_if = "<[Icon]>::is_empty")]
    icons: &'a [Icon],
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Map<String, Value>>,
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
            icons: Vec::new(),
            meta: None,
        }
    }

    /// The title for people. Since 2025-06-18; earlier clients do not get it.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The purpose of the prompt.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds an argument.
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>, required: bool) -> Self {
        self.arguments.push(Argument {
            name: name.into(),
            description: description.into(),
            required,
        });
        self
    }

    /// Adds an icon. Since 2025-11-25; earlier clients do not get it.
    pub fn icon(mut self, icon: Icon) -> Self {
        self.icons.push(icon);
        self
    }

    /// Adds a member of `_meta`. Since 2025-06-18; earlier clients do not get it.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    fn at(&self, version: Version) -> ShownPrompt<'_> {
        ShownPrompt {
            name: &self.name,
            title: self.title.as_deref().filter(|_| version.has_titles()),
            description: self.description.as_deref(),
            arguments: &self.arguments,
            icons: if version.has_icons() { &self.icons } else { &[] },
            meta: self.meta.as_ref().filter(|_| version.has_titles()),
        }
    }
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptMessage {
    role: Role,
    content: Content,
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
    /// Adds a prompt to a list.
    pub(super) fn add<F, Fut, R>(prompts: &Listing<Self>, prompt: Prompt, make: F) -> Result<(), EntryError>
    where
        F: Fn(Arguments, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, RpcError>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let description = prompt.description.clone();
        let start = move |arguments: Arguments, _: &Call, cx: Context| -> FunctionFuture {
            let making = make(arguments, cx);
            let description = description.clone();
            Box::pin(async move { Ok(reply(description.as_deref(), making.await?)) })
        };
        PromptEntry::insert(prompts, prompt, Box::new(start))
    }

    /// Adds a prompt that is called again with the answers of the client.
    pub(super) fn add_with_inputs<F, Fut, R>(prompts: &Listing<Self>, prompt: Prompt, make: F) -> Result<(), EntryError>
    where
        F: Fn(Arguments, Inputs, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NeedsInput>> + Send + 'static,
        R: Into<Vec<PromptMessage>>,
    {
        let make = Arc::new(make);
        let (name, description): (Arc<str>, _) = (prompt.name.as_str().into(), prompt.description.clone());
        let start = move |arguments: Arguments, call: &Call, cx: Context| -> FunctionFuture {
            let (make, name, inputs) = (Arc::clone(&make), Arc::clone(&name), call.inputs().clone());
            let description = description.clone();
            Box::pin(async move {
                let description = description.as_deref();
                let again = |inputs| {
                    let making = make(arguments.clone(), inputs, cx.clone());
                    async move { making.await.map(|made| reply(description, made)) }
                };
                let made = input::finish(inputs, &cx, again).await;
                made.map_err(|error| error.into_rpc_error(&name, &cx.request_id()))
            })
        };
        PromptEntry::insert(prompts, prompt, Box::new(start))
    }

    fn insert(prompts: &Listing<Self>, prompt: Prompt, make: Box<Make>) -> Result<(), EntryError> {
        if prompt.name.is_empty() {
            return Err(EntryError::Invalid("a prompt needs a name".to_owned()));
        }
        let required = prompt.arguments.iter().filter(|a| a.required).map(|a| a.name.clone());
        let entry = PromptEntry {
            required: required.collect(),
            make,
        };
        let shown = Shown::new(|version| prompt.at(version));
        prompts.add(prompt.name, shown, entry)
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
        let shown = |prompt: &Prompt, version| serde_json::to_value(prompt.at(version)).unwrap();
        let expected = json!({ "name": "p", "description": "d", "arguments": arguments });
        assert_eq!(shown(&prompt, Version::V2025_11_25), expected);
        assert_eq!(shown(&Prompt::new("p"), Version::V2025_11_25), json!({ "name": "p" }));
        let prompt = Prompt::new("p").title("P").icon(Icon::new("data:,")).meta("a", 1);
        let mut expected = json!({ "name": "p" });
        assert_eq!(shown(&prompt, Version::V2025_03_26), expected);
        expected["title"] = json!("P");
        expected["_meta"] = json!({ "a": 1 });
        assert_eq!(shown(&prompt, Version::V2025_06_18), expected);
        expected["icons"] = json!([{ "src": "data:," }]);
        assert_eq!(shown(&prompt, Version::V2026_07_28), expected);
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
        let prompts = Listing::new("prompt", "prompts");
        PromptEntry::add(&prompts, prompt, |_, _| async { Ok(PromptMessage::user("")) }).unwrap();
        let entry = prompts.get("p").unwrap();
        let with = |name: &str| BTreeMap::from([(name.to_owned(), String::new())]);
        assert_eq!(entry.check(&with("a")), Ok(()));
        let error = entry.check(&with("b")).unwrap_err();
        assert_eq!((error.code, error.message.as_ref()), (-32602, "missing argument: a"));
    }
}
