//! A server written with rmcp's macros works unchanged.

use crate::support::{ALL_REVISIONS, Caller, assert_region_header_is_checked, serve, text};
use http::request::Parts;
use rethread_rmcp::RmcpHandler;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::Extension;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::{ErrorData, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Mutex;

#[derive(Clone)]
struct Counter {
    count: Arc<Mutex<i32>>,
    #[allow(dead_code)] // some versions of the macro do not read it
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Sum {
    a: i32,
    b: i32,
    #[serde(default)]
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

#[tool_router]
impl Counter {
    fn new() -> Self {
        Counter {
            count: Arc::new(Mutex::new(0)),
            tool_router: Self::tool_router(),
        }
    }

    #[tool(description = "Count one up")]
    async fn increment(&self) -> Result<String, ErrorData> {
        let mut count = self.count.lock().await;
        *count += 1;
        Ok(count.to_string())
    }

    #[tool(description = "Add two numbers")]
    fn sum(&self, Parameters(Sum { a, b, region }): Parameters<Sum>) -> String {
        format!("{} {region}", a + b)
    }

    #[tool(description = "Return the path of the request")]
    fn path(&self, Extension(parts): Extension<Parts>) -> String {
        parts.uri.path().to_owned()
    }
}

#[tool_handler]
impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::test]
async fn macro_server_works_unchanged() {
    let endpoint = serve(RmcpHandler::new(|| Ok(Counter::new()))).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let listed = caller.call(1, "tools/list", json!({})).await.answer().await;
        let mut names: Vec<_> = listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| &t["name"])
            .collect();
        names.sort_by_key(ToString::to_string);
        assert_eq!(names, ["increment", "path", "sum"], "{version}");
        assert_eq!(text(&caller.tool(2, "increment", json!({})).await.answer().await), "1");
        let sum = caller.tool(3, "sum", json!({ "a": 2, "b": 3 })).await.answer().await;
        assert_eq!(text(&sum), "5 ", "{version}");
        assert_eq!(text(&caller.tool(4, "path", json!({})).await.answer().await), "/mcp");
        let wrong: Value = caller.tool(5, "sum", json!({ "a": "two" })).await.answer().await;
        assert_eq!(wrong["result"]["isError"], true, "{version}: {wrong}");
    }
}

/// HDR-04.
#[tokio::test]
async fn hdr_04_generated_schema_annotation_is_enforced() {
    let endpoint = serve(RmcpHandler::new(Counter::new)).await;
    let params = json!({ "name": "sum", "arguments": { "a": 1, "b": 2, "region": "eu" } });
    assert_region_header_is_checked(&endpoint.client, &params).await;
}
