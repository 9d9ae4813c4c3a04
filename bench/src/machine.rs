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

/// How long two cores worked, idled, and were kept from working because the host gave their time to others. In ticks, since the
/// machine started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    all: u64,
    taken: u64,
}

impl Ticks {
    /// Nothing where the system does not tell.
    pub(crate) fn of(cores: Cores) -> Ticks {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let names = [cores.load, cores.server].map(|core| format!("cpu{core}"));
        let mut ticks = Ticks { all: 0, taken: 0 };
        for line in stat.lines() {
            let mut fields = line.split_ascii_whitespace();
            if fields
                .next()
                .is_some_and(|name| names.iter().any(|known| known == name))
            {
                // user, nice, system, idle, iowait, irq, softirq, steal; guest time, which follows, is part of user's.
                let figures: Vec<u64> = fields.take(8).map_while(|figure| figure.parse().ok()).collect();
                ticks.all += figures.iter().sum::<u64>();
                ticks.taken += figures.get(7).copied().unwrap_or(0);
            }
        }
        ticks
    }

    /// The share of time since `begun` that others got.
    pub(crate) fn taken_since(self, begun: Ticks) -> f64 {
        let all = self.all.saturating_sub(begun.all);
        self.taken.saturating_sub(begun.taken) as f64 / all.max(1) as f64
    }
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
