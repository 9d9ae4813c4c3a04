//! Three tools with state, a typed result, an error for the model, and a question to the user.
//!
//! ```sh
//! cargo run --example typed
//! ```
//!
//! ```text
//! ready at http://127.0.0.1:8080/mcp
//! ```
//!
//! In another terminal, open a session as a client that can show forms, and list the tools:
//!
//! ```sh
//! URL=http://127.0.0.1:8080/mcp
//! JSON='content-type: application/json'
//! SESSION=$(curl -si $URL -H "$JSON" -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"curl","version":"1"}}}' |
//!   awk -F'[ \r]' '/^mcp-session-id/{print $2}')
//! post() { curl -sN $URL -H "$JSON" -H "mcp-session-id: $SESSION" -d "$1"; echo; }
//! post '{"jsonrpc":"2.0","method":"notifications/initialized"}'
//! post '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' | sed 's/},{"name/},\n{"name/g'
//! ```
//!
//! The schemas and the descriptions come from the types below:
//!
//! ```text
//! {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"add","description":"Adds a note.","inputSchema":{"properties":{"text":{"description":"The text of the note","type":"string"}},"required":["text"],"type":"object"},"outputSchema":{"properties":{"number":{"description":"The number of the note","minimum":0,"type":"integer"}},"required":["number"],"type":"object"}},
//! {"name":"read","description":"Reads a note.","inputSchema":{"properties":{"number":{"minimum":1,"type":"integer"}},"required":["number"],"type":"object"}},
//! {"name":"clear","description":"Deletes all notes, if the user agrees","inputSchema":{"properties":{},"type":"object"}}]}}
//! ```
//!
//! Add a note. Programs read `structuredContent`, and models read the text:
//!
//! ```sh
//! post '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"text":"buy thread"}}}'
//! ```
//!
//! ```text
//! {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"{\"number\":1}"}],"structuredContent":{"number":1}}}
//! ```
//!
//! Invalid arguments and the error of the tool are results that the model reads:
//!
//! ```sh
//! post '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read","arguments":{"number":"one"}}}'
//! post '{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"read","arguments":{"number":7}}}'
//! ```
//!
//! ```text
//! {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"Invalid arguments:\n- `number`: expected integer, found \"one\""}],"isError":true}}
//! {"jsonrpc":"2.0","id":4,"result":{"content":[{"type":"text","text":"there is no note 7"}],"isError":true}}
//! ```
//!
//! The last tool asks the user. The parentheses and the `&` keep the call in the background:
//!
//! ```sh
//! (post '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"clear"}}' &)
//! ```
//!
//! ```text
//! id: 1-0
//! data:
//!
//! retry: 1000
//!
//! id: 1-1
//! data: {"jsonrpc":"2.0","id":"s1-1","method":"elicitation/create","params":{"message":"Delete all notes?","requestedSchema":{"properties":{"delete":{"description":"Yes, delete them","type":"boolean"}},"required":["delete"],"type":"object"}}}
//! ```
//!
//! ```sh
//! post '{"jsonrpc":"2.0","id":"s1-1","result":{"action":"accept","content":{"delete":true}}}'
//! ```
//!
//! ```text
//! id: 1-2
//! data: {"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"deleted"}]}}
//! ```

use rethread::catalog::{Catalog, Json, NoArgs, Tool, ToolError, with_state};
use rethread::{AskError, Context, Elicited, McpService};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

type Notes = Arc<Mutex<Vec<String>>>;

/// Adds a note.
#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The text of the note
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Added {
    /// The number of the note
    number: usize,
}

async fn add(notes: Notes, args: Add, _: Context) -> Json<Added> {
    let mut notes = notes.lock().await;
    notes.push(args.text);
    Json(Added { number: notes.len() })
}

/// Reads a note.
#[derive(Deserialize, JsonSchema)]
struct Read {
    #[schemars(range(min = 1))]
    number: usize,
}

async fn read(notes: Notes, Read { number }: Read, _: Context) -> Result<String, ToolError> {
    let notes = notes.lock().await;
    let note = notes.get(number - 1).cloned();
    note.ok_or_else(|| ToolError::message(format_args!("there is no note {number}")))
}

#[derive(Deserialize, JsonSchema)]
struct Confirm {
    /// Yes, delete them
    delete: bool,
}

async fn clear(notes: Notes, _: NoArgs, cx: Context) -> Result<&'static str, AskError> {
    match cx.elicit("Delete all notes?").await? {
        Elicited::Accept(Confirm { delete: true }) => {
            notes.lock().await.clear();
            Ok("deleted")
        }
        _ => Ok("kept"),
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let notes = Notes::default();
    let clear_tool = Tool::new("clear").description("Deletes all notes, if the user agrees");
    let catalog = Catalog::new("notes", "1.0.0")
        .tool(Tool::new("add"), with_state(&notes, add))
        .tool(Tool::new("read"), with_state(&notes, read))
        .tool(clear_tool, with_state(&notes, clear));
    let app = axum::Router::new().route_service("/mcp", McpService::builder(catalog).build());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
