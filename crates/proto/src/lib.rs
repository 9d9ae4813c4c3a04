//! The MCP transport protocol as pure functions and state machines.
//!
//! This crate parses, decides, numbers and frames. It never waits, reads a clock, draws a random number, opens a socket or
//! logs. Time, ids and bytes are arguments, effects are return values. Tables and properties can therefore test the whole
//! protocol. This crate decides *what should happen*, and the `rethread` crate makes it happen.
//!
//! | module | contains |
//! |---|---|
//! | [`version`] | the five protocol revisions and every behaviour that differs between them |
//! | [`gate`] | headers and admission: is this request admitted, and as what |
//! | [`auth`] | the form of credentials, scopes, challenges and rates |
//! | [`jsonrpc`] | the JSON-RPC envelope over raw bytes |
//! | [`exchange`] | one POST and its answer: JSON or a stream |
//! | [`stream`] | the log of a stream, its writer and its readers, and where a resume begins |
//! | [`push`] | messages that wait for a GET |
//! | [`questions`] | questions to the client |
//! | [`subscription`] | listen streams: filter, acknowledgement, stamp, what waits for a slow reader |
//! | [`mrtr`] | results that ask for input: the questions, the answers, the sealed state between |
//! | [`bridge`] | translation between the two eras, for a relay |
//! | [`event_id`] | event ids on the wire |
//! | [`sse`] | Server-Sent Events, encoded and decoded |
//! | [`refusal`] | every refusal: status, code and text |
//! | [`cluster`] | several processes that share one store |
//! | [`clock`] | time as a value |

pub mod auth;
pub mod bridge;
mod client_capabilities;
pub mod clock;
pub mod cluster;
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
pub mod rfc3339;
pub mod sse;
pub mod stream;
pub mod subscription;
pub mod tag;
pub mod version;

pub use client_capabilities::ClientCapabilities;
pub use event_id::{EventId, EventIdFormat, Ordinal, Seq, StreamKind};
pub use inline_str::InlineStr;
pub use jsonrpc::{Message, ProgressToken, RequestId};
pub use log_level::LogLevel;
pub use ordinals::Ordinals;
pub use principal::{Principal, SessionId};
pub use refusal::Refusal;
pub use tag::Tag;
pub use version::{Era, Revisions, Version};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
