//! Where the figures come from.

use crate::measure::{Metric, median};
use crate::round::Results;
use crate::suites::OFTEN;
use crate::{machine, rivals};
use std::fmt::Write;
use std::process::Command;
use std::time::SystemTime;

/// The versions that were built; cargo's own record of them.
const LOCK: &str = include_str!("../../../Cargo.lock");

pub(super) fn heading(results: &Results) -> String {
    let mut out = String::from(
        "How much of what HTTP costs is ours, and how others do. Written by `cargo xtask bench`; [bench/README.md](../../bench/README.md)\n\
         tells how it is measured and how to read it. Absolute figures belong to one machine; compare ratios and CPU time.\n\n",
    );
    if results.scale.quick {
        out += "**A first impression only** (`--quick`): short measurements, few streams.\n\n";
    }
    let _ = writeln!(out, "* Date: {}", httpdate::fmt_http_date(SystemTime::now()));
    let _ = writeln!(out, "* Machine: {}", machine::describe());
    let _ = writeln!(
        out,
        "* Server on core {}, load on core {}; {} rounds in turn, {} where only rates are measured, {:.1} s for each rate; medians",
        results.cores.server,
        results.cores.load,
        results.rounds,
        OFTEN * results.rounds,
        results.scale.window.as_secs_f64()
    );
    let _ = writeln!(out, "* {}", quiet(results));
    let versions = ["rethread", "hyper", "tokio", "fjall", "rmcp"].map(|name| format!("{name} {}", locked(name)));
    let _ = writeln!(
        out,
        "* Versions: {}, {}",
        versions.join(", "),
        told("rustc", &["--version"])
    );
    let _ = writeln!(
        out,
        "* Gateways: supergateway {} on node {}, mcp-proxy {} on {}",
        rivals::SUPERGATEWAY,
        rivals::version("node"),
        rivals::MCP_PROXY,
        rivals::version("python3")
    );
    let _ = writeln!(out, "* Commit: {}", told("git", &["describe", "--always", "--dirty"]));
    out
}

/// How much of the machine was ours.
fn quiet(results: &Results) -> String {
    let cases = results.suites.iter().flat_map(|suite| &suite.cases);
    let samples = cases.flat_map(|case| &case.series).flat_map(|(_, series)| &series.0);
    let taken: Vec<f64> = samples
        .filter_map(|sample| sample.0.get(&Metric::Taken).copied())
        .collect();
    let most = taken.iter().copied().fold(0.0, f64::max);
    format!(
        "Taken away by the host meanwhile: {} of the cores' time in the median, {} at most; {} of {} measurements were done \
         again because of it",
        Metric::Taken.show(median(taken.clone()).unwrap_or(0.0)),
        Metric::Taken.show(most),
        results.repeated,
        taken.len() + results.repeated
    )
}

pub(super) fn how_to(results: &Results) -> String {
    let _ = results;
    "\n## Again\n\n```text\ncargo xtask bench\n```\n\nAll figures of all rounds are in [figures.csv](figures.csv).\n"
        .to_owned()
}

/// The version of a package.
fn locked(name: &str) -> &'static str {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let version = LOCK
        .split(entry.as_str())
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    version.unwrap_or("unknown")
}

fn told(program: &str, arguments: &[&str]) -> String {
    let told = Command::new(program).args(arguments).output();
    let told = told.ok().filter(|told| told.status.success());
    told.map_or("unknown".to_owned(), |told| {
        String::from_utf8_lossy(&told.stdout).trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known() {
        assert!(locked("rmcp").starts_with("3."));
        assert_eq!(locked("no such package"), "unknown");
    }
}
