//! What a child's tools want mirrored in headers (HDR-04): asked of the child, kept until its list changes.

use crate::child::Link;
use bytes::Bytes;
use rethread::{HeaderParams, RpcError, Version};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Pages beyond these are not looked at.
const PAGES: usize = 100;

/// The header params of every tool that has some.
pub(super) type Schemas = HashMap<String, Arc<HeaderParams>>;

/// Asks a child for all its tools.
pub(super) async fn fetch(link: &Arc<Link>) -> Result<Schemas, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page {
        #[serde(default)]
        tools: Vec<Tool>,
        next_cursor: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Tool {
        name: String,
        #[serde(default)]
        input_schema: Value,
    }
    let mut schemas = Schemas::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let mut params = json!({ "_meta": meta() });
        if let Some(cursor) = &cursor {
            params["cursor"] = json!(cursor);
        }
        let listed = link.ask("tools/list", &Bytes::from(params.to_string())).await?;
        let page: Page = serde_json::from_slice(&listed)
            .map_err(|e| RpcError::internal(format!("the server's list of tools is malformed: {e}")))?;
        for tool in page.tools {
            // A tool whose annotations make no sense has none.
            if let Ok(params) = HeaderParams::of_schema(&tool.input_schema)
                && !params.is_empty()
            {
                schemas.insert(tool.name, Arc::new(params));
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(schemas)
}

/// What every stateless request of the gateway itself carries.
pub(super) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": Version::V2026_07_28.as_str(),
        "io.modelcontextprotocol/clientInfo": { "name": "rethread", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}
