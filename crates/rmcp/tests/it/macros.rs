//! A server written with rmcp's macros, unchanged.

use crate::support::{ALL, Caller, serve, text};
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
    #[allow(dead_code)] // the macro decides whether it reads it
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

    #[tool(description = "Which path was asked for")]
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
async fn a_server_with_macros_needs_no_change() {
    let endpoint = serve(RmcpHandler::new(|| Ok(Counter::new()))).await;
    for version in ALL {
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

/// HDR-04: the annotation in the tool's generated schema binds the header.
#[tokio::test]
async fn hdr_04_annotations_of_a_generated_schema_bind() {
    let endpoint = serve(RmcpHandler::new(Counter::new)).await;
    let params = json!({ "name": "sum", "arguments": { "a": 1, "b": 2, "region": "eu" } });
    for (header, status) in [("eu", 200), ("us", 400), ("eu", 200)] {
        let client = endpoint.client.prepared(move |request| {
            request
                .headers_mut()
                .insert("mcp-param-region", header.parse().unwrap());
        });
        let reply = client.stateless(1, "tools/call", params.clone(), json!({})).await;
        assert_eq!(reply.status, status, "{header}");
    }
}
