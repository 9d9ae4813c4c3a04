//! The load generator: a raw HTTP/1.1 client with keep-alive that checks every byte of a response.

pub(crate) mod conn;
pub(crate) mod expect;
pub(crate) mod mcp;
pub(crate) mod sse;

pub(crate) use conn::Conn;
pub(crate) use expect::Expected;
pub(crate) use mcp::{Dialect, Request, Session, Target};
