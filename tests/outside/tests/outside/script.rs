//! Runs the scripts in `clients`, as `setup.sh` installed them.

use crate::server::root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

const HOW_TO_INSTALL: &str = "install the clients with: tests/outside/clients/setup.sh target/outside";

/// Scripts have their own timeouts. This one is for a script that hangs.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs a script of `folder()`. Prints its last line; on failure panics with its whole output.
pub(crate) async fn run(program: &str, arguments: &[&str]) {
    run_with(program, arguments, &[]).await;
}

/// Like `run`, for a script that shares its server with others.
pub(crate) async fn run_concurrently(program: &str, arguments: &[&str]) {
    run_with(program, arguments, &[("RETHREAD_SHARED", "1")]).await;
}

/// Like `run`, for a script whose server has several nodes.
pub(crate) async fn run_on_nodes(program: &str, arguments: &[&str], nodes: &[&str]) {
    run_with(program, arguments, &[("RETHREAD_NODES", &nodes.join(","))]).await;
}

/// The results of a script.
pub(crate) struct Checks {
    /// Names of the passed checks.
    pub(crate) passed: BTreeSet<String>,
    /// Failed checks with reasons.
    pub(crate) failed: Vec<String>,
}

/// Runs a script and collects its checks.
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
        node_in(&folder)
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
    match timeout(SCRIPT_TIMEOUT, output).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => panic!("cannot start {}: {error}; {HOW_TO_INSTALL}", program.display()),
        Err(_) => panic!("{}: no end within {} s", arguments.join(" "), SCRIPT_TIMEOUT.as_secs()),
    }
}

/// The folder of `setup.sh`.
pub(crate) fn folder() -> PathBuf {
    let folder = root().join("target/outside");
    assert!(
        folder.join("ts").is_dir(),
        "{} is missing; {HOW_TO_INSTALL}",
        folder.display()
    );
    folder
}

/// The Node that runs the scripts.
pub(crate) fn node() -> PathBuf {
    node_in(&folder())
}

/// The Node of the pinned packages, if they include one. The system's Node may be too old.
fn node_in(folder: &Path) -> PathBuf {
    let brought = ["x64", "arm64"].map(|arch| folder.join(format!("ts/node_modules/node-linux-{arch}/bin/node")));
    let found = brought.into_iter().find(|program| program.is_file());
    found.unwrap_or_else(|| PathBuf::from("node"))
}
