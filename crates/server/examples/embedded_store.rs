//! Sessions and streams on disk: the process may be killed, and its clients continue afterwards.
//!
//! ```sh
//! cargo run --example embedded_store
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session and call the tool, to the end:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"work","arguments":{"seconds":1},"_meta":{"progressToken":"p"}}}'
//! ```
//!
//! ```text
//! id: 1-0
//! data:
//!
//! retry: 1000
//!
//! id: 1-1
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0,"message":"began"}}
//!
//! id: 1-2
//! data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"worked for 1 s"}]}}
//! ```
//!
//! Then start a long one, in the background:
//!
//! ```sh
//! (curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":
//!   {"name":"work","arguments":{"seconds":600},"_meta":{"progressToken":"p"}}}' &)
//! ```
//!
//! ```text
//! id: 3-0
//! data:
//!
//! retry: 1000
//!
//! id: 3-1
//! data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0,"message":"began"}}
//! ...
//! ```
//!
//! In the first terminal, press Ctrl-C. This program does not handle it, so it ends as with `kill -9`. Start it again:
//!
//! ```text
//! ^C
//! ```
//!
//! ```sh
//! cargo run --example embedded_store
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In the other terminal, resume the call that had ended, after its first message:
//!
//! ```sh
//! curl -N $URL -H "mcp-session-id: $SESSION" -H 'last-event-id: 1-1'
//! ```
//!
//! You should see its result, from the disk. The session is the same:
//!
//! ```text
//! id: 1-2
//! data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"worked for 1 s"}]}}
//! ```
//!
//! Then resume the call that was running:
//!
//! ```sh
//! curl -N $URL -H "mcp-session-id: $SESSION" -H 'last-event-id: 3-1'
//! ```
//!
//! You should see an error. The call may have had effects, so it is not run again:
//!
//! ```text
//! id: 3-2
//! data: {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the server was restarted while this request was running; it was not run again","data":{"reason":"restarted"}}}
//! ```

use rethread::catalog::{Catalog, Tool};
use rethread::{CallEnded, Context, McpService};
use rethread_store_embedded::EmbeddedStore;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokio::net::TcpListener;

/// Works for a while.
#[derive(Deserialize, JsonSchema)]
struct Work {
    seconds: u64,
}

async fn work(args: Work, cx: Context) -> Result<String, CallEnded> {
    cx.progress(0.0, "began").await?;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    Ok(format!("worked for {} s", args.seconds))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The directory of this store. One process at a time may open it. A real server uses `/var/lib/…`.
    let store = EmbeddedStore::open(std::env::temp_dir().join("rethread-embedded-store"))?;
    let mcp = McpService::builder(Catalog::new("embedded_store", "1.0.0").tool(Tool::new("work"), work))
        .store(store)
        .build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
