//! Serves an [rmcp](https://docs.rs/rmcp) `ServerHandler` with [`rethread`]. Handlers and macros stay unchanged. The
//! transport makes every stream resumable and supports every revision of the protocol.
//!
//! ```no_run
//! use rethread::McpService;
//! use rethread_rmcp::RmcpHandler;
//! use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities, ServerConfig};
//! use rmcp::{ErrorData, RoleServer, ServerHandler, service::RequestContext};
//!
//! #[derive(Default)]
//! struct Hello;
//!
//! impl ServerHandler for Hello {
//!     fn get_info(&self) -> ServerConfig {
//!         ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
//!     }
//!
//!     async fn call_tool(
//!         &self,
//!         _request: CallToolRequestParams,
//!         _context: RequestContext<RoleServer>,
//!     ) -> Result<CallToolResponse, ErrorData> {
//!         Ok(CallToolResult::success(vec![ContentBlock::text("hello")]).into())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let mcp = McpService::builder(RmcpHandler::new(|| Hello)).build();
//!     let app = axum::Router::new().route_service("/mcp", mcp);
//!     axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8080").await?, app).await
//! }
//! ```
//!
//! `docs/migrating-from-rmcp.md` in the repository lists the differences to rmcp's own transport, on the wire and in
//! the options. The example `rmcp_macros` is a complete server with macros: `cargo run --example rmcp_macros`.
//!
//! # Servers and sessions
//!
//! The factory creates one server for each session, at `initialize`. The server and its state live as long as the
//! session. After a restart with a durable store, a restored session gets a new server. The adapter replays the stored
//! `initialize` to it, and `initialized`, the log level and the subscriptions if the client had sent them.
//!
//! Revision 2026-07-28 has no sessions. As with rmcp's transport, every request gets a new server. The factory must
//! pass shared state into these servers.
//!
//! The factory creates one extra server that handles no calls. It answers `get_info`, subscription filters and tool
//! schemas.
//!
//! # Message routing
//!
//! | the handler | in a session | on 2026-07-28 |
//! |---|---|---|
//! | returns a result | JSON, or the end of the call's stream | the same |
//! | reports progress | the stream of the call with that token; values must rise | the same, for its own call |
//! | logs during a call | the call's stream, from the level that the client set | the same, if the request named a level |
//! | asks during a call (sampling, elicitation, roots) | the call's stream | an input-required result; the call waits for the retry |
//! | returns an input-required result | asked on the call's stream, then called again | sent to the client; its `requestState` is sealed |
//! | sends custom notifications or requests | the call's stream | the call's stream; requests fail |
//! | notifies of a changed list or resource | a GET stream of the session, if declared or subscribed | the caller's `subscriptions/listen` streams |
//! | uses the `Peer` after the call | a GET stream of the session | changes as above, everything else fails |
//!
//! A `Peer` is valid as long as its session. Clone it, store it, use it from any task. While a call runs, messages
//! through its peer belong to that call, from any task. Messages through other peers never do.
//!
//! `logging/setLevel` calls the handler's `set_level`. A server that declares logging may omit `set_level`: the
//! transport filters by level.
//!
//! # Request context
//!
//! * `extensions`: the [`http::request::Parts`] of the request, with the extensions that other layers added, such as the
//!   [`Principal`](rethread::Principal); absent on stdio. Also the [`Context`](rethread::Context) of the call, for features
//!   that rmcp lacks, such as [`close_connection`](rethread::Context::close_connection).
//! * `protocol_version()`, `client_info()` and `client_capabilities()`: correct on every revision.
//! * `peer.peer_info()`: the client of the session. On 2026-07-28 it describes the client of the request, but with revision
//!   2025-11-25: rmcp refuses questions to clients of later revisions, and this adapter supports them.
//! * `ct`: cancelled when the client cancels the call, when the session ends, on 2026-07-28 when the client disconnects, and
//!   when the call ends.
//!
//! # Limits
//!
//! * A handler may retain the peers of 32 calls per session, and of 256 without sessions. Beyond that, the oldest is
//!   closed. Dropped peers do not count. Retain the peer of `initialize` or `on_initialized`, or the latest one.
//! * 64 questions may be open through one peer. [`Limits`](rethread::Limits) bounds the questions of a session.
//! * 32 notification handlers may run at once per session. Beyond that, the client's next POST waits.
//! * The transport answers `ping`. As with rmcp's transport, notifications of 2026-07-28 are accepted and ignored.
//! * `resources/updated` goes to subscribed clients. `list_changed` and logging need the declared capability. The
//!   transport drops undeclared notifications.
//! * Nodes that share clients of 2026-07-28 need the same [`state_key`](rethread::Builder::state_key), also to read the
//!   `requestState` of handlers.

// rmcp deprecates roots, sampling, logging and session subscriptions. This crate still supports them.
#![allow(deprecated)]

mod client_identity;
mod convert;
mod dispatch;
mod factory;
mod handler;
mod input_required;
mod notification_handler;
mod peer_loop;
mod peer_pool;
mod peer_refcount;
mod progress_tokens;
mod questions;
mod request;
mod route;
mod server_subscriptions;
mod session_server;
mod tool_schemas;

pub use factory::{FallibleFactory, InfallibleFactory, IntoServer};
pub use handler::RmcpHandler;

/// Compiles the programs on the migration page. The page itself is not part of the crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/migrating-from-rmcp.md")]
mod migration {}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
