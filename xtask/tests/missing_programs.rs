//! `cargo xtask test` on a machine that lacks the programs of the tests.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A simulated Debian machine whose only program is an `apt-get` that does nothing.
struct Machine {
    path: PathBuf,
}

impl Machine {
    fn with_user(name: &str, user: u32) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path); // left by an earlier run
        fs::create_dir_all(&path).unwrap();
        let machine = Machine { path };
        machine.add("id", &format!("echo {user}"));
        machine.add("apt-get", &format!("echo \"$@\" >>{}", machine.log().display()));
        machine
    }

    fn add(&self, program: &str, script: &str) {
        let file = self.path.join(program);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.path.join("installed")
    }

    /// The arguments of all calls of `apt-get`.
    fn installed(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn test(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("test").args(arguments).env("PATH", &self.path);
        command.output().unwrap()
    }
}

#[test]
fn user_gets_the_command_and_nothing_is_installed() {
    let machine = Machine::with_user("user", 1000);
    let output = machine.test(&[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let line = "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ca-certificates bash curl";
    assert!(text.lines().any(|printed| printed.starts_with(line)), "{text}");
    assert!(
        text.contains("chromium") && text.contains("cargo xtask test --fast"),
        "{text}"
    );
    assert!(output.stdout.is_empty(), "it has started");
    assert_eq!(machine.installed(), "");
}

#[test]
fn root_installs_before_the_first_step() {
    let machine = Machine::with_user("root", 0);
    let output = machine.test(&[]);
    let installed = machine.installed();
    let lines: Vec<&str> = installed.lines().collect();
    assert_eq!(lines[0], "update -qq");
    assert!(
        lines[1].starts_with("install -y -qq --no-install-recommends ca-certificates bash"),
        "{installed}"
    );
    // This `apt-get` installs nothing.
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("the packages of this system do not bring these programs"),
        "{text}"
    );
    assert!(
        !String::from_utf8(output.stdout).unwrap().contains("--- format"),
        "it has started"
    );
}
