//! A gateway before its built-in server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_rethread");

pub(crate) struct Gateway {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
    _home: TempDir,
}

impl Gateway {
    /// `rethread` with `args`, which must hold a `--public-url`: then it tells where it listens.
    pub(crate) fn start(args: &[String]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = command(home.path(), args).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut heard = String::new();
        let address = told.by_ref().find_map(|line| {
            heard.push_str(&line);
            let words: Vec<&str> = line.split_whitespace().collect();
            match serde_json::from_str::<serde_json::Value>(&line) {
                Ok(event) => event["listen"].as_str().map(str::to_owned), // `--log-format json`
                Err(_) => matches!(words.as_slice(), ["listens", _]).then(|| words[1].to_owned()),
            }
        });
        // It must not wait for somebody to read what it says.
        std::thread::spawn(move || told.for_each(drop));
        Gateway {
            child,
            address: address.unwrap_or_else(|| panic!("it says nothing of its address: {heard}")),
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

/// The program in an environment with nothing of ours.
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
