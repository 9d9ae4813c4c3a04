//! The paths of the repository, and helpers to run commands.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The root of the repository: the parent of this package.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package
        .and_then(|package| package.parent().map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from("."))
}

/// The target directory of cargo.
pub(crate) fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    root().join(given.unwrap_or_else(|| PathBuf::from("target")))
}

/// The cargo that started this program.
pub(crate) fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A cargo command in the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo_program());
    command.args(arguments).current_dir(root());
    remove_package_variables(&mut command);
    command
}

/// Removes the variables that cargo set for this package. Build scripts of dependencies watch some of them (`ring`), and would
/// run again after each change between `cargo xtask` and a plain `cargo`.
pub(crate) fn remove_package_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// A command given as a program and its arguments.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words.first().copied().unwrap_or_default());
    command.args(words.iter().skip(1));
    command
}

/// Whether a command runs and succeeds. Discards its output.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command to its end. Shows its output, and passes each line of stdout to the callback.
pub(crate) fn watch(command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), String> {
    let mut child = spawn(command)?;
    if let Some(stdout) = child.stdout.take() {
        for_each_line(stdout, |text| {
            println!("{text}");
            line(text);
        });
    }
    end(child)
}

/// Like `watch`, for concurrent commands. Each line is shown with a name as a prefix.
pub(crate) fn watch_beside(name: &str, command: &mut Command, mut line: impl FnMut(&str)) -> Result<(), String> {
    let mut child = spawn(command.stderr(Stdio::piped()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        if let Some(stderr) = stderr {
            scope.spawn(move || for_each_line(stderr, |text| eprintln!("[{name}] {text}")));
        }
        if let Some(stdout) = stdout {
            for_each_line(stdout, |text| {
                println!("[{name}] {text}");
                line(text);
            });
        }
    });
    end(child)
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    started.map_err(|error| format!("cannot start {}: {error}", command.get_program().to_string_lossy()))
}

fn for_each_line(stream: impl Read, mut line: impl FnMut(&str)) {
    for text in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
        line(&String::from_utf8_lossy(&text));
    }
}

fn end(mut child: Child) -> Result<(), String> {
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("cannot wait for it: {error}")),
    }
}
