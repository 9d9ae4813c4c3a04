//! Verifies the claims of `docs/migrating-from-rmcp.md` on the wire.
//!
//! One rmcp server runs behind rmcp's own transport and behind Rethread. The tests also assert rmcp's behaviour, so that
//! they fail when rmcp changes and the page needs an update.

#![allow(clippy::unwrap_used)]
#![allow(deprecated)] // features that rmcp deprecates are still supported

mod call_streams;
mod client;
mod fixture;
mod get_streams;
mod lifetimes;
mod page;
mod responses;
mod sessions;
