//! Runs the suites. Every round measures all servers of a case in turn, so that disturbances affect all of them.

use crate::machine::{self, Cores, CpuTicks};
use crate::measure::{Metric, Sample, Series};
use crate::suites::{self, Case, Environment, Scale, ServerKind, Suite};
use anyhow::{Error, Result, ensure};
use rethread_testkit::redis_server::RedisServer;
use std::io::IsTerminal;

/// A measurement is repeated if the host took more than this share of the cores.
const MAX_STEAL_SHARE: f64 = 0.02;
/// Tries per measurement. After that the one with the least steal counts.
const MAX_TRIES: usize = 3;

/// The results of all suites.
pub(crate) struct Results {
    pub(crate) suites: Vec<SuiteResult>,
    /// Measurements that were repeated because of steal.
    pub(crate) repeated: usize,
    /// Skipped measurements, each with a reason.
    pub(crate) not_measured: Vec<String>,
}

pub(crate) struct SuiteResult {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
    pub(crate) metrics: &'static [Metric],
    pub(crate) cases: Vec<CaseResult>,
}

impl SuiteResult {
    pub(crate) fn new(suite: &Suite, cases: Vec<CaseResult>) -> Self {
        SuiteResult {
            name: suite.name,
            title: suite.title,
            unit: suite.unit,
            about: suite.about,
            metrics: suite.metrics,
            cases,
        }
    }
}

pub(crate) struct CaseResult {
    pub(crate) name: String,
    pub(crate) series: Vec<(ServerKind, Series)>,
}

impl CaseResult {
    pub(crate) fn of(&self, kind: ServerKind) -> Option<&Series> {
        self.series
            .iter()
            .find(|(server, _)| *server == kind)
            .map(|(_, series)| series)
    }
}

/// The suites, servers and cases to run. An empty selection means everything.
pub(crate) struct Selection<'a> {
    pub(crate) suites: &'a [String],
    /// Servers besides bare hyper.
    pub(crate) servers: &'a [String],
    /// A part of the case name.
    pub(crate) case: Option<&'a str>,
}

impl Selection<'_> {
    fn suite(&self, name: &str) -> bool {
        self.suites.is_empty() || self.suites.iter().any(|selected| selected == name)
    }

    fn server(&self, kind: ServerKind) -> bool {
        kind == ServerKind::BareHyper
            || self.servers.is_empty()
            || self.servers.iter().any(|selected| selected == kind.name())
    }

    fn case(&self, name: &str) -> bool {
        self.case.is_none_or(|selected| name.contains(selected))
    }
}

/// Runs the selected suites.
pub(crate) fn run(cores: Cores, scale: Scale, rounds: usize, selection: &Selection<'_>) -> Result<Results> {
    if cores.shared() {
        eprintln!("only one core: server and load share it, so rates are not meaningful");
    }
    machine::pin(cores.load)?;
    let environment = Environment { cores, scale };
    let mut results = Results {
        suites: Vec::new(),
        repeated: 0,
        not_measured: Vec::new(),
    };
    let suites = suites::all(scale);
    let names: Vec<_> = suites.iter().map(|suite| suite.name).collect();
    for name in selection.suites {
        ensure!(
            names.contains(&name.as_str()),
            "unknown suite `{name}`; the suites are: {}",
            names.join(", ")
        );
    }
    for suite in suites {
        if !selection.suite(suite.name) {
            results.not_measured.push(format!("{}: not selected", suite.title));
            continue;
        }
        let rounds = rounds * suite.rounds_factor();
        let mut cases = Vec::new();
        for case in &suite.cases {
            if selection.case(&case.name) {
                let mut servers: Vec<_> = case.servers.iter().copied().filter(|k| selection.server(*k)).collect();
                for kind in case.servers.iter().filter(|kind| !servers.contains(kind)) {
                    results.skip(&suite, case, Some(*kind), "not selected");
                }
                if servers.iter().any(|kind| kind.uses_redis()) && RedisServer::program().is_none() {
                    for kind in servers.extract_if(.., |kind| kind.uses_redis()) {
                        results.skip(&suite, case, Some(kind), "redis-server is not installed");
                    }
                }
                cases.push(run_case(&environment, &suite, case, &servers, rounds, &mut results)?);
            } else {
                results.skip(&suite, case, None, "not selected");
            }
        }
        results.suites.push(SuiteResult::new(&suite, cases));
    }
    Ok(results)
}

fn run_case(
    environment: &Environment,
    suite: &Suite,
    case: &Case,
    servers: &[ServerKind],
    rounds: usize,
    results: &mut Results,
) -> Result<CaseResult> {
    let mut series: Vec<(ServerKind, Series)> = servers.iter().map(|kind| (*kind, Series::default())).collect();
    let mut failed = Vec::new();
    for round in 1..=rounds {
        for (kind, series) in &mut series {
            if failed.contains(kind) {
                continue;
            }
            show_progress(&format!(
                "{}, {}: round {round} of {rounds}, {}",
                suite.title,
                case.name,
                kind.name()
            ));
            match measure_until_quiet(environment, case, *kind) {
                Ok((sample, tries)) => {
                    series.0.push(sample);
                    results.repeated += tries - 1;
                }
                Err(error) if kind.is_own_server() => {
                    return Err(error.context(format!("{}, {}, {}", suite.title, case.name, kind.name())));
                }
                Err(error) => {
                    results.skip(suite, case, Some(*kind), &reason(&error));
                    failed.push(*kind);
                }
            }
        }
    }
    show_progress("");
    Ok(CaseResult {
        name: case.name.clone(),
        series,
    })
}

impl Results {
    fn skip(&mut self, suite: &Suite, case: &Case, kind: Option<ServerKind>, reason: &str) {
        let server = kind.map_or(String::new(), |kind| format!(", {}", kind.name()));
        self.not_measured
            .push(format!("{}, {}{server}: {reason}", suite.title, case.name));
    }
}

/// The error without the messages of the protocol that it quotes.
fn reason(error: &Error) -> String {
    let parts = error.chain().map(ToString::to_string);
    let parts: Vec<_> = parts.filter(|part| !part.contains('{')).collect();
    if parts.is_empty() {
        return "unexpected message".to_owned();
    }
    parts.join(": ")
}

/// Measures until the host took little of the cores. Also returns the number of tries.
fn measure_until_quiet(environment: &Environment, case: &Case, kind: ServerKind) -> Result<(Sample, usize)> {
    let mut best: Option<(f64, Sample)> = None;
    let mut tries = 0;
    loop {
        tries += 1;
        let start = CpuTicks::of(environment.cores);
        let sample = (case.run)(environment, kind)?;
        let steal = CpuTicks::of(environment.cores).steal_since(start);
        let (least, sample) = match best.take() {
            Some(best) if best.0 <= steal => best,
            _ => (steal, sample),
        };
        if least <= MAX_STEAL_SHARE || tries == MAX_TRIES {
            return Ok((sample.with(Metric::Steal, least), tries));
        }
        best = Some((least, sample));
    }
}

/// Shows the current step on a terminal.
fn show_progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn reason_quotes_no_json() {
        let error = anyhow!("message 51 is not the expected one").context(r#"{"jsonrpc":"2.0"}"#);
        assert_eq!(reason(&error), "message 51 is not the expected one");
        let error = anyhow!("connection reset").context("stream 7");
        assert_eq!(reason(&error), "stream 7: connection reset");
        assert_eq!(reason(&anyhow!("{}", r#"got {"a":1}"#)), "unexpected message");
    }
}
