//! The header params of a child's tools (HDR-04), from `tools/list`.

use crate::upstream::Upstream;
use bytes::Bytes;
use rethread::{HeaderParams, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Pages of `tools/list` that are read. Tools on later pages count as having no header params.
const MAX_TOOL_LIST_PAGES: usize = 100;

/// Header params by tool name. A tool without header params has no entry.
pub(super) type ToolHeaderParams = HashMap<String, Arc<HeaderParams>>;

/// Lists all tools of a child. `meta` is the `_meta` of a stateless request.
pub(super) async fn fetch(connection: &Arc<dyn Upstream>, meta: Option<Value>) -> Result<ToolHeaderParams, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolPage {
        #[serde(default)]
        tools: Vec<ListedTool>,
        next_cursor: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListedTool {
        name: String,
        #[serde(default)]
        input_schema: Value,
    }
    let mut header_params = ToolHeaderParams::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_TOOL_LIST_PAGES {
        let mut params = json!({});
        if let Some(meta) = &meta {
            params["_meta"] = meta.clone();
        }
        if let Some(cursor) = &cursor {
            params["cursor"] = json!(cursor);
        }
        let result = connection
            .request("tools/list", &Bytes::from(params.to_string()))
            .await?;
        let page: ToolPage = serde_json::from_slice(&result)
            .map_err(|e| RpcError::internal(format!("the server's list of tools is malformed: {e}")))?;
        for tool in page.tools {
            // Invalid annotations count as none.
            if let Ok(params) = HeaderParams::of_schema(&tool.input_schema)
                && !params.is_empty()
            {
                header_params.insert(tool.name, Arc::new(params));
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(header_params)
}
