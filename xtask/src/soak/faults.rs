//! `xtask soak faults`: the power cuts and damaged files of the embedded store, again and again. Every run draws new seeds and
//! prints them. `FAULTS_SEED` repeats a run.

use crate::run;
use crate::test::Tally;
use std::time::Instant;

/// Runs without `--runs`.
const DEFAULT_RUNS: u32 = 200;

/// The test binary, and the tests in it.
const TESTS: [&str; 6] = ["test", "--release", "-p", "rethread-store-embedded", "--test", "faults"];
const FILTERS: [&str; 3] = ["--", "power_cut", "torn"];

/// `[--runs N]`. Ends with the first run that fails.
pub(super) fn run(options: &[&str]) -> Result<(), String> {
    let runs = parse(options)?;
    let build = [&TESTS[..], &["--no-run"]].concat();
    run::watch(&mut run::cargo(&build), |_| ()).map_err(|error| format!("the build failed: {error}"))?;
    let (started, mut passed) = (Instant::now(), 0);
    for run_number in 1..=runs {
        let mut tally = Tally::default();
        let arguments = [&TESTS[..], &["--quiet"], &FILTERS].concat();
        let outcome = run::watch(&mut run::cargo(&arguments), |line| tally.read(line));
        outcome.map_err(|error| format!("soak faults: FAILED in run {run_number}: {error}; the seed is above"))?;
        if tally.passed == 0 {
            return Err("soak faults: no test ran".to_owned());
        }
        passed += tally.passed;
    }
    let seconds = started.elapsed().as_secs();
    println!("soak faults: passed after {seconds} s: {runs} runs, {passed} tests, 0 failures");
    Ok(())
}

fn parse(options: &[&str]) -> Result<u32, String> {
    let usage = "usage: cargo xtask soak faults [--runs N]";
    match options {
        [] => Ok(DEFAULT_RUNS),
        ["--runs", runs] => runs
            .parse()
            .ok()
            .filter(|runs| *runs > 0)
            .ok_or_else(|| usage.to_owned()),
        _ => Err(usage.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_sets_the_number_of_runs() {
        assert_eq!(parse(&[]), Ok(DEFAULT_RUNS));
        assert_eq!(parse(&["--runs", "3"]), Ok(3));
        for bad in [&["--runs"][..], &["--runs", "0"], &["--kills", "3"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
