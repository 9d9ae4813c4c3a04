//! The server of the outside tests, written as rmcp users write servers: `#[tool_router]`, `#[prompt_router]` and a
//! `ServerHandler`, without Rethread. `main` serves it with either transport.
//!
//! It has the features of the example `everything`: the tools, resources and prompts of the public MCP conformance suite,
//! and tools that measure speed, delivery and resumption.

mod changes;
mod conformance_tools;
mod emit;
mod handler;
mod inputs;
mod load_tools;
mod media;
mod prompts;
mod questions;
mod resources;
mod unsolicited;

pub use changes::Changes;
pub use handler::{CloseConnection, EverythingServer, SharedState};
