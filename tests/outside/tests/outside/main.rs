//! The official clients and the conformance suite against the example server, as anybody could run them. These tests
//! need the release build of the example and the installed clients; `cargo xtask test` brings both.

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
