//! `xtask instructions`: counts the instructions of the pure core and of whole calls, here and at an older commit.

use crate::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of `gungraun` in `bench/instructions`.
const RUNNER: &str = "0.20.0";

/// The bench of authenticated calls, which is a package of its own.
const AUTHENTICATED: &str = "authenticated";

/// `[--bench core|service|authenticated] [--against REF]`. A bench may not compile with an older commit.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let (mut benches, mut against) = (vec!["core", "service"], None);
    let mut rest = options;
    while let [option, value, others @ ..] = rest {
        match *option {
            "--bench" => benches = vec![*value],
            "--against" => against = Some(*value),
            _ => break,
        }
        rest = others;
    }
    if !rest.is_empty() {
        return Err(format!("unknown options: {}", rest.join(" ")));
    }
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err("valgrind is missing; install it with your system's package manager".to_owned());
    }
    let folder = run::target().join("instructions");
    let runner = runner(&folder)?;
    if benches == [AUTHENTICATED] {
        return bench(
            &run::root().join("bench").join(AUTHENTICATED),
            &folder,
            &runner,
            &benches,
            &[],
        );
    }
    let here = run::root().join("bench").join("instructions");
    let Some(reference) = against else {
        return bench(&here, &folder, &runner, &benches, &[]);
    };
    let there = older_tree(&folder, reference)?;
    println!("--- {reference}");
    bench(&there, &folder, &runner, &benches, &["--save-baseline=against"])?;
    println!("--- this tree, against {reference}");
    bench(&here, &folder, &runner, &benches, &["--baseline=against"])
}

/// The path of the counting program, which is installed if it is missing.
fn runner(folder: &Path) -> Result<PathBuf, String> {
    let root = folder.join(format!("runner-{RUNNER}"));
    let program = root.join("bin").join("gungraun-runner");
    if !program.exists() {
        let mut install = run::cargo(&["install", "--locked", "gungraun-runner", "--version", RUNNER, "--root"]);
        run::watch(install.arg(&root), |_| ()).map_err(|error| format!("cannot install gungraun-runner: {error}"))?;
    }
    Ok(program)
}

/// A work tree of a commit with the current benches, so that both trees run the same benches.
fn older_tree(folder: &Path, reference: &str) -> Result<PathBuf, String> {
    let tree = folder.join("tree");
    let failed = |error| format!("cannot lay out {reference} in {}: {error}", tree.display());
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(failed)?;
    }
    fs::create_dir_all(&tree).map_err(failed)?;
    let mut git = Command::new("git")
        .args(["archive", reference])
        .current_dir(run::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let archive = git.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let unpacked = Command::new("tar")
        .arg("-x")
        .arg("-C")
        .arg(&tree)
        .stdin(archive)
        .status();
    let archived = git.wait().map_err(failed)?;
    if !archived.success() || !unpacked.map_err(failed)?.success() {
        return Err(format!("git has no `{reference}`"));
    }
    let (from, to) = (
        run::root().join("bench").join("instructions"),
        tree.join("bench").join("instructions"),
    );
    fs::create_dir_all(to.join("benches")).map_err(failed)?;
    for file in [
        "Cargo.toml",
        "Cargo.lock",
        "lib.rs",
        "benches/core.rs",
        "benches/service.rs",
    ] {
        fs::copy(from.join(file), to.join(file)).map_err(failed)?;
    }
    Ok(to)
}

fn bench(package: &Path, folder: &Path, runner: &Path, benches: &[&str], options: &[&str]) -> Result<(), String> {
    let mut command = run::cargo(&["bench"]);
    for bench in benches {
        command.args(["--bench", bench]);
    }
    command
        .current_dir(package)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("GUNGRAUN_HOME", folder.join("figures"))
        .env("GUNGRAUN_RUNNER", runner);
    if !options.is_empty() {
        command.arg("--").args(options);
    }
    run::watch(&mut command, |_| ()).map_err(|error| format!("the count failed: {error}"))
}
