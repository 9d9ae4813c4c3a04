//! A stdio server behind Rethread's gateway and other gateways.

use super::call::measure_echo;
use super::{Case, Environment, RunningServer, ServerKind, Suite, run_load};
use crate::load::{Dialect, Target};
use crate::measure::{Metric, Sample};
use crate::other_gateways;
use crate::process::{Server, descendants, memory_of, pinned, sibling_program};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Start of a gateway on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A gateway counts as idle if its set of processes is stable for this time.
const IDLE_WINDOW: Duration = Duration::from_millis(300);
/// Another process may take the free port before the gateway binds it.
const MAX_START_ATTEMPTS: usize = 3;
const CHILD_PROGRAM: &str = "echo-child";

pub(super) fn suite() -> Suite {
    let cases = [1, 16, 64].map(|clients| Case {
        name: if clients == 1 {
            "1 client".to_owned()
        } else {
            format!("{clients} clients")
        },
        servers: vec![
            ServerKind::Supergateway,
            ServerKind::McpProxy,
            ServerKind::McpProxyNpm,
            ServerKind::Gateway,
            ServerKind::GatewayEmbedded,
            ServerKind::GatewayObserved,
        ],
        run: Box::new(move |environment, kind| measure(environment, kind, Dialect::Legacy, clients)),
    });
    Suite {
        name: "gateway",
        title: "Gateway in front of a stdio server",
        unit: "call",
        about: "Clients call `echo` of a trivial stdio server through a gateway. The gateway and its children share one core. CPU \
                and memory exclude the children. Memory is the increase per client after the calls, with open sessions. \
                supergateway runs with `--stateful`, one child per session like Rethread. Each \
                mcp-proxy has one child for all clients; that of npm also keeps the events of each session in memory.",
        metrics: &[Metric::Rate, Metric::Cpu, Metric::Memory, Metric::Processes],
        cases: cases.into(),
    }
}

/// Each case has one kind of client. One of its two servers speaks the client's era, the other one does not.
pub(super) fn bridge() -> Suite {
    let cases = [
        ("16 clients with sessions", Dialect::Legacy),
        ("16 clients of 2026-07-28", Dialect::Modern),
    ];
    let cases = cases.map(|(name, dialect)| Case {
        name: name.to_owned(),
        servers: vec![ServerKind::Gateway, ServerKind::GatewayStateless],
        run: Box::new(move |environment, kind| measure(environment, kind, dialect, 16)),
    });
    Suite {
        name: "bridge",
        title: "Gateway between the eras",
        unit: "call",
        about: "Clients call `echo` of a trivial stdio server through the gateway: one server has sessions, the other one speaks only \
                2026-07-28. In each case one of the two needs a translation. CPU and memory exclude the children.",
        metrics: &[Metric::Rate, Metric::Cpu, Metric::Memory, Metric::Processes],
        cases: cases.into(),
    }
}

fn measure(environment: &Environment, kind: ServerKind, dialect: Dialect, clients: usize) -> Result<Sample> {
    let files = TempDir::new()?;
    let server = start(environment, kind, files.path())?;
    let target = Target {
        address: server.address,
        path: "/mcp".to_owned(),
        dialect,
        canned: false,
        token: None,
    };
    let before = Footprint::when_idle(&server)?;
    let running = RunningServer::new(server, target, Some(files));
    let (sample, after) = run_load(async {
        let mut connected = Vec::new();
        let sample = measure_echo(environment, &running, clients, &mut connected).await?;
        Ok((sample, Footprint::of(&running.server)?))
    })?;
    let per_client = |before: u64, after: u64| (after as f64 - before as f64) / clients as f64;
    Ok(sample
        .with(Metric::Memory, per_client(before.memory, after.memory))
        .with(Metric::Processes, per_client(before.processes, after.processes)))
}

/// Memory and processes of a gateway without its stdio servers.
struct Footprint {
    memory: u64,
    processes: u64,
}

impl Footprint {
    /// Waits until the gateway starts and ends no processes.
    fn when_idle(server: &Server) -> Result<Footprint> {
        let mut processes = descendants(server.pid())?;
        loop {
            std::thread::sleep(IDLE_WINDOW);
            let now = descendants(server.pid())?;
            if now == processes {
                return Footprint::of(server);
            }
            processes = now;
        }
    }

    fn of(server: &Server) -> Result<Footprint> {
        let mut memory = memory_of(server.pid())?;
        let below = descendants(server.pid())?;
        for &pid in &below {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() != CHILD_PROGRAM {
                memory += memory_of(pid).unwrap_or(0); // the process may have just ended
            }
        }
        Ok(Footprint {
            memory,
            processes: 1 + below.len() as u64,
        })
    }
}

fn start(environment: &Environment, kind: ServerKind, files: &Path) -> Result<Server> {
    let mut attempts = 1;
    loop {
        match attempt(environment, kind, files) {
            Err(_) if attempts < MAX_START_ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

fn attempt(environment: &Environment, kind: ServerKind, files: &Path) -> Result<Server> {
    let child = sibling_program(CHILD_PROGRAM)?;
    // The other gateways cannot choose a free port.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let port = address.port().to_string();
    let core = environment.cores.server;
    let mut command = match kind {
        ServerKind::Gateway
        | ServerKind::GatewayEmbedded
        | ServerKind::GatewayObserved
        | ServerKind::GatewayStateless => {
            let mut command = pinned(core, &sibling_program("rethread")?);
            command.args(["serve", "--listen", &address.to_string()]);
            match kind {
                ServerKind::GatewayObserved => {
                    command.args(["--memory", "--metrics", "127.0.0.1:0", "--audit"]);
                    command.arg(files.join("audit.jsonl"));
                }
                ServerKind::GatewayEmbedded => {
                    command.args(["--quiet", "--data"]).arg(files);
                }
                _ => {
                    command.args(["--quiet", "--memory"]);
                }
            }
            command.arg("--").arg(child);
            if kind == ServerKind::GatewayStateless {
                command.arg("--stateless");
            }
            command
        }
        ServerKind::Supergateway => {
            let mut command = pinned(core, Path::new("node"));
            command.arg(other_gateways::supergateway()?).arg("--stdio").arg(child);
            command.args([
                "--outputTransport",
                "streamableHttp",
                "--stateful",
                "--logLevel",
                "none",
                "--port",
                &port,
            ]);
            command
        }
        ServerKind::McpProxy => {
            let mut command = pinned(core, &other_gateways::mcp_proxy()?);
            command.args(["--log-level", "ERROR", "--port", &port, "--"]).arg(child);
            command
        }
        ServerKind::McpProxyNpm => {
            let mut command = pinned(core, Path::new("node"));
            let options = ["--server", "stream", "--host", "127.0.0.1", "--port", &port, "--"];
            command.arg(other_gateways::mcp_proxy_npm()?).args(options).arg(child);
            command
        }
        other => bail!("{} is not a gateway", other.name()),
    };
    spawn(&mut command, address)
}

/// Starts a gateway and waits until it accepts connections.
fn spawn(command: &mut Command, address: SocketAddr) -> Result<Server> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.spawn().context("cannot start the gateway")?;
    let mut server = Server::adopt(child, address);
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.exit_status()? {
            bail!("the gateway ended: {status}");
        }
        if started.elapsed() > START_TIMEOUT {
            bail!("the gateway does not accept connections");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}
