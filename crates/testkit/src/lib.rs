//! Tools to test MCP transports and stores. They use the wire protocol and the store traits, never the server crate.
//!
//! | module | purpose |
//! |---|---|
//! | [`certificates`] | a certificate authority, and a tunnel for clients without TLS |
//! | [`client`] | an MCP client for any `tower::Service`, without a socket |
//! | [`transcript`] | conversations that are compared byte by byte with a file |
//! | [`raw`] | a raw HTTP client that can break the protocol |
//! | [`proxy`] | a TCP proxy that cuts connections at random points |
//! | [`authorization_server`] | an OAuth authorization server that asks no person |
//! | [`balancer`] | a load balancer that sends each request to another backend |
//! | [`store_suite`](mod@store_suite) | the conformance suite of store backends |
//! | [`flaky`] | a store with switchable faults |
//! | [`issuer`] | an issuer of JSON Web Tokens that can rotate its keys and fail |
//! | [`redis_server`] | a real `redis-server` on a free port |
//! | [`walkthrough`] | runs the commands in the header of an example |

pub mod authorization_server;
pub mod balancer;
pub mod certificates;
pub mod client;
pub mod flaky;
pub mod issuer;
pub mod otlp_collector;
pub mod prometheus;
pub mod proxy;
pub mod raw;
#[cfg(unix)]
pub mod redis_server;
pub mod store_suite;
pub mod transcript;
#[cfg(unix)]
pub mod walkthrough;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
