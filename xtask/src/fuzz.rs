//! `xtask fuzz`: runs the fuzz targets for a limited time.

use crate::run;
use std::fs;
use std::process::{Command, Stdio};

const HOW_TO_INSTALL: &str = "cargo-fuzz is missing; install it with: cargo install cargo-fuzz";

/// `[SECONDS] [TARGET ...]`
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let (seconds, chosen) = match options.split_first().map(|(first, rest)| (first.parse::<u32>(), rest)) {
        Some((Ok(seconds), rest)) => (seconds, rest),
        _ => (60, options),
    };
    let known = targets()?;
    if let Some(unknown) = chosen.iter().find(|name| !known.iter().any(|target| target == *name)) {
        return Err(format!("no fuzz target `{unknown}`; there are: {}", known.join(", ")));
    }
    if !is_installed() {
        return Err(HOW_TO_INSTALL.to_owned());
    }
    let limit = format!("-max_total_time={seconds}");
    let mut found = Vec::new();
    for target in known
        .iter()
        .filter(|target| chosen.is_empty() || chosen.contains(&target.as_str()))
    {
        println!("--- fuzz {target} for {seconds} s");
        // Sanitizers are nightly options. This makes the pinned compiler accept them.
        let mut command = run::cargo(&["fuzz", "run", target, "--", &limit]);
        if run::watch(command.env("RUSTC_BOOTSTRAP", "1"), |_| ()).is_err() {
            found.push(target.as_str());
        }
    }
    match found.as_slice() {
        [] => Ok(()),
        found => Err(format!(
            "failed: {}; the inputs are in fuzz/artifacts",
            found.join(", ")
        )),
    }
}

/// One file or one folder per target.
fn targets() -> Result<Vec<String>, String> {
    let folder = run::root().join("fuzz").join("fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

fn is_installed() -> bool {
    let mut command: Command = run::cargo(&["fuzz", "--version"]);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
