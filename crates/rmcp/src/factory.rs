//! The closure shapes that rmcp users write to create servers.

use rmcp::ServerHandler;
use std::io;

/// A return type of a server factory: a server, or an [`io::Result`] with one.
///
/// `Kind` only lets the compiler distinguish the two implementations.
pub trait IntoServer<Kind> {
    /// The server type.
    type Server: ServerHandler;

    /// Returns the server, or the reason why the factory failed.
    fn into_server(self) -> io::Result<Self::Server>;
}

/// Marks factories that return a server.
#[derive(Debug)]
pub enum InfallibleFactory {}

/// Marks factories that return an [`io::Result`].
#[derive(Debug)]
pub enum FallibleFactory {}

impl<S: ServerHandler> IntoServer<InfallibleFactory> for S {
    type Server = S;

    fn into_server(self) -> io::Result<S> {
        Ok(self)
    }
}

impl<S: ServerHandler> IntoServer<FallibleFactory> for io::Result<S> {
    type Server = S;

    fn into_server(self) -> io::Result<S> {
        self
    }
}
