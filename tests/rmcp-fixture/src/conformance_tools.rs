//! Tools of the conformance suite without questions: every kind of content, logs, progress, an error.

#![expect(deprecated)] // clients still use sampling

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ClientCapabilities, ContentBlock, JsonObject, ResourceContents};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, schemars, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

use crate::emit::progress;
use crate::{EverythingServer, media};

/// Duration of one step in tools that work in steps.
const STEP_DURATION: Duration = Duration::from_millis(50);

const LOGGER: &str = "everything";

#[derive(Deserialize, JsonSchema)]
struct CustomHeader {
    #[schemars(extend("x-mcp-header" = "Value"))]
    value: String,
}

#[tool_router(router = conformance_tools, vis = "pub(crate)")]
impl EverythingServer {
    #[tool(description = "Returns a text")]
    async fn test_simple_text(&self) -> String {
        "This is a simple text response for testing.".to_owned()
    }

    #[tool(description = "Returns a picture")]
    async fn test_image_content(&self) -> CallToolResult {
        CallToolResult::success(vec![picture()])
    }

    #[tool(description = "Returns a sound")]
    async fn test_audio_content(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::audio(media::WAV, "audio/wav")])
    }

    #[tool(description = "Returns a resource")]
    async fn test_embedded_resource(&self) -> CallToolResult {
        let text = "This is an embedded resource content.";
        CallToolResult::success(vec![resource("test://embedded-resource", "text/plain", text)])
    }

    #[tool(description = "Returns a text, a picture and a resource")]
    async fn test_multiple_content_types(&self) -> CallToolResult {
        let data = r#"{"test":"data","value":123}"#;
        CallToolResult::success(vec![
            ContentBlock::text("Multiple content types test:"),
            picture(),
            resource("test://mixed-content-resource", "application/json", data),
        ])
    }

    #[tool(description = "Logs three messages while it works")]
    async fn test_tool_with_logging(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.log(&context, LOGGER, "Tool execution started".into()).await?;
        sleep(STEP_DURATION).await;
        self.log(&context, LOGGER, "Tool processing data".into()).await?;
        sleep(STEP_DURATION).await;
        self.log(&context, LOGGER, "Tool execution completed".into()).await?;
        Ok("Tool with logging executed successfully".to_owned())
    }

    #[tool(description = "Reports progress three times while it works")]
    async fn test_tool_with_progress(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        progress(&context, 0.0, 100.0, "Started").await?;
        sleep(STEP_DURATION).await;
        progress(&context, 50.0, 100.0, "Half way").await?;
        sleep(STEP_DURATION).await;
        progress(&context, 100.0, 100.0, "Completed").await?;
        Ok("Tool with progress executed successfully".to_owned())
    }

    #[tool(description = "Always fails")]
    async fn test_error_handling(&self) -> CallToolResult {
        let reason = "This tool intentionally returns an error for testing";
        CallToolResult::error(vec![ContentBlock::text(reason)])
    }

    #[tool(description = "Closes its connection, then works on; the result waits for the client's return")]
    async fn test_reconnection(&self, context: RequestContext<RoleServer>) -> String {
        self.close_connection(&context).await;
        sleep(2 * STEP_DURATION).await;
        "Reconnection test completed: the connection was closed, the result was not lost".to_owned()
    }

    #[tool(
        description = "Takes arguments whose schema uses much of JSON Schema 2020-12",
        input_schema = schema_2020_12()
    )]
    async fn json_schema_2020_12_tool(&self, args: JsonObject) -> String {
        format!("JSON Schema 2020-12 tool called with: {}", Value::Object(args))
    }

    #[tool(description = "Needs a client that can sample")]
    async fn test_missing_capability(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let able = context
            .client_capabilities()
            .is_some_and(|client| client.sampling.is_some());
        if !able {
            let required = ClientCapabilities::builder().enable_sampling().build();
            return Err(ErrorData::missing_required_client_capability(required));
        }
        Ok("The client can sample.".to_owned())
    }

    #[tool(description = "Logs once")]
    async fn test_logging_tool(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.log(&context, LOGGER, "The logging tool was called".into()).await?;
        Ok("Logged".to_owned())
    }

    #[tool(description = "Returns its argument, which clients also send as a header")]
    async fn test_custom_header(&self, Parameters(args): Parameters<CustomHeader>) -> String {
        args.value
    }
}

fn picture() -> ContentBlock {
    ContentBlock::image(media::PNG, "image/png")
}

fn resource(uri: &str, mime_type: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime_type))
}

/// Written by hand: a schema generator would omit parts of it.
fn schema_2020_12() -> Arc<JsonObject> {
    let schema = json!({
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
    });
    Arc::new(rmcp::model::object(schema))
}
