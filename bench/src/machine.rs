//! The machine: which core is whose, how many files may be open, what it is called.

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Who runs where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) load: usize,
    pub(crate) server: usize,
}

impl Cores {
    /// The first two cores that this process may use; the same one twice where there is but one.
    pub(crate) fn find() -> Result<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot ask for the cores")?;
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let load = cores.next().context("no core")?;
        Ok(Cores {
            load,
            server: cores.next().unwrap_or(load),
        })
    }

    pub(crate) fn shared(self) -> bool {
        self.load == self.server
    }
}

/// Keeps this thread, and what it starts, on one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).context("no such core")?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot go to core {core}"))
}

/// Becomes another program, on one core.
pub(crate) fn become_pinned(core: usize, command: &[String]) -> Result<()> {
    pin(core)?;
    let (program, arguments) = command.split_first().context("no command")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {program}"))
}

/// As many open files as the system lets us have; returns how many.
pub(crate) fn raise_open_files() -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")?;
    Ok(hard)
}

/// CPU, cores, kernel: a line for the report.
pub(crate) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown CPU", |line| line.trim_start_matches([' ', '\t', ':']));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let memory = read("/proc/meminfo");
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    let memory = memory.and_then(|kb| kb.trim().parse::<u64>().ok()).unwrap_or(0) / 1_000_000;
    format!("{model}, {cores} cores, {memory} GB, Linux {}", kernel.trim())
}
