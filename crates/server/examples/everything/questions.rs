//! Tools that ask the client while they run: its model, its user, or its roots.

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{Answer, AskError, Context, LogLevel, RpcError, SamplingRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fixture::or;

pub(crate) fn add_to(catalog: Catalog) -> Catalog {
    catalog
        .tool(Tool::new("test_sampling"), sampling)
        .tool(Tool::new("test_elicitation"), elicitation)
        .tool(
            Tool::new("test_elicitation_sep1034_defaults").description("Asks the user with a default for each field"),
            elicitation_defaults,
        )
        .tool(
            Tool::new("test_elicitation_sep1330_enums").description("Asks the user to choose, in every way there is"),
            elicitation_enums,
        )
        .tool(
            Tool::new("test_streaming_elicitation").description("Reports progress, then asks the user"),
            streaming_elicitation,
        )
        .tool(Tool::new("ask"), ask)
        .tool(Tool::new("ask_many"), ask_many)
}

/// Asks the client's model
#[derive(Deserialize, JsonSchema)]
struct Sampling {
    /// The question
    prompt: String,
}

async fn sampling(args: Sampling, cx: Context) -> Result<String, AskError> {
    let answer = cx.sample(SamplingRequest::new(args.prompt, 100)).await?;
    Ok(format!("LLM response: {}", answer.text()))
}

/// Asks the user for a name and an address
#[derive(Deserialize, JsonSchema)]
struct Elicitation {
    /// The text that the user reads
    message: String,
}

async fn elicitation(args: Elicitation, cx: Context) -> Result<String, RpcError> {
    let schema = json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's name" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    });
    let answer = elicit(&cx, &args.message, schema).await?;
    Ok(format!("User response: {}", action_and_content(&answer)?))
}

async fn elicitation_defaults(_: NoArgs, cx: Context) -> Result<String, RpcError> {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "User name", "default": "John Doe" },
            "age": { "type": "integer", "description": "User age", "default": 30 },
            "score": { "type": "number", "description": "User score", "default": 95.5 },
            "status": {
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": { "type": "boolean", "description": "Verification status", "default": true },
        },
        "required": [],
    });
    let answer = elicit(&cx, "Please review the defaults and change what is wrong", schema).await?;
    Ok(format!("Elicitation completed: {}", action_and_content(&answer)?))
}

async fn elicitation_enums(_: NoArgs, cx: Context) -> Result<String, RpcError> {
    let options = json!(["option1", "option2", "option3"]);
    let titled = json!([
        { "const": "value1", "title": "First Option" },
        { "const": "value2", "title": "Second Option" },
        { "const": "value3", "title": "Third Option" },
    ]);
    let schema = json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "description": "One of three", "enum": options },
            "titledSingle": { "type": "string", "description": "One of three with titles", "oneOf": titled },
            "legacyEnum": {
                "type": "string",
                "description": "One of three with titles, as it was done before",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array",
                "description": "Some of three",
                "items": { "type": "string", "enum": options },
            },
            "titledMulti": {
                "type": "array",
                "description": "Some of three with titles",
                "items": { "anyOf": titled },
            },
        },
        "required": [],
    });
    let answer = elicit(&cx, "Please choose", schema).await?;
    Ok(format!("Elicitation completed: {}", action_and_content(&answer)?))
}

async fn streaming_elicitation(_: NoArgs, cx: Context) -> Result<String, RpcError> {
    cx.progress_of(1.0, 2.0, "About to ask").await?;
    cx.log(LogLevel::Info, "everything", "About to ask").await?;
    let answer = elicit(&cx, "Say anything.", one_field()).await?;
    cx.progress_of(2.0, 2.0, "Answered").await?;
    Ok(format!("User response: {}", action_and_content(&answer)?))
}

/// Asks the client one question and returns the answer as JSON
#[derive(Deserialize, JsonSchema)]
struct Ask {
    #[serde(default)]
    what: Question,
}

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Question {
    Sampling,
    #[default]
    Elicitation,
    Roots,
}

async fn ask(args: Ask, cx: Context) -> Result<String, RpcError> {
    let answer = match args.what {
        Question::Sampling => cx.sample_json(SamplingRequest::new("Say anything.", 100)).await?,
        Question::Elicitation => elicit(&cx, "Say anything.", one_field()).await?,
        Question::Roots => cx.roots_json().await?,
    };
    Ok(compact(answer.raw()))
}

/// Asks the user several times in a row and returns the answers as a JSON array
#[derive(Deserialize, JsonSchema)]
struct AskMany {
    #[serde(default = "or::<2>")]
    rounds: u64,
}

async fn ask_many(args: AskMany, cx: Context) -> Result<String, RpcError> {
    let mut answers = Vec::new();
    for round in 1..=args.rounds {
        let message = format!("Round {round} of {}: say anything.", args.rounds);
        answers.push(compact(elicit(&cx, &message, one_field()).await?.raw()));
    }
    Ok(format!("[{}]", answers.join(",")))
}

async fn elicit(cx: &Context, message: &str, schema: Value) -> Result<Answer, RpcError> {
    Ok(cx
        .elicit_json(json!({ "message": message, "requestedSchema": schema }))
        .await?)
}

fn one_field() -> Value {
    json!({
        "type": "object",
        "properties": { "answer": { "type": "string", "description": "Anything" } },
        "required": ["answer"],
    })
}

/// `json` as the client wrote it, without white space.
fn compact(json: &[u8]) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let mut kept = json.to_vec();
    kept.retain(|byte| {
        let keep = in_string || !byte.is_ascii_whitespace();
        in_string ^= *byte == b'"' && !escaped;
        escaped = in_string && *byte == b'\\' && !escaped;
        keep
    });
    String::from_utf8_lossy(&kept).into_owned()
}

/// The user's action and content as text.
fn action_and_content(answer: &Answer) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    struct Elicited {
        action: String,
        #[serde(default)]
        content: serde_json::Map<String, Value>,
    }
    let Elicited { action, content } = answer.json()?;
    Ok(format!("action={action}, content={}", Value::Object(content)))
}
