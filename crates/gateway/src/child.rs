//! Child processes: stdio MCP servers behind the gateway.
//!
//! [`ChildSpawner`] starts processes, [`ChildConnection`] sends messages to one, and `MessageRouter` delivers its
//! messages to calls.

pub(crate) mod bounded;
pub(crate) mod codec;
mod connection;
pub(crate) mod guardian;
mod message;
mod process;
mod router;
mod sanitize;
mod spawner;
mod supervisor;
mod table;

pub(crate) use connection::{ChildCall, ChildConnection};
pub(crate) use guardian::Guardian;
pub(crate) use message::{ChildMessage, ChildQuestion, UnsolicitedMessage, parse_child_error};
pub(crate) use router::OverflowPolicy;
pub(crate) use spawner::{ChildPermit, ChildSpawner};
pub(crate) use table::{ChildCounts, ChildFacts, ChildTable};
