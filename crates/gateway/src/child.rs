//! Child processes: stdio MCP servers behind the gateway, the implementation of [`Upstream`](crate::upstream::Upstream).
//!
//! [`ChildPool`] decides which processes run, [`ChildSpawner`] starts them, `ChildConnection` sends messages to one, and
//! `MessageRouter` delivers its messages to calls.

mod connection;
pub(crate) mod guardian;
mod kind;
mod label;
mod pool;
mod process;
mod restart_backoff;
mod router;
mod sanitize;
mod spawner;
mod supervisor;
mod table;
mod telemetry;

pub(crate) use guardian::Guardian;
pub(crate) use kind::ChildKind;
pub(crate) use pool::{ChildId, ChildOwner, ChildPool, ChildStart, StartError, StartedChild};
pub(crate) use restart_backoff::RestartBackoff;
pub(crate) use router::OverflowPolicy;
pub(crate) use spawner::ChildSpawner;
pub(crate) use table::{ChildCounts, ChildFacts, ChildTable};
