//! A gateway in front of the built-in server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_rethread");

pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: String,
    _home: TempDir,
}

impl Gateway {
    /// Starts `rethread` with `args`. They must contain `--public-url`, so that the start message has the address.
    pub(crate) fn start(args: &[String]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = command(home.path(), args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut seen = String::new();
        let address = lines.by_ref().find_map(|line| {
            seen.push_str(&line);
            let words: Vec<&str> = line.split_whitespace().collect();
            match serde_json::from_str::<serde_json::Value>(&line) {
                Ok(event) => event["listen"].as_str().map(str::to_owned), // `--log-format json`
                Err(_) => matches!(words.as_slice(), ["listens", _]).then(|| words[1].to_owned()),
            }
        });
        // Keeps the pipe empty, so that the gateway never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Gateway {
            child,
            address: address.unwrap_or_else(|| panic!("no address in: {seen}")),
            _home: home,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.rsplit(':').next().unwrap().parse().unwrap()
    }

    pub(crate) fn terminate(&self) {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("bash").args(["-c", &kill]).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program in an environment without variables of the user.
pub(crate) fn command(home: &std::path::Path, args: &[String]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}
