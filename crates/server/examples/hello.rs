//! The smallest useful server: one tool.
//!
//! ```sh
//! cargo run --example hello
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session and call the tool:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize",
//!   "params":{"protocolVersion":"2025-11-25","capabilities":{},
//!   "clientInfo":{"name":"curl","version":"1"}}}' | awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,
//!   "method":"tools/call","params":{"name":"hello","arguments":{"name":"Ada"}}}'
//! ```
//!
//! You should see one JSON object. The tool emitted nothing before its result, so there is no stream and nothing is stored:
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello, Ada"}]}}
//! ```
//!
//! Since 2026-07-28 there are requests without a session. The same server answers them:
//!
//! ```sh
//! curl $URL -H "$JSON" -H 'mcp-protocol-version: 2026-07-28' \
//!   -H 'mcp-method: tools/call' -H 'mcp-name: hello' -d '{"jsonrpc":"2.0","id":1,
//!   "method":"tools/call","params":{"name":"hello","arguments":{"name":"Bob"},"_meta":{
//!   "io.modelcontextprotocol/protocolVersion":"2026-07-28",
//!   "io.modelcontextprotocol/clientCapabilities":{}}}}'
//! ```
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{...,"content":[{"type":"text","text":"hello, Bob"}]}}
//! ```

use rethread::catalog::{Catalog, Tool};
use rethread::{Context, McpService};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;

/// Greets somebody.
#[derive(Deserialize, JsonSchema)]
struct Hello {
    /// Whom to greet
    name: String,
}

async fn hello(args: Hello, _: Context) -> String {
    format!("hello, {}", args.name)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let catalog = Catalog::new("hello", "1.0.0").tool(Tool::new("hello"), hello);
    let mcp = McpService::builder(catalog).build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
