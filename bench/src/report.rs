//! The report: a Markdown page, plots, and the results for other programs.

mod environment;
mod plots;
mod stored;
mod suite_table;
mod svg;
mod targets;

pub(crate) use environment::RunInfo;

use crate::runner::Results;
use crate::suites::ServerKind;
use anyhow::{Context as _, Result};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The results as text for a terminal. It is Markdown, too.
pub(crate) fn text(results: &Results) -> String {
    let mut out = String::new();
    for suite in &results.suites {
        let _ = write!(out, "\n### {}\n\n{}", suite.title, suite_table::of(suite));
    }
    let _ = write!(out, "\n### Targets\n\n{}", targets::table(results));
    out + &not_measured(results)
}

/// Writes the report, its plots and the results to a folder.
pub(crate) fn write(results: &Results, run: &RunInfo, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let plots = plots::of(results);
    for plot in &plots {
        fs::write(folder.join(plot.file), &plot.svg)?;
    }
    stored::write(results, run, folder)?;
    let page = folder.join("README.md");
    fs::write(&page, self::page(results, run, &plots))?;
    eprintln!("report: {}", page.display());
    Ok(())
}

/// Reads the results of an earlier run.
pub(crate) fn load(folder: &Path) -> Result<(Results, RunInfo)> {
    stored::read(folder)
}

fn page(results: &Results, run: &RunInfo, plots: &[plots::Plot]) -> String {
    let mut out = String::from(
        "# Benchmarks\n\n\
         CPU cost, throughput, latency and memory of Rethread, next to bare hyper, rmcp (the official Rust SDK) and other gateways.\n\
         `cargo xtask bench` writes this page. [bench/README.md](../../bench/README.md) describes the method.\n\n",
    );
    if run.quick {
        out += "**Imprecise** (`--quick`): short measurements and few streams.\n\n";
    }
    out += &environment::section(run, results);
    out += "\n## How to read this page\n\n\
            * *Bare hyper* is the reference: hyper sends the same bytes from memory and does nothing else.\n\
            * *Relative to bare hyper* compares a server with bare hyper in the same round. Absolute values depend on the machine; compare\n\
            \x20 relative values.\n\
            * *Relative performance* is the smaller of the relative CPU efficiency and the relative rate. A server that waits for its disk, or a\n\
            \x20 load generator that cannot keep up, therefore never improves it.\n\
            * Values are medians over the rounds. A range in parentheses, and a bar in a plot, covers the middle half of the rounds (first to\n\
            \x20 third quartile).\n\n";
    out += &servers(results);
    let _ = write!(out, "\n## Targets\n\n{}", targets::table(results));
    if !plots.is_empty() {
        out += "\n## Plots\n";
    }
    for plot in plots {
        let _ = write!(out, "\n![{}]({})\n", plot.title, plot.file);
    }
    for suite in &results.suites {
        let _ = write!(
            out,
            "\n## {}\n\n{}\n\n{}",
            suite.title,
            suite.about,
            suite_table::of(suite)
        );
    }
    out += &not_measured(results);
    out += "\n## Reproduce\n\n```text\ncargo xtask bench\n```\n\n\
            [figures.csv](figures.csv) has the values of all rounds, and [run.json](run.json) describes the run.\n";
    out
}

/// A table of the servers that occur in the results.
fn servers(results: &Results) -> String {
    let mut out = String::from("| server | description |\n|---|---|\n");
    let cases = || results.suites.iter().flat_map(|suite| &suite.cases);
    for kind in ServerKind::ALL {
        if cases().any(|case| case.of(kind).is_some()) {
            let _ = writeln!(out, "| {} | {} |", kind.title(), kind.description());
        }
    }
    out
}

fn not_measured(results: &Results) -> String {
    let mut out = String::from("\n## Not measured\n\n");
    if results.not_measured.is_empty() {
        out += "Nothing was skipped.\n";
    }
    for text in &results.not_measured {
        let _ = writeln!(out, "* {text}");
    }
    out
}

#[cfg(test)]
mod tests;
