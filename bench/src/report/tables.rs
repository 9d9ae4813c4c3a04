//! One table per suite, and all figures of all rounds for other programs.

use crate::measure::{Metric, Series};
use crate::round::{Measured, MeasuredCase, Results};
use crate::suites::Contender;
use std::fmt::Write;

pub(super) fn of(suite: &Measured) -> String {
    let mut out = String::new();
    let with_limit = suite.cases.iter().any(|case| case.of(Contender::Limit).is_some());
    let ratio = if with_limit { "ratio by CPU | by rate | " } else { "" };
    let titles: Vec<_> = suite.metrics.iter().map(|metric| metric.title()).collect();
    let _ = writeln!(
        out,
        "| case | server | {ratio}{} | CPU µs, lowest to highest |",
        titles.join(" | ")
    );
    let columns = titles.len() + if with_limit { 5 } else { 3 };
    let _ = writeln!(out, "|{}", "---|".repeat(columns));
    for case in &suite.cases {
        for (who, series) in &case.series {
            let _ = write!(out, "| {} | {} | ", case.name, who.name());
            if with_limit {
                let show =
                    |metric| against_limit(case, *who, series, metric).map_or(String::new(), |r| format!("{r:.2}"));
                let _ = write!(out, "{} | {} | ", bold(&show(Metric::Cpu)), show(Metric::Rate));
            }
            for &metric in suite.metrics {
                let shown = series.median(metric).map_or("–".to_owned(), |value| metric.show(value));
                let _ = write!(out, "{shown} | ");
            }
            let spread = series.range(Metric::Cpu);
            let spread = spread.map_or(String::new(), |(low, high)| format!("{low:.2} to {high:.2}"));
            let _ = writeln!(out, "{spread} |");
        }
    }
    let _ = writeln!(out, "\nOne operation is one {}.", suite.unit);
    out
}

fn bold(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("**{text}**")
    }
}

/// How a server compares with the limit of the same case in one metric.
pub(super) fn against_limit(case: &MeasuredCase, who: Contender, series: &Series, metric: Metric) -> Option<f64> {
    let limit = case.of(Contender::Limit).filter(|_| who != Contender::Limit)?;
    series.ratio(limit, metric)
}

/// The smaller one of the ratios by CPU and by rate: neither a limit that waits for its load, nor a server that waits for its
/// disk, makes a server look better than it is.
pub(super) fn judged(case: &MeasuredCase, who: Contender) -> Option<f64> {
    let series = case.of(who)?;
    let by_cpu = against_limit(case, who, series, Metric::Cpu)?;
    let by_rate = against_limit(case, who, series, Metric::Rate)?;
    Some(by_cpu.min(by_rate))
}

/// Every figure of every round.
pub(super) fn csv(results: &Results) -> String {
    let mut out = String::from("suite,case,server,round,figure,value\n");
    for suite in &results.suites {
        for case in &suite.cases {
            for (who, series) in &case.series {
                for (round, sample) in series.0.iter().enumerate() {
                    for (metric, value) in &sample.0 {
                        let _ = writeln!(
                            out,
                            "{},\"{}\",{},{},\"{}\",{value}",
                            suite.name,
                            case.name,
                            who.name(),
                            round + 1,
                            metric.title()
                        );
                    }
                }
            }
        }
    }
    out
}
