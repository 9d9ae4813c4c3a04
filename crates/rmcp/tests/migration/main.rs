//! What the page `docs/migrating-from-rmcp.md` claims, seen on the wire: one server, written with rmcp, behind rmcp's own
//! transport and behind ours. What rmcp does is asserted as well, so that the page is corrected when rmcp changes.

#![allow(clippy::unwrap_used)]
#![allow(deprecated)] // what rmcp marks so is served, and tested

mod answers;
mod client;
mod desk;
mod endings;
mod gets;
mod page;
mod sessions;
mod streams;
