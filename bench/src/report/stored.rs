//! The stored results: `figures.csv` with the values of all rounds, and `run.json` with the description of the run.

use super::RunInfo;
use crate::measure::{Metric, Sample, Series};
use crate::runner::{CaseResult, Results, SuiteResult};
use crate::suites::{self, Scale, ServerKind};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

const FIGURES: &str = "figures.csv";
const RUN: &str = "run.json";
const HEADER: &str = "suite,case,server,round,metric,value";

#[derive(Serialize, Deserialize)]
struct StoredRun {
    #[serde(flatten)]
    run: RunInfo,
    repeated: usize,
    not_measured: Vec<String>,
}

pub(super) fn write(results: &Results, run: &RunInfo, folder: &Path) -> Result<()> {
    fs::write(folder.join(FIGURES), csv(results))?;
    let stored = StoredRun {
        run: run.clone(),
        repeated: results.repeated,
        not_measured: results.not_measured.clone(),
    };
    fs::write(folder.join(RUN), serde_json::to_string_pretty(&stored)? + "\n")?;
    Ok(())
}

pub(super) fn read(folder: &Path) -> Result<(Results, RunInfo)> {
    let open = |name| fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"));
    let stored: StoredRun = serde_json::from_str(&open(RUN)?).context(RUN)?;
    let results = Results {
        suites: parse(&open(FIGURES)?).context(FIGURES)?,
        repeated: stored.repeated,
        not_measured: stored.not_measured,
    };
    Ok((results, stored.run))
}

fn csv(results: &Results) -> String {
    let mut out = format!("{HEADER}\n");
    for suite in &results.suites {
        for case in &suite.cases {
            for (kind, series) in &case.series {
                for (round, sample) in series.0.iter().enumerate() {
                    for (metric, value) in &sample.0 {
                        let _ = writeln!(
                            out,
                            "{},\"{}\",{},{},\"{}\",{value}",
                            suite.name,
                            case.name,
                            kind.name(),
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

fn parse(csv: &str) -> Result<Vec<SuiteResult>> {
    let mut lines = csv.lines();
    ensure!(lines.next() == Some(HEADER), "the header is not `{HEADER}`");
    let scale = Scale {
        warmup: Duration::ZERO,
        window: Duration::ZERO,
        quick: false,
    };
    let mut suites: Vec<SuiteResult> = suites::all(scale)
        .iter()
        .map(|suite| SuiteResult::new(suite, Vec::new()))
        .collect();
    for (number, line) in lines.enumerate() {
        let fields = fields(line);
        let [suite, case, server, round, metric, value] = fields.as_slice() else {
            anyhow::bail!("line {}: not six fields", number + 2);
        };
        let context = || format!("line {}: {line}", number + 2);
        let suite = suites
            .iter_mut()
            .find(|known| known.name == suite)
            .with_context(context)?;
        let kind = ServerKind::ALL.into_iter().find(|kind| kind.name() == server);
        let metric = Metric::ALL.into_iter().find(|known| known.title() == metric);
        let (kind, metric) = kind.zip(metric).with_context(context)?;
        let round: usize = round.parse().with_context(context)?;
        let series = series(suite, case, kind);
        if series.0.len() < round {
            series.0.resize_with(round, Sample::default);
        }
        let at = round.checked_sub(1).with_context(context)?;
        series.0[at].0.insert(metric, value.parse().with_context(context)?);
    }
    suites.retain(|suite| !suite.cases.is_empty());
    Ok(suites)
}

fn series<'a>(suite: &'a mut SuiteResult, case: &str, kind: ServerKind) -> &'a mut Series {
    let at = suite
        .cases
        .iter()
        .position(|known| known.name == case)
        .unwrap_or_else(|| {
            suite.cases.push(CaseResult {
                name: case.to_owned(),
                series: Vec::new(),
            });
            suite.cases.len() - 1
        });
    let all = &mut suite.cases[at].series;
    let at = all.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
        all.push((kind, Series::default()));
        all.len() - 1
    });
    &mut all[at].1
}

/// Splits a line at commas outside of quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("at least one field").push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_a_round_trip() {
        let text = format!(
            "{HEADER}\njson,\"16 clients\",bare-hyper,1,\"CPU µs/op\",7.5\njson,\"16 clients\",rethread,1,\"CPU µs/op\",10\n\
             push,\"10,000 streams\",rethread,1,\"p99 ms\",132.25\npush,\"10,000 streams\",rethread,2,\"p99 ms\",140\n"
        );
        let results = Results {
            suites: parse(&text).unwrap(),
            repeated: 3,
            not_measured: vec!["something".to_owned()],
        };
        assert_eq!(csv(&results), text);
        let folder = tempfile::tempdir().unwrap();
        write(&results, &RunInfo::made_up(), folder.path()).unwrap();
        let (again, run) = read(folder.path()).unwrap();
        assert_eq!((again.repeated, &again.not_measured), (3, &results.not_measured));
        assert_eq!((csv(&again), run), (text, RunInfo::made_up()));
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in [
            "json,a,rethread,1",
            "nothing,a,rethread,1,steal,1",
            "json,a,rethread,0,steal,1",
            "json,a,rethread,1,steal,x",
        ] {
            assert!(parse(&format!("{HEADER}\n{line}\n")).is_err(), "{line}");
        }
        assert!(parse("suite\n").is_err());
    }
}
