//! The npm packages: a launcher, and the program in a package for its platform. Neither has an install script.

use super::program::Program;
use super::{copy_file, copy_licences, make_folder, output, write_file};
use crate::{files, run};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Fails before the build if npm is missing.
pub(super) fn check() -> Result<(), String> {
    match run::succeeds(Command::new("npm").arg("--version")) {
        true => Ok(()),
        false => Err("npm is missing; it packs the npm packages".to_owned()),
    }
}

/// Makes `rethread-VERSION.tgz` and `rethread-PLATFORM-VERSION.tgz`.
pub(super) fn make(program: &Program, stage: &Path, out: &Path) -> Result<(), String> {
    let sources = run::root().join("packaging/npm");
    let manifest = files::text(&sources.join("rethread/package.json"))?;
    let manifest: Value = serde_json::from_str(&manifest).map_err(|error| format!("package.json: {error}"))?;

    let launcher = stage.join("npm/launcher");
    make_folder(&launcher.join("bin"))?;
    copy_file(
        &sources.join("rethread/bin/rethread.js"),
        &launcher.join("bin/rethread.js"),
    )?;
    copy_file(&sources.join("rethread/README.md"), &launcher.join("README.md"))?;
    pack(&launcher, &launcher_manifest(&manifest, &program.version), out)?;

    let platform = stage.join("npm/platform");
    make_folder(&platform.join("bin"))?;
    copy_file(&program.file, &platform.join("bin/rethread"))?;
    copy_file(&sources.join("platform/README.md"), &platform.join("README.md"))?;
    pack(&platform, &platform_manifest(&manifest, program)?, out)
}

/// The manifest of the launcher. It accepts only program packages of its own version.
fn launcher_manifest(source: &Value, version: &str) -> Value {
    let mut manifest = source.clone();
    manifest["version"] = json!(version);
    for wanted in manifest["optionalDependencies"].as_object_mut().into_iter().flatten() {
        *wanted.1 = json!(version);
    }
    manifest
}

fn platform_manifest(launcher: &Value, program: &Program) -> Result<Value, String> {
    let (name, platform) = (program.platform.package(), program.platform);
    if launcher["optionalDependencies"][&name].is_null() {
        return Err(format!("packaging/npm/rethread/package.json does not depend on {name}"));
    }
    let mut manifest = json!({
        "name": name,
        "version": program.version,
        "description": format!("The program of the package rethread for {} on {}.", platform.os, platform.cpu),
        "license": launcher["license"],
        "files": ["bin"],
        "os": [platform.os],
        "cpu": [platform.cpu],
        "preferUnplugged": true, // Yarn must not keep a program in an archive
    });
    if let Some(libc) = program.libc {
        manifest["libc"] = json!([libc]);
    }
    Ok(manifest)
}

fn pack(folder: &Path, manifest: &Value, out: &Path) -> Result<(), String> {
    copy_licences(folder)?;
    let text = format!("{manifest:#}\n");
    write_file(&folder.join("package.json"), text.as_bytes())?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--ignore-scripts", "--pack-destination"])
        .arg(out)
        .current_dir(folder);
    output(&mut npm).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::platform::Platform;

    fn source() -> Value {
        serde_json::from_str(include_str!("../../../packaging/npm/rethread/package.json")).unwrap()
    }

    fn program(target: &str, libc: Option<&'static str>) -> Program {
        Program {
            file: "rethread".into(),
            version: "1.2.3".to_owned(),
            target: target.to_owned(),
            platform: Platform::of(target).unwrap(),
            libc,
        }
    }

    #[test]
    fn launcher_depends_on_its_own_version_of_each_platform() {
        let manifest = launcher_manifest(&source(), "1.2.3");
        assert_eq!(manifest["version"], "1.2.3");
        let wanted = json!({ "@rethread/linux-arm64": "1.2.3", "@rethread/linux-x64": "1.2.3" });
        assert_eq!(manifest["optionalDependencies"], wanted);
        assert!(manifest["scripts"].is_null(), "an install script");
    }

    #[test]
    fn platform_package_is_installed_on_its_platform_only() {
        let manifest = platform_manifest(&source(), &program("aarch64-unknown-linux-gnu", Some("glibc"))).unwrap();
        assert_eq!(manifest["name"], "@rethread/linux-arm64");
        let place = (&manifest["os"], &manifest["cpu"], &manifest["libc"]);
        assert_eq!(place, (&json!(["linux"]), &json!(["arm64"]), &json!(["glibc"])));
        let manifest = platform_manifest(&source(), &program("x86_64-unknown-linux-musl", None)).unwrap();
        assert!(manifest["libc"].is_null());
    }

    #[test]
    fn platform_without_a_launcher_dependency_is_refused() {
        let unknown = json!({ "optionalDependencies": {} });
        assert!(platform_manifest(&unknown, &program("x86_64-unknown-linux-gnu", None)).is_err());
    }
}
