//! The server side of MCP over Streamable HTTP: a `tower::Service` whose streams resume after a broken connection.
//!
//! Sockets drop, laptops sleep, processes are replaced, and clients use different revisions of the protocol. Still no call is lost, no
//! event goes to the wrong stream, and no client reads the stream of another. The design: **a stream is a log, a connection is a
//! cursor over it.**
//!
//! ```text
//!   handler --emits-> [ the log of a stream:  1  2  3  4  5  6 ... ] --read--> connection
//!                                                ^        ^
//!                        cursor of a connection  |        |  cursor of the next connection,
//!                                     that broke +        +  from Last-Event-ID
//! ```
//!
//! # The smallest server
//!
//! ```no_run
//! use rethread::catalog::{Catalog, Tool};
//! use rethread::{CallEnded, Context, McpService};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! /// Greets somebody.
//! #[derive(Deserialize, JsonSchema)]
//! struct Hello {
//!     name: String,
//! }
//!
//! async fn hello(args: Hello, cx: Context) -> Result<String, CallEnded> {
//!     cx.progress(0.5, "half way").await?; // the first emission makes the response a stream
//!     Ok(format!("hello, {}", args.name))
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
//! | [Concepts](guide::concepts) | the idea and the terms |
//! | [Your first server](guide::first_server) | a server with one tool |
//! | [The handler](guide::handler) | the code that you write |
//! | [The same server three times](guide::comparison) | beside rmcp and the TypeScript SDK |
//! | [The context](guide::context) | progress, logs, questions, cancellation |
//! | [Streams and resumption](guide::streams) | broken connections from the view of a client |
//! | [Stores and their promises](guide::stores) | durability and restarts |
//! | [Eras](guide::eras) | sessions and stateless requests, from the same code |
//! | [Limits](guide::limits) | every limit, its default and its consequence |
//! | [Security](guide::security) | origins, hosts, principals, ids, seals |
//! | [Authentication](guide::authentication) | tokens, scopes and principals |
//! | [Testing your server](guide::testing) | without a network |
//! | [Deployment](guide::deployment) | run, monitor and stop; [nginx](guide::nginx), [Kubernetes](guide::kubernetes) |
//!
//! # The main types
//!
//! [`McpService`] is the endpoint, and its [`Builder`] has the options. A [`Catalog`] is a server as a list of tools, resources and
//! prompts. A [`Handler`] is a server that you write yourself. [`Context`] has the actions of a running call, [`Peer`] is the client of
//! a session, and [`Notifier`] reaches all clients. `store` has the storage interface.
//!
//! # Guarantees
//!
//! * From the moment an event id is on the wire no event after it is lost: a `GET` with `Last-Event-ID` gets the following events, in
//!   order, once. A response without events is a plain JSON object and does not use the store.
//! * A call continues when its connection breaks, and its answer is stored. (On 2026-07-28 a broken connection cancels the call, as the
//!   revision specifies.)
//! * Every gap is announced.
//! * A slow or dead reader loses its own connection. Its session and other streams are not affected.
//! * Everything that can grow has a limit: [`Limits`], [`Timing`].
//! * `Origin` and `Host` are checked, unless you turn that off with an option that has `dangerous` in its name.
//! * With a durable store, clients see a restart as a broken connection.

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
pub use call::elicited::Elicited;
#[cfg(feature = "schemars")]
pub use call::form::{InvalidForm, form_schema};
pub use call::handler::Handler;
pub use call::opening::{InitializeReply, OpenError, SessionStart};
pub use call::peer::Peer;
pub use call::progress_message::ProgressMessage;
pub use call::reply::Reply;
pub use call::request::{Call, Inputs, Notification};
pub use call::root::Root;
pub use call::sampling::{SampledMessage, SamplingContent, SamplingRequest};
pub use catalog::Catalog;
pub use endpoint::authenticate::{Authenticate, Authentication};
pub use endpoint::builder::Builder;
pub use endpoint::http_sse::HttpSse;
pub use endpoint::respond::RefusalLabel;
pub use endpoint::service::McpService;
pub use endpoint::snapshot::ChangeCursor;
pub use node::handler_options::HandlerOptions;
pub use node::limits::{Limits, Timing};
pub use node::observe::{CallFacts, CallOutcome, Observe, RefusedRequest, ResumeFacts, SessionFacts};
pub use node::restore_policy::Restore;
pub use node::server_info::ServerInfo;
pub use node::session_end::SessionEnd;
pub use node::snapshot::{
    Changes, ClientSnapshot, Query, SessionSnapshot, SessionState, Snapshot, StreamSnapshot, Totals,
};
pub use node::stats::{ConnectionKind, Stats};
pub use node::unused_sessions::UnusedSessions;
pub use rethread_proto::gate::mirror::HeaderParams;
pub use rethread_proto::jsonrpc::RpcError;
pub use rethread_proto::mrtr::InputRequests;
pub use session::activity::Activity;
pub use session::notifier::Notifier;
pub use session::previous_state::PreviousState;
pub use stream::body::{Body, BodyError};

pub use rethread_proto::auth;
pub use rethread_proto::auth::{Caller, CallerFacts};
pub use rethread_proto::clock::Wall;
pub use rethread_proto::event_id;
pub use rethread_proto::exchange::SseUpgradeDelay;
pub use rethread_proto::gate::mirror::{AnnotationFault, BadAnnotation};
pub use rethread_proto::gate::{AccessHints, BadEntry};
pub use rethread_proto::jsonrpc::Params;
pub use rethread_proto::mrtr::{BadInputRequest, InputMethod, InputRequest};
pub use rethread_proto::{
    ClientCapabilities, LogLevel, Principal, ProgressToken, Refusal, RequestId, Revisions, SessionId, Tag, Version,
};
pub use rethread_store as store;
pub use rethread_store::{ListKind, MemoryLimits, MemoryStore, Retention};
/// The version of schemars whose `JsonSchema` types must implement.
#[cfg(feature = "schemars")]
pub use schemars;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

/// Compiles the examples of the README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct RepositoryReadmeDoctests;
