//! The order of measurements: in every round every server of a case, one after the other, so that whatever else the machine
//! does meets all of them.

use crate::machine::{self, Cores, Ticks};
use crate::measure::{Metric, Sample, Series};
use crate::suites::{self, Bench, Case, Contender, Scale};
use anyhow::{Result, ensure};
use std::io::IsTerminal;

/// A measurement is done again when the host of a virtual machine gave more than this share of the cores to others meanwhile...
const TAKEN: f64 = 0.02;
/// ...but not more often than so; then the quietest one counts.
const TRIES: usize = 3;

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) rounds: usize,
    pub(crate) cores: Cores,
    pub(crate) scale: Scale,
    pub(crate) suites: Vec<Measured>,
    /// Measurements that were done again, because the machine was not ours alone.
    pub(crate) repeated: usize,
    /// What there is but was not run, and why.
    pub(crate) left_out: Vec<String>,
}

/// A suite with its figures.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
    pub(crate) metrics: &'static [Metric],
    pub(crate) cases: Vec<MeasuredCase>,
}

/// A case with its figures.
pub(crate) struct MeasuredCase {
    pub(crate) name: String,
    pub(crate) series: Vec<(Contender, Series)>,
}

impl MeasuredCase {
    pub(crate) fn of(&self, contender: Contender) -> Option<&Series> {
        self.series
            .iter()
            .find(|(who, _)| *who == contender)
            .map(|(_, series)| series)
    }
}

/// What to run; everything, where nothing is said.
pub(crate) struct Choice<'a> {
    pub(crate) suites: &'a [String],
    /// Besides the limit.
    pub(crate) servers: &'a [String],
    /// A part of the names of cases.
    pub(crate) case: Option<&'a str>,
}

impl Choice<'_> {
    fn suite(&self, name: &str) -> bool {
        self.suites.is_empty() || self.suites.iter().any(|chosen| chosen == name)
    }

    fn server(&self, who: Contender) -> bool {
        who == Contender::Limit || self.servers.is_empty() || self.servers.iter().any(|chosen| chosen == who.name())
    }

    fn case(&self, name: &str) -> bool {
        self.case.is_none_or(|chosen| name.contains(chosen))
    }
}

/// Runs what is chosen.
pub(crate) fn run(scale: Scale, rounds: usize, choice: &Choice<'_>) -> Result<Results> {
    let cores = Cores::find()?;
    if cores.shared() {
        eprintln!("there is one core: server and load share it, and rates mean little");
    }
    machine::pin(cores.load)?;
    let bench = Bench { cores, scale };
    let mut results = Results {
        rounds,
        cores,
        scale,
        suites: Vec::new(),
        repeated: 0,
        left_out: Vec::new(),
    };
    let known = suites::all(scale);
    for name in choice.suites {
        let names: Vec<_> = known.iter().map(|suite| suite.name).collect();
        ensure!(
            names.contains(&name.as_str()),
            "no suite `{name}`; there are: {}",
            names.join(", ")
        );
    }
    for suite in known {
        if !choice.suite(suite.name) {
            results.left_out.push(format!("suite `{}`: not chosen", suite.name));
            continue;
        }
        let mut cases = Vec::new();
        let rounds = rounds * suite.often();
        for case in &suite.cases {
            if !choice.case(&case.name) {
                results
                    .left_out
                    .push(format!("`{}`, {}: not chosen", suite.name, case.name));
                continue;
            }
            for who in case.contenders.iter().filter(|who| !choice.server(**who)) {
                let text = format!("{} in `{}`, {}: not chosen", who.name(), suite.name, case.name);
                results.left_out.push(text);
            }
            let mut series: Vec<(Contender, Series)> = case
                .contenders
                .iter()
                .filter(|who| choice.server(**who))
                .map(|who| (*who, Series::default()))
                .collect();
            let mut failed = Vec::new();
            for round in 1..=rounds {
                for (who, series) in &mut series {
                    note(&format!(
                        "{} {}: round {round} of {rounds}, {}",
                        suite.name,
                        case.name,
                        who.name()
                    ));
                    if failed.contains(who) {
                        continue;
                    }
                    match quietest(&bench, case, *who) {
                        Ok((sample, tries)) => {
                            series.0.push(sample);
                            results.repeated += tries - 1;
                        }
                        Err(error) if who.is_ours() => {
                            return Err(error.context(format!("{}, {}, {}", suite.name, case.name, who.name())));
                        }
                        Err(error) => {
                            let text = format!("{} in `{}`, {}: {error:#}", who.name(), suite.name, case.name);
                            results.left_out.push(text);
                            failed.push(*who);
                        }
                    }
                }
            }
            note("");
            cases.push(MeasuredCase {
                name: case.name.clone(),
                series,
            });
        }
        results.suites.push(Measured {
            name: suite.name,
            unit: suite.unit,
            about: suite.about,
            metrics: suite.metrics,
            cases,
        });
    }
    Ok(results)
}

/// Measures until the machine was quiet; returns how many tries it took, too.
fn quietest(bench: &Bench, case: &Case, who: Contender) -> Result<(Sample, usize)> {
    let mut best: Option<(f64, Sample)> = None;
    let mut tries = 0;
    loop {
        tries += 1;
        let begun = Ticks::of(bench.cores);
        let sample = (case.run)(bench, who)?;
        let taken = Ticks::of(bench.cores).taken_since(begun);
        let (least, sample) = match best.take() {
            Some(best) if best.0 <= taken => best,
            _ => (taken, sample),
        };
        if least <= TAKEN || tries == TRIES {
            return Ok((sample.with(Metric::Taken, least), tries));
        }
        best = Some((least, sample));
    }
}

/// Where it stands, for whoever watches a terminal.
fn note(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}
