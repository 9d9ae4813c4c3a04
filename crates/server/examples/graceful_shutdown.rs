//! A server that lets its calls finish before it stops.
//!
//! ```sh
//! cargo run --example graceful_shutdown
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session and start a call of five seconds in the background:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! (curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"work","_meta":{"progressToken":"p"}}}' &)
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
//! ```
//!
//! In the first terminal, press Ctrl-C before the five seconds are over:
//!
//! ```text
//! ^C
//! draining: 1 calls running
//! ```
//!
//! In the other terminal, a new call is refused with `Retry-After`:
//!
//! ```sh
//! curl -i $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":
//!   {"name":"work"}}'
//! ```
//!
//! ```text
//! HTTP/1.1 503 Service Unavailable
//! ...
//! retry-after: ...
//! ...
//! ```
//!
//! Then you should see the end of the first call:
//!
//! ```text
//! id: 1-2
//! data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}
//! ```
//!
//! And in the first terminal, the end of the program:
//!
//! ```text
//! stopped: 0 calls running
//! ```

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{CallEnded, Context, McpService};
use std::time::Duration;
use tokio::net::TcpListener;

async fn work(_: NoArgs, cx: Context) -> Result<&'static str, CallEnded> {
    cx.progress(0.0, "began").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok("done")
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let tool = Tool::new("work").description("Works for five seconds");
    let mcp = McpService::builder(Catalog::new("graceful_shutdown", "1.0.0").tool(tool, work)).build();
    let app = axum::Router::new().route_service("/mcp", mcp.clone());

    let draining = mcp.clone();
    // The sockets stay open while calls finish, and are closed when this future is done.
    let quiet = async move {
        let _ = tokio::signal::ctrl_c().await; // Kubernetes sends SIGTERM: `tokio::signal::unix`
        println!("draining: {} calls running", draining.stats().running_calls);
        draining.shutdown(Duration::from_secs(10)).await;
    };

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(quiet).await?;
    println!("stopped: {} calls running", mcp.stats().running_calls);
    Ok(())
}
