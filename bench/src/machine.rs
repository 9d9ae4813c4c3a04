//! Cores, steal time, open files and a description of the machine.

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The cores of the load and of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) load: usize,
    pub(crate) server: usize,
}

impl Cores {
    /// The first two cores that this process may use, or one core for both.
    pub(crate) fn find() -> Result<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot read the CPU affinity")?;
        let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
        let load = cores.next().context("no usable core")?;
        Ok(Cores {
            load,
            server: cores.next().unwrap_or(load),
        })
    }

    pub(crate) fn shared(self) -> bool {
        self.load == self.server
    }
}

/// Pins this thread and its children to one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).context("no such core")?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot pin to core {core}"))
}

/// Replaces this process by another program, pinned to one core.
pub(crate) fn exec_pinned(core: usize, command: &[String]) -> Result<()> {
    pin(core)?;
    let (program, arguments) = command.split_first().context("no command")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {program}"))
}

/// CPU time of the two cores since boot, in clock ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTicks {
    total: u64,
    steal: u64,
}

impl CpuTicks {
    /// Zero if `/proc/stat` cannot be read.
    pub(crate) fn of(cores: Cores) -> CpuTicks {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let names = [cores.load, cores.server].map(|core| format!("cpu{core}"));
        let mut ticks = CpuTicks { total: 0, steal: 0 };
        for line in stat.lines() {
            let mut fields = line.split_ascii_whitespace();
            if fields
                .next()
                .is_some_and(|name| names.iter().any(|known| known == name))
            {
                // user, nice, system, idle, iowait, irq, softirq, steal. Guest time follows and is part of user.
                let fields_in_ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
                ticks.total += fields_in_ticks.iter().sum::<u64>();
                ticks.steal += fields_in_ticks.get(7).copied().unwrap_or(0);
            }
        }
        ticks
    }

    /// The share of steal since `start`.
    pub(crate) fn steal_since(self, start: CpuTicks) -> f64 {
        let total = self.total.saturating_sub(start.total);
        self.steal.saturating_sub(start.steal) as f64 / total.max(1) as f64
    }
}

/// Raises the limit of open files to the hard limit and returns it.
pub(crate) fn raise_open_files() -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")?;
    Ok(hard)
}

/// CPU, cores, memory and kernel in one line.
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
