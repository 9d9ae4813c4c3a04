//! A resource that changes, and clients that subscribe to it.
//!
//! ```sh
//! cargo run --example subscriptions
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session, subscribe to the resource, and listen. The parentheses and the `&` keep the listening
//! connection in the background:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":
//!   {"uri":"note://today"}}'; echo
//! (curl -N $URL -H "mcp-session-id: $SESSION" &)
//! ```
//!
//! You should see the answer to the subscription, and a stream that begins with an event to resume from:
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{}}
//! id: 2-0
//! data:
//!
//! retry: 1000
//! ```
//!
//! Change the resource with a tool:
//!
//! ```sh
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":
//!   {"name":"write","arguments":{"text":"buy thread"}}}' -o /dev/null
//! ```
//!
//! You should see a notification on the listening connection:
//!
//! ```text
//! id: 2-1
//! data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"note://today"}}
//! ```
//!
//! On 2026-07-28 the subscription is a request that stays open. The same notifier reaches it:
//!
//! ```sh
//! curl -s -X DELETE $URL -H "mcp-session-id: $SESSION"
//! META='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
//! (curl -N $URL -H "$JSON" -H 'mcp-protocol-version: 2026-07-28' -H 'mcp-method: subscriptions/listen' -d '
//!   {"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":
//!   {"notifications":{"resourceSubscriptions":["note://today"]},'"$META"'}}' &)
//! ```
//!
//! ```text
//! data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",...}
//! ```
//!
//! ```sh
//! curl $URL -H "$JSON" -H 'mcp-protocol-version: 2026-07-28' -H 'mcp-method: tools/call' -H 'mcp-name: write' -d '
//!   {"jsonrpc":"2.0","id":4,"method":"tools/call","params":
//!   {"name":"write","arguments":{"text":"and a needle"},'"$META"'}}' -o /dev/null
//! ```
//!
//! ```text
//! data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":{...,"uri":"note://today"}}
//! ...
//! ```

use rethread::catalog::{Catalog, Resource, ResourceContents, Tool, with_state};
use rethread::{Context, McpService, RpcError};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

const NOTE: &str = "note://today";

#[derive(Clone, Default)]
struct Note(Arc<Mutex<String>>);

impl Note {
    fn read(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Writes today's note.
#[derive(Deserialize, JsonSchema)]
struct Write {
    text: String,
}

fn catalog() -> Catalog {
    let note = Note::default();
    Catalog::new("subscriptions", "1.0.0")
        .resource(Resource::new(NOTE, "today's note"), with_state(&note, read))
        .tool(Tool::new("write"), with_state(&note, write))
}

async fn read(note: Note, uri: String, _: Context) -> Result<ResourceContents, RpcError> {
    Ok(ResourceContents::text(uri, note.read()))
}

async fn write(note: Note, args: Write, cx: Context) -> &'static str {
    note.write(args.text);
    cx.notifier().resource_updated(NOTE); // `McpService::notifier` is for changes outside of calls
    "written"
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mcp = McpService::builder(catalog()).build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
