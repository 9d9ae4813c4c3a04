//! An existing application, with its own routes and state, gets an MCP endpoint.
//!
//! ```sh
//! cargo run --example in_an_axum_app
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, visit the application:
//!
//! ```sh
//! curl http://127.0.0.1:8080/
//! ```
//!
//! ```text
//! visitor number 1
//! ```
//!
//! Now get the same number from the tool:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"visitors"}}'
//! ```
//!
//! You should see that both use the same state:
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"1"}]}}
//! ```
//!
//! And the state of the endpoint, on a route of the application:
//!
//! ```sh
//! curl http://127.0.0.1:8080/status
//! ```
//!
//! ```text
//! 1 sessions, 0 calls running
//! ```

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use rethread::catalog::{Catalog, NoArgs, Tool, with_state};
use rethread::{Context, McpService};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpListener;

/// The state of the application.
#[derive(Clone, Default)]
struct App {
    visitors: Arc<AtomicU64>,
}

async fn front_page(State(app): State<App>) -> String {
    format!("visitor number {}\n", app.visitors.fetch_add(1, Ordering::Relaxed) + 1)
}

async fn visitors(app: App, _: NoArgs, _: Context) -> String {
    app.visitors.load(Ordering::Relaxed).to_string()
}

/// The tools have a clone of the application's state.
fn tools(app: &App) -> Catalog {
    let tool = Tool::new("visitors").description("How many people were here");
    Catalog::new("in_an_axum_app", "1.0.0").tool(tool, with_state(app, visitors))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = App::default();
    let mcp = McpService::builder(tools(&app)).build();
    let watched = mcp.clone(); // clones are the same endpoint
    let status = move || async move {
        let stats = watched.stats();
        format!("{} sessions, {} calls running\n", stats.sessions, stats.running_calls)
    };
    let routes = Router::new()
        .route("/", get(front_page))
        .route("/status", get(status))
        .route_service("/mcp", mcp)
        .with_state(app);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, routes).await
}
