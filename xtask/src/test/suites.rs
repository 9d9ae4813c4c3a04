//! The suites with third-party programs: the official clients, the conformance suite, a browser, npm and pip. They run
//! against release builds of the example server and the gateway. Each suite except one is a module of `tests/outside`.

use super::steps::Steps;
use crate::dist;
use crate::run;
use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;

/// Concurrent suites. A suite waits for its clients about half of its time.
const LANES: usize = 2;

/// Tests with this text in their names run alone. Their clients stop after two failed attempts to reconnect, and on a
/// busy machine both can fail between two kills.
const KILLS: &str = "_kills";

/// A group of tests that runs as one step.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// A module of `tests/outside`, or [`KILLS`].
    filter: &'static str,
}

impl Suite {
    fn runs_alone(&self) -> bool {
        self.filter == KILLS
    }

    /// Whether a test is in the suite.
    fn has(&self, test: &str) -> bool {
        test.contains(self.filter) && test.contains(KILLS) == self.runs_alone()
    }
}

/// Longest first, so that both lanes end at about the same time.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "rmcp",
        about: "all clients against a server written with rmcp",
        filter: "rmcp::",
    },
    Suite {
        name: "gateway",
        about: "all clients through the gateway, with servers from npm and PyPI behind it",
        filter: "gateway::",
    },
    Suite {
        name: "nodes",
        about: "three nodes on Redis behind a balancer: all clients, deaths, outages, isolation",
        filter: "nodes::",
    },
    Suite {
        name: "bridge",
        about: "clients of both eras through one gateway in front of servers of both eras",
        filter: "bridge::",
    },
    Suite {
        name: "kills",
        about: "all clients while the server, the gateway and the rmcp server are killed",
        filter: KILLS,
    },
    Suite {
        name: "clients",
        about: "every feature, and cut connections, with each official client",
        filter: "clients::",
    },
    Suite {
        name: "transports",
        about: "the clients over HTTP+SSE and stdio",
        filter: "other_transports::",
    },
    Suite {
        name: "conformance",
        about: "the official conformance suite",
        filter: "conformance::",
    },
    Suite {
        name: "packages",
        about: "the npm packages, the wheel and the tarball, installed in clean directories",
        filter: "packages::",
    },
    Suite {
        name: "disk",
        about: "a full disk; needs root",
        filter: "full_disk::",
    },
    Suite {
        name: "browser",
        about: "a page in Chromium",
        filter: "browser::",
    },
];

/// Builds the programs under test, packs the gateway and installs the clients. Runs in parallel with other steps.
pub(super) fn prepare(steps: &Steps) -> bool {
    let mut setup = Command::new("tests/outside/clients/setup.sh");
    setup.arg("target/outside").current_dir(run::root());
    // Two builds, because a common build would unify features and change the gateway.
    let example = ["build", "--release", "-p", "rethread", "--example", "everything"];
    std::thread::scope(|scope| {
        // This mostly waits for the network.
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
    let (alone, shared): (Vec<&Suite>, Vec<&Suite>) = suites.iter().partition(|suite| suite.runs_alone());
    let queue: Mutex<VecDeque<&Suite>> = Mutex::new(shared.into());
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
    for suite in alone {
        steps.command_beside(suite.name, &mut command(suite, 0));
    }
}

/// The tests of a suite run sequentially, because most use both cores for a part of their time.
fn command(suite: &Suite, lane: usize) -> Command {
    let mut command = cargo_test(&["--", "--nocapture", "--test-threads=1", suite.filter]);
    if !suite.runs_alone() {
        command.args(["--skip", KILLS]);
    }
    // Lanes use different ranges of fixed ports.
    command.env("RETHREAD_TEST_LANE", lane.to_string());
    command
}

/// The features of the whole workspace, as in the previous step, so that dependencies are not compiled again.
fn cargo_test(arguments: &[&str]) -> Command {
    run::cargo(&[&["test", "--quiet", "--workspace", "--test", "outside"], arguments].concat())
}

/// Builds the tests. Fails if one of them is in no suite or in several.
fn build_and_assign() -> Result<(), String> {
    // The rmcp server is built with its own test, `start`. Its speed does not matter, so the dev build is enough.
    run::watch(&mut cargo_test(&["--test", "start", "--no-run"]), |_| ())?;
    let list = cargo_test(&["--", "--list"]).output();
    let list = list.map_err(|error| format!("cannot start cargo: {error}"))?;
    let list = String::from_utf8_lossy(&list.stdout);
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.is_empty() {
        return Err("`cargo test -- --list` lists no tests".to_owned());
    }
    match assign(&names) {
        Some(name) => Err(format!(
            "the test {name} must be in one suite: xtask/src/test/suites.rs"
        )),
        None => Ok(()),
    }
}

/// A test that is not in exactly one suite. Filters of `cargo test` match anywhere in a name.
fn assign(names: &[String]) -> Option<&String> {
    let suites = |name: &str| SUITES.iter().filter(|suite| suite.has(name)).count();
    names.iter().find(|name| suites(name) != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_must_be_in_one_suite() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let good = names(&[
            "rmcp::streams::a",
            "gateway::clients_use_it",
            "rmcp::ten_kills",
            "crash::two_kills",
        ]);
        assert_eq!(assign(&good), None);
        for bad in ["elsewhere::a", "crash::a", "rmcp::gateway::a"] {
            assert_eq!(assign(&names(&["crash::two_kills", bad])), Some(&bad.to_owned()));
        }
    }
}
