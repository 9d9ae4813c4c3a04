//! The program to package.

use super::options::Options;
use super::{output, platform::Platform};
use crate::{run, toolchains};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cargo package of the program.
const PACKAGE: &str = "rethread-gateway";

/// The program and its metadata.
pub(super) struct Program {
    pub(super) file: PathBuf,
    pub(super) version: String,
    /// The target triple.
    pub(super) target: String,
    pub(super) platform: Platform,
    pub(super) libc: Option<&'static str>,
}

impl Program {
    /// Builds the program, or uses the one that the user names.
    pub(super) fn prepare(options: &Options) -> Result<Self, String> {
        let target = match &options.target {
            Some(target) => target.clone(),
            None => host()?,
        };
        let platform = Platform::of(&target)?;
        let file = match &options.binary {
            Some(file) => file.clone(),
            None => build(options)?,
        };
        let content = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok(Program {
            version: version()?,
            libc: libc(&content),
            file,
            target,
            platform,
        })
    }

    /// The output of the program for a command. `None` if this machine cannot run it.
    pub(super) fn run(&self, arguments: &[&str]) -> Option<Vec<u8>> {
        let output = Command::new(&self.file).args(arguments).output().ok()?;
        output.status.success().then_some(output.stdout)
    }
}

fn build(options: &Options) -> Result<PathBuf, String> {
    if let Some(target) = &options.target {
        toolchains::add_target(target)?;
    }
    let arguments = options.build_arguments();
    let mut build = run::cargo(&["build", "-p", PACKAGE, "--bin", "rethread"]);
    run::watch(build.args(&arguments), |_| ()).map_err(|error| format!("the build failed: {error}"))?;
    let mut folder = run::target();
    folder.extend(&options.target);
    Ok(folder.join(folder_of(&options.profile)).join("rethread"))
}

/// The folder of a profile. Cargo builds the profile `dev` in `debug`.
fn folder_of(profile: &str) -> &str {
    match profile {
        "dev" => "debug",
        other => other,
    }
}

/// The target triple of the compiler.
fn host() -> Result<String, String> {
    let text = output(Command::new("rustc").arg("-vV").current_dir(run::root()))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| format!("rustc -vV names no host: {text}"))
}

fn version() -> Result<String, String> {
    let metadata = output(&mut run::cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == PACKAGE);
    let version = package.and_then(|package| package["version"].as_str());
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("cargo metadata lacks {PACKAGE}"))
}

/// The C library that the program loads, by its npm name. `None` for a static program. The name of the loader is in the
/// first page of an ELF file.
fn libc(program: &[u8]) -> Option<&'static str> {
    let start = &program[..program.len().min(4096)];
    let has = |name: &[u8]| start.windows(name.len()).any(|part| part == name);
    match (has(b"/ld-linux-"), has(b"/ld-musl-")) {
        (true, _) => Some("glibc"),
        (_, true) => Some("musl"),
        _ => None,
    }
}

/// The Unix time of the last commit in seconds, so that the archive is reproducible.
pub(super) fn commit_time(root: &Path) -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let log = || {
        output(
            Command::new("git")
                .args(["log", "-1", "--format=%ct"])
                .current_dir(root),
        )
        .ok()
    };
    let time = given.or_else(|| Some(String::from_utf8_lossy(&log()?).trim().to_owned()));
    time.filter(|time| !time.is_empty()).unwrap_or_else(|| "0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_is_that_of_the_loader() {
        assert_eq!(libc(b"\x7fELF..../lib64/ld-linux-x86-64.so.2\0"), Some("glibc"));
        assert_eq!(libc(b"\x7fELF..../lib/ld-musl-x86_64.so.1\0"), Some("musl"));
        assert_eq!(libc(b"\x7fELF static"), None);
    }

    /// The test binary itself is a program for this machine.
    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn libc_of_a_real_program_is_found() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(libc(&own), Some("glibc"));
    }
}
