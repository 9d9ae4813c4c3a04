//! A server under test: a process of its own, on a core of its own.

use crate::machine::Cores;
use anyhow::{Context as _, Result, bail};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs};

/// A running server. Dropping it ends it, and what it started.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts one of our own servers and waits until it says where it listens.
    pub(crate) fn start(cores: Cores, arguments: &[String]) -> Result<Server> {
        let mut child = pinned(cores.server, &own_program()?)
            .arg("server")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(address) = line.trim().strip_prefix("ready ").and_then(|at| at.parse().ok()) else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the server {arguments:?} did not start");
        };
        Ok(Server { child, address })
    }

    /// Takes a program that was started elsewhere.
    pub(crate) fn adopt(child: Child, address: SocketAddr) -> Server {
        Server { child, address }
    }

    /// The CPU time that the process has used, in all its threads, dead ones too.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.child.id())
    }

    /// The memory that is its own, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        resident_of(self.child.id())
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn cpu_of(pid: u32) -> Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into()?))?;
    Ok(clock.now()?.into())
}

/// What is not shared with other programs: anonymous memory, on which the page cache has no influence.
pub(crate) fn resident_of(pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the server is gone")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kb: u64 = line
        .and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .context("no figure for memory")?;
    Ok(kb * 1024)
}

/// All processes below `root`, nearest first.
pub(crate) fn descendants(root: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue; // it has just ended
        };
        // The name in parentheses may hold anything; what follows it does not.
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        found.extend(children.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    found.remove(0);
    Ok(found)
}

/// A command that runs on one core: this program goes there and becomes it.
pub(crate) fn pinned(core: usize, program: &Path) -> Command {
    let own = own_program().unwrap_or_else(|_| PathBuf::from("rethread-bench"));
    let mut command = Command::new(own);
    command.arg("pinned").arg(core.to_string()).arg("--").arg(program);
    command
}

/// The folder that this program was built into: what else was built lies there too.
pub(crate) fn own_program() -> Result<PathBuf> {
    env::current_exe().context("cannot find this program")
}

/// A program that was built beside this one.
pub(crate) fn beside(name: &str) -> Result<PathBuf> {
    let path = own_program()?.with_file_name(OsString::from(name));
    if !path.exists() {
        bail!("{} is missing; build it with: cargo build --release", path.display());
    }
    Ok(path)
}
