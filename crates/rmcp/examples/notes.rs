//! The server of the guide's comparison, written with rmcp and served by its own transport.

use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::service::{ElicitationError, RequestContext};
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, elicit_safe, schemars, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

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

#[derive(Deserialize, JsonSchema)]
struct Read {
    #[schemars(range(min = 1))]
    number: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Confirm {
    /// Yes, delete them
    delete: bool,
}

elicit_safe!(Confirm);

#[tool_router]
impl Notes {
    /// Adds a note.
    #[tool]
    async fn add(&self, Parameters(args): Parameters<Add>) -> Json<Added> {
        let mut notes = self.0.lock().await;
        notes.push(args.text);
        Json(Added { number: notes.len() })
    }

    /// Reads a note.
    #[tool]
    async fn read(&self, Parameters(Read { number }): Parameters<Read>) -> CallToolResult {
        let notes = self.0.lock().await;
        match number.checked_sub(1).and_then(|index| notes.get(index)) {
            Some(note) => CallToolResult::success(vec![ContentBlock::text(note)]),
            None => CallToolResult::error(vec![ContentBlock::text(format!("there is no note {number}"))]),
        }
    }

    /// Deletes all notes, if the user agrees
    #[tool]
    async fn clear(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        match context.peer.elicit::<Confirm>("Delete all notes?").await {
            Ok(Some(Confirm { delete: true })) => {
                self.0.lock().await.clear();
                Ok("deleted".to_owned())
            }
            Ok(_) | Err(ElicitationError::UserDeclined | ElicitationError::UserCancelled) => Ok("kept".to_owned()),
            Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }
}

#[tool_handler(name = "notes", version = "1.0.0")]
impl ServerHandler for Notes {}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let notes = Notes::default();
    let sessions = Arc::new(LocalSessionManager::default());
    let mcp = StreamableHttpService::new(move || Ok(notes.clone()), sessions, Default::default());
    let app = axum::Router::new().route_service("/mcp", mcp);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("ready at http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await
}
