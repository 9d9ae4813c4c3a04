//! Third-party programs that check this repository: the spelling checker and the checker of dependencies.

use crate::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exact, because the dictionary depends on the version.
const TYPOS: &str = "1.51.1";

/// The version of cargo-deny to install if it is missing.
const CARGO_DENY: &str = "0.20.2";

/// The version of maturin, which decides the names and contents of wheels.
const MATURIN: &str = "1.16.0";

/// Creates a virtual environment in the folder that follows.
const MAKE_VENV: &[&[&str]] = &[
    &["python3", "-m", "venv", "--clear"],
    &["python3", "-m", "virtualenv", "--clear", "-q"],
    &["virtualenv", "--clear", "-q"],
];

/// `xtask typos [OPTION ...]`: spelling of all files, with the exceptions of `typos.toml`.
pub(crate) fn typos(options: &[&str]) -> Result<(), String> {
    let mut command = Command::new(typos_program()?);
    command.args(options).current_dir(run::root());
    run::watch(&mut command, |_| ()).map_err(|_| "correct the words, or add them to typos.toml".to_owned())
}

/// The spelling checker. Its Python package contains the binary and installs in 2 s; a build from source takes minutes.
fn typos_program() -> Result<PathBuf, String> {
    python_program("typos", TYPOS)
}

/// The maker of wheels.
pub(crate) fn maturin() -> Result<PathBuf, String> {
    python_program("maturin", MATURIN)
}

/// A program of a Python package of the same name, in its own virtual environment.
fn python_program(name: &str, version: &str) -> Result<PathBuf, String> {
    let venv = run::target().join("tools").join(format!("{name}-{version}"));
    let program = venv.join("bin").join(name);
    if !program.exists() {
        println!("--- installing {name} {version}");
        make_venv(&venv)?;
        let mut pip = Command::new(venv.join("bin").join("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .arg(format!("{name}=={version}"));
        run::watch(&mut pip, |_| ()).map_err(|error| format!("cannot install {name}: {error}"))?;
    }
    Ok(program)
}

fn make_venv(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let makes = |command: &&[&str]| {
        let mut command = run::command(command);
        run::succeeds(command.arg(folder))
    };
    match MAKE_VENV.iter().any(makes) {
        true => Ok(()),
        false => Err("python3 has neither `venv` nor `virtualenv`".to_owned()),
    }
}

/// `xtask deny`: licences, sources, bans, and advisories if their database is reachable.
pub(crate) fn deny() -> Result<(), String> {
    install_cargo_deny()?;
    let check = ["deny", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    run::watch(&mut run::cargo(&check), |_| ()).map_err(|error| format!("cargo deny: {error}"))?;
    // The database is a git repository on another host than the packages, so it may be unreachable.
    if !run::succeeds(&mut run::cargo(&["deny", "fetch", "db"])) {
        println!("NOT CHECKED: advisories. The advisory database cannot be fetched: cargo deny fetch db");
        return Ok(());
    }
    let check = ["deny", "check", "--hide-inclusion-graph", "advisories"];
    run::watch(&mut run::cargo(&check), |_| ()).map_err(|error| format!("cargo deny: {error}"))
}

/// Installs cargo-deny into cargo's `bin` folder if it is missing. The debug build takes 3 CPU minutes, the release
/// build several times that. One check takes a second with either.
fn install_cargo_deny() -> Result<(), String> {
    if run::succeeds(&mut run::cargo(&["deny", "--version"])) {
        return Ok(());
    }
    println!("--- installing cargo-deny {CARGO_DENY}, once");
    let mut install = run::cargo(&[
        "install",
        "--quiet",
        "--locked",
        "--debug",
        "cargo-deny",
        "--version",
        CARGO_DENY,
    ]);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0");
    run::watch(&mut install, |_| ()).map_err(|error| format!("cannot install cargo-deny: {error}"))
}
