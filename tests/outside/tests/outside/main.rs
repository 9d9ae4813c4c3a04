//! The official clients and the conformance suite against the example server, the gateway and an rmcp server. The tests
//! need release builds of the first two, the dev build of the third, and the installed clients. `cargo xtask test`
//! provides all of them.

mod bridge;
mod browser;
mod clients;
mod conformance;
mod crash;
mod full_disk;
mod gateway;
mod nodes;
mod official_clients;
mod other_transports;
mod packages;
mod rmcp;
mod script;
mod server;
