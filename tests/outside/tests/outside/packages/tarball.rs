//! The archive and the checksums.

use super::{assert_serves, assert_version, package, run};
use crate::server::{fresh_folder, target};
use std::process::Command;

#[tokio::test]
async fn checksums_are_those_of_the_packages() {
    let packages = target().join("packages");
    let checked = run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(packages));
    for end in [".tar.gz: OK", ".tgz: OK", ".whl: OK"] {
        assert!(checked.lines().any(|line| line.ends_with(end)), "{checked}");
    }
}

#[tokio::test]
async fn tarball_has_the_program_and_its_pages() {
    let folder = fresh_folder("packages-tarball");
    let tarball = package("rethread-", ".tar.gz");
    run(Command::new("tar").arg("-xzf").arg(&tarball).arg("-C").arg(&folder));
    let name = tarball
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .replace(".tar.gz", "");
    let root = folder.join(name);
    for file in [
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "completions/_rethread",
        "man/rethread-serve.1",
    ] {
        let size = std::fs::metadata(root.join(file)).map_or(0, |file| file.len());
        assert!(size > 100, "{file} has {size} bytes");
    }
    let rethread = || Command::new(root.join("rethread"));
    assert_version(rethread());
    assert_serves(rethread()).await;
    let _ = std::fs::remove_dir_all(folder); // kept after a failure
}
