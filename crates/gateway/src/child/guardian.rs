//! A helper process that kills the children of a gateway that was killed itself.
//!
//! The gateway reports each process group that starts or has ended to the guardian. When the pipe between them
//! closes, the guardian kills the remaining groups. The kernel closes the pipe however the gateway ends. One guardian
//! serves all children; a group includes the descendants of its child.

use super::table::ChildTable;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long children of a dead gateway may run after SIGTERM. Beyond: SIGKILL.
const SIGTERM_GRACE: Duration = Duration::from_millis(500);

/// The gateway's end of the pipe to the guardian.
#[derive(Clone, Debug)]
pub(crate) struct Guardian {
    pipe: Arc<Mutex<ChildStdin>>,
    /// The children that run.
    pub(crate) table: Arc<ChildTable>,
}

impl Guardian {
    /// Starts the guardian: this program with the hidden subcommand `guardian`.
    pub(crate) fn start() -> io::Result<Self> {
        let mut guardian = Command::new(std::env::current_exe()?)
            .arg("guardian")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a Ctrl-C in the terminal must not end it before the gateway
            .spawn()?;
        let pipe = guardian
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("no pipe to the guardian"))?;
        // The thread reaps the guardian if it exits first.
        std::thread::spawn(move || drop(guardian.wait()));
        Ok(Guardian {
            pipe: Arc::new(Mutex::new(pipe)),
            table: Arc::default(),
        })
    }

    /// Registers a process group that has started.
    pub(crate) fn register(&self, group: u32) -> GuardedGroup {
        self.send('+', group);
        GuardedGroup {
            guardian: self.clone(),
            group,
        }
    }

    fn send(&self, sign: char, group: u32) {
        // Does not block: the guardian reads at once, and a line has at most 12 bytes.
        if let Err(error) = writeln!(self.pipe.lock(), "{sign}{group}") {
            tracing::error!(%error, "guardian is gone; children may outlive a killed gateway");
        }
    }
}

/// A registered process group. A drop does not unregister it: an exiting gateway drops groups that still run.
#[derive(Debug)]
pub(crate) struct GuardedGroup {
    guardian: Guardian,
    group: u32,
}

impl GuardedGroup {
    pub(super) fn table(&self) -> &Arc<ChildTable> {
        &self.guardian.table
    }

    /// Unregisters a group that has ended.
    pub(crate) fn unregister(&self) {
        self.guardian.send('-', self.group);
    }
}

/// Sends a signal to a process group. Returns whether the group exists.
pub(crate) fn signal_group(group: u32, signal: Signal) -> bool {
    let pid = i32::try_from(group).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process_group(pid, signal).is_ok())
}

/// Runs the guardian process until its stdin closes.
pub(crate) fn run() {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match (line.get(..1), line.get(1..).and_then(|n| n.parse::<u32>().ok())) {
            (Some("+"), Some(group)) => groups.insert(group),
            (Some("-"), Some(group)) => groups.remove(&group),
            _ => false,
        };
    }
    let terminate = |group: &u32| signal_group(*group, Signal::TERM);
    let running: Vec<u32> = groups.into_iter().filter(terminate).collect();
    if !running.is_empty() {
        std::thread::sleep(SIGTERM_GRACE);
    }
    for group in running {
        signal_group(group, Signal::KILL);
    }
}
