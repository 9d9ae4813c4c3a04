//! `xtask dist`: packages of the program for users without cargo.

mod npm;
mod options;
mod platform;
mod program;
mod tarball;
mod wheel;

use crate::run;
use options::Options;
use program::Program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The list of checksums, in the format of `sha256sum --check`.
const CHECKSUMS: &str = "SHA256SUMS";

/// `xtask dist [--target TRIPLE] [--profile NAME] [--binary FILE] [--out DIR]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    npm::check()?;
    let program = Program::prepare(&options)?;
    // Remove packages of an earlier run.
    let out = &options.out;
    let stage = out.join("stage");
    remove_folder(out)?;
    make_folder(&stage)?;
    tarball::make(&program, &stage, out)?;
    npm::make(&program, &stage, out)?;
    match options.binary {
        None => wheel::make(&options, out)?,
        Some(_) => println!("no wheel: maturin packs only a program that it builds, not --binary"),
    }
    remove_folder(&stage)?;
    write_checksums(out)
}

/// The command that makes packages with the release profile, because the outside tests have built that program.
pub(crate) fn release_packages() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "xtask".into()));
    command.args(["dist", "--profile", "release"]);
    command
}

/// The default output folder.
fn default_out() -> PathBuf {
    run::target().join("packages")
}

/// Lists all packages with size and checksum.
fn write_checksums(out: &Path) -> Result<(), String> {
    let mut names: Vec<String> = fs::read_dir(out)
        .map_err(|error| format!("cannot read {}: {error}", out.display()))?
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let sums = output(Command::new("sha256sum").args(&names).current_dir(out))?;
    write_file(&out.join(CHECKSUMS), &sums)?;
    println!("{}:", out.display());
    for name in names {
        let bytes = fs::metadata(out.join(&name)).map_or(0, |file| file.len());
        println!("  {:>6.2} MB  {name}", bytes as f64 / 1e6);
    }
    Ok(())
}

/// The licence texts for every package.
fn copy_licences(folder: &Path) -> Result<(), String> {
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        copy_file(&run::root().join(name), &folder.join(name))?;
    }
    Ok(())
}

/// Runs a command to its end and returns its stdout.
fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start {name}: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{name} failed: {}", output.status)),
    }
}

fn make_folder(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))
}

fn remove_folder(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn copy_file(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to);
    copied
        .map(drop)
        .map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn write_file(file: &Path, content: &[u8]) -> Result<(), String> {
    fs::write(file, content).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
