//! `xtask test`: runs every check of this repository.

mod programs;
mod selection;
mod steps;
mod suites;
mod tally;
mod workspace;

pub(crate) use selection::{Selection, list_parts};
pub(crate) use tally::Tally;

use crate::{external_types, layers, prose, run, toolchains, tools, trace};
use programs::Part;
use steps::Steps;

/// Runs every selected step, also after one that failed. The last lines are the times of the steps and `N passed, N
/// failed`. Programs that the tests need are installed before the first step. Quick steps come first.
pub(crate) fn run(selection: &Selection) -> Result<(), String> {
    programs::prepare(&parts(selection))?;
    let steps = Steps::begin();
    // Build the programs of the suites in parallel with the checks: the build mostly uses one core.
    let ready = std::thread::scope(|scope| {
        let prepared = scope.spawn(|| selection.suites.is_empty() || suites::prepare(&steps));
        if selection.checks {
            checks(&steps, selection.fast);
        }
        prepared.join().is_ok_and(|ready| ready)
    });
    match (selection.tests, selection.fast) {
        (true, true) => workspace::run_available(&steps),
        (true, false) => workspace::run_all(&steps),
        (false, _) => {}
    }
    if ready && !selection.suites.is_empty() {
        suites::run(&steps, &selection.suites);
    }
    steps.finish()
}

/// A fast run requires no programs, and uses the installed ones.
fn parts(selection: &Selection) -> Vec<Part> {
    let workspace = !selection.fast && (selection.checks || selection.tests);
    let outside = !selection.suites.is_empty();
    let parts = [(workspace || outside, Part::Workspace), (outside, Part::Outside)];
    parts
        .into_iter()
        .filter(|(needed, _)| *needed)
        .map(|(_, part)| part)
        .collect()
}

fn checks(steps: &Steps, fast: bool) {
    steps.command("format", &mut run::cargo(&["fmt", "--all", "--check"]));
    steps.step("layers", |_| layers::check());
    steps.step("prose", |_| prose::run(&[]));
    if fast && !programs::is_installed(programs::VENV) {
        steps.leave_out("the spelling check: python3 with `venv` is missing".to_owned());
    } else {
        steps.step("spelling", |_| tools::typos(&[]));
    }
    steps.step("requirements", |_| trace::check());
    steps.step("dependencies", |_| tools::deny());
    let lint = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.command("lints", &mut run::cargo(&lint));
    let docs = ["doc", "--workspace", "--no-deps"];
    steps.command("docs", run::cargo(&docs).env("RUSTDOCFLAGS", "-D warnings"));
    steps.step("external types", |_| external_types::run(&[]));
    steps.step("proto without an operating system", |_| toolchains::wasm());
    steps.step("oldest Rust", |_| toolchains::msrv());
}
