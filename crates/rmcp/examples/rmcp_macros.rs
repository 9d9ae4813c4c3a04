//! A server written with rmcp's macros, served by Rethread. Only the two lines that build the endpoint differ from rmcp.
//!
//! ```sh
//! cargo run --example rmcp_macros
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session and call the first tool:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"add","arguments":{"a":2,"b":3}}}'
//! ```
//!
//! You should see one JSON object. rmcp's own transport would open a stream for it:
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}],"isError":false}}
//! ```
//!
//! The second tool logs and reports progress. Press Ctrl-C when you have seen event `1-3`:
//!
//! ```sh
//! curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":
//!   {"name":"brew","arguments":{"cups":6},"_meta":{"progressToken":"tea"}}}'
//! ```
//!
//! ```text
//! id: 1-0
//! data:
//!
//! retry: 1000
//!
//! id: 1-1
//! data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"the water boils","level":"info"}}
//!
//! id: 1-2
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tea","progress":1,"total":6}}
//!
//! id: 1-3
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tea","progress":2,"total":6}}
//! ^C
//! ```
//!
//! Let the tool finish while no client is connected. Then resume after the last event that you saw:
//!
//! ```sh
//! sleep 4
//! curl -N $URL -H "mcp-session-id: $SESSION" -H 'last-event-id: 1-3'
//! ```
//!
//! You should see the remaining events, in order and once, with the result at the end. rmcp's own transport would lose them:
//!
//! ```text
//! id: 1-4
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tea","progress":3,"total":6}}
//! ...
//! id: 1-8
//! data: {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"6 cups of tea"}],"isError":false}}
//! ```

// rmcp deprecates logging because 2026-07-28 does. Rethread still supports it.
#![allow(deprecated)]

use rethread::McpService;
use rethread_rmcp::RmcpHandler;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceError, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use std::time::Duration;
use tokio::net::TcpListener;

#[derive(Clone)]
struct Kitchen {
    #[allow(dead_code)] // some versions of the macro do not read it
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Brew {
    cups: u32,
}

#[tool_router]
impl Kitchen {
    fn new() -> Self {
        Kitchen {
            tool_router: Self::tool_router(),
        }
    }

    #[tool(description = "Add two numbers")]
    fn add(&self, Parameters(Add { a, b }): Parameters<Add>) -> String {
        a.saturating_add(b).to_string()
    }

    #[tool(description = "Brew tea, half a second each cup")]
    async fn brew(
        &self,
        Parameters(Brew { cups }): Parameters<Brew>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let boils = LoggingMessageNotificationParam::new(LoggingLevel::Info, "the water boils".into());
        context
            .peer
            .notify_logging_message(boils)
            .await
            .map_err(|error| send_failed(&error))?;
        for cup in 1..=cups {
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, f64::from(cup)).with_total(f64::from(cups));
                context
                    .peer
                    .notify_progress(progress)
                    .await
                    .map_err(|error| send_failed(&error))?;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(format!("{cups} cups of tea"))
    }
}

fn send_failed(error: &ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tool_handler]
impl ServerHandler for Kitchen {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build())
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mcp = McpService::builder(RmcpHandler::new(Kitchen::new)).build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
