//! A stdio server behind gateways: ours, and those that people use today.

use super::call::steady;
use super::{Bench, Case, Contender, Running, Suite, load};
use crate::load::{Dialect, Target};
use crate::measure::{Metric, Sample};
use crate::process::{Server, beside, descendants, pinned, resident_of};
use crate::rivals;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The others may be slow to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A gateway that starts and ends nothing for so long has settled.
const REST: Duration = Duration::from_millis(300);
/// A port that was free may be taken by somebody else before the gateway comes to it.
const ATTEMPTS: usize = 3;
const CHILD: &str = "echo-child";

pub(super) fn suite() -> Suite {
    let cases = [1, 16, 64].map(|clients| Case {
        name: format!("{clients} clients"),
        contenders: vec![
            Contender::Supergateway,
            Contender::McpProxy,
            Contender::Gateway,
            Contender::GatewayEmbedded,
        ],
        run: Box::new(move |bench, contender| measure(bench, contender, clients)),
    });
    Suite {
        name: "gateway",
        unit: "call",
        about: "`echo` of a trivial stdio server, called through a gateway. Gateway and children share one core. CPU and memory \
                are the gateway's own, its children left out; memory is what each client added to it, once the calls are \
                done and the sessions still open. supergateway runs `--stateful`, its best: one child for each session, as \
                ours; mcp-proxy has one child for all.",
        metrics: &[Metric::Rate, Metric::Cpu, Metric::Resident, Metric::Processes],
        cases: cases.into(),
    }
}

fn measure(bench: &Bench, contender: Contender, clients: usize) -> Result<Sample> {
    let files = TempDir::new()?;
    let server = start(bench, contender, files.path())?;
    let target = Target {
        address: server.address,
        path: "/mcp".to_owned(),
        dialect: Dialect::Legacy,
        canned: false,
    };
    let before = Own::at_rest(&server)?;
    let running = Running::new(server, target, Some(files));
    let (sample, after) = load(async {
        let mut kept = Vec::new();
        let sample = steady(bench, &running, clients, &mut kept).await?;
        Ok((sample, Own::of(&running.server)?))
    })?;
    let per_client = |before: u64, after: u64| (after as f64 - before as f64) / clients as f64;
    Ok(sample
        .with(Metric::Resident, per_client(before.memory, after.memory))
        .with(Metric::Processes, per_client(before.processes, after.processes)))
}

/// What a gateway has for itself.
struct Own {
    memory: u64,
    processes: u64,
}

impl Own {
    /// Once what it started only to look at is gone.
    fn at_rest(server: &Server) -> Result<Own> {
        let mut processes = descendants(server.pid())?;
        loop {
            std::thread::sleep(REST);
            let now = descendants(server.pid())?;
            if now == processes {
                return Own::of(server);
            }
            processes = now;
        }
    }

    fn of(server: &Server) -> Result<Own> {
        let mut memory = resident_of(server.pid())?;
        let below = descendants(server.pid())?;
        for &pid in &below {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() != CHILD {
                memory += resident_of(pid).unwrap_or(0); // one that has just ended has none
            }
        }
        Ok(Own {
            memory,
            processes: 1 + below.len() as u64,
        })
    }
}

fn start(bench: &Bench, contender: Contender, files: &Path) -> Result<Server> {
    let mut attempts = 1;
    loop {
        match attempt(bench, contender, files) {
            Err(_) if attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

fn attempt(bench: &Bench, contender: Contender, files: &Path) -> Result<Server> {
    let child = beside(CHILD)?;
    // The others cannot be told to find a port themselves.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let port = address.port().to_string();
    let core = bench.cores.server;
    let mut command = match contender {
        Contender::Gateway | Contender::GatewayEmbedded => {
            let mut command = pinned(core, &beside("rethread")?);
            command.args(["serve", "--quiet", "--listen", &address.to_string()]);
            if contender == Contender::Gateway {
                command.arg("--memory");
            } else {
                command.arg("--data").arg(files);
            }
            command.arg("--").arg(child);
            command
        }
        Contender::Supergateway => {
            let mut command = pinned(core, Path::new("node"));
            command.arg(rivals::supergateway()?).arg("--stdio").arg(child);
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
        Contender::McpProxy => {
            let mut command = pinned(core, &rivals::mcp_proxy()?);
            command.args(["--log-level", "ERROR", "--port", &port, "--"]).arg(child);
            command
        }
        other => bail!("{} is no gateway", other.name()),
    };
    spawn(&mut command, address)
}

/// Starts a gateway and waits until it takes connections.
fn spawn(command: &mut Command, address: SocketAddr) -> Result<Server> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.spawn().context("cannot start the gateway")?;
    let mut server = Server::adopt(child, address);
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.ended()? {
            bail!("the gateway ended: {status}");
        }
        if begun.elapsed() > PATIENCE {
            bail!("the gateway takes no connections");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}
