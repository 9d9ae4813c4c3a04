//! Child processes: stdio MCP servers behind the gateway.
//!
//! [`ChildPool`] decides which processes run, [`ChildSpawner`] starts them, [`ChildConnection`] sends messages to one, and
//! `MessageRouter` delivers its messages to calls.

pub(crate) mod bounded;
pub(crate) mod codec;
mod connection;
pub(crate) mod guardian;
mod label;
mod message;
mod pool;
mod process;
mod restart_backoff;
mod router;
mod sanitize;
mod spawner;
mod supervisor;
mod table;
pub(crate) mod telemetry;

pub(crate) use connection::{ChildCall, ChildConnection, ChildUse};
pub(crate) use guardian::Guardian;
pub(crate) use message::{ChildMessage, ChildQuestion, UnsolicitedMessage, parse_child_error};
pub(crate) use pool::{ChildKind, ChildOwner, ChildPool, ChildStart, StartError, StartedChild, StopCause};
pub(crate) use restart_backoff::RestartBackoff;
pub(crate) use router::OverflowPolicy;
pub(crate) use spawner::ChildSpawner;
pub(crate) use table::{ChildCounts, ChildFacts, ChildTable};
