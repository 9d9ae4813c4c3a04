//! The server side of MCP over Streamable HTTP: a `tower::Service` that picks up the thread where the connection broke.
//!
//! Sockets drop, laptops sleep, processes are replaced, and clients speak different revisions of the protocol. Still no call is lost, no
//! event lands on the wrong stream, and nobody reads another's stream. One idea carries it all: **a stream is a log, a connection
//! is a cursor over it.**
//!
//! ```text
//!   handler --says--> [ the log of a stream:  1  2  3  4  5  6 ... ] --read--> connection
//!                                                ^        ^
//!                        cursor of a connection  |        |  cursor of the one that came
//!                                     that broke +        +  back with Last-Event-ID
//! ```
//!
//! # The smallest server
//!
//! ```no_run
//! use rethread::catalog::{Catalog, NoArgs, Tool};
//! use rethread::{Context, McpService, RpcError};
//!
//! async fn hello(_: NoArgs, cx: Context) -> Result<&'static str, RpcError> {
//!     cx.progress(0.5, "half way").await?; // the first thing said turns the answer into a stream
//!     Ok("hello")
//! }
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let catalog = Catalog::new("hello", "1.0.0").tool(Tool::new("hello"), hello);
//!     let mcp = McpService::builder(catalog).allow_origin("https://app.example").build();
//!     let app = axum::Router::new().route_service("/mcp", mcp);
//!     axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8080").await?, app).await
//! }
//! ```
//!
//! # The guide
//!
//! | page | about |
//! |---|---|
//! | [Concepts](guide::concepts) | the idea, the words, the picture |
//! | [Your first server](guide::first_server) | from nothing to a tool that answers |
//! | [The handler](guide::handler) | what you write, and what is done for you |
//! | [The context](guide::context) | report, log, ask, be cancelled |
//! | [Streams and resumption](guide::streams) | what a client sees when its connection breaks |
//! | [Stores and their promises](guide::stores) | what survives what |
//! | [Eras](guide::eras) | sessions and stateless requests, from the same code |
//! | [Limits](guide::limits) | every bound, its default, and what happens then |
//! | [Security](guide::security) | origins, hosts, principals, ids, seals |
//! | [Testing your server](guide::testing) | without a network |
//! | [Deployment](guide::deployment) | running, watching, stopping; [nginx](guide::nginx), [Kubernetes](guide::kubernetes) |
//!
//! # What you will touch
//!
//! [`McpService`] is the endpoint, and its [`Builder`] the options. A [`Catalog`] is a server as a list of tools, resources and prompts;
//! a [`Handler`] is one that you write yourself. [`Context`] is a call seen from inside, [`Peer`] the client of a session,
//! [`Notifier`] the way to all of them. `store` is the seam to what keeps it all.
//!
//! # What it promises
//!
//! * From the moment an event id is on the wire nothing after it is lost: a `GET` with `Last-Event-ID` gets what
//!   followed, in order, once. Before that, an answer is a plain JSON object and costs no store.
//! * A call goes on when its connection breaks; its answer waits for the client's return. (On 2026-07-28 a broken connection cancels: the
//!   revision says so.)
//! * A client is never left to believe that it saw everything when it did not.
//! * A slow or dead reader costs its own connection, never the session, never another stream.
//! * Everything that can grow has a bound: [`Limits`], [`Timing`].
//! * `Origin` and `Host` are checked unless you turn that off, and the option that does has `dangerous` in its name.
//! * With a store that survives it, a restart is a broken connection and no more.

mod call;
pub mod catalog;
mod endpoint;
pub mod guide;
#[cfg(test)]
mod locks;
mod node;
mod session;
#[cfg(test)]
mod sizes;
mod stream;

pub use call::ask_error::{Answer, AskError};
pub use call::call_ended::CallEnded;
pub use call::context::{BEHIND_GATEWAY, CLOSE_CONNECTION, Context};
pub use call::handler::Handler;
pub use call::opening::{InitializeReply, OpenError, SessionStart};
pub use call::peer::Peer;
pub use call::reply::Reply;
pub use call::request::{Call, Inputs, Notification};
pub use catalog::Catalog;
pub use endpoint::builder::Builder;
pub use endpoint::http_sse::HttpSse;
pub use endpoint::service::McpService;
pub use node::handler_options::HandlerOptions;
pub use node::limits::{Limits, Timing};
pub use node::restore_policy::Restore;
pub use node::server_info::ServerInfo;
pub use node::stats::Stats;
pub use rethread_proto::gate::mirror::HeaderParams;
pub use rethread_proto::jsonrpc::RpcError;
pub use rethread_proto::mrtr::InputRequests;
pub use session::notifier::Notifier;
pub use session::previous_state::PreviousState;
pub use stream::body::Body;

pub use rethread_proto::event_id;
pub use rethread_proto::exchange::SseUpgradeDelay;
pub use rethread_proto::gate::mirror::{AnnotationFault, BadAnnotation};
pub use rethread_proto::gate::{AccessHints, BadEntry};
pub use rethread_proto::jsonrpc::Params;
pub use rethread_proto::mrtr::{BadInputRequest, InputMethod, InputRequest};
pub use rethread_proto::{
    ClientCapabilities, LogLevel, Principal, ProgressToken, RequestId, Revisions, SessionId, Version,
};
pub use rethread_store as store;
pub use rethread_store::{ListKind, MemoryLimits, MemoryStore, Retention};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

/// Compiles the examples of the README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct RepositoryReadmeDoctests;
