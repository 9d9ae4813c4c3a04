//! The plots of the report.

use super::suite_table::{ratio, relative_performance};
use super::svg::{Group, RangePlot};
use super::targets::{gateway_speedup, relative_p99};
use crate::measure::{Metric, Spread};
use crate::runner::{CaseResult, Results};
use crate::suites::ServerKind;

pub(super) struct Plot {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) svg: String,
}

/// Suites with a relative performance of about 1 or less. Replay is far above 1, so it has its own plot and axis.
const CALLS_AND_STREAMS: &[&str] = &["json", "sse", "modern", "stream", "durable", "resume", "storm"];

pub(super) fn of(results: &Results) -> Vec<Plot> {
    let relative = |names: &[&str]| groups(results, names, relative_performance);
    let plots = [
        plot(
            "performance.svg",
            "Performance relative to bare hyper (higher is better)",
            Some((1.0, "bare hyper")),
            ratio,
            relative(CALLS_AND_STREAMS),
        ),
        plot(
            "replay.svg",
            "Replay performance relative to bare hyper (higher is better)",
            Some((1.0, "bare hyper")),
            ratio,
            relative(&["replay"]),
        ),
        plot(
            "stores.svg",
            "Streaming performance by store, relative to bare hyper (higher is better)",
            Some((1.0, "bare hyper")),
            ratio,
            relative(&["stores"]),
        ),
        plot(
            "forward.svg",
            "Milliseconds of a call in a session of this node and of another node, p50 (lower is better)",
            None,
            ratio,
            groups(results, &["forward"], |case, kind| case.of(kind)?.spread(Metric::P50)),
        ),
        plot(
            "fanout.svg",
            "Fan-out p99 relative to bare hyper (lower is better)",
            Some((1.0, "bare hyper")),
            ratio,
            groups(results, &["push", "listen"], relative_p99),
        ),
        plot(
            "memory.svg",
            "Memory per open stream in kB (lower is better)",
            None,
            |value| format!("{value:.1}"),
            groups(results, &["push", "listen"], |case, kind| {
                Some(case.of(kind)?.spread(Metric::Memory)?.map(|bytes| bytes / 1000.0))
            }),
        ),
        plot(
            "growth.svg",
            "CPU µs per call by number of live sessions (lower is better)",
            None,
            |value| format!("{value:.1}"),
            groups(results, &["growth"], |case, kind| case.of(kind)?.spread(Metric::Cpu)),
        ),
        plot(
            "gateway.svg",
            "Gateway calls per second relative to the fastest other gateway (higher is better)",
            Some((1.0, "fastest other gateway")),
            |value| format!("{value:.1}"),
            groups(results, &["gateway"], gateway_speedup),
        ),
    ];
    plots.into_iter().flatten().collect()
}

fn plot(
    file: &'static str,
    title: &'static str,
    reference: Option<(f64, &'static str)>,
    show: fn(f64) -> String,
    groups: Vec<Group>,
) -> Option<Plot> {
    if groups.is_empty() {
        return None;
    }
    let plot = RangePlot {
        title,
        reference,
        show,
        groups,
    };
    Some(Plot {
        file,
        title,
        svg: plot.draw(),
    })
}

/// One group per case. A suite with a single case needs no case name.
fn groups(results: &Results, suites: &[&str], value: impl Fn(&CaseResult, ServerKind) -> Option<Spread>) -> Vec<Group> {
    let mut groups = Vec::new();
    for suite in results.suites.iter().filter(|suite| suites.contains(&suite.name)) {
        for case in &suite.cases {
            let name = match (suites.len(), suite.cases.len()) {
                (1, _) => case.name.clone(),
                (_, 1) => suite.title.to_owned(),
                _ => format!("{}, {}", suite.title, case.name),
            };
            let rows: Vec<_> = case
                .series
                .iter()
                .filter_map(|(kind, _)| Some((*kind, value(case, *kind)?)))
                .collect();
            if !rows.is_empty() {
                groups.push(Group { name, rows });
            }
        }
    }
    groups
}
