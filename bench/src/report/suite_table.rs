//! The table of one suite.

use crate::measure::{Metric, Spread};
use crate::runner::{CaseResult, SuiteResult};
use crate::suites::ServerKind;
use std::fmt::Write;

pub(super) fn of(suite: &SuiteResult) -> String {
    let has_reference = suite.cases.iter().any(|case| case.of(ServerKind::BareHyper).is_some());
    let mut titles = vec!["case", "server"];
    if has_reference {
        titles.extend(["relative CPU efficiency", "relative rate"]);
    }
    titles.extend(suite.metrics.iter().map(|metric| metric.title()));
    let mut out = format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    for case in &suite.cases {
        // A server that could not be measured is listed under "Not measured".
        for (kind, series) in case.series.iter().filter(|(_, series)| !series.0.is_empty()) {
            let mut cells = vec![case.name.clone(), kind.title().to_owned()];
            if has_reference {
                for metric in [Metric::Cpu, Metric::Rate] {
                    let relative = relative_to_hyper(case, *kind, metric);
                    cells.push(relative.map_or_else(String::new, |relative| with_range(relative, ratio)));
                }
            }
            for &metric in suite.metrics {
                let cell = match series.spread(metric) {
                    None => "–".to_owned(),
                    Some(spread) if metric == Metric::Cpu => with_range(spread, |value| metric.show(value)),
                    Some(spread) => metric.show(spread.median),
                };
                cells.push(cell);
            }
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
    }
    let _ = writeln!(out, "\nOne operation is one {}.", suite.unit);
    if has_reference {
        let _ = writeln!(
            out,
            "Relative values are relative to bare hyper in the same round; higher is better."
        );
    }
    out
}

pub(super) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// The median, and the quartiles in parentheses if they differ from it.
pub(super) fn with_range(spread: Spread, show: impl Fn(f64) -> String) -> String {
    let (q1, q3) = (show(spread.q1), show(spread.q3));
    let median = show(spread.median);
    if q1 == median && q3 == median {
        return median;
    }
    format!("{median} ({q1}–{q3})")
}

/// The performance relative to bare hyper in one metric: above 1 is better.
pub(super) fn relative_to_hyper(case: &CaseResult, kind: ServerKind, metric: Metric) -> Option<Spread> {
    let hyper = case
        .of(ServerKind::BareHyper)
        .filter(|_| kind != ServerKind::BareHyper)?;
    case.of(kind)?.performance_relative_to(hyper, metric)
}

/// The smaller of the relative CPU efficiency and the relative rate.
pub(super) fn relative_performance(case: &CaseResult, kind: ServerKind) -> Option<Spread> {
    let cpu = relative_to_hyper(case, kind, Metric::Cpu)?;
    let rate = relative_to_hyper(case, kind, Metric::Rate)?;
    Some(if cpu.median < rate.median { cpu } else { rate })
}
