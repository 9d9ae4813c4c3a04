//! The load: a raw HTTP/1.1 client that keeps its connections and looks at every byte of an answer.

pub(crate) mod conn;
pub(crate) mod expect;
pub(crate) mod mcp;
pub(crate) mod sse;

pub(crate) use conn::Conn;
pub(crate) use expect::Expected;
pub(crate) use mcp::{Dialect, Request, Session, Target};
