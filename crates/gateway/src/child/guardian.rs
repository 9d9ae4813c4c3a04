//! A second process that outlives the first: when the gateway is gone, however it went, no child of it stays behind.
//!
//! The gateway tells the guardian of each process group it starts and of each that has ended. The end of the pipe between
//! them, which no signal can prevent, is the word to kill what is left. One guardian serves all children, and groups include
//! what the children themselves have started.

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// What children get between the request to end and the end.
const GRACE: Duration = Duration::from_millis(500);

/// The gateway's end of the pipe.
#[derive(Clone, Debug)]
pub(crate) struct Guardian(Arc<Mutex<ChildStdin>>);

impl Guardian {
    /// Starts the guardian: this program again, under another name of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let mut guardian = Command::new(std::env::current_exe()?)
            .arg("guardian")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0) // a Ctrl-C is for the gateway, which then still needs its guardian
            .spawn()?;
        let pipe = guardian
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("no pipe to the guardian"))?;
        // It ends when we do; there is nothing to wait for.
        std::thread::spawn(move || drop(guardian.wait()));
        Ok(Guardian(Arc::new(Mutex::new(pipe))))
    }

    /// A process group has begun. Watched until it is said to be over.
    pub(crate) fn watch(&self, group: u32) -> Watched {
        self.tell('+', group);
        Watched {
            guardian: self.clone(),
            group,
        }
    }

    fn tell(&self, sign: char, group: u32) {
        // A few bytes into a pipe that is read at once.
        if let Err(error) = writeln!(self.0.lock(), "{sign}{group}") {
            tracing::error!(%error, "the guardian is gone: children may outlive a gateway that is killed");
        }
    }
}

/// A process group that dies with the gateway. Dropping this says nothing: a gateway that ends drops what it has not
/// ended yet.
#[derive(Debug)]
pub(crate) struct Watched {
    guardian: Guardian,
    group: u32,
}

impl Watched {
    /// The group is gone.
    pub(crate) fn over(self) {
        self.guardian.tell('-', self.group);
    }
}

/// Sends a signal to a process group; true if there was anybody to get it.
pub(crate) fn signal(group: u32, signal: Signal) -> bool {
    let pid = i32::try_from(group).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process_group(pid, signal).is_ok())
}

/// The guardian's whole life.
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
    let term = |group: &u32| signal(*group, Signal::TERM);
    let left: Vec<u32> = groups.into_iter().filter(term).collect();
    if !left.is_empty() {
        std::thread::sleep(GRACE);
    }
    for group in left {
        signal(group, Signal::KILL);
    }
}
