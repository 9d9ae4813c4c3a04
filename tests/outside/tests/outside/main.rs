//! The official clients and the conformance suite against the example server, the gateway and a server that is written
//! with rmcp, as anybody could run them. These tests need the release builds of the first two, the dev build of the third, and
//! the installed clients; `cargo xtask test` brings all.

mod browser;
mod clients;
mod conformance;
mod crash;
mod full_disk;
mod gateway;
mod old;
mod rmcp;
mod script;
mod server;
