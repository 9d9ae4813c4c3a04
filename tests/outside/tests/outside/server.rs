//! The example server as a process.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

const HOW_TO_BUILD: &str = "build it with: cargo build --release --example everything -p rethread";
const READY: &str = "everything: ready at ";

/// `everything` on a port of its own. Killed when dropped.
pub(crate) struct Everything {
    arguments: Vec<String>,
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
        let own = ["--listen", "127.0.0.1:0", "--retry-ms", "100"];
        Self::launch(own.iter().chain(options).map(|&option| option.to_owned()).collect())
    }

    /// The same on a port that it can be restarted on.
    pub(crate) fn start_at_fixed_port(options: &[&str]) -> Self {
        let own = ["--listen".to_owned(), format!("127.0.0.1:{}", fixed_port())];
        let options = options.iter().map(|&option| option.to_owned());
        Self::launch(own.into_iter().chain(options).collect())
    }

    /// Kills it with SIGKILL and starts it again at once, with the same arguments.
    pub(crate) fn killed_and_restarted(mut self) -> Self {
        let arguments = std::mem::take(&mut self.arguments);
        drop(self);
        Self::launch(arguments)
    }

    fn launch(arguments: Vec<String>) -> Self {
        let child = Command::new(Self::program())
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start the example: {error}; {HOW_TO_BUILD}"));
        let mut server = Everything {
            arguments,
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

/// A free port that the system does not hand out by itself. A client that knocks while the server is down could else be
/// given the server's port for its own end: it would find itself, and the server could not come back.
pub(crate) fn fixed_port() -> u16 {
    // Tests of one process start at the same time: each looks in a place of its own.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let own = TAKEN.fetch_add(1, Ordering::Relaxed) * 50;
    let first = 20_000 + u16::try_from(std::process::id() % 8_000).unwrap_or_default() + own;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (first..first + 50).find(free).expect("a free port")
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
