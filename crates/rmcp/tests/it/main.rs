//! rmcp servers behind the transport, over real sockets, on every revision.

#![allow(clippy::unwrap_used)]
#![allow(deprecated)] // features that rmcp deprecates are still supported

mod calls;
mod fixture;
mod lifecycle;
mod macros;
mod peers;
mod questions;
mod stdio;
mod subscriptions;
mod support;
