//! The figures, for people.

use crate::measure::{Metric, Series};
use crate::round::{MeasuredCase, Results};
use crate::suites::Contender;
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// Tables for a terminal; they are Markdown, too.
pub(crate) fn text(results: &Results) -> String {
    let mut out = String::new();
    for suite in &results.suites {
        let _ = writeln!(out, "\n### {} (one operation: {})\n", suite.name, suite.unit);
        let titles: Vec<_> = suite.metrics.iter().map(|metric| metric.title()).collect();
        let _ = writeln!(
            out,
            "| case | server | ratio | {} | CPU µs, lowest to highest |",
            titles.join(" | ")
        );
        let _ = writeln!(out, "|---|---|---|{}---|", "---|".repeat(titles.len()));
        for case in &suite.cases {
            for (who, series) in &case.series {
                let figures: Vec<_> = suite
                    .metrics
                    .iter()
                    .map(|&metric| series.median(metric).map_or("–".to_owned(), |value| metric.show(value)))
                    .collect();
                let spread = series.range(Metric::Cpu);
                let spread = spread.map_or(String::new(), |(low, high)| format!("{low:.2} to {high:.2}"));
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {} | {spread} |",
                    case.name,
                    who.name(),
                    ratios(case, *who, series),
                    figures.join(" | ")
                );
            }
        }
    }
    if !results.left_out.is_empty() {
        let _ = writeln!(out, "\nNot measured:\n");
        for text in &results.left_out {
            let _ = writeln!(out, "* {text}");
        }
    }
    out
}

/// To the limit, by rate and by CPU.
fn ratios(case: &MeasuredCase, who: Contender, series: &Series) -> String {
    let Some(limit) = case.of(Contender::Limit).filter(|_| who != Contender::Limit) else {
        return String::new();
    };
    let show = |metric| series.ratio(limit, metric).map(|ratio| format!("{ratio:.2}"));
    match (show(Metric::Rate), show(Metric::Cpu)) {
        (Some(rate), Some(cpu)) => format!("**{cpu}** by CPU, {rate} by rate"),
        _ => String::new(),
    }
}

/// Writes the report.
pub(crate) fn write(results: &Results, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("README.md"), text(results))?;
    Ok(())
}
