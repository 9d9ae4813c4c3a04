//! The scripts of `clients`, as `setup.sh` installed them.

use crate::server::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

const HOW_TO_INSTALL: &str = "install the clients with: tests/outside/clients/setup.sh target/outside";

/// The scripts watch their own time; this is for a script that does not.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a script of `folder()` to its end. Prints its closing line; fails with all it said.
pub(crate) async fn run(program: &str, arguments: &[&str]) {
    run_with(program, arguments, &[]).await;
}

/// The same for a script that is not alone with its server.
pub(crate) async fn run_beside_others(program: &str, arguments: &[&str]) {
    run_with(program, arguments, &[("RETHREAD_SHARED", "1")]).await;
}

/// What a script found.
pub(crate) struct Checks {
    /// The names of the checks that passed.
    pub(crate) passed: BTreeSet<String>,
    /// The others, with reasons.
    pub(crate) failed: Vec<String>,
}

/// Runs a script to its end, whatever it finds.
pub(crate) async fn checks(program: &str, arguments: &[&str]) -> Checks {
    let output = output(program, arguments, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = |kind: &'static str| {
        said.lines()
            .filter_map(move |line| line.strip_prefix(kind))
            .map(str::to_owned)
    };
    Checks {
        passed: lines("ok ").collect(),
        failed: lines("FAIL ").collect(),
    }
}

async fn run_with(program: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let output = output(program, arguments, environment).await;
    let what = arguments.join(" ");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}\n{said}\n{complaints}",
        output.status
    );
    let closing = said.lines().last().unwrap_or_default();
    for line in said.lines().filter(|line| line.starts_with("info ")) {
        println!("{what}: {line}");
    }
    println!("{what}: {closing}");
}

async fn output(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = folder();
    let program = if program == "node" {
        node(&folder)
    } else {
        folder.join(program)
    };
    let output = Command::new(&program)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(&folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match timeout(LIMIT, output).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => panic!("cannot start {}: {error}; {HOW_TO_INSTALL}", program.display()),
        Err(_) => panic!("{}: no end within {} s", arguments.join(" "), LIMIT.as_secs()),
    }
}

/// Where `setup.sh` put everything.
fn folder() -> PathBuf {
    let folder = root().join("target/outside");
    assert!(
        folder.join("ts").is_dir(),
        "{} is missing; {HOW_TO_INSTALL}",
        folder.display()
    );
    folder
}

/// The Node that the pinned packages bring, where they do: the system's may be too old.
fn node(folder: &Path) -> PathBuf {
    let brought = ["x64", "arm64"].map(|arch| folder.join(format!("ts/node_modules/node-linux-{arch}/bin/node")));
    let found = brought.into_iter().find(|program| program.is_file());
    found.unwrap_or_else(|| PathBuf::from("node"))
}
