//! The Python wheel with the program, made by maturin.

use super::options::Options;
use crate::{run, tools};
use std::path::Path;
use std::process::Command;

/// Makes `rethread-VERSION-py3-none-PLATFORM.whl`. For a program that loads glibc, maturin
/// determines the oldest version that can run it.
pub(super) fn make(options: &Options, out: &Path) -> Result<(), String> {
    let out = std::path::absolute(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut build = Command::new(tools::maturin()?);
    build
        .args(["build", "--out"])
        .arg(out)
        .args(options.build_arguments())
        .args(platforms(options.target.as_deref()))
        .current_dir(run::root().join("packaging/pypi"));
    run::watch(&mut build, |_| ()).map_err(|error| format!("maturin failed: {error}"))
}

/// A program for musl is static, so it runs with every C library. pip on a musl system looks for the second tag.
fn platforms(target: Option<&str>) -> &'static [&'static str] {
    match target {
        Some(target) if target.ends_with("-musl") => &["--compatibility", "manylinux2014", "musllinux_1_1"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_wheel_is_for_both_libraries() {
        assert!(platforms(Some("x86_64-unknown-linux-musl")).contains(&"musllinux_1_1"));
        assert!(platforms(Some("x86_64-unknown-linux-gnu")).is_empty());
        assert!(platforms(None).is_empty());
    }
}
