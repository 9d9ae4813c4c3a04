//! The example server as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const HOW_TO_BUILD: &str = "build it with: cargo build --release --example everything -p rethread";
const READY: &str = "everything: ready at ";

/// `everything` on a port of its own. Killed when dropped.
pub(crate) struct Everything {
    child: Child,
    url: String,
}

impl Everything {
    /// Starts it and waits until it says that it is ready.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more options.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        let child = Command::new(Self::program())
            .args(["--listen", "127.0.0.1:0", "--retry-ms", "100"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start the example: {error}; {HOW_TO_BUILD}"));
        let mut server = Everything {
            child,
            url: String::new(),
        };
        let stdout = server.child.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix(READY).map(str::to_owned));
        server.url = url.expect("the example ended before it was ready");
        server
    }

    /// The binary, for clients that start it themselves.
    pub(crate) fn program() -> PathBuf {
        let program = target().join("release/examples/everything");
        assert!(program.is_file(), "{} is missing; {HOW_TO_BUILD}", program.display());
        program
    }

    /// Where it is reached, path and all.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The same without the path.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Its socket.
    pub(crate) fn addr(&self) -> SocketAddr {
        let (_, rest) = self.url.split_once("://").expect("a URL");
        let authority = rest.split('/').next().unwrap_or(rest);
        authority.parse().expect("an address and a port")
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
