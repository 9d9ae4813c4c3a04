//! What was aimed at, and what came of it.

use super::tables::judged;
use crate::measure::Metric;
use crate::round::{Measured, MeasuredCase, Results};
use crate::suites::Contender;
use std::fmt::Write;

/// A figure that was aimed at.
struct Aim {
    what: &'static str,
    goal: f64,
    /// The worst that will do.
    bound: f64,
    more_is_better: bool,
    show: fn(f64) -> String,
    ours: fn(&Results) -> Option<f64>,
    rmcp: fn(&Results) -> Option<f64>,
}

const AIMS: &[Aim] = &[
    ratio(
        "call, JSON",
        0.85,
        0.70,
        |r| worst(r, "json", Contender::Memory),
        |r| worst(r, "json", Contender::Rmcp),
    ),
    ratio(
        "call, SSE of one event, resumable, memory store",
        0.80,
        0.65,
        |r| worst(r, "sse", Contender::Memory),
        |r| worst(r, "sse", Contender::Rmcp),
    ),
    ratio(
        "call on 2026-07-28",
        0.80,
        0.65,
        |r| worst(r, "modern", Contender::Memory),
        |r| worst(r, "modern", Contender::Rmcp),
    ),
    ratio(
        "streamed events per second, memory store, 64 B",
        0.65,
        0.45,
        |r| judged(case(r, "stream", "64 B")?, Contender::Memory),
        |r| judged(case(r, "stream", "64 B")?, Contender::Rmcp),
    ),
    ratio(
        "streamed events per second, memory store, 1 KB",
        0.65,
        0.45,
        |r| judged(case(r, "stream", "1 KB")?, Contender::Memory),
        |r| judged(case(r, "stream", "1 KB")?, Contender::Rmcp),
    ),
    ratio(
        "streamed events per second, memory store, 16 KB",
        0.65,
        0.45,
        |r| judged(case(r, "stream", "16 KB")?, Contender::Memory),
        |r| judged(case(r, "stream", "16 KB")?, Contender::Rmcp),
    ),
    ratio(
        "streamed events per second, embedded store, sync interval, 64 B",
        0.35,
        0.20,
        |r| judged(case(r, "durable", "64 B")?, Contender::Embedded),
        |_| None,
    ),
    ratio(
        "streamed events per second, embedded store, sync interval, 1 KB",
        0.35,
        0.20,
        |r| judged(case(r, "durable", "1 KB")?, Contender::Embedded),
        |_| None,
    ),
    ratio(
        "streamed events per second, embedded store, sync interval, 16 KB",
        0.35,
        0.20,
        |r| judged(case(r, "durable", "16 KB")?, Contender::Embedded),
        |_| None,
    ),
    ratio(
        "replayed events per second, all exact",
        0.80,
        0.60,
        |r| worst(r, "replay", Contender::Memory),
        |r| worst(r, "replay", Contender::RmcpStore),
    ),
    Aim {
        what: "resident bytes per idle session with GET stream, 10k",
        goal: 15_000.0,
        bound: 18_000.0,
        more_is_better: false,
        show: |value| Metric::Resident.show(value),
        ours: |r| push(r)?.of(Contender::Memory)?.median(Metric::Resident),
        rmcp: |r| push(r)?.of(Contender::Rmcp)?.median(Metric::Resident),
    },
    Aim {
        what: "fan-out to 10k streams, p99, through that of the limit",
        goal: 1.2,
        bound: 1.5,
        more_is_better: false,
        show: times,
        ours: |r| slower(push(r)?, Contender::Memory),
        rmcp: |r| slower(push(r)?, Contender::Rmcp),
    },
    Aim {
        what: "gateway echo, 16 clients, through the best of supergateway and mcp-proxy",
        goal: 15.0,
        bound: 10.0,
        more_is_better: true,
        show: times,
        ours: |r| lead(case(r, "gateway", "16 clients")?, Contender::Gateway),
        rmcp: |_| None,
    },
    Aim {
        what: "gateway memory for each of 64 clients, besides its child",
        goal: 100_000.0,
        bound: 100_000.0,
        more_is_better: false,
        show: |value| Metric::Resident.show(value),
        ours: |r| {
            case(r, "gateway", "64 clients")?
                .of(Contender::Gateway)?
                .median(Metric::Resident)
        },
        rmcp: |_| None,
    },
    Aim {
        what: "growth of a call's cost from 10 to 10k sessions, through that of the limit",
        goal: 1.05,
        bound: 1.2,
        more_is_better: false,
        show: times,
        ours: |r| CALL.beside_limit(r, Contender::Memory),
        rmcp: |r| CALL.beside_limit(r, Contender::Rmcp),
    },
    Aim {
        what: "growth of a delivery's cost from 1k to 10k streams, through that of the limit",
        goal: 1.05,
        bound: 1.2,
        more_is_better: false,
        show: times,
        ours: |r| DELIVERY.beside_limit(r, Contender::Memory),
        rmcp: |r| DELIVERY.beside_limit(r, Contender::Rmcp),
    },
];

const CALL: Growth = Growth {
    what: "a call, from 10 to 10k sessions",
    suite: "growth",
    few: "10 sessions",
    many: "10000 sessions",
};
const DELIVERY: Growth = Growth {
    what: "a delivery, from 1k to 10k streams",
    suite: "push",
    few: "1000 streams",
    many: "10000 streams",
};

/// How much more an operation costs where there are many than where there are few. More sockets than the processor's cache
/// holds cost every server more, bare hyper too: what a server adds is what it grows beyond that.
struct Growth {
    what: &'static str,
    suite: &'static str,
    few: &'static str,
    many: &'static str,
}

impl Growth {
    fn of(&self, results: &Results, who: Contender) -> Option<f64> {
        let cpu = |name| case(results, self.suite, name)?.of(who)?.median(Metric::Cpu);
        Some(cpu(self.many)? / cpu(self.few)?)
    }

    /// From the ratios to the limit of the same rounds: the two sizes are measured minutes apart.
    fn beside_limit(&self, results: &Results, who: Contender) -> Option<f64> {
        let ratio = |name| {
            let case = case(results, self.suite, name)?;
            case.of(who)?.ratio(case.of(Contender::Limit)?, Metric::Cpu)
        };
        Some(ratio(self.few)? / ratio(self.many)?)
    }

    /// The figures by themselves.
    fn tell(&self, results: &Results) -> Option<String> {
        let [ours, limit] = [Contender::Memory, Contender::Limit].map(|who| self.of(results, who));
        let rmcp = self.of(results, Contender::Rmcp).map_or("–".to_owned(), times);
        let what = self.what;
        Some(format!(
            "{what}: limit {}, rethread {}, rmcp {rmcp}.",
            times(limit?),
            times(ours?)
        ))
    }
}

type Measure = fn(&Results) -> Option<f64>;

const fn ratio(what: &'static str, goal: f64, bound: f64, ours: Measure, rmcp: Measure) -> Aim {
    Aim {
        what,
        goal,
        bound,
        more_is_better: true,
        show: |value| format!("{value:.2}"),
        ours,
        rmcp,
    }
}

pub(super) fn table(results: &Results) -> String {
    let mut out = String::from("| | goal | not below | measured | | rmcp, measured |\n|---|---|---|---|---|---|\n");
    for aim in AIMS {
        let measured = (aim.ours)(results);
        let verdict = match measured {
            None => "not run",
            Some(value) if aim.reaches(value, aim.goal) => "goal",
            Some(value) if aim.reaches(value, aim.bound) => "in bounds",
            Some(_) => "**missed**",
        };
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), aim.show);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {verdict} | {} |",
            aim.what,
            (aim.show)(aim.goal),
            (aim.show)(aim.bound),
            shown(measured),
            shown((aim.rmcp)(results))
        );
    }
    out += "\nRatios are to the limit in the same rounds, by CPU or by rate, whichever is smaller.\n";
    for told in [CALL, DELIVERY].iter().filter_map(|growth| growth.tell(results)) {
        let _ = writeln!(out, "Growth of {told}");
    }
    out
}

impl Aim {
    fn reaches(&self, value: f64, mark: f64) -> bool {
        if self.more_is_better {
            value >= mark
        } else {
            value <= mark
        }
    }
}

fn times(value: f64) -> String {
    format!("{value:.2} x")
}

fn suite<'a>(results: &'a Results, name: &str) -> Option<&'a Measured> {
    results.suites.iter().find(|suite| suite.name == name)
}

fn case<'a>(results: &'a Results, suite_name: &str, name: &str) -> Option<&'a MeasuredCase> {
    suite(results, suite_name)?.cases.iter().find(|case| case.name == name)
}

fn push(results: &Results) -> Option<&MeasuredCase> {
    case(results, "push", "10000 streams")
}

/// The worst of a suite's cases.
fn worst(results: &Results, name: &str, who: Contender) -> Option<f64> {
    let cases = &suite(results, name)?.cases;
    cases.iter().filter_map(|case| judged(case, who)).reduce(f64::min)
}

/// How many times as long as with the limit news takes to reach 99 of 100.
pub(super) fn slower(case: &MeasuredCase, who: Contender) -> Option<f64> {
    let ratio = case.of(who)?.ratio(case.of(Contender::Limit)?, Metric::P99)?;
    Some(1.0 / ratio)
}

/// How many times as many calls as through the better one of the others' gateways.
pub(super) fn lead(case: &MeasuredCase, who: Contender) -> Option<f64> {
    let rate = |who| case.of(who)?.median(Metric::Rate);
    let others = [Contender::Supergateway, Contender::McpProxy]
        .into_iter()
        .filter_map(rate);
    Some(rate(who)? / others.reduce(f64::max)?)
}
