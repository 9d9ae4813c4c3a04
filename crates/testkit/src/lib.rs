//! Tools to test MCP transports and stores. They know the wire and the store seam, never the server behind them.
//!
//! | tool | for |
//! |---|---|
//! | [`client`] | talking to any `tower::Service` as an MCP client would, without a socket |
//! | [`transcript`] | conversations compared byte by byte with a file |
//! | [`raw`] | misbehaving on a TCP connection |
//! | [`proxy`] | cutting connections at random points |
//! | [`store_suite`](mod@store_suite) | what every store backend must do |
//! | [`flaky`] | a store that fails on command |
//! | [`walkthrough`] | examples whose headers must be true |

pub mod client;
pub mod flaky;
pub mod proxy;
pub mod raw;
pub mod store_suite;
pub mod transcript;
#[cfg(unix)]
pub mod walkthrough;

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
