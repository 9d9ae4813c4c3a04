//! The gateway of the demo as a process: `rethread serve` in front of the built-in server.

use crate::child::Guardian;
use crate::child::guardian::{GuardedGroup, signal_group};
use crate::exit::Exit;
use crate::settings::is_gateway_variable;
use crate::task;
use rustix::process::Signal;
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

/// How long a gateway may take to start. Beyond: the demo fails.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a gateway may take to stop after SIGTERM. Beyond: SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How to start the gateway.
pub(super) struct GatewayCommand {
    pub(super) program: PathBuf,
    pub(super) data: PathBuf,
    /// Ends the gateway if the demo is killed.
    pub(super) guardian: Guardian,
    /// Copies the log of the gateway to stderr.
    pub(super) verbose: bool,
}

/// Why a gateway has not started.
#[derive(Debug)]
pub(super) enum GatewayStartError {
    AddressInUse,
    Other(String),
}

impl From<io::Error> for GatewayStartError {
    fn from(error: io::Error) -> Self {
        GatewayStartError::Other(error.to_string())
    }
}

/// A running gateway.
#[derive(Debug)]
pub(super) struct GatewayProcess {
    child: Child,
    pub(super) pid: u32,
    pub(super) address: SocketAddr,
    guarded: GuardedGroup,
}

impl GatewayCommand {
    /// Starts a gateway and waits until it is ready.
    pub(super) async fn start(&self, listen: SocketAddr) -> Result<GatewayProcess, GatewayStartError> {
        let listen = listen.to_string();
        let mut command = Command::new(&self.program);
        // Variables of the user configure another gateway.
        let own = std::env::vars_os().map(|(name, _)| name);
        own.filter(|name| is_gateway_variable(name)).for_each(|name| {
            command.env_remove(name);
        });
        let mut child = command
            .args([
                "serve",
                "--name",
                "demo",
                "--log-format",
                "json",
                "--color",
                "never",
                "--drain",
                "1s",
            ])
            .args(["--listen", &listen, "--data"])
            .arg(&self.data)
            .arg("--")
            .arg(&self.program)
            .arg("demo-server")
            .env("RUST_LOG", "info") // the event `ready` has the address
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0) // the demo handles Ctrl-C
            .kill_on_drop(true)
            .spawn()?;
        let pid = child
            .id()
            .ok_or_else(|| io::Error::other("the gateway has no process id"))?;
        let guarded = self.guardian.register(pid);
        let stderr = child
            .stderr
            .take()
            .ok_or_else(|| io::Error::other("the gateway has no stderr"))?;
        let mut log = GatewayLog {
            lines: BufReader::new(stderr).lines(),
            verbose: self.verbose,
            last_error: None,
        };
        let ready = timeout(START_TIMEOUT, log.ready()).await;
        let Ok(ready) = ready else {
            guarded.unregister();
            let seconds = START_TIMEOUT.as_secs();
            return Err(GatewayStartError::Other(format!(
                "it was not ready within {seconds} seconds"
            )));
        };
        let Some(address) = ready else {
            let status = child.wait().await?;
            guarded.unregister();
            return Err(match status.code() {
                Some(code) if code == i32::from(Exit::AddressInUse.code()) => GatewayStartError::AddressInUse,
                _ => GatewayStartError::Other(log.last_error.unwrap_or_else(|| status.to_string())),
            });
        };
        task::spawn(log.drain());
        Ok(GatewayProcess {
            child,
            pid,
            address,
            guarded,
        })
    }
}

impl GatewayProcess {
    /// Waits until the process ends by itself.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends SIGKILL and waits for the end. Nothing in the process can react to it.
    pub(super) async fn kill(mut self) -> io::Result<ExitStatus> {
        self.child.start_kill()?;
        let status = self.child.wait().await;
        self.guarded.unregister();
        status
    }

    /// Lets the gateway end its children, in bounded time.
    pub(super) async fn stop(mut self) {
        signal_group(self.pid, Signal::TERM);
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await; // it may have ended just now
        }
        self.guarded.unregister();
    }
}

/// The log of a gateway, which must be read to its end.
struct GatewayLog {
    lines: Lines<BufReader<ChildStderr>>,
    verbose: bool,
    last_error: Option<String>,
}

impl GatewayLog {
    /// The address of the listener. `None` if the log ends before.
    async fn ready(&mut self) -> Option<SocketAddr> {
        while let Some(event) = self.next().await {
            match event["message"].as_str() {
                Some("ready") => return event["listen"].as_str()?.parse().ok(),
                Some(message) if event["level"] == "ERROR" => self.last_error = Some(message.to_owned()),
                _ => {}
            }
        }
        None
    }

    async fn drain(mut self) {
        while self.next().await.is_some() {}
    }

    async fn next(&mut self) -> Option<Value> {
        let line = self.lines.next_line().await.ok()??;
        if self.verbose {
            eprintln!("{line}");
        }
        Some(serde_json::from_str(&line).unwrap_or_default())
    }
}
