//! A call whose connection breaks, and the connection that resumes it.
//!
//! ```sh
//! cargo run --example resume
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session and call the tool. Press Ctrl-C when you have seen event `1-2`:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"count","_meta":{"progressToken":"n"}}}'
//! ```
//!
//! ```text
//! id: 1-0
//! data:
//!
//! retry: 1000
//!
//! id: 1-1
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"n","progress":1,"total":10}}
//!
//! id: 1-2
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"n","progress":2,"total":10}}
//! ^C
//! ```
//!
//! The tool continues: a broken connection is not a cancellation. Let it finish without a connection, then resume after the last
//! event that you saw:
//!
//! ```sh
//! sleep 7
//! curl -N $URL -H "mcp-session-id: $SESSION" -H 'last-event-id: 1-2'
//! ```
//!
//! You should see the rest, in order and once, with the result at the end. The store keeps it for ten minutes:
//!
//! ```text
//! id: 1-3
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"n","progress":3,"total":10}}
//!
//! id: 1-4
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"n","progress":4,"total":10}}
//! ...
//! id: 1-11
//! data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"counted to 10"}]}}
//! ```

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{CallEnded, Context, McpService};
use std::time::Duration;
use tokio::net::TcpListener;

async fn count(_: NoArgs, cx: Context) -> Result<&'static str, CallEnded> {
    for n in 1..=10 {
        cx.progress_of(f64::from(n), 10.0, None).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok("counted to 10")
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let tool = Tool::new("count").description("Counts to ten, half a second each");
    let mcp = McpService::builder(Catalog::new("resume", "1.0.0").tool(tool, count)).build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
