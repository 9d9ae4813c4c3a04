//! Tools and a prompt that ask the client by returning questions, and are called again with the answers.
//!
//! No call waits meanwhile: the state that such a function returns is all that it remembers. If waiting is acceptable,
//! `questions` shows the simpler way.

use rethread::catalog::{Ask, Catalog, NeedsInput, NoArgs, Prompt, PromptMessage, Tool};
use rethread::{Context, Elicited, Inputs, Root, RpcError, SampledMessage, SamplingRequest};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn add_to(catalog: Catalog) -> Catalog {
    let tool = |what: &str, description: &str| {
        Tool::new(format!("test_input_required_result_{what}")).description(description)
    };
    catalog
        .tool_with_inputs(tool("elicitation", "Asks the user for a name"), elicitation)
        .tool_with_inputs(tool("sampling", "Asks the model for a capital"), sampling)
        .tool_with_inputs(tool("list_roots", "Asks the client for its roots"), list_roots)
        .tool_with_inputs(
            tool("request_state", "Asks the user to confirm, and remembers that it did"),
            confirmation,
        )
        .tool_with_inputs(
            tool("tampered_state", "Refuses a state that it did not hand out"),
            confirmation,
        )
        .tool_with_inputs(
            tool("multiple_inputs", "Asks the user, the model and the client at once"),
            multiple_inputs,
        )
        .tool_with_inputs(
            tool("multi_round", "Asks the user for a name, then for a color"),
            multi_round,
        )
        .tool_with_inputs(
            tool("capabilities", "Asks for whatever the client can answer"),
            capabilities,
        )
        .prompt_with_inputs(
            Prompt::new("test_input_required_result_prompt").description("A prompt about what the user says"),
            prompt,
        )
}

const NAME: &str = "user_name";
const ROOTS: &str = "client_roots";

async fn elicitation(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    let name = answer(&inputs, NAME)?.ok_or_else(|| ask_name(Ask::new()))?;
    Ok(name.map_or_else(declined, |Name { name }| format!("Hello, {name}!")))
}

async fn sampling(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    const KEY: &str = "capital_question";
    let question = || Ask::new().sample(KEY, SamplingRequest::new("What is the capital of France?", 100));
    let sampled: SampledMessage = inputs.response(KEY)?.ok_or_else(question)?;
    Ok(format!("The model says: {}", sampled.text()))
}

async fn list_roots(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    let roots: Roots = inputs.response(ROOTS)?.ok_or_else(|| Ask::new().roots(ROOTS))?;
    Ok(format!("The client works in: {}", roots.named()))
}

/// The transport returns the state only if this server gave it to this caller for this tool. Forged or changed states are
/// refused before the function is called.
async fn confirmation(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    #[derive(Deserialize)]
    struct Confirm {
        ok: bool,
    }
    const KEY: &str = "confirm";
    const STATE: &[u8] = b"asked to confirm";
    let question = || {
        let ok = form("Please confirm", "ok", "boolean");
        Ask::new().elicit_json(KEY, ok).state(STATE)
    };
    let confirmed = answer(&inputs, KEY)?.filter(|_| inputs.state() == Some(STATE));
    Ok(match confirmed.ok_or_else(question)? {
        Some(Confirm { ok: true }) => "state-ok: confirmed".to_owned(),
        Some(Confirm { ok: false }) => "state-ok: not confirmed".to_owned(),
        None => format!("state-ok: {}", declined()),
    })
}

async fn multiple_inputs(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    const GREETING: &str = "greeting";
    let answers = (
        answer(&inputs, NAME)?,
        inputs.response(GREETING)?,
        inputs.response(ROOTS)?,
    );
    let (Some(name), Some(greeting), Some(roots)) = answers else {
        let ask = ask_name(Ask::new())
            .sample(GREETING, SamplingRequest::new("Generate a greeting", 50))
            .roots(ROOTS)
            .state("asked for three things");
        return Err(ask.into());
    };
    let (greeting, roots): (SampledMessage, Roots) = (greeting, roots);
    let name = name.map_or_else(|| "whoever you are".to_owned(), |Name { name }| name);
    Ok(format!("{} {name} works in: {}", greeting.text(), roots.named()))
}

/// The state is the name, once it is known.
async fn multi_round(_: NoArgs, inputs: Inputs, _: Context) -> Result<String, NeedsInput> {
    #[derive(Deserialize)]
    struct Color {
        color: String,
    }
    const NAMELESS: &str = "";
    let known = inputs.state().map(String::from_utf8_lossy);
    let Some(name) = known.filter(|name| name != NAMELESS) else {
        let first = || {
            let name = form("Step 1: What is your name?", "name", "string");
            Ask::new().elicit_json("step1", name).state(NAMELESS)
        };
        let Some(Name { name }) = answer(&inputs, "step1")?.ok_or_else(first)? else {
            return Ok(declined());
        };
        return Err(second_step(name).into());
    };
    let color = answer(&inputs, "step2")?.ok_or_else(|| second_step(name.to_string()))?;
    Ok(color.map_or_else(declined, |Color { color }| format!("{name} likes {color}.")))
}

fn second_step(name: String) -> Ask {
    let color = form("Step 2: What is your favorite color?", "color", "string");
    Ask::new().elicit_json("step2", color).state(name)
}

async fn capabilities(_: NoArgs, inputs: Inputs, cx: Context) -> Result<String, NeedsInput> {
    const QUESTION: &str = "capital_question";
    let (client, mut ask, mut answers) = (cx.client(), Ask::new(), Vec::new());
    let mut need = |key: &str, able: bool, more: &dyn Fn(Ask) -> Ask| -> Result<(), RpcError> {
        match inputs.response::<Value>(key)? {
            Some(answer) => answers.push(format!("{key}: {answer}")),
            None if able => ask = more(std::mem::take(&mut ask)),
            None => {}
        }
        Ok(())
    };
    need(NAME, client.elicitation_form, &ask_name)?;
    need(QUESTION, client.sampling, &|ask| {
        ask.sample(QUESTION, SamplingRequest::new("What is the capital of France?", 100))
    })?;
    need(ROOTS, client.roots, &|ask| ask.roots(ROOTS))?;
    if answers.is_empty() && !ask.is_empty() {
        return Err(ask.into());
    }
    Ok(format!("The client answered: {answers:?}"))
}

async fn prompt(_: BTreeMap<String, String>, inputs: Inputs, _: Context) -> Result<PromptMessage, NeedsInput> {
    #[derive(Deserialize)]
    struct About {
        context: String,
    }
    const KEY: &str = "user_context";
    let question = form("What context should the prompt use?", "context", "string");
    let about = answer(&inputs, KEY)?.ok_or_else(|| Ask::new().elicit_json(KEY, question))?;
    let about = about.map_or_else(declined, |About { context }| context);
    Ok(PromptMessage::user(format!("Use this context: {about}")))
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

fn ask_name(ask: Ask) -> Ask {
    ask.elicit_json(NAME, form("What is your name?", "name", "string"))
}

/// The answer of the user. `None` if the user was not asked, `Some(None)` if the user declined.
fn answer<T: DeserializeOwned>(inputs: &Inputs, key: &str) -> Result<Option<Option<T>>, RpcError> {
    Ok(inputs.elicited(key)?.map(Elicited::accepted))
}

fn declined() -> String {
    "The user did not want to say.".to_owned()
}

#[derive(Deserialize)]
struct Roots {
    roots: Vec<Root>,
}

impl Roots {
    fn named(&self) -> String {
        let shown = |root: &Root| match &root.name {
            Some(name) => format!("{name} ({})", root.uri),
            None => root.uri.clone(),
        };
        self.roots.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// A form with one required field.
fn form(message: &str, field: &str, kind: &str) -> Value {
    json!({
        "message": message,
        "requestedSchema": { "type": "object", "properties": { field: { "type": kind } }, "required": [field] },
    })
}
