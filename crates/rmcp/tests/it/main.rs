//! rmcp servers behind the transport, over real sockets and through every revision.

#![allow(clippy::unwrap_used)]
#![allow(deprecated)] // what rmcp marks so is served, and tested

mod asking;
mod calls;
mod lifecycle;
mod lines;
mod macros;
mod peers;
mod stage;
mod subscriptions;
mod support;
