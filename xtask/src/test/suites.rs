//! The suites with programs of others: the official clients, the conformance suite, a browser, npm and pip. They run
//! against the example server and the gateway as users would build them. Each suite is a module of `tests/outside`.

use super::steps::Steps;
use crate::dist;
use crate::run;
use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;

/// Suites that run at the same time. A suite waits for its clients about half of its time.
const LANES: usize = 2;

/// A module of `tests/outside`.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    module: &'static str,
}

/// The longest first, so that no lane ends long after the other.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "rmcp",
        about: "all clients against a server written with rmcp",
        module: "rmcp::",
    },
    Suite {
        name: "gateway",
        about: "all clients through the gateway, with servers from npm and PyPI behind it",
        module: "gateway::",
    },
    Suite {
        name: "crash",
        about: "all clients while the server is killed",
        module: "crash::",
    },
    Suite {
        name: "clients",
        about: "every feature, and cut connections, with each official client",
        module: "clients::",
    },
    Suite {
        name: "transports",
        about: "the clients over HTTP+SSE and stdio",
        module: "other_transports::",
    },
    Suite {
        name: "conformance",
        about: "the official conformance suite",
        module: "conformance::",
    },
    Suite {
        name: "packages",
        about: "the npm packages, the wheel and the tarball, installed in clean directories",
        module: "packages::",
    },
    Suite {
        name: "disk",
        about: "a full disk; needs root",
        module: "full_disk::",
    },
    Suite {
        name: "browser",
        about: "a page in Chromium",
        module: "browser::",
    },
];

/// Builds the programs under test, packs the gateway and installs the clients. Runs beside other steps.
pub(super) fn prepare(steps: &Steps) -> bool {
    let mut setup = Command::new("tests/outside/clients/setup.sh");
    setup.arg("target/outside").current_dir(run::root());
    // Two builds: together the features of both would make another gateway than the one in the packages.
    let example = ["build", "--release", "-p", "rethread", "--example", "everything"];
    std::thread::scope(|scope| {
        // This waits for the network most of its time.
        let clients = scope.spawn(|| steps.command_beside("official clients", &mut setup));
        let programs = steps.command_beside("gateway and packages", &mut dist::release_packages())
            & steps.command_beside("example server", &mut run::cargo(&example));
        clients.join().is_ok_and(|installed| installed) && programs
    })
}

/// Runs the suites, a few at a time.
pub(super) fn run(steps: &Steps, suites: &[&'static Suite]) {
    if !steps.step("outside tests", |_| build_and_assign()) {
        return;
    }
    let queue: Mutex<VecDeque<&Suite>> = Mutex::new(suites.iter().copied().collect());
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let queue = &queue;
            scope.spawn(move || {
                let next = || {
                    queue
                        .lock()
                        .expect("no lane panics while it holds the lock")
                        .pop_front()
                };
                while let Some(suite) = next() {
                    steps.command_beside(suite.name, &mut command(suite, lane));
                }
            });
        }
    });
}

/// The tests of a suite run one after the other: most use both cores for a part of their time.
fn command(suite: &Suite, lane: usize) -> Command {
    let mut command = cargo_test(&["--", "--nocapture", "--test-threads=1", suite.module]);
    // Lanes use different ranges of fixed ports.
    command.env("RETHREAD_TEST_LANE", lane.to_string());
    command
}

/// The features of the whole workspace, as in the step before: with others all dependencies would be compiled again.
fn cargo_test(arguments: &[&str]) -> Command {
    run::cargo(&[&["test", "--quiet", "--workspace", "--test", "outside"], arguments].concat())
}

/// Builds the tests. Fails if one of them is in no suite or in several.
fn build_and_assign() -> Result<(), String> {
    // The rmcp server is built with its own test, `start`. Its speed is not looked at, so the dev build is enough.
    run::watch(&mut cargo_test(&["--test", "start", "--no-run"]), |_| ())?;
    let mut names = Vec::new();
    run::watch(&mut cargo_test(&["--", "--list"]), |line| {
        names.extend(line.strip_suffix(": test").map(str::to_owned));
    })?;
    match assign(&names) {
        Some(name) => Err(format!(
            "the test {name} must be in one suite: xtask/src/test/suites.rs"
        )),
        None => Ok(()),
    }
}

/// A test that is not in exactly one suite. Filters of `cargo test` match anywhere in a name.
fn assign(names: &[String]) -> Option<&String> {
    let suites = |name: &str| SUITES.iter().filter(|suite| name.contains(suite.module)).count();
    names.iter().find(|name| suites(name) != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_must_be_in_one_suite() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let good = names(&["rmcp::streams::a", "gateway::clients_use_it", "crash::b"]);
        assert_eq!(assign(&good), None);
        for bad in ["elsewhere::a", "rmcp::gateway::a"] {
            assert_eq!(assign(&names(&["crash::b", bad])), Some(&bad.to_owned()));
        }
    }
}
