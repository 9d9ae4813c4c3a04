//! The tests of the workspace. A few test targets need programs other than Rust.

use super::programs;
use super::steps::Steps;
use crate::run;
use serde_json::Value;
use std::process::Command;

/// The package whose tests all need third-party programs. Its suites are separate steps.
const OUTSIDE: &str = "rethread-outside";

/// Tests that start programs.
struct Need {
    /// The test target: a file of a folder `tests`.
    target: &'static str,
    /// One test of the target. `None` if the whole target needs the programs.
    test: Option<&'static str>,
    programs: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need {
        target: "children",
        test: None,
        programs: &["python3"],
    },
    Need {
        target: "children",
        test: Some("ops_17_curl_connects_with_the_authority_only"),
        programs: &["curl"],
    },
    Need {
        target: "cli",
        test: Some("tour_works_in_sh"),
        programs: &["curl"],
    },
    Need {
        target: "cli",
        test: Some("tour_works_in_bash"),
        programs: &["bash", "curl"],
    },
    Need {
        target: "cli",
        test: Some("tour_works_in_zsh"),
        programs: &["curl", "zsh"],
    },
    Need {
        target: "cli",
        test: Some("tour_works_in_fish"),
        programs: &["curl", "fish"],
    },
    Need {
        target: "deploy",
        test: None,
        programs: &["bash", "curl", "nginx"],
    },
    Need {
        target: "redis",
        test: None,
        programs: &["redis-server"],
    },
    Need {
        target: "examples",
        test: None,
        programs: &["bash", "curl"],
    },
    Need {
        target: "nodes",
        test: None,
        programs: &["python3", "redis-server"],
    },
];

/// Runs all tests of the workspace. A missing program is a failure.
pub(super) fn run_all(steps: &Steps) {
    let mut tests = cargo_test(&["--no-fail-fast"]);
    tests.env("CI", "true"); // a missing program fails a test instead of skipping it
    steps.command("tests", &mut tests);
}

/// Runs the tests whose programs are installed.
pub(super) fn run_available(steps: &Steps) {
    let left_out = left_out(programs::is_missing);
    if left_out.is_empty() {
        steps.command("tests", &mut cargo_test(&["--no-fail-fast"]));
        return;
    }
    for (need, program) in &left_out {
        let what = need.test.unwrap_or("all tests");
        steps.leave_out(format!("{what} of `{}`: {program} is missing", need.target));
    }
    let needs: Vec<&Need> = left_out.into_iter().map(|(need, _)| need).collect();
    let targets = match test_targets() {
        Ok(targets) => targets,
        Err(message) => {
            steps.step("tests", |_| Err(message));
            return;
        }
    };
    let arguments = arguments_without(&targets, &needs);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    steps.command("tests", &mut cargo_test(&arguments));
    steps.command(
        "tests in the documentation",
        &mut cargo_test(&["--doc", "--no-fail-fast"]),
    );
}

fn cargo_test(arguments: &[&str]) -> Command {
    run::cargo(&[&["test", "--workspace", "--exclude", OUTSIDE], arguments].concat())
}

/// The tests whose programs are missing, each with one of these programs.
fn left_out(is_missing: impl Fn(&str) -> bool) -> Vec<(&'static Need, &'static str)> {
    let missing = |need: &Need| need.programs.iter().copied().find(|program| is_missing(program));
    NEEDS.iter().filter_map(|need| Some((need, missing(need)?))).collect()
}

/// Arguments of `cargo test` that name all targets except the skipped ones.
fn arguments_without(targets: &[String], needs: &[&Need]) -> Vec<String> {
    let whole = |target: &String| !needs.iter().any(|need| need.test.is_none() && need.target == target);
    let kinds = ["--no-fail-fast", "--lib", "--bins", "--examples"].map(str::to_owned);
    let named = targets
        .iter()
        .filter(|target| whole(target))
        .flat_map(|target| ["--test".to_owned(), target.clone()]);
    let skipped = needs.iter().filter_map(|need| need.test);
    let skipped = skipped.flat_map(|test| ["--skip".to_owned(), test.to_owned()]);
    let separator = std::iter::once("--".to_owned());
    kinds.into_iter().chain(named).chain(separator).chain(skipped).collect()
}

/// The names of the test targets of the workspace, each once.
fn test_targets() -> Result<Vec<String>, String> {
    let output = run::cargo(&["metadata", "--no-deps", "--format-version", "1"]).output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut names: Vec<String> = packages
        .filter(|package| package["name"] != OUTSIDE)
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| target["kind"][0] == "test")
        .filter_map(|target| Some(target["name"].as_str()?.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;
    use std::path::Path;

    #[test]
    fn complete_machine_skips_nothing() {
        assert!(left_out(|_| false).is_empty());
    }

    #[test]
    fn targets_without_their_programs_are_skipped() {
        let needs: Vec<&Need> = left_out(|program| program == "curl")
            .into_iter()
            .map(|(need, _)| need)
            .collect();
        let targets = ["children", "cli", "deploy", "examples", "it"].map(str::to_owned);
        let arguments = arguments_without(&targets, &needs).join(" ");
        assert_eq!(
            arguments,
            "--no-fail-fast --lib --bins --examples --test children --test cli --test it \
             -- --skip ops_17_curl_connects_with_the_authority_only \
             --skip tour_works_in_sh --skip tour_works_in_bash --skip tour_works_in_zsh --skip tour_works_in_fish"
        );
    }

    /// A test that starts a program and is not in the table would fail on a machine with only Rust.
    #[test]
    fn every_test_that_starts_a_program_is_in_the_table() {
        let root = run::root();
        for (target, text) in test_sources(&root) {
            for program in ["bash", "curl", "node", "npm", "python3"] {
                if !text.contains(&format!("Command::new(\"{program}\")")) {
                    continue;
                }
                let listed = NEEDS
                    .iter()
                    .any(|need| need.target == target && need.programs.contains(&program));
                assert!(listed, "the tests `{target}` start {program}");
            }
        }
    }

    /// An outdated name would skip nothing.
    #[test]
    fn every_test_in_the_table_exists() {
        let sources = test_sources(&run::root());
        for need in NEEDS {
            let mut texts = sources
                .iter()
                .filter(|(target, _)| target == need.target)
                .map(|(_, text)| text);
            let wanted = need.test.map_or_else(String::new, |test| format!("fn {test}()"));
            assert!(texts.any(|text| text.contains(&wanted)), "{}: {wanted}", need.target);
        }
    }

    /// The files below `crates/*/tests`, each with the name of its target.
    fn test_sources(root: &Path) -> Vec<(String, String)> {
        let target = |file: &Path| {
            let name = files::name(root, file);
            let (_, below) = name.split_once("/tests/")?;
            let target = below.split('/').next()?;
            Some(target.trim_end_matches(".rs").to_owned())
        };
        let sources = files::below(&root.join("crates")).into_iter();
        let sources = sources.filter(|file| file.extension().is_some_and(|kind| kind == "rs"));
        let named = sources.filter_map(|file| Some((target(&file)?, files::text(&file).ok()?)));
        named.collect()
    }
}
