//! The server side of MCP over Streamable HTTP: a `tower::Service` that picks up the thread where the connection broke.
//!
//! Sockets drop and clients come back; still no call is lost, no event lands on the wrong stream, and nobody reads
//! another's stream. One idea carries it all: **a stream is a log, a connection is a cursor over it.**
//!
//! ```text
//!   handler --say--> outbox --append--> [ log of the stream: 1 2 3 4 5 6 ... ] --read after cursor--> tail --> socket
//!                    (the one writer)                ^            ^                (the one reader)
//!                                              cursor of a     cursor of a
//!                                              connection      later one
//! ```
//!
//! # The smallest server
//!
//! ```no_run
//! use rethread::{Call, Context, Handler, McpService, Reply, RpcError};
//! use serde_json::json;
//!
//! struct Hello;
//!
//! impl Handler for Hello {
//!     async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
//!         if call.method() != "tools/call" {
//!             return Err(RpcError::method_not_found(call.method()));
//!         }
//!         cx.progress(0.5, "half way").await?; // the first emission turns the answer into a stream
//!         Ok(Reply::json(json!({ "content": [{ "type": "text", "text": "hello" }] })))
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let mcp = McpService::builder(Hello).allow_origin("https://app.example").build();
//!     let app = axum::Router::new().route_service("/mcp", mcp);
//!     axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8080").await?, app).await
//! }
//! ```
//!
//! With tools, resources and prompts to list, [`Catalog`] does the bookkeeping; the `everything` example shows all of it.
//!
//! # Both eras
//!
//! One endpoint serves sessions (up to 2025-11-25) and stateless requests (2026-07-28) at once. A handler need not know:
//! [`Context::elicit`] asks on the call's stream in a session, and parks the call until the client's next request without
//! one. [`McpService::http_sse`] adds the transport of 2024-11-05, [`McpService::serve_lines`] speaks stdio.
//!
//! # What it promises
//!
//! * From the moment an event id is on the wire nothing after it is lost: a `GET` with `Last-Event-ID` gets what
//!   followed, in order, once. Before that, an answer is a plain JSON object and costs no store.
//! * A call goes on when its connection breaks; its answer waits for the client's return.
//! * A client is never left to believe that it saw everything when it did not.
//! * Everything that can grow has a bound: see [`Limits`] and [`Timing`].
//! * `Origin` and `Host` are checked unless you turn that off, and the option that does has `dangerous` in its name.

mod answering;
mod ask;
mod body;
mod builder;
mod call;
pub mod catalog;
mod clock;
mod context;
mod handler;
mod http_sse;
mod hub;
mod keep_alive;
mod legacy;
mod limits;
mod modern;
mod node;
mod notifier;
mod opening;
mod outbox;
mod outlet;
mod peer;
mod respond;
mod restore;
mod service;
mod session;
mod sessions;
mod shutdown;
mod stdio;
mod sweep;
mod tail;
mod telemetry;
mod turns;
mod wire;
mod wrapping;

pub use ask::{Answer, AskError};
pub use body::Body;
pub use builder::Builder;
pub use catalog::Catalog;
pub use context::{BEHIND_GATEWAY, CLOSE_CONNECTION, Context, Ended, Level};
pub use handler::{Call, Handler, HeaderParams, InputRequests, Inputs, Notice, Reply, RpcError, ServerInfo};
pub use http_sse::HttpSse;
pub use limits::{Limits, Timing};
pub use notifier::Notifier;
pub use opening::{Earlier, NotOpened, Opening, Welcome};
pub use peer::{ClientCapabilities, Peer};
pub use restore::Restore;
pub use service::McpService;

pub use rethread_proto::event_id;
pub use rethread_proto::exchange::UpgradeAfter;
pub use rethread_proto::gate::mirror::{AnnotationFault, BadAnnotation};
pub use rethread_proto::jsonrpc::Params;
pub use rethread_proto::mrtr::{BadInputRequest, InputMethod, InputRequest};
pub use rethread_proto::{Principal, RequestId, Revisions, SessionId, Version};
pub use rethread_store as store;
pub use rethread_store::{List, MemoryLimits, MemoryStore, Retention};
