//! `xtask mutants`: breaks the engines, the translation between eras and the embedded store in one place at a time, and
//! checks that an assertion of a test fails.
//!
//! Each mutant replaces one piece of text in a separate work tree at the last commit.

mod bridge;
mod cluster;
mod engine;
mod store;

use crate::run;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A longer test run counts as a hang, which is not a failed assertion.
const MAX_TEST_TIME: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One change of the code that a test must detect.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// Relative to the source folder of its package.
    pub(crate) file: &'static str,
    pub(crate) code: &'static str,
    pub(crate) mutated: &'static str,
}

/// The mutants of one package, and the tests that must catch them.
struct Suite {
    source: &'static str,
    tests: &'static [&'static str],
    mutants: &'static [Mutant],
}

const SUITES: &[Suite] = &[
    Suite {
        source: "crates/proto/src",
        tests: &["-p", "rethread-proto"],
        mutants: engine::MUTANTS,
    },
    Suite {
        source: "crates/proto/src",
        tests: &["-p", "rethread-proto"],
        mutants: cluster::MUTANTS,
    },
    Suite {
        source: "crates/proto/src",
        tests: &["-p", "rethread-proto", "--lib", "bridge::"],
        mutants: bridge::MUTANTS,
    },
    Suite {
        source: "crates/store-embedded/src",
        tests: &[
            "-p",
            "rethread-store-embedded",
            "--lib",
            "--test",
            "open",
            "--test",
            "outage",
            "--test",
            "suite",
        ],
        mutants: store::MUTANTS,
    },
];

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Caught,
    Survived,
    DoesNotCompile,
    Hangs,
}

/// Runs the mutants whose names contain one of `names`, or all.
pub(crate) fn run(names: &[&str]) -> Result<(), String> {
    let directory = run::target().join("mutants");
    let tree = directory.join("tree");
    prepare(&tree)?;
    let mut failures = Vec::new();
    let all = SUITES
        .iter()
        .flat_map(|suite| suite.mutants.iter().map(move |mutant| (suite, mutant)));
    for (suite, mutant) in all {
        if !names.is_empty() && !names.iter().any(|name| mutant.name.contains(name)) {
            continue;
        }
        let verdict = judge(suite, mutant, &tree, &directory.join("build"))?;
        println!("{verdict:?}: {}", mutant.name);
        if verdict != Verdict::Caught {
            failures.push(mutant.name);
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("not caught: {}", failures.join(", ")))
}

/// A clean work tree at the last commit.
fn prepare(tree: &Path) -> Result<(), String> {
    let path = tree.to_string_lossy().into_owned();
    if tree.exists() {
        git(&["worktree", "remove", "--force", &path])?;
    }
    git(&["worktree", "prune"])?;
    git(&["worktree", "add", "--detach", &path, "HEAD"])
}

fn git(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(run::root())
        .output()
        .map_err(|error| format!("cannot start git: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    ))
}

fn judge(suite: &Suite, mutant: &Mutant, tree: &Path, build: &Path) -> Result<Verdict, String> {
    let path = tree.join(suite.source).join(mutant.file);
    let original = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mutated = apply(mutant, &original)?;
    fs::write(&path, mutated).map_err(|error| format!("{}: {error}", path.display()))?;
    let verdict = test(suite, tree, build);
    fs::write(&path, original).map_err(|error| format!("{}: {error}", path.display()))?;
    verdict
}

fn apply(mutant: &Mutant, original: &str) -> Result<String, String> {
    match original.matches(mutant.code).count() {
        1 => Ok(original.replacen(mutant.code, mutant.mutated, 1)),
        count => Err(format!(
            "the mutant `{}` does not fit: its code is {count} times in {}",
            mutant.name, mutant.file
        )),
    }
}

fn test(suite: &Suite, tree: &Path, build: &Path) -> Result<Verdict, String> {
    let cargo = |arguments: &[&str]| {
        let mut command = run::cargo(arguments);
        command
            .args(suite.tests)
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", build)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let compiled = cargo(&["test", "--no-run", "--quiet"]).status();
    match compiled {
        Ok(status) if status.success() => {}
        Ok(_) => return Ok(Verdict::DoesNotCompile),
        Err(error) => return Err(format!("cannot start cargo: {error}")),
    }
    let mut child = cargo(&["test", "--quiet"])
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(Verdict::Survived),
            Ok(Some(_)) => return Ok(Verdict::Caught),
            Ok(None) if began.elapsed() > MAX_TEST_TIME => {
                let _ = child.kill(); // fails if the child has just ended
                return Ok(Verdict::Hangs);
            }
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(format!("cannot wait for cargo: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the code of a mutant changes, the mutant must be adapted.
    #[test]
    fn every_mutant_fits_the_code() {
        for suite in SUITES {
            let source = run::root().join(suite.source);
            for mutant in suite.mutants {
                let original = fs::read_to_string(source.join(mutant.file)).expect("the file of a mutant");
                let mutated = apply(mutant, &original);
                assert!(mutated.is_ok_and(|mutated| mutated != original), "{}", mutant.name);
            }
        }
    }
}
