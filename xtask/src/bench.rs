//! `xtask bench`: builds the servers and the load generator, measures, and writes the report.

use crate::run;
use std::process::Command;

/// The profile of published binaries.
const PROFILE: &str = "dist";

/// `[--quick] [--suite NAME]... [--only NAME]... [--rounds N] [--seconds S] [--write DIR]`
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let mut build = run::cargo(&[
        "build",
        "--profile",
        PROFILE,
        "-p",
        "rethread-bench",
        "-p",
        "rethread-gateway",
    ]);
    run::watch(&mut build, |_| ()).map_err(|error| format!("the build failed: {error}"))?;
    let mut command = Command::new(run::target().join(PROFILE).join("rethread-bench"));
    command.arg("run").args(options).current_dir(run::root());
    if !options.contains(&"--write") {
        // Only a complete run may replace the committed report.
        let folder = if options.is_empty() {
            run::root().join("docs").join("benchmarks")
        } else {
            run::target().join("benchmarks")
        };
        command.arg("--write").arg(folder);
    }
    run::watch(&mut command, |_| ()).map_err(|error| format!("the bench failed: {error}"))
}
