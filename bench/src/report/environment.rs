//! Where and how the results were measured.

use crate::machine::{self, Cores};
use crate::measure::{Metric, Spread};
use crate::other_gateways;
use crate::runner::Results;
use crate::suites::{RATE_ROUNDS_FACTOR, Scale};
use rethread_testkit::redis_server::RedisServer;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::process::Command;
use std::time::SystemTime;

/// Versions of the dependencies in this build.
const CARGO_LOCK: &str = include_str!("../../../Cargo.lock");

/// Describes a run. Stored beside the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunInfo {
    date: String,
    machine: String,
    server_core: usize,
    load_core: usize,
    rounds: usize,
    rate_rounds: usize,
    window_seconds: f64,
    pub(super) quick: bool,
    versions: String,
    gateways: String,
    commit: String,
}

impl RunInfo {
    /// Describes the run of this process.
    pub(crate) fn collect(cores: Cores, scale: Scale, rounds: usize) -> Self {
        let versions = ["rethread", "hyper", "tokio", "rmcp"].map(|name| format!("{name} {}", locked(name)));
        RunInfo {
            date: httpdate::fmt_http_date(SystemTime::now()),
            machine: machine::describe(),
            server_core: cores.server,
            load_core: cores.load,
            rounds,
            rate_rounds: RATE_ROUNDS_FACTOR * rounds,
            window_seconds: scale.window.as_secs_f64(),
            quick: scale.quick,
            versions: format!(
                "{}, {}, Redis {}",
                versions.join(", "),
                output("rustc", &["--version"]),
                redis_version()
            ),
            gateways: format!(
                "supergateway {} and mcp-proxy {} from npm on node {}, mcp-proxy {} from PyPI on {}",
                other_gateways::SUPERGATEWAY,
                other_gateways::MCP_PROXY_NPM,
                other_gateways::version("node"),
                other_gateways::MCP_PROXY,
                other_gateways::version("python3")
            ),
            commit: output("git", &["describe", "--always", "--dirty"]),
        }
    }
}

pub(super) fn section(run: &RunInfo, results: &Results) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "* Date: {}", run.date);
    let _ = writeln!(out, "* Commit: {}", run.commit);
    let _ = writeln!(out, "* Machine: {}", run.machine);
    let _ = writeln!(
        out,
        "* Method: server on core {}, load on core {}; {} rounds, {} for suites that measure only rates; {:.1} s per rate",
        run.server_core, run.load_core, run.rounds, run.rate_rounds, run.window_seconds
    );
    let _ = writeln!(out, "* {}", steal(results));
    let _ = writeln!(out, "* Versions: {}", run.versions);
    let _ = writeln!(out, "* Gateways: {}", run.gateways);
    out
}

/// How much CPU time the host of a virtual machine took.
fn steal(results: &Results) -> String {
    let cases = results.suites.iter().flat_map(|suite| &suite.cases);
    let samples = cases.flat_map(|case| &case.series).flat_map(|(_, series)| &series.0);
    let steal: Vec<f64> = samples
        .filter_map(|sample| sample.0.get(&Metric::Steal).copied())
        .collect();
    let most = steal.iter().copied().fold(0.0, f64::max);
    let median = Spread::of(steal.clone()).map_or(0.0, |spread| spread.median);
    format!(
        "CPU time taken by the host (steal): median {}, maximum {}; {} of {} measurements were repeated because of it",
        Metric::Steal.show(median),
        Metric::Steal.show(most),
        results.repeated,
        steal.len() + results.repeated
    )
}

/// The locked version of a package.
fn locked(name: &str) -> &'static str {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let version = CARGO_LOCK
        .split(entry.as_str())
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    version.unwrap_or("unknown")
}

/// The version in a line such as `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64`.
fn redis_version() -> String {
    let program = RedisServer::program().unwrap_or_else(|| "redis-server".into());
    let line = output(&program.to_string_lossy(), &["--version"]);
    let version = line.split(' ').find_map(|word| word.strip_prefix("v="));
    version.unwrap_or("unknown").to_owned()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success());
    output.map_or("unknown".to_owned(), |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}

#[cfg(test)]
impl RunInfo {
    pub(super) fn made_up() -> Self {
        RunInfo {
            date: "Thu, 01 Jan 1970 00:00:00 GMT".to_owned(),
            machine: "a machine".to_owned(),
            server_core: 1,
            load_core: 0,
            rounds: 3,
            rate_rounds: 6,
            window_seconds: 0.5,
            quick: false,
            versions: "rethread 0.1.0".to_owned(),
            gateways: "none".to_owned(),
            commit: "abc".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_versions_are_found() {
        assert!(locked("rmcp").starts_with("3."));
        assert_eq!(locked("no such package"), "unknown");
    }
}
