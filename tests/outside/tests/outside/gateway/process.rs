//! The gateway as a process, and the servers that it has behind it.

use crate::server::{Everything, fixed_port, root, target};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const HOW_TO_BUILD: &str = "build it with: cargo build --release -p rethread-gateway";

/// A server on stdin and stdout: the words that start it, in the folder of the clients.
pub(super) type Words = &'static [&'static str];

/// From npm, as `npx` would start it.
pub(super) const FROM_NPM: Words = &["ts/node_modules/.bin/mcp-server-everything", "stdio"];
/// With the official Python package, 1.x and 2.x.
pub(super) const PYTHON_1: Words = &["py1/bin/python", "py/server.py"];
pub(super) const PYTHON_2: Words = &["py2/bin/python", "py/server.py"];

/// `rethread serve`. Killed when dropped, which ends its children too.
pub(super) struct Gateway {
    arguments: Vec<String>,
    child: Child,
    addr: SocketAddr,
    said: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// Before the example server, everything in memory.
    pub(super) fn before_example() -> Self {
        let program = Everything::program().display().to_string();
        let own = ["--memory", "--listen", "127.0.0.1:0", "--retry-ms", "100", "--"];
        let own = own.map(str::to_owned).into_iter();
        Self::launch(own.chain([program, "--stdio".to_owned()]).collect())
    }

    /// Before another server, everything in memory.
    pub(super) fn before(server: Words) -> Self {
        let own = ["--memory", "--listen", "127.0.0.1:0", "--retry-ms", "100", "--"];
        Self::launch(own.iter().chain(server).map(|&word| word.to_owned()).collect())
    }

    /// Before another server, with a folder to remember in and on a port that it can be restarted on. Clients are asked to
    /// wait for a second, since the Python ones give up after two attempts.
    pub(super) fn with_data(data: &Path, server: Words) -> Self {
        let (data, listen) = (data.display().to_string(), format!("127.0.0.1:{}", fixed_port()));
        let own = ["--data", &data, "--listen", &listen, "--retry-ms", "1000", "--"];
        Self::launch(own.iter().chain(server).map(|&word| word.to_owned()).collect())
    }

    /// Kills it with SIGKILL and starts it again at once, with the same arguments.
    pub(super) fn killed_and_restarted(mut self) -> Self {
        let arguments = std::mem::take(&mut self.arguments);
        drop(self);
        Self::launch(arguments)
    }

    fn launch(arguments: Vec<String>) -> Self {
        let program = target().join("release/rethread");
        let child = Command::new(&program)
            .arg("serve")
            .args(&arguments)
            .current_dir(root().join("target/outside"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {}: {error}; {HOW_TO_BUILD}", program.display()));
        let mut gateway = Gateway {
            arguments,
            child,
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            said: Arc::default(),
        };
        let stderr = gateway.child.stderr.take().expect("stderr is piped");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        for line in lines.by_ref() {
            let url = line.trim().strip_prefix("url ").map(|rest| rest.trim().to_owned());
            gateway.hears(line);
            if let Some(addr) = url.and_then(|url| address_of(&url)) {
                gateway.addr = addr;
                break;
            }
        }
        assert_ne!(gateway.addr.port(), 0, "the gateway ended before it was ready");
        let said = Arc::clone(&gateway.said);
        // A pipe that nobody empties would stop it.
        std::thread::spawn(move || lines.for_each(|line| said.lock().expect("nobody panics with it").push(line)));
        gateway
    }

    fn hears(&self, line: String) {
        self.said.lock().expect("nobody panics with it").push(line);
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where Streamable HTTP is spoken.
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// Where the transport of 2024-11-05 is spoken.
    pub(super) fn old_url(&self) -> String {
        format!("http://{}/sse", self.addr)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("rethread serve {} complained:", self.arguments.join(" "));
            let said = self.said.lock().expect("nobody panics with it");
            for line in said
                .iter()
                .filter(|line| line.contains("WARN") || line.contains("ERROR"))
            {
                println!("{line}");
            }
        }
    }
}

/// The socket in the line that names the URL.
fn address_of(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("http://")?.split('/').next()?.parse().ok()
}
