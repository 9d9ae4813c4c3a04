//! One process, the leader of its own process group. It ends together with everything it has started (GW-08).

use super::guardian::{GuardedGroup, Guardian, signal_group};
use super::pool::ChildPermit;
use super::table::ChildTable;
use rustix::process::Signal;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

/// How long a child may take to exit after its stdin was closed. Beyond: SIGTERM.
const STDIN_GRACE: Duration = Duration::from_secs(2);
/// How long a child may take to exit after SIGTERM. Beyond: SIGKILL.
const SIGTERM_GRACE: Duration = Duration::from_secs(2);

/// A child process without its pipes. Its place is free when this is dropped.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    /// The process group, which has the pid of the child.
    pub(super) group: u32,
    guarded: GuardedGroup,
    _place: ChildPermit,
}

/// The gateway's ends of a child's pipes.
pub(super) struct ChildPipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl ChildProcess {
    /// Takes a child that leads its own process group and has three pipes.
    pub(super) fn new(mut child: Child, place: ChildPermit, guardian: &Guardian) -> io::Result<(Self, ChildPipes)> {
        let missing = || io::Error::other("the child has no pipes");
        let group = child.id().ok_or_else(missing)?;
        let pipes = ChildPipes {
            stdin: child.stdin.take().ok_or_else(missing)?,
            stdout: child.stdout.take().ok_or_else(missing)?,
            stderr: child.stderr.take().ok_or_else(missing)?,
        };
        let process = ChildProcess {
            child,
            group,
            guarded: guardian.register(group),
            _place: place,
        };
        Ok((process, pipes))
    }

    /// The table of the children that run.
    pub(super) fn table(&self) -> &Arc<ChildTable> {
        self.guarded.table()
    }

    /// Waits until the process exits by itself.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Waits for the exit in bounded time, with signals if needed, and reaps the process. The caller closes its stdin.
    /// Returns the status, and whether it had to be killed.
    pub(super) async fn terminate(&mut self) -> (Option<ExitStatus>, bool) {
        let mut is_killed = false;
        for (grace, next) in [(STDIN_GRACE, Signal::TERM), (SIGTERM_GRACE, Signal::KILL)] {
            if timeout(grace, self.child.wait()).await.is_ok() {
                break;
            }
            tracing::debug!(group = self.group, signal = ?next, "child does not exit; sending a signal");
            signal_group(self.group, next);
            is_killed = next == Signal::KILL;
        }
        let status = self.child.wait().await; // SIGKILL cannot be ignored
        // Descendants that the child left behind are still in the group.
        signal_group(self.group, Signal::KILL);
        self.guarded.unregister();
        (status.ok(), is_killed)
    }
}
