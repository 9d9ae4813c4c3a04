//! The Python wheel with the program, made by maturin.

use super::options::Options;
use crate::{run, tools};
use std::path::Path;
use std::process::Command;

/// Makes `rethread-VERSION-py3-none-PLATFORM.whl`. maturin determines the oldest glibc that can run the program.
pub(super) fn make(options: &Options, out: &Path) -> Result<(), String> {
    let out = std::path::absolute(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut build = Command::new(tools::maturin()?);
    build
        .args(["build", "--out"])
        .arg(out)
        .args(options.build_arguments())
        .current_dir(run::root().join("packaging/pypi"));
    run::watch(&mut build, |_| ()).map_err(|error| format!("maturin failed: {error}"))
}
