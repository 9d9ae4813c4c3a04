//! The server of the outside tests as a user of rmcp writes it: `#[tool_router]`, `#[prompt_router]` and a
//! `ServerHandler`, and nothing of Rethread in sight. `main` puts it behind either transport.
//!
//! It offers what the example `everything` offers: the tools, resources and prompts of the public MCP conformance suite,
//! and the tools that measure speed, delivery and resumption from outside.

mod changes;
mod fixture;
mod handler;
mod inputs;
mod media;
mod prompts;
mod questions;
mod resources;
mod say;
mod tools;
mod unsolicited;

pub use changes::Changes;
pub use handler::{CloseConnection, Everything, Process};
