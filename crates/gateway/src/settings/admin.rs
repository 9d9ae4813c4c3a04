//! Settings of the admin listener.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The admin listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdminSettings {
    pub(crate) listen: SocketAddr,
    /// Its public URL behind a reverse proxy. This host and origin are accepted, too.
    pub(crate) public_url: Option<String>,
    /// The file with the token. It is created if it does not exist.
    pub(crate) token_file: PathBuf,
    /// Operators may end sessions and children, drain and reload.
    pub(crate) actions: bool,
    /// The operator has confirmed that the listener is open to the network without TLS.
    pub(crate) insecure: bool,
}
