//! A tool that asks the user while it runs, and waits for the answer.
//!
//! ```sh
//! cargo run --example ask_the_client
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session as a client that can show forms, and call the tool. The parentheses and the `&` keep the
//! call in the background, since you will answer from the same terminal:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'
//! (curl -N $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":
//!   {"name":"greet"}}' &)
//! ```
//!
//! You should see the question. It is a request with an id of its own, on the stream of the call:
//!
//! ```text
//! id: 1-0
//! data:
//!
//! retry: 1000
//!
//! id: 1-1
//! data: {"jsonrpc":"2.0","id":"s1-1","method":"elicitation/create","params":{"message":"What is your name?",...}}
//! ```
//!
//! The answer is a POST:
//!
//! ```sh
//! curl $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d '{"jsonrpc":"2.0","id":"s1-1","result":
//!   {"action":"accept","content":{"name":"Ada"}}}'
//! ```
//!
//! You should see the tool continue:
//!
//! ```text
//! id: 1-2
//! data: {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello, Ada"}]}}
//! ```
//!
//! On 2026-07-28 there is no stream to ask on: a request that needs input ends, and the client sends it again with the
//! answers. The code of the tool is the same:
//!
//! ```sh
//! NEW=(-H "$JSON" -H 'mcp-protocol-version: 2026-07-28' -H 'mcp-method: tools/call' -H 'mcp-name: greet')
//! META='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
//!   "io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}'
//! ASKED=$(curl -s $URL "${NEW[@]}" -d '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet",'"$META"'}}')
//! echo "$ASKED"
//! ```
//!
//! ```text
//! {"jsonrpc":"2.0","id":2,"result":{...,"resultType":"input_required","inputRequests":{"q1":{...}},"requestState":"..."}}
//! ```
//!
//! ```sh
//! STATE=$(echo "$ASKED" | sed 's/.*"requestState":"\([^"]*\)".*/\1/')
//! curl $URL "${NEW[@]}" -d '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"greet","requestState":"'$STATE'",
//!   "inputResponses":{"q1":{"action":"accept","content":{"name":"Bob"}}},'"$META"'}}'
//! ```
//!
//! ```text
//! {"jsonrpc":"2.0","id":3,"result":{...,"content":[{"type":"text","text":"hello, Bob"}]}}
//! ```

use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{AskError, Context, Elicited, McpService};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;

/// The form that the user fills in.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

async fn greet(_: NoArgs, cx: Context) -> Result<String, AskError> {
    Ok(match cx.elicit("What is your name?").await? {
        Elicited::Accept(Name { name }) => format!("hello, {name}"),
        Elicited::Decline | Elicited::Cancel => "hello, whoever you are".to_owned(),
    })
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let tool = Tool::new("greet").description("Asks for a name, and greets");
    let mcp = McpService::builder(Catalog::new("ask_the_client", "1.0.0").tool(tool, greet)).build();
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
