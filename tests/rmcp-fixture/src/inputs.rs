//! Tools and a prompt that return input-required results (2026-07-28).
//!
//! No call waits for the retry: the returned state contains everything that the tool needs.

#![expect(deprecated)] // clients still use sampling and roots

use rmcp::handler::server::tool::{InputResponses as Answers, RequestState, ToolName};
use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, tool, tool_router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::LazyLock;

use crate::EverythingServer;
use crate::questions::{form, sampled_text};

/// The prompt with an input-required result.
pub(crate) const PROMPT: &str = "test_input_required_result_prompt";

const CONTEXT: &str = "user_context";
const NAME: &str = "user_name";
const ROOTS: &str = "client_roots";
const CAPITAL: &str = "capital_question";

/// One key for all processes, so that another process can finish a round. A real server keeps its key secret.
static STATE_CODEC: LazyLock<RequestStateCodec> =
    LazyLock::new(|| RequestStateCodec::new_unchecked(*b"a key that everybody who reads this file knows"));

#[tool_router(router = input_tools, vis = "pub(crate)")]
impl EverythingServer {
    #[tool(description = "Asks the user for a name")]
    async fn test_input_required_result_elicitation(
        &self,
        Answers(answers): Answers,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(name) = form_value(answers.as_ref(), NAME)? else {
            return ask([(NAME, name()?)]);
        };
        say(name.map_or_else(declined, |Name { name }| format!("Hello, {name}!")))
    }

    #[tool(description = "Asks the model for a capital")]
    async fn test_input_required_result_sampling(
        &self,
        Answers(answers): Answers,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(sampled) = answer(answers.as_ref(), CAPITAL)? else {
            return ask([(CAPITAL, sample("What is the capital of France?", 100))]);
        };
        say(format!("The model says: {}", sampled_text(&sampled)))
    }

    #[tool(description = "Asks the client for its roots")]
    async fn test_input_required_result_list_roots(
        &self,
        Answers(answers): Answers,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(roots) = answer(answers.as_ref(), ROOTS)? else {
            return ask([(ROOTS, roots())]);
        };
        say(format!("The client works in: {}", named(&roots)))
    }

    #[tool(description = "Asks the user to confirm, and remembers that it did")]
    async fn test_input_required_result_request_state(
        &self,
        ToolName(tool): ToolName,
        Answers(answers): Answers,
        RequestState(state): RequestState,
    ) -> Result<CallToolResponse, ErrorData> {
        confirmation(&tool, answers.as_ref(), state.as_deref())
    }

    #[tool(description = "Refuses a state that it did not hand out")]
    async fn test_input_required_result_tampered_state(
        &self,
        ToolName(tool): ToolName,
        Answers(answers): Answers,
        RequestState(state): RequestState,
    ) -> Result<CallToolResponse, ErrorData> {
        confirmation(&tool, answers.as_ref(), state.as_deref())
    }

    #[tool(description = "Asks the user, the model and the client at once")]
    async fn test_input_required_result_multiple_inputs(
        &self,
        ToolName(tool): ToolName,
        Answers(answers): Answers,
        RequestState(state): RequestState,
    ) -> Result<CallToolResponse, ErrorData> {
        const GREETING: &str = "greeting";
        unseal_state(&tool, state.as_deref())?;
        let answers = answers.as_ref();
        let all = (
            form_value(answers, NAME)?,
            answer(answers, GREETING)?,
            answer(answers, ROOTS)?,
        );
        let (Some(user), Some(greeting), Some(works_in)) = all else {
            let questions = [
                (NAME, name()?),
                (GREETING, sample("Generate a greeting", 50)),
                (ROOTS, roots()),
            ];
            return ask_and_remember(questions, &tool, "asked for three things");
        };
        let user = user.map_or_else(|| "whoever you are".to_owned(), |Name { name }| name);
        say(format!(
            "{} {user} works in: {}",
            sampled_text(&greeting),
            named(&works_in)
        ))
    }

    /// The state contains the name once it is known.
    #[tool(description = "Asks the user for a name, then for a color")]
    async fn test_input_required_result_multi_round(
        &self,
        ToolName(tool): ToolName,
        Answers(answers): Answers,
        RequestState(state): RequestState,
    ) -> Result<CallToolResponse, ErrorData> {
        #[derive(Deserialize)]
        struct Color {
            color: String,
        }
        const NAMELESS: &str = "";
        let second_step = |name: &str| {
            let color = field("Step 2: What is your favorite color?", "color", "string")?;
            ask_and_remember([("step2", color)], &tool, name)
        };
        let known = unseal_state(&tool, state.as_deref())?.filter(|name| name != NAMELESS);
        let Some(name) = known else {
            let Some(said) = form_value(answers.as_ref(), "step1")? else {
                let name = field("Step 1: What is your name?", "name", "string")?;
                return ask_and_remember([("step1", name)], &tool, NAMELESS);
            };
            let Some(Name { name }) = said else {
                return say(declined());
            };
            return second_step(&name);
        };
        let Some(said) = form_value(answers.as_ref(), "step2")? else {
            return second_step(&name);
        };
        say(said.map_or_else(declined, |Color { color }| format!("{name} likes {color}.")))
    }

    #[tool(description = "Asks for whatever the client can answer")]
    async fn test_input_required_result_capabilities(
        &self,
        Answers(answers): Answers,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client = context.client_capabilities().unwrap_or_default();
        let mut questions = Vec::new();
        if client.elicitation.is_some() {
            questions.push((NAME, name()?));
        }
        if client.sampling.is_some() {
            questions.push((CAPITAL, sample("What is the capital of France?", 100)));
        }
        if client.roots.is_some() {
            questions.push((ROOTS, roots()));
        }
        let given = answers.unwrap_or_default();
        let known = [NAME, CAPITAL, ROOTS].map(|key| Some(format!("{key}: {}", given.get(key)?)));
        let known: Vec<String> = known.into_iter().flatten().collect();
        if known.is_empty() && !questions.is_empty() {
            return ask(questions);
        }
        say(format!("The client answered: {known:?}"))
    }
}

/// The prompt with the answer of the client, if present.
pub(crate) fn prompt(answers: Option<&InputResponses>) -> Result<GetPromptResponse, ErrorData> {
    #[derive(Deserialize)]
    struct About {
        context: String,
    }
    let Some(about) = form_value(answers, CONTEXT)? else {
        return Ok(prompt_question()?.into());
    };
    let about = about.map_or_else(declined, |About { context }| context);
    let message = PromptMessage::new_text(Role::User, format!("Use this context: {about}"));
    Ok(GetPromptResult::new(vec![message]).into())
}

/// The question of the prompt.
pub(crate) fn prompt_question() -> Result<InputRequiredResult, ErrorData> {
    let question = field("What context should the prompt use?", "context", "string")?;
    Ok(required([(CONTEXT, question)], None))
}

/// Asks the user to confirm. The retry needs the state of this tool.
fn confirmation(
    tool: &str,
    answers: Option<&InputResponses>,
    state: Option<&str>,
) -> Result<CallToolResponse, ErrorData> {
    #[derive(Deserialize)]
    struct Confirm {
        ok: bool,
    }
    const KEY: &str = "confirm";
    const STATE: &str = "asked to confirm";
    let remembered = unseal_state(tool, state)?.is_some_and(|state| state == STATE);
    let confirmed = form_value(answers, KEY)?.filter(|_| remembered);
    let Some(confirmed) = confirmed else {
        return ask_and_remember([(KEY, field("Please confirm", "ok", "boolean")?)], tool, STATE);
    };
    say(match confirmed {
        Some(Confirm { ok: true }) => "state-ok: confirmed".to_owned(),
        Some(Confirm { ok: false }) => "state-ok: not confirmed".to_owned(),
        None => format!("state-ok: {}", declined()),
    })
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

fn name() -> Result<InputRequest, ErrorData> {
    field("What is your name?", "name", "string")
}

/// A form with one required field.
fn field(message: &str, field: &str, kind: &str) -> Result<InputRequest, ErrorData> {
    let schema = json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    Ok(InputRequest::Elicitation(ElicitRequest::new(form(message, schema)?)))
}

fn sample(text: &str, max_tokens: u32) -> InputRequest {
    let question = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(text)], max_tokens);
    InputRequest::CreateMessage(CreateMessageRequest::new(question))
}

fn roots() -> InputRequest {
    InputRequest::ListRoots(ListRootsRequest::default())
}

type Questions<'a> = Vec<(&'a str, InputRequest)>;

fn ask<'a>(questions: impl Into<Questions<'a>>) -> Result<CallToolResponse, ErrorData> {
    Ok(required(questions, None).into())
}

fn ask_and_remember<'a>(
    questions: impl Into<Questions<'a>>,
    tool: &str,
    state: &str,
) -> Result<CallToolResponse, ErrorData> {
    let state = STATE_CODEC.seal_with(state.as_bytes(), &SealOptions::new().associated_data(tool.as_bytes()));
    Ok(required(questions, Some(state)).into())
}

fn required<'a>(questions: impl Into<Questions<'a>>, state: Option<String>) -> InputRequiredResult {
    let questions = questions.into().into_iter();
    let questions = questions.map(|(key, question)| (key.to_owned(), question));
    InputRequiredResult::new(Some(questions.collect()), state)
}

/// The unsealed state of this tool, if present. An error if the state is invalid.
fn unseal_state(tool: &str, state: Option<&str>) -> Result<Option<String>, ErrorData> {
    let Some(state) = state else { return Ok(None) };
    let refused = |reason: String| ErrorData::invalid_params(reason, None);
    let state = STATE_CODEC.open_with(state, tool.as_bytes());
    let state = state.map_err(|error| refused(error.to_string()))?;
    String::from_utf8(state)
        .map(Some)
        .map_err(|error| refused(error.to_string()))
}

/// The answer to a question, if present.
fn answer<T: DeserializeOwned>(answers: Option<&InputResponses>, key: &str) -> Result<Option<T>, ErrorData> {
    let given = answers.and_then(|answers| answers.get(key));
    let given = given.map(|answer| T::deserialize(answer)).transpose();
    given.map_err(|error| ErrorData::invalid_params(format!("the answer to {key}: {error}"), None))
}

/// The value of a form: `None` if the user was not asked, `Some(None)` if the user declined.
fn form_value<T: DeserializeOwned>(
    answers: Option<&InputResponses>,
    key: &str,
) -> Result<Option<Option<T>>, ErrorData> {
    let Some(ElicitResult { action, content, .. }) = answer(answers, key)? else {
        return Ok(None);
    };
    if action != ElicitationAction::Accept {
        return Ok(Some(None));
    }
    let content = serde_json::from_value(content.unwrap_or(Value::Null));
    let content = content.map_err(|error| ErrorData::invalid_params(format!("the answer to {key}: {error}"), None));
    Ok(Some(Some(content?)))
}

fn say(text: String) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

fn declined() -> String {
    "The user did not want to say.".to_owned()
}

fn named(roots: &ListRootsResult) -> String {
    let shown = |root: &Root| match &root.name {
        Some(name) => format!("{name} ({})", root.uri),
        None => root.uri.clone(),
    };
    roots.roots.iter().map(shown).collect::<Vec<_>>().join(", ")
}
