//! The gateways that people use today, in fixed versions, brought from npm and PyPI into a folder beside the build.

use crate::process::own_program;
use anyhow::{Context as _, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const SUPERGATEWAY: &str = "4.0.0";
pub(crate) const MCP_PROXY: &str = "0.13.0";

/// `supergateway`, installed if it is not there: the script, to be run with node.
pub(crate) fn supergateway() -> Result<PathBuf> {
    let folder = folder()?.join(format!("supergateway-{SUPERGATEWAY}"));
    let program = folder.join("node_modules/.bin/supergateway");
    if !program.exists() {
        std::fs::create_dir_all(&folder)?;
        let package = format!("supergateway@{SUPERGATEWAY}");
        let options = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        let mut npm = Command::new("npm");
        run(npm.args(options).arg(&folder).arg(&package))?;
    }
    Ok(program)
}

/// `mcp-proxy`, installed if it is not there.
pub(crate) fn mcp_proxy() -> Result<PathBuf> {
    let folder = folder()?.join(format!("mcp-proxy-{MCP_PROXY}"));
    let program = folder.join("bin/mcp-proxy");
    if !program.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let package = format!("mcp-proxy=={MCP_PROXY}");
        run(Command::new(folder.join("bin/pip")).args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            &package,
        ]))?;
    }
    Ok(program)
}

/// The version that a program tells, or that it is missing.
pub(crate) fn version(program: &str) -> String {
    let told = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    let told = told
        .ok()
        .map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    told.filter(|told| !told.is_empty())
        .unwrap_or_else(|| "missing".to_owned())
}

fn folder() -> Result<PathBuf> {
    let target = own_program()?;
    let target = target
        .parent()
        .and_then(Path::parent)
        .context("this program is in no build folder")?;
    Ok(target.join("rivals"))
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    eprintln!("{name} {}", arguments.join(" "));
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("{name} is missing"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}
