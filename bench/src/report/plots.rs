//! Which figures become pictures.

use super::svg::{Bars, Group};
use super::tables::judged;
use super::targets::{lead, slower};
use crate::measure::Metric;
use crate::round::{MeasuredCase, Results};
use crate::suites::Contender;

/// A picture.
pub(super) struct Plot {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) svg: String,
}

const ALL: &[Contender] = &[
    Contender::Memory,
    Contender::Embedded,
    Contender::Adapter,
    Contender::Rmcp,
    Contender::RmcpStore,
];

pub(super) fn of(results: &Results) -> Vec<Plot> {
    let ratios = groups(
        results,
        &[
            "json", "sse", "modern", "stream", "durable", "replay", "resume", "storm",
        ],
        |case, who| judged(case, who).filter(|_| ALL.contains(&who)),
    );
    let plots = [
        plot(
            "ratios.svg",
            "Share of bare hyper's speed",
            "1 is bare hyper; longer is better",
            Some(1.0),
            |v| format!("{v:.2}"),
            ratios,
        ),
        plot(
            "memory.svg",
            "Memory for each open stream, in kB",
            "connection included; shorter is better",
            None,
            |v| format!("{v:.1}"),
            groups(results, &["push", "listen"], |case, who| {
                Some(case.of(who)?.median(Metric::Resident)? / 1000.0)
            }),
        ),
        plot(
            "fanout.svg",
            "Until 99 of 100 streams have the news, through the time of bare hyper",
            "1 is bare hyper; shorter is better",
            Some(1.0),
            |v| format!("{v:.2}"),
            groups(results, &["push", "listen"], |case, who| {
                slower(case, who).filter(|_| who != Contender::Limit)
            }),
        ),
        plot(
            "growth.svg",
            "CPU µs for a call, by live sessions",
            "shorter is better; it must not grow",
            None,
            |v| format!("{v:.1}"),
            groups(results, &["growth"], |case, who| case.of(who)?.median(Metric::Cpu)),
        ),
        plot(
            "gateway.svg",
            "Calls through a gateway, in multiples of the better of the others",
            "longer is better",
            Some(1.0),
            |v| format!("{v:.1}"),
            groups(results, &["gateway"], lead),
        ),
    ];
    plots.into_iter().flatten().collect()
}

fn plot(
    file: &'static str,
    title: &'static str,
    note: &'static str,
    mark: Option<f64>,
    show: fn(f64) -> String,
    groups: Vec<Group>,
) -> Option<Plot> {
    if groups.is_empty() {
        return None;
    }
    let bars = Bars {
        title,
        note,
        mark,
        show,
        groups,
    };
    Some(Plot {
        file,
        title,
        svg: bars.draw(),
    })
}

fn groups(results: &Results, suites: &[&str], value: impl Fn(&MeasuredCase, Contender) -> Option<f64>) -> Vec<Group> {
    let mut groups = Vec::new();
    for suite in results.suites.iter().filter(|suite| suites.contains(&suite.name)) {
        for case in &suite.cases {
            let name = if suite.cases.len() > 1 || suites.len() == 1 {
                format!("{}, {}", suite.name, case.name)
            } else {
                suite.name.to_owned()
            };
            let bars: Vec<_> = case
                .series
                .iter()
                .filter_map(|(who, _)| Some((*who, value(case, *who)?)))
                .collect();
            if !bars.is_empty() {
                groups.push(Group { name, bars });
            }
        }
    }
    groups
}
