//! Prompts: plain, with arguments, with a resource, with a picture.

#![allow(missing_docs)] // what the macro makes has none

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ContentBlock, InputRequiredResult, PromptMessage, ResourceContents, Role};
use rmcp::{ErrorData, prompt, prompt_router, schemars};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Everything, inputs, media};

pub(crate) const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";

/// What is suggested for the first argument.
pub(crate) const CITIES: &[&str] = &["paris", "park city", "prague"];

#[derive(Deserialize, JsonSchema)]
struct TwoArguments {
    /// First test argument
    arg1: String,
    /// Second test argument
    arg2: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OneResource {
    /// URI of the resource to embed
    resource_uri: String,
}

#[prompt_router(vis = "pub(crate)")]
impl Everything {
    #[prompt(description = "A prompt without arguments")]
    async fn test_simple_prompt(&self) -> Vec<PromptMessage> {
        vec![text("This is a simple prompt for testing.")]
    }

    #[prompt(description = "A prompt with two required arguments")]
    async fn test_prompt_with_arguments(&self, Parameters(args): Parameters<TwoArguments>) -> Vec<PromptMessage> {
        let TwoArguments { arg1, arg2 } = args;
        vec![text(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]
    }

    #[prompt(description = "A prompt that carries a resource")]
    async fn test_prompt_with_embedded_resource(
        &self,
        Parameters(args): Parameters<OneResource>,
    ) -> Vec<PromptMessage> {
        let resource = ResourceContents::text("Embedded resource content for testing.", args.resource_uri);
        let resource = ContentBlock::resource(resource.with_mime_type("text/plain"));
        vec![
            PromptMessage::new(Role::User, resource),
            text("Please process the embedded resource above."),
        ]
    }

    #[prompt(description = "A prompt that carries a picture")]
    async fn test_prompt_with_image(&self) -> Vec<PromptMessage> {
        vec![
            PromptMessage::new(Role::User, ContentBlock::image(media::PNG, "image/png")),
            text("Please analyze the image above."),
        ]
    }

    #[prompt(description = "A prompt about what the user says")]
    async fn test_input_required_result_prompt(&self) -> Result<InputRequiredResult, ErrorData> {
        inputs::question_of_the_prompt()
    }
}

fn text(text: impl Into<String>) -> PromptMessage {
    PromptMessage::new_text(Role::User, text)
}
