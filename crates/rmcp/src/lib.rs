//! rmcp servers behind rethread.

// rmcp marks roots, sampling, logging and the subscriptions of sessions as deprecated. They are served all the same.
#![allow(deprecated)]

mod convert;
mod ears;
mod factory;
mod handler;
mod inputs;
mod line;
mod pool;
mod probe;
mod question;
mod request;
mod route;
mod seat;
mod server;
mod stateless;
mod tokens;

pub use factory::{Always, IntoServer, Maybe};
pub use handler::RmcpHandler;
