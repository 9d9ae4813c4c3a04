//! A shell with piped input and output.

use super::script::matches;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long to wait for a line of output.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// The shell prints this line after each command.
const END_OF_COMMAND: &str = "<<the command has ended>>";

pub(super) struct Terminal {
    shell: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// A line that `peek` has read.
    peeked: Option<String>,
    /// All lines so far, for failure messages.
    transcript: Vec<String>,
    running: usize,
    /// Output that the header does not show is allowed.
    skips_output: bool,
}

impl Terminal {
    pub(super) fn open(directory: &Path) -> Self {
        // A shell cannot catch a signal that its parent ignores. Background jobs ignore SIGINT.
        let mut shell = Command::new("env")
            .args(["--default-signal=INT", "bash"])
            .current_dir(directory)
            .env("TMPDIR", directory)
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C then reaches the shell and its children only
            .spawn()
            .expect("bash");
        let mut input = shell.stdin.take().expect("a pipe");
        let output = BufReader::new(shell.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        // The trap lets Ctrl-C end the command but not the shell. curl prints a progress meter unless it is silent.
        writeln!(input, "trap : INT; curl() {{ command curl -s \"$@\"; }}").expect("bash reads its input");
        Terminal {
            shell,
            input,
            output: lines,
            peeked: None,
            transcript: Vec::new(),
            running: 0,
            skips_output: false,
        }
    }

    /// Types a command after the previous one has ended.
    pub(super) fn enter(&mut self, command: &str) {
        self.wait_until_idle();
        self.transcript.extend(command.lines().map(|line| format!("$ {line}")));
        self.skips_output = false;
        self.running += 1;
        // The end marker needs its own line, even if the output lacks a final newline.
        let typed = format!("{{\n{command}\n}} </dev/null 2>&1\nprintf '\\n{END_OF_COMMAND}\\n'\n");
        self.input.write_all(typed.as_bytes()).expect("bash reads its input");
    }

    /// The next line, without consuming it.
    pub(super) fn peek(&mut self) -> String {
        let line = self.line();
        self.peeked = Some(line.clone());
        line
    }

    /// Waits for the expected lines.
    pub(super) fn expect(&mut self, expected: &[String]) {
        for expected in expected.iter().filter(|line| !line.is_empty()) {
            match expected.as_str() {
                "..." => self.skips_output = true,
                "^C" => {
                    self.transcript.push("^C".to_owned());
                    self.signal("INT");
                    self.skips_output = true;
                }
                pattern => loop {
                    let line = self.line();
                    if matches(pattern, &line) {
                        self.skips_output = false;
                        break;
                    }
                    assert!(
                        self.skips_output,
                        "expected\n  {pattern}\nfound\n  {line}\n\n{}",
                        self.transcript()
                    );
                },
            }
        }
    }

    /// Waits until no command runs. Panics on unexpected output.
    pub(super) fn wait_until_idle(&mut self) {
        while self.running > 0 {
            if let Some(line) = self.receive() {
                self.check_unexpected(&line);
            }
        }
        while let Some(line) = self.peeked.take().or_else(|| self.output.try_recv().ok()) {
            self.check_unexpected(&line);
        }
    }

    fn check_unexpected(&self, line: &str) {
        assert!(
            self.skips_output || line.is_empty(),
            "not in the header:\n  {line}\n\n{}",
            self.transcript()
        );
    }

    /// The next line that is not empty.
    fn line(&mut self) -> String {
        if let Some(line) = self.peeked.take() {
            return line;
        }
        loop {
            if let Some(line) = self.receive().filter(|line| !line.is_empty()) {
                return line;
            }
        }
    }

    /// The next line. `None` for the end marker and for SSE comments, which are keep-alives.
    fn receive(&mut self) -> Option<String> {
        let line = match self.output.recv_timeout(OUTPUT_TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("no output for {OUTPUT_TIMEOUT:?}\n\n{}", self.transcript()),
            Err(RecvTimeoutError::Disconnected) => panic!("the shell has exited\n\n{}", self.transcript()),
        };
        if line == END_OF_COMMAND {
            self.running -= 1;
            return None;
        }
        let line = line.trim_end().to_owned();
        self.transcript.push(line.clone());
        (!line.starts_with(':')).then_some(line)
    }

    fn transcript(&self) -> String {
        format!("Terminal:\n{}", self.transcript.join("\n"))
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} -- -{}", self.shell.id());
        let _ = Command::new("bash").args(["-c", &kill]).status();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.signal("KILL");
        let _ = self.shell.wait();
    }
}
