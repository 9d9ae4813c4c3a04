//! The tools of a child, from `tools/list`: their header params (HDR-04), and which of them run only as tasks (requirements 4.1).

use crate::upstream::Upstream;
use bytes::Bytes;
use rethread::{HeaderParams, RpcError};
use rethread_proto::bridge::up::tasks;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Pages of `tools/list` that are read. Tools on later pages count as ordinary ones.
const MAX_TOOL_LIST_PAGES: usize = 100;

/// The tools that differ from ordinary ones.
#[derive(Debug, Default)]
pub(super) struct ToolList {
    /// By tool name. A tool without header params has no entry.
    header_params: HashMap<String, Arc<HeaderParams>>,
    /// The tools that run only as tasks of 2025-11-25.
    task_required: HashSet<String>,
}

impl ToolList {
    pub(super) fn header_params(&self, tool: &str) -> Option<Arc<HeaderParams>> {
        self.header_params.get(tool).cloned()
    }

    pub(super) fn requires_task(&self, tool: &str) -> bool {
        self.task_required.contains(tool)
    }
}

/// Lists all tools of a child of `server`. `meta` is the `_meta` of a stateless request.
pub(super) async fn fetch(
    server: &str,
    connection: &Arc<dyn Upstream>,
    meta: Option<Value>,
) -> Result<ToolList, RpcError> {
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
        #[serde(default)]
        execution: Value,
    }
    let mut tools = ToolList::default();
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
            if tasks::is_task_required(&tool.execution) {
                tools.task_required.insert(tool.name.clone());
            }
            match HeaderParams::of_schema(&tool.input_schema) {
                Ok(params) if params.is_empty() => {}
                Ok(params) => drop(tools.header_params.insert(tool.name, Arc::new(params))),
                // They count as none.
                Err(error) => {
                    tracing::warn!(server, tool = ?tool.name, %error, "tool has invalid header annotations");
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok(tools)
}
