//! How servers are made: the closures that rmcp users write.

use rmcp::ServerHandler;
use std::io;

/// What a factory may return: a server, or a server that could not be made.
///
/// The parameter only keeps the two apart for the compiler.
pub trait IntoServer<Kind> {
    /// The server.
    type Server: ServerHandler;

    /// The server, or why there is none.
    fn into_server(self) -> io::Result<Self::Server>;
}

/// Marks factories that always succeed.
#[derive(Debug)]
pub enum Always {}

/// Marks factories that may fail.
#[derive(Debug)]
pub enum Maybe {}

impl<S: ServerHandler> IntoServer<Always> for S {
    type Server = S;

    fn into_server(self) -> io::Result<S> {
        Ok(self)
    }
}

impl<S: ServerHandler> IntoServer<Maybe> for io::Result<S> {
    type Server = S;

    fn into_server(self) -> io::Result<S> {
        self
    }
}
