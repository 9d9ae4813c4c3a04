//! The gateway as a process, and its stdio servers.

use crate::server::{ServerProcess, fixed_port, root, target};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const HOW_TO_BUILD: &str = "build it with: cargo build --release -p rethread-gateway";

/// The command line of a stdio server, relative to the folder of the clients.
pub(crate) type CommandLine = &'static [&'static str];

/// From npm, as `npx` starts it.
pub(crate) const FROM_NPM: CommandLine = &["ts/node_modules/.bin/mcp-server-everything", "stdio"];
/// Official Python package, 1.x and 2.x.
pub(super) const PYTHON_1: CommandLine = &["py1/bin/python", "py/server.py"];
pub(super) const PYTHON_2: CommandLine = &["py2/bin/python", "py/server.py"];
/// Official TypeScript package 2.x, for 2026-07-28 only.
pub(crate) const STATELESS: CommandLine = &["node", "ts/stateless_server.mjs"];

/// A running `rethread serve`. Killed on drop, which also ends its children.
pub(crate) struct Gateway {
    arguments: Vec<String>,
    child: Child,
    addr: SocketAddr,
    said: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// In front of the example server, with the memory store.
    pub(crate) fn for_example() -> Self {
        Self::launch(for_example())
    }

    /// In front of the example server, with more options.
    pub(crate) fn for_example_with(options: &[&str]) -> Self {
        let options = options.iter().map(|&word| word.to_owned());
        Self::launch(options.chain(for_example()).collect())
    }

    /// In front of another server, with the memory store.
    pub(super) fn for_server(server: CommandLine) -> Self {
        let own = ["--memory", "--listen", "127.0.0.1:0", "--retry-ms", "100", "--"];
        Self::launch(own.iter().chain(server).map(|&word| word.to_owned()).collect())
    }

    /// In front of another server, with a data folder and a fixed port. The `retry` is one second, because the Python clients
    /// give up after two attempts.
    pub(super) fn with_data(data: &Path, server: CommandLine) -> Self {
        let (data, listen) = (data.display().to_string(), format!("127.0.0.1:{}", fixed_port()));
        let own = ["--data", &data, "--listen", &listen, "--retry-ms", "1000", "--"];
        Self::launch(own.iter().chain(server).map(|&word| word.to_owned()).collect())
    }

    /// With a configuration file.
    pub(crate) fn with_config(file: &Path) -> Self {
        Self::launch(vec!["--config".to_owned(), file.display().to_string()])
    }

    /// The same with a command that runs `rethread`.
    pub(crate) fn with_config_as(rethread: Command, file: &Path) -> Self {
        Self::launch_as(rethread, vec!["--config".to_owned(), file.display().to_string()])
    }

    /// Kills the gateway with SIGKILL and restarts it at once with the same arguments.
    pub(super) fn kill_and_restart(mut self) -> Self {
        let arguments = std::mem::take(&mut self.arguments);
        drop(self);
        Self::launch(arguments)
    }

    fn launch(arguments: Vec<String>) -> Self {
        let mut program = Command::new(target().join("release/rethread"));
        program.current_dir(root().join("target/outside"));
        Self::launch_as(program, arguments)
    }

    /// In front of the example server, with a command that runs `rethread` as users installed it.
    pub(crate) fn installed(rethread: Command) -> Self {
        Self::launch_as(rethread, for_example())
    }

    fn launch_as(mut rethread: Command, arguments: Vec<String>) -> Self {
        let program = rethread.get_program().to_owned();
        let child = rethread
            .arg("serve")
            .args(&arguments)
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
        // Read stderr for ever. A full pipe would block the gateway.
        std::thread::spawn(move || lines.for_each(|line| said.lock().expect("no panic while locked").push(line)));
        gateway
    }

    fn hears(&self, line: String) {
        self.said.lock().expect("no panic while locked").push(line);
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process that was started: the gateway, or its launcher.
    pub(crate) fn process(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The URL of Streamable HTTP.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// The URL of the 2024-11-05 transport.
    pub(super) fn old_url(&self) -> String {
        format!("http://{}/sse", self.addr)
    }
}

/// The arguments of a gateway in front of the example server.
fn for_example() -> Vec<String> {
    let program = ServerProcess::program().display().to_string();
    let own = ["--memory", "--listen", "127.0.0.1:0", "--retry-ms", "100", "--"];
    let own = own.map(str::to_owned).into_iter();
    own.chain([program, "--stdio".to_owned()]).collect()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("rethread serve {} complained:", self.arguments.join(" "));
            let said = self.said.lock().expect("no panic while locked");
            for line in said
                .iter()
                .filter(|line| line.contains("WARN") || line.contains("ERROR"))
            {
                println!("{line}");
            }
        }
    }
}

/// The socket address in the line with the URL.
fn address_of(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("http://")?.split('/').next()?.parse().ok()
}
