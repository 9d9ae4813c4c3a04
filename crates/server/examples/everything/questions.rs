//! Tools that ask the client while they run: its model, its user, or its roots.

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{Answer, Context, LogLevel, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fixture::or;

pub(crate) fn add_to(catalog: Catalog) -> Catalog {
    catalog
        .tool(
            Tool::new("test_sampling")
                .description("Asks the client's model")
                .input(json!({
                    "type": "object",
                    "properties": { "prompt": { "type": "string", "description": "What to ask" } },
                    "required": ["prompt"],
                })),
            sampling,
        )
        .tool(
            Tool::new("test_elicitation")
                .description("Asks the user for a name and an address")
                .input(json!({
                    "type": "object",
                    "properties": { "message": { "type": "string", "description": "What the user is shown" } },
                    "required": ["message"],
                })),
            elicitation,
        )
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
        .tool(
            Tool::new("ask")
                .description("Asks the client one question and returns the answer as JSON")
                .input(json!({
                    "type": "object",
                    "properties": {
                        "what": {
                            "type": "string",
                            "enum": ["sampling", "elicitation", "roots"],
                            "default": "elicitation",
                        },
                    },
                })),
            ask,
        )
        .tool(
            Tool::new("ask_many")
                .description("Asks the user several times in a row and returns the answers as a JSON array")
                .input(json!({
                    "type": "object",
                    "properties": { "rounds": { "type": "integer", "minimum": 0, "default": 2 } },
                })),
            ask_many,
        )
}

#[derive(Deserialize)]
struct Sampling {
    prompt: String,
}

async fn sampling(args: Sampling, cx: Context) -> Result<String, RpcError> {
    let answer: Value = sample(&cx, &args.prompt).await?.json()?;
    Ok(format!("LLM response: {}", text_of(&answer)))
}

/// The text of a sampled message: one block, or since 2025-11-25 a list of them.
pub(crate) fn text_of(sampled: &Value) -> String {
    let blocks = match &sampled["content"] {
        Value::Array(blocks) => blocks.as_slice(),
        block => std::slice::from_ref(block),
    };
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

#[derive(Deserialize)]
struct Elicitation {
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

#[derive(Deserialize)]
struct Ask {
    #[serde(default)]
    what: Question,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Question {
    Sampling,
    #[default]
    Elicitation,
    Roots,
}

async fn ask(args: Ask, cx: Context) -> Result<String, RpcError> {
    let answer = match args.what {
        Question::Sampling => sample(&cx, "Say anything.").await?,
        Question::Elicitation => elicit(&cx, "Say anything.", one_field()).await?,
        Question::Roots => cx.roots().await?,
    };
    Ok(compact(answer.raw()))
}

#[derive(Deserialize)]
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

async fn sample(cx: &Context, prompt: &str) -> Result<Answer, RpcError> {
    let answer = cx.sample(json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
        "maxTokens": 100,
    }));
    Ok(answer.await?)
}

async fn elicit(cx: &Context, message: &str, schema: Value) -> Result<Answer, RpcError> {
    Ok(cx
        .elicit(json!({ "message": message, "requestedSchema": schema }))
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
