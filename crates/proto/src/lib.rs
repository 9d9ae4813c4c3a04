//! The MCP transport protocol as pure functions and state machines.
//!
//! This crate parses, decides, numbers and frames. It never waits, reads a clock, draws a random number, opens a
//! socket or logs: time, ids and bytes come in as arguments, effects go out as values. That is what lets the whole
//! protocol be tested by tables and properties, and what keeps the two halves of Rethread apart: *what should happen*
//! lives here, *making it happen* lives in the `rethread` crate.
//!
//! | module | contains |
//! |---|---|
//! | [`version`] | the five protocol revisions and every behaviour that differs between them |
//! | [`gate`] | headers and admission: may this request come in, and as what |
//! | [`jsonrpc`] | the JSON-RPC envelope over raw bytes |
//! | [`exchange`] | one POST and its answer: JSON or a stream |
//! | [`stream`] | the log of a stream, its writer and its readers, and where a resume begins |
//! | [`push`] | messages that wait for a GET |
//! | [`questions`] | questions to the client |
//! | [`subscription`] | listen streams: filter, acknowledgement, stamp, what waits for a slow reader |
//! | [`mrtr`] | results that ask for input: what is asked, what comes back, the sealed state between |
//! | [`event_id`] | event ids on the wire |
//! | [`sse`] | Server-Sent Events, encoded and decoded |
//! | [`refusal`] | every way to say no: status, code and text |
//! | [`clock`] | time as a value |

mod client_capabilities;
pub mod clock;
pub mod event_id;
pub mod exchange;
pub mod gate;
mod inline_str;
pub mod jsonrpc;
mod log_level;
pub mod mrtr;
pub mod ordinals;
pub mod principal;
pub mod push;
pub mod questions;
pub mod refusal;
pub mod sse;
pub mod stream;
pub mod subscription;
pub mod version;

pub use client_capabilities::ClientCapabilities;
pub use event_id::{EventId, EventIdFormat, Ordinal, Seq, StreamKind};
pub use inline_str::InlineStr;
pub use jsonrpc::{Message, ProgressToken, RequestId};
pub use log_level::LogLevel;
pub use ordinals::Ordinals;
pub use principal::{Principal, SessionId};
pub use refusal::Refusal;
pub use version::{Era, Revisions, Version};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
