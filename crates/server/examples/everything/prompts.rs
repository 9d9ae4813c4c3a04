//! Prompts: plain, with arguments, with a resource, with a picture.

use rethread::catalog::{Catalog, Content, Prompt, PromptMessage, Reference};
use rethread::{Context, RpcError};
use std::collections::BTreeMap;

use crate::media;

type Arguments = BTreeMap<String, String>;

pub(crate) fn add_to(catalog: Catalog) -> Catalog {
    catalog
        .prompt(
            Prompt::new("test_simple_prompt").description("A prompt without arguments"),
            simple,
        )
        .prompt(
            Prompt::new("test_prompt_with_arguments")
                .description("A prompt with two required arguments")
                .argument("arg1", "First test argument", true)
                .argument("arg2", "Second test argument", true),
            with_arguments,
        )
        .prompt(
            Prompt::new("test_prompt_with_embedded_resource")
                .description("A prompt that carries a resource")
                .argument("resourceUri", "URI of the resource to embed", true),
            with_embedded_resource,
        )
        .prompt(
            Prompt::new("test_prompt_with_image").description("A prompt that carries a picture"),
            with_image,
        )
        .complete(Reference::prompt("test_prompt_with_arguments"), "arg1", suggest_city)
}

async fn simple(_: Arguments, _: Context) -> Result<PromptMessage, RpcError> {
    Ok(PromptMessage::user("This is a simple prompt for testing."))
}

async fn with_arguments(args: Arguments, _: Context) -> Result<PromptMessage, RpcError> {
    let (arg1, arg2) = (&args["arg1"], &args["arg2"]); // required, so they are present
    Ok(PromptMessage::user(format!(
        "Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
    )))
}

async fn with_embedded_resource(args: Arguments, _: Context) -> Result<Vec<PromptMessage>, RpcError> {
    let uri = args["resourceUri"].as_str();
    Ok(vec![
        PromptMessage::user(Content::resource(
            uri,
            "text/plain",
            "Embedded resource content for testing.",
        )),
        PromptMessage::user("Please process the embedded resource above."),
    ])
}

async fn with_image(_: Arguments, _: Context) -> Result<Vec<PromptMessage>, RpcError> {
    Ok(vec![
        PromptMessage::user(Content::image(media::PNG, "image/png")),
        PromptMessage::user("Please analyze the image above."),
    ])
}

async fn suggest_city(typed: String, _: Context) -> Result<Vec<String>, RpcError> {
    let cities = ["paris", "park city", "prague"].map(str::to_owned);
    Ok(cities.into_iter().filter(|city| city.starts_with(&typed)).collect())
}
