//! The wheel in a fresh virtual environment.

use super::{assert_serves, assert_version, package, run};
use crate::server::fresh_folder;
use std::process::Command;

#[tokio::test]
async fn wheel_runs_in_a_fresh_environment() {
    let folder = fresh_folder("packages-wheel");
    make_venv(&folder);
    let python = folder.join("bin/python");
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
    ]);
    run(pip.arg(package("rethread-", ".whl")));
    let rethread = || {
        let mut command = Command::new(folder.join("bin/rethread"));
        command.current_dir(&folder).env_remove("PYTHONPATH");
        command
    };
    assert_version(rethread());
    assert_serves(rethread()).await;
    let _ = std::fs::remove_dir_all(folder); // kept after a failure
}

/// With `venv`, or where Python lacks it with `virtualenv`.
fn make_venv(folder: &std::path::Path) {
    let made = ["venv", "virtualenv"].iter().any(|module| {
        let mut python = Command::new("python3");
        python.args(["-m", module, "--clear"]).arg(folder);
        python.output().is_ok_and(|output| output.status.success())
    });
    assert!(made, "python3 has neither `venv` nor `virtualenv`");
}
