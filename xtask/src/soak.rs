//! `xtask soak`: tests that run longer than CI can. The soaks of several nodes on Redis are tests of `tests/outside` with a larger
//! number. A soak fails if an assertion fails, and its last line has the figures.

mod faults;

use crate::run;
use crate::test::Tally;
use std::process::Command;
use std::time::Instant;

/// A test with a number that an option sets.
struct Soak {
    name: &'static str,
    /// The path of the test.
    test: &'static str,
    option: &'static str,
    /// The environment variable of the number.
    variable: &'static str,
    default: u32,
    /// Descriptors that the test process and a node need for each unit of the number, and besides.
    open_files: Option<(u32, u32)>,
}

const SOAKS: &[Soak] = &[
    Soak {
        name: "kills",
        test: "crash::nodes::rst_03_clients_of_three_nodes_lose_nothing_to_twenty_kills",
        option: "--kills",
        variable: "RETHREAD_KILLS",
        default: 1_000,
        open_files: None,
    },
    Soak {
        name: "readers",
        test: "nodes::idle_readers::idle_remote_readers_cost_a_check_per_keep_alive",
        option: "--readers",
        variable: "RETHREAD_READERS",
        default: 10_000,
        open_files: Some((1, 500)),
    },
    Soak {
        name: "isolation",
        test: "nodes::isolation::ses_06_other_principals_read_nothing_on_any_node",
        option: "--attempts",
        variable: "RETHREAD_ATTEMPTS",
        default: 100_000,
        open_files: None,
    },
];

/// Starts the command with the largest soft limit of open files that this process may set.
const WITH_ALL_FILES: &str = r#"ulimit -S -n "$(ulimit -H -n)" && exec "$0" "$@""#;

/// The last line of a test begins with this.
const RESULT: &str = "result: ";

/// A soak with its number.
#[derive(Debug, PartialEq)]
struct Selection {
    name: &'static str,
    number: u32,
    seed: Option<String>,
}

/// `kills [--kills N] | readers [--readers N] | isolation [--attempts N], each with [--seed N]; or faults [--runs N]`
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    if let ["faults", options @ ..] = options {
        return faults::run(options);
    }
    let selection = Selection::parse(options)?;
    let soak = selection.soak();
    if let Some((each, besides)) = soak.open_files {
        check_open_files(selection.number * each + besides)?;
    }
    let example = ["build", "--release", "-p", "rethread", "--example", "everything"];
    run::watch(&mut run::cargo(&example), |_| ()).map_err(|error| format!("the build failed: {error}"))?;
    let tests = ["test", "--release", "-p", "rethread-outside", "--test", "outside"];
    let build = [&tests[..], &["--no-run"]].concat();
    run::watch(&mut run::cargo(&build), |_| ()).map_err(|error| format!("the build failed: {error}"))?;

    let started = Instant::now();
    let (mut tally, mut result) = (Tally::default(), None);
    let mut command = Command::new("sh");
    command
        .args(["-c", WITH_ALL_FILES])
        .arg(run::cargo_program())
        .args(tests);
    command.args(["--", "--exact", "--nocapture", soak.test]);
    command
        .current_dir(run::root())
        .env(soak.variable, selection.number.to_string());
    run::remove_package_variables(&mut command);
    // A missing Redis is a failure, and so is a client that is notified too late.
    command.env("CI", "true").env("RETHREAD_STRICT", "1");
    if let Some(seed) = &selection.seed {
        command.env("RETHREAD_SEED", seed);
    }
    let outcome = run::watch(&mut command, |line| {
        tally.read(line);
        if let Some((_, figures)) = line.split_once(RESULT).filter(|_| !line.starts_with("test result")) {
            result = Some(figures.to_owned());
        }
    });
    let seconds = started.elapsed().as_secs();
    outcome.map_err(|error| format!("soak {}: FAILED after {seconds} s: {error}", soak.name))?;
    match result.filter(|_| tally.passed == 1) {
        Some(figures) => {
            println!("soak {}: passed after {seconds} s: {figures}", soak.name);
            Ok(())
        }
        None => Err(format!("soak {}: the test {} did not run", soak.name, soak.test)),
    }
}

impl Selection {
    fn parse(options: &[&str]) -> Result<Self, String> {
        let usage = "usage: cargo xtask soak kills [--kills N] | readers [--readers N] | isolation [--attempts N], each \
                     with [--seed N]; or faults [--runs N]";
        let (name, mut rest) = options.split_first().ok_or(usage)?;
        let soak = SOAKS.iter().find(|soak| soak.name == *name).ok_or(usage)?;
        let mut selection = Selection {
            name: soak.name,
            number: soak.default,
            seed: None,
        };
        while let [option, value, more @ ..] = rest {
            let number: u32 = value
                .parse()
                .map_err(|_| format!("{option} needs a number, not {value}"))?;
            match *option {
                "--seed" => selection.seed = Some(number.to_string()),
                option if option == soak.option && number > 0 => selection.number = number,
                _ => return Err(usage.to_owned()),
            }
            rest = more;
        }
        if rest.is_empty() {
            Ok(selection)
        } else {
            Err(usage.to_owned())
        }
    }

    fn soak(&self) -> &'static Soak {
        let mut found = SOAKS.iter().filter(|soak| soak.name == self.name);
        found.next().expect("the name is from the table")
    }
}

/// Every connection needs a descriptor in the test process, and one in the node.
fn check_open_files(needed: u32) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", "ulimit -H -n"]).output();
    let output = output.map_err(|error| format!("cannot start sh: {error}"))?;
    let limit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match limit.parse::<u32>() {
        Ok(limit) if limit < needed => Err(format!(
            "a process may open {limit} files, and {needed} are needed: run `ulimit -n {needed}` as root, or set `nofile` in \
             /etc/security/limits.conf, or use fewer readers"
        )),
        _ => Ok(()), // enough, or `unlimited`
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn options_set_the_number_and_the_seed() {
        let selection = |options: &[&str]| Selection::parse(options).map(|s| (s.name, s.number, s.seed));
        assert_eq!(selection(&["kills"]), Ok(("kills", 1_000, None)));
        assert_eq!(
            selection(&["readers", "--readers", "500", "--seed", "7"]),
            Ok(("readers", 500, Some("7".to_owned())))
        );
        for bad in [
            &["kills", "--attempts", "3"][..],
            &["kills", "--kills"],
            &["kills", "--kills", "0"],
            &["kills", "--kills", "many"],
            &["other"],
            &[],
        ] {
            assert!(Selection::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// With another name, `--exact` would run nothing.
    #[test]
    fn every_test_of_a_soak_exists() {
        for soak in SOAKS {
            let (path, test) = soak.test.rsplit_once("::").expect("a module");
            let file = run::root().join(format!("tests/outside/tests/outside/{}.rs", path.replace("::", "/")));
            let text = files::text(&file).expect("the file of the module");
            assert!(text.contains(&format!("async fn {test}()")), "{}", soak.test);
            assert!(text.contains(soak.variable), "{}", soak.variable);
        }
    }
}
