//! The report on made-up results.

use super::*;
use crate::measure::{Metric, Sample, Series};
use crate::runner::{CaseResult, SuiteResult};
use crate::suites::{self, Scale};
use std::time::Duration;

/// Three rounds per server. CPU is the reciprocal of the rate, so both give the same ratio.
fn series(rates: [f64; 3]) -> Series {
    let sample = |rate: f64| {
        Sample::default()
            .with(Metric::Rate, rate)
            .with(Metric::Cpu, 1e6 / rate)
            .with(Metric::P99, 1e6 / rate)
            .with(Metric::Memory, 20_000.0)
            .with(Metric::Steal, 0.01)
    };
    Series(rates.map(sample).into())
}

fn results() -> Results {
    let scale = Scale {
        warmup: Duration::ZERO,
        window: Duration::ZERO,
        quick: false,
    };
    let measured = |suite: &suites::Suite| {
        let cases = suite.cases.iter().map(|case| CaseResult {
            name: case.name.clone(),
            series: case
                .servers
                .iter()
                .map(|kind| {
                    let rates = match kind {
                        ServerKind::BareHyper => [100_000.0, 200_000.0, 400_000.0],
                        ServerKind::Rmcp | ServerKind::McpProxy | ServerKind::McpProxyNpm => {
                            [10_000.0, 20_000.0, 40_000.0]
                        }
                        _ => [70_000.0, 160_000.0, 360_000.0],
                    };
                    (*kind, series(rates))
                })
                .collect(),
        });
        SuiteResult::new(suite, cases.collect())
    };
    Results {
        suites: suites::all(scale).iter().map(measured).collect(),
        repeated: 1,
        not_measured: vec!["Replay of missed events, rmcp: the stream ended".to_owned()],
    }
}

fn page() -> String {
    let results = results();
    super::page(&results, &RunInfo::made_up(), &plots::of(&results))
}

#[test]
fn page_has_a_heading_for_every_suite_and_no_json() {
    let page = page();
    for suite in &results().suites {
        assert!(page.contains(&format!("\n## {}\n", suite.title)), "{}", suite.title);
    }
    for heading in ["How to read this page", "Targets", "Plots", "Not measured", "Reproduce"] {
        assert!(page.contains(&format!("\n## {heading}\n")), "{heading}");
    }
    assert!(!page.contains("jsonrpc") && !page.contains('{'));
    assert!(page.contains("* Replay of missed events, rmcp: the stream ended\n"));
}

#[test]
fn relative_values_have_a_range_over_rounds() {
    let page = page();
    assert!(
        page.contains("| 16 clients | rethread | 0.80 (0.75–0.85) | 0.80 (0.75–0.85) |"),
        "{page}"
    );
    assert!(page.contains("| call answered with JSON | ≥ 0.85 | ≥ 0.70 | 0.80 (0.75–0.85) | within bound | 0.10 |"));
    assert!(page.contains("relative to bare hyper (lower is better) | ≤ 1.20 | ≤ 1.50 | 1.25 (1.18–1.34) |"));
}

#[test]
fn replay_has_its_own_plot() {
    let plots = plots::of(&results());
    let svg = |file| &plots.iter().find(|plot| plot.file == file).expect("a plot").svg;
    assert!(svg("replay.svg").contains("500 events, 32 clients"));
    assert!(!svg("performance.svg").contains("Replay"));
    for plot in &plots {
        let directed = plot.title.contains("higher is better") || plot.title.contains("lower is better");
        assert!(directed, "{}", plot.title);
    }
}

#[test]
fn growth_is_relative_to_the_growth_of_bare_hyper() {
    let table = targets::table(&results());
    let title = "growth of CPU per call from 10 to 10,000 sessions, relative to bare hyper (lower is better)";
    assert!(
        table.contains(&format!("| {title} | ≤ 1.05 | ≤ 1.20 | 1.00 | goal reached | 1.00 |")),
        "{table}"
    );
}

#[test]
fn text_for_a_terminal_has_all_tables() {
    let text = text(&results());
    assert!(text.contains("### Call answered with JSON") && text.contains("### Targets"));
}
