//! The servers under test as processes: the example, the gateway in front of it, and the rmcp server.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A server program with every feature.
pub(crate) struct Program {
    /// Path below the target folder.
    path: &'static str,
    how_to_build: &'static str,
    /// Options besides the common ones.
    options: &'static [&'static str],
    /// Where the program prints its URL, and the text in front of it.
    ready: Ready,
    /// The stdio server behind the program.
    behind: Behind,
}

enum Behind {
    Nothing,
    Example,
    /// Relative to the folder of the clients.
    Command(&'static [&'static str]),
}

enum Ready {
    Stdout(&'static str),
    Stderr(&'static str),
}

/// The example `everything`.
pub(crate) const EXAMPLE: Program = Program {
    path: "release/examples/everything",
    how_to_build: "cargo build --release --example everything -p rethread",
    options: &[],
    ready: Ready::Stdout("everything: ready at "),
    behind: Behind::Nothing,
};

/// The gateway with the example behind it. All processes serve the sessions of one name.
pub(crate) const GATEWAY: Program = Program {
    path: "release/rethread",
    how_to_build: "cargo build --release -p rethread-gateway",
    options: &["serve", "--name", "everything"],
    ready: Ready::Stderr("url "),
    behind: Behind::Example,
};

/// The gateway with the server of npm behind it.
pub(crate) const NPM_GATEWAY: Program = Program {
    behind: Behind::Command(crate::gateway::process::FROM_NPM),
    ..GATEWAY
};

/// The rmcp server behind Rethread.
pub(crate) const RMCP: Program = Program {
    path: "debug/rmcp-everything",
    how_to_build: "cargo build -p rethread-rmcp-fixture",
    options: &["--transport", "rethread"],
    ..EXAMPLE
};

/// The rmcp server behind its own transport.
pub(crate) const RMCP_ALONE: Program = Program {
    options: &["--transport", "rmcp"],
    ..RMCP
};

impl Program {
    /// Starts the program and waits until it is ready.
    pub(crate) fn start(&'static self) -> ServerProcess {
        self.start_with(&[])
    }

    /// Like `start`, with more options.
    pub(crate) fn start_with(&'static self, options: &[&str]) -> ServerProcess {
        let own = ["--listen", "127.0.0.1:0", "--retry-ms", "100"];
        self.launch(&[&own, options].concat(), &[])
    }

    /// Like `start_with`, on a port that stays the same after a restart.
    pub(crate) fn start_at_fixed_port(&'static self, options: &[&str]) -> ServerProcess {
        self.start_node(options, &[])
    }

    /// Like `start_at_fixed_port`, with options of the example, which may be behind the program.
    pub(crate) fn start_node(&'static self, options: &[&str], example: &[&str]) -> ServerProcess {
        let listen = ["--listen", &format!("127.0.0.1:{}", fixed_port())];
        self.launch(&[&listen, options].concat(), example)
    }

    fn launch(&'static self, own: &[&str], example: &[&str]) -> ServerProcess {
        let mut arguments: Vec<String> = [self.options, own].concat().into_iter().map(str::to_owned).collect();
        match self.behind {
            Behind::Nothing => {}
            Behind::Example => {
                let example = EXAMPLE.file().display().to_string();
                arguments.extend(["--".to_owned(), example, "--stdio".to_owned()]);
            }
            Behind::Command(command) => {
                arguments.push("--".to_owned());
                arguments.extend(command.iter().map(|&word| word.to_owned()));
            }
        }
        arguments.extend(example.iter().map(|&option| option.to_owned()));
        ServerProcess::launch(self, arguments)
    }

    /// The file name.
    pub(crate) fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    fn file(&self) -> PathBuf {
        let file = target().join(self.path);
        assert!(
            file.is_file(),
            "{} is missing; build it with: {}",
            file.display(),
            self.how_to_build
        );
        file
    }
}

/// A running server. Killed on drop.
pub(crate) struct ServerProcess {
    program: &'static Program,
    arguments: Vec<String>,
    child: Child,
    url: String,
}

impl ServerProcess {
    /// Starts the example.
    pub(crate) fn start() -> Self {
        EXAMPLE.start()
    }

    /// Starts the example with more options.
    pub(crate) fn start_with(options: &[&str]) -> Self {
        EXAMPLE.start_with(options)
    }

    /// Kills the server with SIGKILL and restarts it at once with the same arguments.
    pub(crate) fn kill_and_restart(mut self) -> Self {
        let arguments = std::mem::take(&mut self.arguments);
        let program = self.program;
        drop(self);
        Self::launch(program, arguments)
    }

    fn launch(program: &'static Program, arguments: Vec<String>) -> Self {
        let mut command = Command::new(program.file());
        command.args(&arguments).stdin(Stdio::null());
        if let Behind::Command(_) = program.behind {
            command.current_dir(crate::script::folder());
        }
        match program.ready {
            Ready::Stdout(_) => command.stdout(Stdio::piped()),
            Ready::Stderr(_) => command.stderr(Stdio::piped()),
        };
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {}: {error}", program.path));
        let mut server = ServerProcess {
            program,
            arguments,
            child,
            url: String::new(),
        };
        server.url = server.read_url().expect("the server ended before it was ready");
        server
    }

    /// Waits for the line with the URL. A thread reads the rest, because a full pipe would block the server.
    fn read_url(&mut self) -> Option<String> {
        let (output, prefix): (Option<Box<dyn Read + Send>>, &str) = match self.program.ready {
            Ready::Stdout(prefix) => (self.child.stdout.take().map(|output| Box::new(output) as _), prefix),
            Ready::Stderr(prefix) => (self.child.stderr.take().map(|output| Box::new(output) as _), prefix),
        };
        let mut lines = BufReader::new(output?).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.trim().strip_prefix(prefix).map(|url| url.trim().to_owned()));
        std::thread::spawn(move || {
            let errors = lines.filter(|line| line.contains("ERROR"));
            errors.for_each(|line| println!("{line}"));
        });
        url
    }

    /// Kills the server and does not wait for anything else.
    pub(crate) fn kill(mut self) {
        self.end("-KILL");
    }

    /// Stops the server as an operator does. It finishes its calls first. Returns whether it ended with success.
    pub(crate) fn stop(mut self) -> bool {
        self.end("-TERM")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.expect("kill runs").success(), "the server runs");
    }

    /// Waits for the end of a server that got a signal to stop. Returns whether it ended with success.
    pub(crate) fn wait(mut self) -> bool {
        self.child.wait().expect("the server ends").success()
    }

    fn end(&mut self, signal: &str) -> bool {
        self.signal(signal);
        self.child.wait().expect("the server ends").success()
    }

    /// Starts the same program again with the same arguments.
    pub(crate) fn start_again(program: &'static Program, arguments: Vec<String>) -> Self {
        Self::launch(program, arguments)
    }

    /// The program and the arguments of this process.
    pub(crate) fn how_started(&self) -> (&'static Program, Vec<String>) {
        (self.program, self.arguments.clone())
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The binary of the example, for clients that start it themselves.
    pub(crate) fn program() -> PathBuf {
        EXAMPLE.file()
    }

    /// The URL with its path.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL without its path.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The socket address.
    pub(crate) fn addr(&self) -> SocketAddr {
        let (_, rest) = self.url.split_once("://").expect("a URL");
        let authority = rest.split('/').next().unwrap_or(rest);
        authority.parse().expect("an address and a port")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have exited already
        let _ = self.child.wait();
    }
}

/// A free port outside the ephemeral range. Otherwise a client that reconnects while the server is down may get the server's
/// port as its own source port. It would connect to itself and block the port.
pub(crate) fn fixed_port() -> u16 {
    // Tests of one process start concurrently, so each searches its own range. Suites that run at the same time have
    // different lanes, and so have their ranges: a port is free for a moment while its server restarts.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let own = TAKEN.fetch_add(1, Ordering::Relaxed) * 50;
    let lane = std::env::var("RETHREAD_TEST_LANE")
        .ok()
        .and_then(|lane| lane.parse::<u16>().ok());
    let lane = 20_000 + lane.unwrap_or_default() * 5_000;
    let first = lane + u16::try_from(std::process::id() % 3_000).unwrap_or_default() + own;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (first..first + 50).find(free).expect("a free port")
}

/// An empty folder for the files of a test.
pub(crate) fn fresh_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder); // of an earlier failed run
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
