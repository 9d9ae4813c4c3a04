//! Tools of the conformance suite that need no client: every kind of content, logs, progress, an error.

use rethread::catalog::{Catalog, Content, NoArgs, Tool, ToolError};
use rethread::{AskError, CallEnded, Context, LogLevel};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

use crate::media;

/// The duration of one step of a tool that works in steps.
const STEP: Duration = Duration::from_millis(50);

pub(crate) fn add_to(catalog: Catalog) -> Catalog {
    catalog
        .tool(Tool::new("test_simple_text").description("Returns a text"), simple_text)
        .tool(
            Tool::new("test_image_content").description("Returns a picture"),
            image_content,
        )
        .tool(
            Tool::new("test_audio_content").description("Returns a sound"),
            audio_content,
        )
        .tool(
            Tool::new("test_embedded_resource").description("Returns a resource"),
            embedded_resource,
        )
        .tool(
            Tool::new("test_multiple_content_types").description("Returns a text, a picture and a resource"),
            multiple_content_types,
        )
        .tool(
            Tool::new("test_tool_with_logging").description("Logs three messages while it works"),
            with_logging,
        )
        .tool(
            Tool::new("test_tool_with_progress").description("Reports progress three times while it works"),
            with_progress,
        )
        .tool(
            Tool::new("test_error_handling").description("Always fails"),
            error_handling,
        )
        .tool(
            Tool::new("test_reconnection")
                .description("Closes its connection, then works on; the result waits for the client's return"),
            reconnection,
        )
        .tool(
            Tool::new("json_schema_2020_12_tool")
                .description("Takes arguments whose schema uses much of JSON Schema 2020-12")
                .input(schema_2020_12()),
            json_schema_2020_12,
        )
        .tool(
            Tool::new("test_missing_capability").description("Needs a client that can sample"),
            missing_capability,
        )
        .tool(
            Tool::new("test_logging_tool").description("Emits log messages, for clients whose log level includes them"),
            logging_tool,
        )
        .tool(Tool::new("test_custom_header"), custom_header)
}

async fn simple_text(_: NoArgs, _: Context) -> &'static str {
    "This is a simple text response for testing."
}

async fn image_content(_: NoArgs, _: Context) -> Content {
    Content::image(media::PNG, "image/png")
}

async fn audio_content(_: NoArgs, _: Context) -> Content {
    Content::audio(media::WAV, "audio/wav")
}

async fn embedded_resource(_: NoArgs, _: Context) -> Content {
    let text = "This is an embedded resource content.";
    Content::resource("test://embedded-resource", "text/plain", text)
}

async fn multiple_content_types(_: NoArgs, _: Context) -> Vec<Content> {
    let data = r#"{"test":"data","value":123}"#;
    vec![
        Content::text("Multiple content types test:"),
        Content::image(media::PNG, "image/png"),
        Content::resource("test://mixed-content-resource", "application/json", data),
    ]
}

async fn with_logging(_: NoArgs, cx: Context) -> Result<&'static str, CallEnded> {
    cx.log(LogLevel::Info, "everything", "Tool execution started").await?;
    sleep(STEP).await;
    cx.log(LogLevel::Info, "everything", "Tool processing data").await?;
    sleep(STEP).await;
    cx.log(LogLevel::Info, "everything", "Tool execution completed").await?;
    Ok("Tool with logging executed successfully")
}

/// Without a progress token `progress` does nothing.
async fn with_progress(_: NoArgs, cx: Context) -> Result<&'static str, CallEnded> {
    cx.progress_of(0.0, 100.0, "Started").await?;
    sleep(STEP).await;
    cx.progress_of(50.0, 100.0, "Half way").await?;
    sleep(STEP).await;
    cx.progress_of(100.0, 100.0, "Completed").await?;
    Ok("Tool with progress executed successfully")
}

async fn error_handling(_: NoArgs, _: Context) -> Result<(), ToolError> {
    Err(ToolError::message(
        "This tool intentionally returns an error for testing",
    ))
}

async fn reconnection(_: NoArgs, cx: Context) -> &'static str {
    cx.close_connection().await;
    sleep(2 * STEP).await;
    "Reconnection test completed: the connection was closed, the result was not lost"
}

async fn json_schema_2020_12(args: Value, _: Context) -> String {
    format!("JSON Schema 2020-12 tool called with: {args}")
}

async fn missing_capability(_: NoArgs, cx: Context) -> Result<&'static str, AskError> {
    if cx.client().sampling {
        Ok("The client can sample.")
    } else {
        Err(AskError::NotSupported("sampling"))
    }
}

async fn logging_tool(_: NoArgs, cx: Context) -> Result<&'static str, CallEnded> {
    cx.log(LogLevel::Info, "everything", "The logging tool was called")
        .await?;
    Ok("Logged, if the log level of the client includes it")
}

/// Returns its argument, which clients also send as a header
#[derive(Deserialize, JsonSchema)]
struct CustomHeader {
    #[schemars(extend("x-mcp-header" = "Value"))]
    value: String,
}

async fn custom_header(args: CustomHeader, _: Context) -> String {
    args.value
}

/// Sent unchanged: a schema generator would drop half of it.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
