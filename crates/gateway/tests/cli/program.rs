//! Runs the program in an isolated environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The path of a program that a test needs. CI must have it; elsewhere the test is skipped.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file());
    if found.is_none() {
        // Debian has no package of PowerShell.
        let is_required = program != "pwsh" && std::env::var("CI").as_deref() == Ok("true");
        assert!(!is_required, "{program} is not installed");
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// An empty directory as home and working directory, and an environment without variables of the user.
pub(crate) struct ProgramRunner {
    pub(crate) dir: TempDir,
    vars: Vec<(String, String)>,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProgramRunner {
    pub(crate) fn new() -> Self {
        ProgramRunner {
            dir: tempfile::tempdir().unwrap(),
            vars: Vec::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path().join(name), text).unwrap();
        self
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rethread"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.path())
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> ProgramOutput {
        let output = self.command(args).output().unwrap();
        ProgramOutput {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl ProgramOutput {
    /// The line of `check` for `key`, with single spaces.
    pub(crate) fn value_line(&self, key: &str) -> String {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut lines = self.stdout.lines().map(words);
        let start = format!("{key} = ");
        lines
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    pub(crate) fn assert_stderr_contains(&self, words: &str) -> &Self {
        assert!(self.stderr.contains(words), "`{words}` is not in {self:?}");
        self
    }
}
