//! The process itself: started in a group of its own, and ended with everything it has started (GW-08).

use super::guardian::{Guardian, Watched, signal};
use crate::settings::Server;
use rustix::process::Signal;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a child may take to end after its stdin was closed, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a new child waits for the place of one that is about to end.
const PLACE: Duration = Duration::from_secs(1);

/// Where the children of one server grow: what is started, how many at a time, and who watches over them.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) server: Arc<Server>,
    guardian: Guardian,
    places: Arc<Semaphore>,
}

/// Room for one more child, taken while this lives.
#[derive(Debug)]
pub(crate) struct Room {
    _permit: OwnedSemaphorePermit,
}

/// As many children are running as may.
#[derive(Debug, thiserror::Error)]
#[error("{limit} children of {server} are running already; try again later")]
pub(crate) struct Full {
    limit: usize,
    server: String,
}

impl From<Full> for io::Error {
    fn from(full: Full) -> Self {
        io::Error::new(io::ErrorKind::ResourceBusy, full)
    }
}

/// A process, apart from its pipes.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) group: u32,
    watched: Watched,
    _room: Room,
}

/// The ends of a child's pipes.
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Ground {
    pub(crate) fn new(server: Arc<Server>, guardian: Guardian) -> Self {
        let places = Arc::new(Semaphore::new(server.max_children));
        Ground {
            server,
            guardian,
            places,
        }
    }

    /// Waits a moment for room.
    pub(crate) async fn room(&self) -> Result<Room, Full> {
        let room = timeout(PLACE, Arc::clone(&self.places).acquire_owned()).await;
        let permit = room.ok().and_then(Result::ok);
        permit.map(|permit| Room { _permit: permit }).ok_or_else(|| Full {
            limit: self.server.max_children,
            server: self.server.name.clone(),
        })
    }

    /// Starts a child. The command line, the environment and the working directory are the operator's alone (GW-10).
    pub(crate) fn start(&self, room: Room) -> io::Result<(Process, Pipes)> {
        let server = &*self.server;
        let inherited = std::env::vars_os().filter(|(name, _)| server.inherit_env.has(name));
        let mut command = Command::new(&server.command);
        command
            .args(&server.args)
            .env_clear()
            .envs(inherited)
            .envs(&server.env)
            .env(rethread::BEHIND_GATEWAY, env!("CARGO_PKG_VERSION"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &server.cwd {
            command.current_dir(cwd);
        }
        let mut child = command.spawn().map_err(|error| {
            let what = format!("cannot start {}: {error}", server.command.display());
            io::Error::new(error.kind(), what)
        })?;
        let missing = || io::Error::other("the child has no pipes");
        let group = child.id().ok_or_else(missing)?;
        let pipes = Pipes {
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: child.stdout.take().ok_or_else(missing)?,
            stderr: child.stderr.take().ok_or_else(missing)?,
        };
        let process = Process {
            child,
            group,
            watched: self.guardian.watch(group),
            _room: room,
        };
        Ok((process, pipes))
    }
}

impl Process {
    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it in bounded time. Its stdin must be closed by now.
    pub(crate) async fn stop(mut self) {
        for next in [Signal::TERM, Signal::KILL] {
            if timeout(PATIENCE, self.child.wait()).await.is_ok() {
                break;
            }
            tracing::debug!(group = self.group, signal = ?next, "child does not end by itself");
            signal(self.group, next);
        }
        let _ = self.child.wait().await; // killed: it cannot refuse
        // What it has started and left behind goes too.
        signal(self.group, Signal::KILL);
        self.watched.over();
    }
}
