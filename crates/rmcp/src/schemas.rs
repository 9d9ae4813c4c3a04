//! Which arguments of a tool are mirrored in headers (HDR-04), as the server's own schemas say.

use crate::convert::number_or_string;
use crate::line::Place;
use crate::pool::Pool;
use crate::stateless;
use rethread::HeaderParams;
use rmcp::ServerHandler;
use rmcp::model::{
    ClientCapabilities, Implementation, JsonObject, PaginatedRequestParams, ProtocolVersion, RequestMetaObject, Tool,
};
use rmcp::service::RequestContext;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tools whose schemas are remembered. Those beyond are read at each call.
const REMEMBERED: usize = 1_024;
/// Pages of a list of tools beyond these are not looked at.
const PAGES: usize = 100;
/// A server that does not list its tools within this has none that matter here.
const PATIENCE: Duration = Duration::from_secs(5);
/// A list of tools is taken for true this long.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Schemas {
    /// By the tool's name: the schema that was read, and what it says.
    read: parking_lot::Mutex<HashMap<String, (Arc<JsonObject>, Mirrored)>>,
    /// For servers that list their tools, but do not tell of one alone.
    listed: tokio::sync::Mutex<Option<Listed>>,
}

struct Listed {
    since: Instant,
    schemas: HashMap<String, Arc<JsonObject>>,
}

type Mirrored = Option<Arc<HeaderParams>>;

impl Schemas {
    pub(crate) async fn header_params<S: ServerHandler>(&self, server: &S, lines: &Arc<Pool>, name: &str) -> Mirrored {
        let schema = match server.get_tool(name) {
            Some(tool) => Some(tool.input_schema),
            None => self.listed(server, lines, name).await,
        };
        self.mirrored(name, schema?)
    }

    /// Reads a schema, once for as long as the server has it.
    fn mirrored(&self, name: &str, schema: Arc<JsonObject>) -> Mirrored {
        let mut read = self.read.lock();
        if let Some((known, mirrored)) = read.get(name)
            && Arc::ptr_eq(known, &schema)
        {
            return mirrored.clone();
        }
        // A tool whose annotations make no sense has none.
        let params = HeaderParams::of_schema(&Value::Object(JsonObject::clone(&schema))).ok();
        let mirrored = params.filter(|params| !params.is_empty()).map(Arc::new);
        if read.len() < REMEMBERED || read.contains_key(name) {
            read.insert(name.to_owned(), (schema, mirrored.clone()));
        }
        mirrored
    }

    async fn listed<S: ServerHandler>(&self, server: &S, lines: &Arc<Pool>, name: &str) -> Option<Arc<JsonObject>> {
        let mut listed = self.listed.lock().await;
        if listed.as_ref().is_none_or(|listed| listed.since.elapsed() >= FRESH) {
            let tools = tokio::time::timeout(PATIENCE, list(server, lines))
                .await
                .unwrap_or_default();
            let schemas = tools
                .into_iter()
                .map(|tool| (tool.name.into_owned(), tool.input_schema));
            *listed = Some(Listed {
                schemas: schemas.collect(),
                since: Instant::now(),
            });
        }
        listed.as_ref()?.schemas.get(name).cloned()
    }
}

/// Asks a server for all its tools. One that does not tell has none.
async fn list<S: ServerHandler>(server: &S, lines: &Arc<Pool>) -> Vec<Tool> {
    let us = Implementation::new("rethread", env!("CARGO_PKG_VERSION"));
    let (version, capabilities) = (ProtocolVersion::V_2026_07_28, ClientCapabilities::default());
    let meta = RequestMetaObject::with_client_context(version, us, capabilities);
    let lease = lines.take(Place::Nowhere, stateless::nobody);
    lease.introduce(&meta);
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES {
        let mut context = RequestContext::new(number_or_string(b"0"), lease.peer());
        context.meta = meta.clone();
        let request = PaginatedRequestParams::default().with_cursor(cursor);
        let Ok(page) = server.list_tools(Some(request), context).await else {
            break;
        };
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    tools
}
