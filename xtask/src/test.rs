//! `xtask test`: every check of this repository.

mod programs;
mod tally;

use crate::{external_types, layers, prose, run, toolchains, tools, trace};
use std::process::Command;
use std::time::Instant;
use tally::Tally;

const OUTSIDE: &str = "rethread-outside";

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    /// All but the official clients, the conformance suite and the browser.
    Fast,
    /// All.
    Everything,
}

/// Runs every step, also after one that failed, and ends with the line `N passed, N failed`. Programs that the tests need
/// are installed before the first step. Quick steps come first.
pub(crate) fn run(extent: Extent) -> Result<(), String> {
    programs::prepare(extent)?;
    let mut steps = Steps::default();
    steps.command("format", &mut run::cargo(&["fmt", "--all", "--check"]));
    steps.step("layers", |_| layers::check());
    steps.step("prose", |_| prose::run(&[]));
    steps.step("spelling", |_| tools::typos(&[]));
    steps.step("requirements", |_| trace::check());
    steps.step("dependencies", |_| tools::deny());
    let lint = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.command("lints", &mut run::cargo(&lint));
    let docs = ["doc", "--workspace", "--no-deps"];
    steps.command("docs", run::cargo(&docs).env("RUSTDOCFLAGS", "-D warnings"));
    steps.step("external types", |_| external_types::run(&[]));
    steps.step("proto without an operating system", |_| toolchains::wasm());
    steps.step("oldest Rust", |_| toolchains::msrv());
    let tests = ["test", "--workspace", "--exclude", OUTSIDE, "--no-fail-fast"];
    let mut tests = run::cargo(&tests);
    if extent == Extent::Everything {
        tests.env("CI", "true"); // a test whose program is missing fails, and is not skipped
    }
    steps.command("tests", &mut tests);
    if extent == Extent::Everything {
        outside(&mut steps);
    }
    steps.finish()
}

/// The official clients and the conformance suite, against the example and the gateway as users would build them. The server that is
/// written with rmcp was built with the tests, as it has one of its own: its speed is not looked at, and another build of all it
/// needs would take minutes.
fn outside(steps: &mut Steps) {
    let build = "build --release -p rethread -p rethread-gateway --example everything --bin rethread";
    let build: Vec<&str> = build.split(' ').collect();
    let root = run::root();
    let mut setup = Command::new("tests/outside/clients/setup.sh");
    setup.arg("target/outside").current_dir(root);
    let ready = steps.command("example server and gateway", &mut run::cargo(&build))
        & steps.command("official clients", &mut setup);
    if ready {
        let tests = ["test", "-p", OUTSIDE, "--", "--nocapture", "--test-threads=1"];
        steps.command("outside tests", &mut run::cargo(&tests));
    }
}

/// The steps so far.
#[derive(Default)]
struct Steps {
    tally: Tally,
    failed: Vec<&'static str>,
}

impl Steps {
    fn command(&mut self, name: &'static str, command: &mut Command) -> bool {
        self.step(name, |tally| run::watch(command, |line| tally.read(line)))
    }

    fn step(&mut self, name: &'static str, work: impl FnOnce(&mut Tally) -> Result<(), String>) -> bool {
        println!("--- {name}");
        let start = Instant::now();
        let failed_before = self.tally.failed;
        let outcome = work(&mut self.tally);
        let seconds = start.elapsed().as_secs_f64();
        match &outcome {
            Ok(()) => println!("--- {name}: ok after {seconds:.1} s"),
            Err(message) => {
                println!("--- {name}: FAILED after {seconds:.1} s: {message}");
                self.failed.push(name);
                // A step that failed without a failed test of its own is one failure: the last line must tell.
                if self.tally.failed == failed_before {
                    self.tally.failed += 1;
                }
            }
        }
        outcome.is_ok()
    }

    fn finish(self) -> Result<(), String> {
        if !self.failed.is_empty() {
            println!("--- failed: {}", self.failed.join(", "));
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        if self.failed.is_empty() && self.tally.failed == 0 {
            Ok(())
        } else {
            Err(String::new())
        }
    }
}
