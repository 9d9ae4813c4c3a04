//! Finds the tool arguments that headers mirror (HDR-04), from the schemas of the server.

use crate::client_identity;
use crate::convert::number_or_string;
use crate::peer_loop::Destination;
use crate::peer_pool::PeerPool;
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

/// Tools whose parsed schemas are cached. Beyond this, a schema is parsed at each call.
const MAX_CACHED_SCHEMAS: usize = 1_024;
/// Pages of `tools/list` that are read. Later pages are ignored.
const MAX_TOOL_PAGES: usize = 100;
/// A server that does not list its tools in this time counts as having none.
const LIST_TOOLS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a tool list is cached.
const TOOL_LIST_TTL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct ToolSchemas {
    /// The schema and its header parameters, by tool name.
    parsed: parking_lot::Mutex<HashMap<String, (Arc<JsonObject>, MirroredArguments)>>,
    /// For servers that implement `list_tools` but not `get_tool`.
    listed: tokio::sync::Mutex<Option<ToolList>>,
}

struct ToolList {
    fetched: Instant,
    schemas: HashMap<String, Arc<JsonObject>>,
}

/// `None` if no argument is mirrored.
type MirroredArguments = Option<Arc<HeaderParams>>;

impl ToolSchemas {
    pub(crate) async fn header_params<S: ServerHandler>(
        &self,
        server: &S,
        pool: &Arc<PeerPool>,
        name: &str,
    ) -> MirroredArguments {
        let schema = match server.get_tool(name) {
            Some(tool) => Some(tool.input_schema),
            None => self.listed_schema(server, pool, name).await,
        };
        self.parse(name, schema?)
    }

    /// Parses a schema, once per schema object.
    fn parse(&self, name: &str, schema: Arc<JsonObject>) -> MirroredArguments {
        let mut parsed = self.parsed.lock();
        if let Some((cached_schema, params)) = parsed.get(name)
            && Arc::ptr_eq(cached_schema, &schema)
        {
            return params.clone();
        }
        // Invalid annotations count as none.
        let params = HeaderParams::of_schema(&Value::Object(JsonObject::clone(&schema))).ok();
        let params = params.filter(|params| !params.is_empty()).map(Arc::new);
        if parsed.len() < MAX_CACHED_SCHEMAS || parsed.contains_key(name) {
            parsed.insert(name.to_owned(), (schema, params.clone()));
        }
        params
    }

    async fn listed_schema<S: ServerHandler>(
        &self,
        server: &S,
        pool: &Arc<PeerPool>,
        name: &str,
    ) -> Option<Arc<JsonObject>> {
        let mut listed = self.listed.lock().await;
        if listed
            .as_ref()
            .is_none_or(|list| list.fetched.elapsed() >= TOOL_LIST_TTL)
        {
            let tools = tokio::time::timeout(LIST_TOOLS_TIMEOUT, list_tools(server, pool))
                .await
                .unwrap_or_default();
            let schemas = tools
                .into_iter()
                .map(|tool| (tool.name.into_owned(), tool.input_schema));
            *listed = Some(ToolList {
                schemas: schemas.collect(),
                fetched: Instant::now(),
            });
        }
        listed.as_ref()?.schemas.get(name).cloned()
    }
}

/// Reads all pages of `tools/list`. An error ends the list.
async fn list_tools<S: ServerHandler>(server: &S, pool: &Arc<PeerPool>) -> Vec<Tool> {
    let client = Implementation::new("rethread", env!("CARGO_PKG_VERSION"));
    let (version, capabilities) = (ProtocolVersion::V_2026_07_28, ClientCapabilities::default());
    let meta = RequestMetaObject::with_client_context(version, client, capabilities);
    let lease = pool.lease(Destination::Unassigned, client_identity::unknown_client);
    lease.set_client(&meta);
    let (mut tools, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_TOOL_PAGES {
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
