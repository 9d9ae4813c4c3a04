//! Installs other gateways in fixed versions from npm and PyPI into the build folder.

use crate::process::own_program;
use anyhow::{Context as _, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const SUPERGATEWAY: &str = "4.0.0";
pub(crate) const MCP_PROXY: &str = "0.13.0";
pub(crate) const MCP_PROXY_NPM: &str = "6.7.19";

/// The `supergateway` script for node. Installs it if necessary.
pub(crate) fn supergateway() -> Result<PathBuf> {
    from_npm("supergateway", SUPERGATEWAY)
}

/// The `mcp-proxy` script for node. Installs it if necessary.
pub(crate) fn mcp_proxy_npm() -> Result<PathBuf> {
    from_npm("mcp-proxy", MCP_PROXY_NPM)
}

/// The script of a package, which has the name of the package.
fn from_npm(name: &str, version: &str) -> Result<PathBuf> {
    let folder = folder()?.join(format!("{name}-{version}-npm"));
    let program = folder.join("node_modules/.bin").join(name);
    if !program.exists() {
        std::fs::create_dir_all(&folder)?;
        let package = format!("{name}@{version}");
        let options = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        let mut npm = Command::new("npm");
        run(npm.args(options).arg(&folder).arg(&package))?;
    }
    Ok(program)
}

/// The `mcp-proxy` program. Installs it if necessary.
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

/// The output of `--version`, or "missing".
pub(crate) fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    let version = output
        .ok()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    version
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| "missing".to_owned())
}

fn folder() -> Result<PathBuf> {
    let target = own_program()?;
    let target = target
        .parent()
        .and_then(Path::parent)
        .context("this program is not in a build folder")?;
    Ok(target.join("other-gateways"))
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
