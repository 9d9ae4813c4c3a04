//! Serves what is written with [rmcp](https://docs.rs/rmcp) through [`rethread`]: the same `ServerHandler`, macros and all,
//! behind a transport whose streams can be resumed, on every revision of the protocol.
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
//! Who comes from rmcp's own transport finds in [the migration page] what changes on the wire, and what becomes of each
//! option. [`rmcp_macros`] is a server with macros to start and play with: `cargo run --example rmcp_macros`.
//!
//! [the migration page]: https://github.com/rethread/rethread/blob/main/docs/migrating-from-rmcp.md
//! [`rmcp_macros`]: https://github.com/rethread/rethread/blob/main/crates/rmcp/examples/rmcp_macros.rs
//!
//! # Servers and sessions
//!
//! The factory makes one server for each session, when the client says `initialize`; it lives as long as the session, and so
//! does what it keeps in itself. After a restart with a durable store a session that comes back gets a new server: the
//! stored `initialize` is replayed to it, then `initialized`, the log level and the subscriptions, if the client had come so
//! far. On 2026-07-28, which has no sessions, every request gets a server of its own, as with rmcp's transport: what they
//! should share, the factory must put into them. One more server is made that serves nobody; it is asked who it is
//! (`get_info`), which subscriptions it takes and what its tools look like.
//!
//! # What travels where
//!
//! | the handler | in a session | on 2026-07-28 |
//! |---|---|---|
//! | answers | JSON, or the end of the call's stream | the same |
//! | reports progress | the stream of the call with that token; values must rise | the same, for its own call |
//! | logs during a call | the call's stream, from the level that the client set | the same, if the request named a level |
//! | asks during a call (sampling, elicitation, roots) | the call's stream | an input-required result; the call waits for the retry |
//! | answers "input required" itself | asked on the call's stream, then called again | goes out; its `requestState` is sealed |
//! | sends its own notifications or requests | the call's stream | the call's stream; requests fail |
//! | says that a list or a resource changed | a GET stream of the session, if declared or subscribed | the caller's `subscriptions/listen` streams |
//! | uses the `Peer` after the call | a GET stream of the session | changes as above, all else fails |
//!
//! A `Peer` is good for as long as the session: clone it, keep it, use it from any task. What is said through the peer of a
//! call while it runs belongs to that call, from whatever task it comes, and through no other peer.
//!
//! `logging/setLevel` reaches the handler's `set_level`. A server that declares logging and has none is fine, too: the level
//! holds here.
//!
//! # What a handler finds in its context
//!
//! * `extensions`: the [`http::request::Parts`] of the request, with what other layers left in its extensions, the
//!   [`Principal`](rethread::Principal) among them; none on stdio. And the [`Context`](rethread::Context) of the call, for
//!   what rmcp has no words for, such as [`close_connection`](rethread::Context::close_connection).
//! * `protocol_version()`, `client_info()` and `client_capabilities()`: the truth, on every revision.
//! * `peer.peer_info()`: the client of the session. On 2026-07-28 it is what the request says of its client, but under the
//!   revision 2025-11-25: rmcp lets nobody ask a client of a later one, and here one may.
//! * `ct`: cancelled when the client cancels the call, when its session ends, on 2026-07-28 when it hangs up; and when the
//!   call is over.
//!
//! # Limits
//!
//! * A handler may keep the peers of 32 calls in a session, and of 256 without one. Beyond, the peer that was kept longest is
//!   closed. One that is dropped no longer counts. So keep the peer of `initialize` or `on_initialized`, or the latest.
//! * 64 questions may be open through one peer, and as many in a session as [`Limits`](rethread::Limits) say.
//! * 32 notifications of a session are worked on at once; then the client's next POST waits.
//! * `ping` is answered by the transport. Notifications of 2026-07-28 are taken and not passed on, as with rmcp's transport.
//! * `resources/updated` goes to clients that subscribed to the resource, `list_changed` needs the capability, and so does
//!   logging. What is not declared is not sent.
//! * Nodes that share clients of 2026-07-28 need one [`state_key`](rethread::Builder::state_key), also for what handlers put
//!   into `requestState` themselves.

// rmcp marks roots, sampling, logging and the subscriptions of sessions as deprecated. They are served all the same.
#![allow(deprecated)]

mod convert;
mod ears;
mod factory;
mod handler;
mod inputs;
mod line;
mod listening;
mod pool;
mod probe;
mod question;
mod request;
mod route;
mod schemas;
mod seat;
mod server;
mod stateless;
mod tokens;

pub use factory::{Always, IntoServer, Maybe};
pub use handler::RmcpHandler;

/// The programs of the migration page are compiled with the tests. The page is no part of the crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/migrating-from-rmcp.md")]
mod migration {}
