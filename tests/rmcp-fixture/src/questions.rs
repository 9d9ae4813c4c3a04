//! Tools that ask the client while they run: sampling, elicitation, roots.

#![expect(deprecated)] // clients still use sampling and roots

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationSchema,
    SamplingMessage,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, schemars, tool, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::EverythingServer;
use crate::emit::{progress, to_error_data};
use crate::load_tools::number_default;

#[derive(Deserialize, JsonSchema)]
struct Sampling {
    /// Prompt for the model
    prompt: String,
}

#[derive(Deserialize, JsonSchema)]
struct Elicitation {
    /// Message for the user
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Ask {
    #[serde(default)]
    what: Question,
}

#[derive(Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Question {
    Sampling,
    #[default]
    Elicitation,
    Roots,
}

#[derive(Deserialize, JsonSchema)]
struct AskMany {
    #[serde(default = "number_default::<2>")]
    rounds: u64,
}

#[tool_router(router = question_tools, vis = "pub(crate)")]
impl EverythingServer {
    #[tool(description = "Asks the client's model")]
    async fn test_sampling(
        &self,
        Parameters(args): Parameters<Sampling>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let answer = sample(&context, &args.prompt).await?;
        Ok(format!("LLM response: {}", sampled_text(&answer)))
    }

    #[tool(description = "Asks the user for a name and an address")]
    async fn test_elicitation(
        &self,
        Parameters(args): Parameters<Elicitation>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let schema = json!({
            "type": "object",
            "properties": {
                "username": { "type": "string", "description": "User's name" },
                "email": { "type": "string", "description": "User's email address" },
            },
            "required": ["username", "email"],
        });
        let answer = elicit(&context, &args.message, schema).await?;
        Ok(format!("User response: {}", action_and_content(&answer)?))
    }

    #[tool(description = "Asks the user with a default for each field")]
    async fn test_elicitation_sep1034_defaults(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
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
        let answer = elicit(&context, "Please review the defaults and change what is wrong", schema).await?;
        Ok(format!("Elicitation completed: {}", action_and_content(&answer)?))
    }

    #[tool(description = "Asks the user to choose, in every way there is")]
    async fn test_elicitation_sep1330_enums(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
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
        let answer = elicit(&context, "Please choose", schema).await?;
        Ok(format!("Elicitation completed: {}", action_and_content(&answer)?))
    }

    #[tool(description = "Reports progress, then asks the user")]
    async fn test_streaming_elicitation(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        progress(&context, 1.0, 2.0, "About to ask").await?;
        self.log(&context, "everything", "About to ask".into()).await?;
        let answer = elicit(&context, "Say anything.", one_field()).await?;
        progress(&context, 2.0, 2.0, "Answered").await?;
        Ok(format!("User response: {}", action_and_content(&answer)?))
    }

    #[tool(description = "Asks the client one question and returns the answer as JSON")]
    async fn ask(
        &self,
        Parameters(args): Parameters<Ask>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        match args.what {
            Question::Sampling => json_of(&sample(&context, "Say anything.").await?),
            Question::Elicitation => json_of(&elicit(&context, "Say anything.", one_field()).await?),
            Question::Roots => json_of(&context.peer.list_roots().await.map_err(to_error_data)?),
        }
    }

    #[tool(description = "Asks the user several times in a row and returns the answers as a JSON array")]
    async fn ask_many(
        &self,
        Parameters(args): Parameters<AskMany>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let mut answers = Vec::new();
        for round in 1..=args.rounds {
            let message = format!("Round {round} of {}: say anything.", args.rounds);
            answers.push(elicit(&context, &message, one_field()).await?);
        }
        json_of(&answers)
    }
}

async fn sample(context: &RequestContext<RoleServer>, prompt: &str) -> Result<CreateMessageResult, ErrorData> {
    let question = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    context.peer.create_message(question).await.map_err(to_error_data)
}

async fn elicit(context: &RequestContext<RoleServer>, message: &str, schema: Value) -> Result<ElicitResult, ErrorData> {
    context
        .peer
        .create_elicitation(form(message, schema)?)
        .await
        .map_err(to_error_data)
}

/// A form elicitation.
pub(crate) fn form(message: &str, schema: Value) -> Result<ElicitRequestParams, ErrorData> {
    let schema = ElicitationSchema::from_json_schema(rmcp::model::object(schema));
    Ok(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: schema.map_err(|error| ErrorData::internal_error(error.to_string(), None))?,
    })
}

/// The text of a sampling result.
pub(crate) fn sampled_text(sampled: &CreateMessageResult) -> String {
    let blocks = sampled.message.content.iter();
    blocks
        .filter_map(|block| block.as_text())
        .map(|block| block.text.as_str())
        .collect()
}

fn one_field() -> Value {
    json!({
        "type": "object",
        "properties": { "answer": { "type": "string", "description": "Anything" } },
        "required": ["answer"],
    })
}

/// Action and content of an elicitation result.
fn action_and_content(answer: &ElicitResult) -> Result<String, ErrorData> {
    let action = json_of(&answer.action)?;
    let content = answer.content.clone().unwrap_or_else(|| json!({}));
    Ok(format!("action={}, content={content}", action.trim_matches('"')))
}

fn json_of(value: &impl Serialize) -> Result<String, ErrorData> {
    serde_json::to_string(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
