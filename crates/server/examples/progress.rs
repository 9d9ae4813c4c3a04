//! A long call that reports its progress.
//!
//! ```sh
//! cargo run --example progress
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session and call the tool. A client requests progress with a `progressToken`:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"brew","_meta":{"progressToken":"tea"}}}'
//! ```
//!
//! The first message of the tool turns the response into a stream. You should see one event at a time: first one without a
//! message, to resume from if the connection breaks at once, then the messages of the tool, then its result:
//!
//! ```text
//! id: 1-0
//! data:
//!
//! retry: 1000
//!
//! id: 1-1
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tea","progress":1,"total":3,"message":"boiling water"}}
//!
//! id: 1-2
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tea","progress":2,"total":3,"message":"steeping"}}
//!
//! id: 1-3
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tea","progress":3,"total":3,"message":"pouring"}}
//!
//! id: 1-4
//! data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"tea is ready"}]}}
//! ```
//!
//! Without a token `progress_of` does nothing, so the tool need not check for one.

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{CallEnded, Context, McpService};
use std::time::Duration;
use tokio::net::TcpListener;

async fn brew(_: NoArgs, cx: Context) -> Result<&'static str, CallEnded> {
    for (step, what) in [(1.0, "boiling water"), (2.0, "steeping"), (3.0, "pouring")] {
        cx.progress_of(step, 3.0, what).await?;
        tokio::time::sleep(Duration::from_secs(1)).await; // the work
    }
    Ok("tea is ready")
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let tool = Tool::new("brew").description("Makes tea, slowly");
    let mcp = McpService::builder(Catalog::new("progress", "1.0.0").tool(tool, brew)).build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
