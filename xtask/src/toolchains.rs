//! Compiles packages with another Rust version or for another target than the tests do.

use crate::run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// The result is never run, so dependencies and macros need no optimization.
const FAST_BUILD: &str = "profile.dev.package.\"*\".opt-level=0";

/// Packages by `rust-version`.
type Promises = BTreeMap<String, Vec<String>>;

/// The target without clock, threads, sockets or files.
const WASM: &str = "wasm32-unknown-unknown";

/// `xtask wasm`: compiles the protocol crate for a target without an operating system. Fails if the target is missing.
pub(crate) fn wasm() -> Result<(), String> {
    // `rust-toolchain.toml` lists the target, but automatic installation by rustup may be disabled.
    rustup_add(WASM);
    let check = ["check", "--locked", "-p", "rethread-proto", "--target", WASM];
    run::watch(&mut run::cargo(&check), |_| ()).map_err(|error| format!("proto does not compile for {WASM}: {error}"))
}

/// Installs the standard library of a target. Fails if the compiler still has none.
pub(crate) fn add_target(target: &str) -> Result<(), String> {
    if !has_std(target) {
        rustup_add(target);
    }
    match has_std(target) {
        true => Ok(()),
        false => Err(format!(
            "Rust has no standard library for {target}; rustup brings it: rustup target add {target}"
        )),
    }
}

fn has_std(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    let printed = rustc
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(run::root())
        .output();
    let folder = printed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let entries = folder.ok().and_then(|folder| std::fs::read_dir(folder).ok());
    let mut names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("libstd-"))
}

/// A failure is ignored, because the compiler may have the target from another source.
fn rustup_add(target: &str) {
    let mut add = Command::new("rustup");
    if let Err(error) = run::watch(add.args(["target", "add", target]).current_dir(run::root()), |_| ()) {
        println!("rustup does not add {target}: {error}");
    }
}

/// `xtask msrv`: compiles each published package with the `rust-version` of its manifest.
pub(crate) fn msrv() -> Result<(), String> {
    let mut metadata = run::cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let output = metadata
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    for (version, packages) in promises(&metadata)? {
        install(&version)?;
        println!("{version}: {}", packages.join(", "));
        let mut check = Command::new("rustup");
        check
            .args(["run", &version, "cargo", "check", "--locked", "--config", FAST_BUILD])
            .args(packages.iter().flat_map(|package| ["-p", package]))
            .current_dir(run::root());
        run::watch(&mut check, |_| ()).map_err(|error| format!("Rust {version} does not compile it: {error}"))?;
    }
    Ok(())
}

/// The published packages by `rust-version`.
fn promises(metadata: &Value) -> Result<Promises, String> {
    let mut promises = Promises::new();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // `publish = false` is an empty list of registries.
    for package in packages.filter(|package| package["publish"].is_null()) {
        let name = package["name"].as_str().unwrap_or_default();
        let version = package["rust_version"].as_str();
        let version = version.ok_or_else(|| format!("{name} has no rust-version"))?;
        promises
            .entry(first_release(version))
            .or_default()
            .push(name.to_owned());
    }
    match promises.is_empty() {
        true => Err("cargo metadata names no package that is published".to_owned()),
        false => Ok(promises),
    }
}

/// The name of the toolchain: `1.88` means 1.88.0.
fn first_release(version: &str) -> String {
    match version.matches('.').count() {
        1 => format!("{version}.0"),
        _ => version.to_owned(),
    }
}

fn install(version: &str) -> Result<(), String> {
    let mut probe = Command::new("rustup");
    probe.args(["run", version, "rustc", "--version"]);
    let found = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(format!("cannot start rustup, which brings Rust {version}: {error}")),
    }
    let mut install = Command::new("rustup");
    install.args([
        "toolchain",
        "install",
        version,
        "--profile",
        "minimal",
        "--no-self-update",
    ]);
    run::watch(&mut install, |_| ()).map_err(|error| format!("cannot install Rust {version}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn standard_library_is_found_for_the_host_only() {
        let version = Command::new("rustc").arg("-vV").output().unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        assert!(has_std(host));
        assert!(!has_std("no-such-target"));
    }

    #[test]
    fn published_packages_are_grouped_by_version() {
        let package = |name: &str, version: Value, publish: Value| json!({ "name": name, "rust_version": version, "publish": publish });
        let metadata = json!({ "packages": [
            package("a", json!("1.88"), Value::Null),
            package("b", json!("1.90.1"), Value::Null),
            package("c", json!("1.88"), Value::Null),
            package("tool", Value::Null, json!([])),
        ] });
        let expected = [
            ("1.88.0".to_owned(), vec!["a".to_owned(), "c".to_owned()]),
            ("1.90.1".to_owned(), vec!["b".to_owned()]),
        ];
        assert_eq!(promises(&metadata), Ok(expected.into()));
        let bare = json!({ "packages": [package("a", Value::Null, Value::Null)] });
        assert!(promises(&bare).is_err());
        assert!(promises(&json!({})).is_err());
    }
}
