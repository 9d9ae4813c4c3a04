//! Performance targets and their results.

use super::suite_table::{ratio, relative_performance, with_range};
use crate::measure::{Metric, Spread};
use crate::runner::{CaseResult, Results, SuiteResult};
use crate::suites::ServerKind;
use std::fmt::Write;

/// A target for Rethread. rmcp is measured for comparison.
struct Target {
    title: &'static str,
    goal: f64,
    /// The worst acceptable value.
    bound: f64,
    higher_is_better: bool,
    show: fn(f64) -> String,
    rethread: Measure,
    rmcp: Measure,
}

type Measure = fn(&Results) -> Option<Spread>;

const TARGETS: &[Target] = &[
    performance(
        "call answered with JSON",
        0.85,
        0.70,
        |r| worst_case(r, "json", ServerKind::Rethread),
        |r| worst_case(r, "json", ServerKind::Rmcp),
    ),
    performance(
        "call answered with a resumable stream, memory store",
        0.80,
        0.65,
        |r| worst_case(r, "sse", ServerKind::Rethread),
        |r| worst_case(r, "sse", ServerKind::Rmcp),
    ),
    performance(
        "stateless call (2026-07-28)",
        0.80,
        0.65,
        |r| worst_case(r, "modern", ServerKind::Rethread),
        |r| worst_case(r, "modern", ServerKind::Rmcp),
    ),
    performance(
        "streaming, memory store, 64 B",
        0.65,
        0.45,
        |r| relative_performance(case(r, "stream", "64 B")?, ServerKind::Rethread),
        |r| relative_performance(case(r, "stream", "64 B")?, ServerKind::Rmcp),
    ),
    performance(
        "streaming, memory store, 1 KB",
        0.65,
        0.45,
        |r| relative_performance(case(r, "stream", "1 KB")?, ServerKind::Rethread),
        |r| relative_performance(case(r, "stream", "1 KB")?, ServerKind::Rmcp),
    ),
    performance(
        "streaming, memory store, 16 KB",
        0.65,
        0.45,
        |r| relative_performance(case(r, "stream", "16 KB")?, ServerKind::Rethread),
        |r| relative_performance(case(r, "stream", "16 KB")?, ServerKind::Rmcp),
    ),
    performance(
        "streaming, embedded store, 64 B",
        0.35,
        0.20,
        |r| relative_performance(case(r, "durable", "64 B")?, ServerKind::RethreadEmbedded),
        |_| None,
    ),
    performance(
        "streaming, embedded store, 1 KB",
        0.35,
        0.20,
        |r| relative_performance(case(r, "durable", "1 KB")?, ServerKind::RethreadEmbedded),
        |_| None,
    ),
    performance(
        "streaming, embedded store, 16 KB",
        0.35,
        0.20,
        |r| relative_performance(case(r, "durable", "16 KB")?, ServerKind::RethreadEmbedded),
        |_| None,
    ),
    performance(
        "replay of missed events",
        0.80,
        0.60,
        |r| worst_case(r, "replay", ServerKind::Rethread),
        |r| worst_case(r, "replay", ServerKind::RmcpStore),
    ),
    Target {
        title: "fan-out p99 to 10,000 streams, relative to bare hyper (lower is better)",
        goal: 1.2,
        bound: 1.5,
        higher_is_better: false,
        show: ratio,
        rethread: |r| relative_p99(large_fan_out(r)?, ServerKind::Rethread),
        rmcp: |r| relative_p99(large_fan_out(r)?, ServerKind::Rmcp),
    },
    Target {
        title: "growth of CPU per call from 10 to 10,000 sessions, relative to bare hyper (lower is better)",
        goal: 1.05,
        bound: 1.2,
        higher_is_better: false,
        show: ratio,
        rethread: |r| CALL_GROWTH.relative_to_hyper(r, ServerKind::Rethread),
        rmcp: |r| CALL_GROWTH.relative_to_hyper(r, ServerKind::Rmcp),
    },
    Target {
        title: "growth of CPU per delivery from 1,000 to 10,000 streams, relative to bare hyper (lower is better)",
        goal: 1.05,
        bound: 1.2,
        higher_is_better: false,
        show: ratio,
        rethread: |r| DELIVERY_GROWTH.relative_to_hyper(r, ServerKind::Rethread),
        rmcp: |r| DELIVERY_GROWTH.relative_to_hyper(r, ServerKind::Rmcp),
    },
    Target {
        title: "memory per idle session with a GET stream, 10,000 sessions (lower is better)",
        goal: 15_000.0,
        bound: 18_000.0,
        higher_is_better: false,
        show: memory,
        rethread: |r| large_fan_out(r)?.of(ServerKind::Rethread)?.spread(Metric::Memory),
        rmcp: |r| large_fan_out(r)?.of(ServerKind::Rmcp)?.spread(Metric::Memory),
    },
    Target {
        title: "gateway calls per second, 16 clients, relative to the fastest other gateway (higher is better)",
        goal: 15.0,
        bound: 10.0,
        higher_is_better: true,
        show: |value| format!("{value:.1}"),
        rethread: |r| gateway_speedup(case(r, "gateway", "16 clients")?, ServerKind::Gateway),
        rmcp: |_| None,
    },
    Target {
        title: "gateway memory per client, 64 clients, without the child process (lower is better)",
        goal: 100_000.0,
        bound: 100_000.0,
        higher_is_better: false,
        show: memory,
        rethread: |r| {
            case(r, "gateway", "64 clients")?
                .of(ServerKind::Gateway)?
                .spread(Metric::Memory)
        },
        rmcp: |_| None,
    },
    Target {
        title: "CPU per call with three nodes, relative to one node (lower is better)",
        // Three nodes serve 2.4 times the calls of one: 3 / 2.4.
        goal: 1.25,
        bound: 1.25,
        higher_is_better: false,
        show: ratio,
        rethread: |r| {
            let case = case(r, "nodes", "16 clients")?;
            let one = case.of(ServerKind::RethreadRedis)?;
            case.of(ServerKind::ThreeNodes)?.relative_to(one, Metric::Cpu)
        },
        rmcp: |_| None,
    },
    Target {
        title: "Redis scripts per call in a session without an owner, three nodes (lower is better)",
        // Renewals of leases, divided by the calls of that time.
        goal: 0.01,
        bound: 0.01,
        higher_is_better: false,
        show: ratio,
        rethread: |r| {
            case(r, "nodes", "16 clients")?
                .of(ServerKind::ThreeNodes)?
                .spread(Metric::RedisScripts)
        },
        rmcp: |_| None,
    },
    Target {
        title: "Redis scripts per forwarded call, 1 client (lower is better)",
        goal: 3.0,
        bound: 3.0,
        higher_is_better: false,
        show: ratio,
        rethread: |r| {
            case(r, "forward", "1 client")?
                .of(ServerKind::ForwardingNode)?
                .spread(Metric::RedisScripts)
        },
        rmcp: |_| None,
    },
];

const CALL_GROWTH: Growth = Growth {
    title: "CPU per call from 10 to 10,000 sessions",
    suite: "growth",
    small: "10 sessions",
    large: "10,000 sessions",
};
const DELIVERY_GROWTH: Growth = Growth {
    title: "CPU per delivery from 1,000 to 10,000 streams",
    suite: "push",
    small: "1,000 streams",
    large: "10,000 streams",
};

/// Growth of the cost of an operation from a small to a large case.
///
/// More sockets than fit into the CPU cache cost every server more, also bare hyper. Only additional growth counts.
struct Growth {
    title: &'static str,
    suite: &'static str,
    small: &'static str,
    large: &'static str,
}

impl Growth {
    fn of(&self, results: &Results, kind: ServerKind) -> Option<f64> {
        let cpu = |name| case(results, self.suite, name)?.of(kind)?.median(Metric::Cpu);
        Some(cpu(self.large)? / cpu(self.small)?)
    }

    /// Compares with bare hyper within each case, because the cases are measured minutes apart. Their rounds are not
    /// paired, so there is no range.
    fn relative_to_hyper(&self, results: &Results, kind: ServerKind) -> Option<Spread> {
        let cost = |name| {
            let case = case(results, self.suite, name)?;
            let spread = case
                .of(kind)?
                .relative_to(case.of(ServerKind::BareHyper)?, Metric::Cpu)?;
            Some(spread.median)
        };
        Spread::of(vec![cost(self.large)? / cost(self.small)?])
    }

    /// The growth of each server by itself.
    fn note(&self, results: &Results) -> Option<String> {
        let growth = |kind| self.of(results, kind).map(ratio);
        let hyper = growth(ServerKind::BareHyper)?;
        let rethread = growth(ServerKind::Rethread)?;
        let rmcp = growth(ServerKind::Rmcp).unwrap_or_else(|| "–".to_owned());
        Some(format!(
            "{}: bare hyper x{hyper}, rethread x{rethread}, rmcp x{rmcp}",
            self.title
        ))
    }
}

const fn performance(title: &'static str, goal: f64, bound: f64, rethread: Measure, rmcp: Measure) -> Target {
    Target {
        title,
        goal,
        bound,
        higher_is_better: true,
        show: ratio,
        rethread,
        rmcp,
    }
}

pub(super) fn table(results: &Results) -> String {
    let mut out = String::from(
        "The first rows are performance relative to bare hyper; higher is better.\n\n\
         | target | goal | bound | rethread | status | rmcp |\n|---|---|---|---|---|---|\n",
    );
    for target in TARGETS {
        let measured = (target.rethread)(results);
        let sign = if target.higher_is_better { "≥" } else { "≤" };
        let shown = |spread: Option<Spread>| spread.map_or("–".to_owned(), |spread| with_range(spread, target.show));
        let _ = writeln!(
            out,
            "| {} | {sign} {} | {sign} {} | {} | {} | {} |",
            target.title,
            (target.show)(target.goal),
            (target.show)(target.bound),
            shown(measured),
            target.status(measured),
            shown((target.rmcp)(results))
        );
    }
    out += "\nThe bound is the worst acceptable value. The median decides.\n";
    let notes: Vec<_> = [CALL_GROWTH, DELIVERY_GROWTH]
        .iter()
        .filter_map(|growth| growth.note(results))
        .collect();
    if !notes.is_empty() {
        let _ = writeln!(out, "\nGrowth of each server by itself:\n");
    }
    for note in notes {
        let _ = writeln!(out, "* {note}");
    }
    out
}

impl Target {
    fn status(&self, measured: Option<Spread>) -> &'static str {
        match measured.map(|spread| spread.median) {
            None => "not run",
            Some(value) if self.reaches(value, self.goal) => "goal reached",
            Some(value) if self.reaches(value, self.bound) => "within bound",
            Some(_) => "**missed**",
        }
    }

    fn reaches(&self, value: f64, mark: f64) -> bool {
        if self.higher_is_better {
            value >= mark
        } else {
            value <= mark
        }
    }
}

fn memory(bytes: f64) -> String {
    Metric::Memory.show(bytes)
}

fn suite<'a>(results: &'a Results, name: &str) -> Option<&'a SuiteResult> {
    results.suites.iter().find(|suite| suite.name == name)
}

fn case<'a>(results: &'a Results, suite_name: &str, name: &str) -> Option<&'a CaseResult> {
    suite(results, suite_name)?.cases.iter().find(|case| case.name == name)
}

fn large_fan_out(results: &Results) -> Option<&CaseResult> {
    case(results, "push", "10,000 streams")
}

/// The worst relative performance of the cases of a suite.
fn worst_case(results: &Results, name: &str, kind: ServerKind) -> Option<Spread> {
    let cases = suite(results, name)?.cases.iter();
    let relative = cases.filter_map(|case| relative_performance(case, kind));
    relative.min_by(|a, b| a.median.total_cmp(&b.median))
}

/// The p99 latency relative to bare hyper: lower is better.
pub(super) fn relative_p99(case: &CaseResult, kind: ServerKind) -> Option<Spread> {
    let hyper = case
        .of(ServerKind::BareHyper)
        .filter(|_| kind != ServerKind::BareHyper)?;
    case.of(kind)?.relative_to(hyper, Metric::P99)
}

/// The rate divided by the median rate of the fastest other gateway: higher is better.
pub(super) fn gateway_speedup(case: &CaseResult, kind: ServerKind) -> Option<Spread> {
    let others = [ServerKind::Supergateway, ServerKind::McpProxy, ServerKind::McpProxyNpm];
    let rates = others
        .into_iter()
        .filter_map(|other| case.of(other)?.median(Metric::Rate));
    let fastest = rates.reduce(f64::max)?;
    Some(case.of(kind)?.spread(Metric::Rate)?.map(|rate| rate / fastest))
}
