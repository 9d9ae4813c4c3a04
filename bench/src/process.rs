//! A server under test: a separate process on its own core.

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

/// A running server. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server of this program and waits for its address on stdout.
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

    /// Wraps a process that was started elsewhere.
    pub(crate) fn adopt(child: Child, address: SocketAddr) -> Server {
        Server { child, address }
    }

    /// CPU time of all threads, including ended ones.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_of(self.child.id())
    }

    /// Anonymous memory in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        memory_of(self.child.id())
    }

    /// The exit status, if the process has ended.
    pub(crate) fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
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

/// Anonymous memory in bytes. The page cache does not affect it.
pub(crate) fn memory_of(pid: u32) -> Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the server has ended")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kb: u64 = line
        .and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .context("no anonymous memory in smaps_rollup")?;
    Ok(kb * 1024)
}

/// All descendants of `root`, in breadth-first order.
pub(crate) fn descendants(root: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue; // the process has just ended
        };
        // The process name in parentheses may contain spaces and parentheses.
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

/// A command that runs pinned to one core, through this program.
pub(crate) fn pinned(core: usize, program: &Path) -> Command {
    let own = own_program().unwrap_or_else(|_| PathBuf::from("rethread-bench"));
    let mut command = Command::new(own);
    command.arg("pinned").arg(core.to_string()).arg("--").arg(program);
    command
}

/// The path of this program.
pub(crate) fn own_program() -> Result<PathBuf> {
    env::current_exe().context("cannot find this program")
}

/// The path of a program in the same build folder.
pub(crate) fn sibling_program(name: &str) -> Result<PathBuf> {
    let path = own_program()?.with_file_name(OsString::from(name));
    if !path.exists() {
        bail!(
            "{} is missing; build it with: cargo build --profile dist",
            path.display()
        );
    }
    Ok(path)
}
