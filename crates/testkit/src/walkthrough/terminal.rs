//! A terminal: a shell that is typed into, and what it shows.

use super::script::fits;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long anything may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the shell says when a command has ended.
const DONE: &str = "<<the command has ended>>";

pub(super) struct Terminal {
    shell: Child,
    keyboard: ChildStdin,
    screen: Receiver<String>,
    /// The line that was looked at but not yet accounted for.
    next: Option<String>,
    /// Everything so far, for people who wonder why a test failed.
    shown: Vec<String>,
    running: usize,
    /// Whatever comes now need not be in the header.
    lenient: bool,
}

impl Terminal {
    pub(super) fn open(room: &Path) -> Self {
        // A shell cannot catch a signal that its parent ignores, as a job in the background ignores SIGINT.
        let mut shell = Command::new("env")
            .args(["--default-signal=INT", "bash"])
            .current_dir(room)
            .env("TMPDIR", room)
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // so that Ctrl-C reaches it and what it runs, and nothing else
            .spawn()
            .expect("bash is there");
        let mut keyboard = shell.stdin.take().expect("it is piped");
        let screen = BufReader::new(shell.stdout.take().expect("it is piped"));
        let (show, shown) = channel();
        std::thread::spawn(move || {
            for line in screen.lines().map_while(Result::ok) {
                if show.send(line).is_err() {
                    return;
                }
            }
        });
        // Ctrl-C ends what runs, not the shell. A terminal would keep curl's progress meter away.
        writeln!(keyboard, "trap : INT; curl() {{ command curl -s \"$@\"; }}").expect("bash listens");
        Terminal {
            shell,
            keyboard,
            screen: shown,
            next: None,
            shown: Vec::new(),
            running: 0,
            lenient: false,
        }
    }

    /// Types a command, when the one before has ended.
    pub(super) fn enter(&mut self, command: &str) {
        self.settle();
        self.shown.extend(command.lines().map(|line| format!("$ {line}")));
        self.lenient = false;
        self.running += 1;
        // A line of its own for the mark, also after a text that does not end with one.
        let typed = format!("{{\n{command}\n}} </dev/null 2>&1\nprintf '\\n{DONE}\\n'\n");
        self.keyboard.write_all(typed.as_bytes()).expect("bash listens");
    }

    /// The next line, which is not taken.
    pub(super) fn peek(&mut self) -> String {
        let line = self.line();
        self.next = Some(line.clone());
        line
    }

    /// Waits for `expected`, line by line.
    pub(super) fn see(&mut self, expected: &[String]) {
        for expected in expected.iter().filter(|line| !line.is_empty()) {
            match expected.as_str() {
                "..." => self.lenient = true,
                "^C" => {
                    self.shown.push("^C".to_owned());
                    self.signal("INT");
                    self.lenient = true;
                }
                pattern => loop {
                    let line = self.line();
                    if fits(pattern, &line) {
                        self.lenient = false;
                        break;
                    }
                    assert!(
                        self.lenient,
                        "expected\n  {pattern}\nbut there is\n  {line}\n\n{}",
                        self.story()
                    );
                },
            }
        }
    }

    /// Waits until nothing runs, and nothing is left that nobody expected.
    pub(super) fn settle(&mut self) {
        while self.running > 0 {
            if let Some(line) = self.receive() {
                self.unexpected(&line);
            }
        }
        while let Some(line) = self.next.take().or_else(|| self.screen.try_recv().ok()) {
            self.unexpected(&line);
        }
    }

    fn unexpected(&self, line: &str) {
        assert!(
            self.lenient || line.is_empty(),
            "the header says nothing of\n  {line}\n\n{}",
            self.story()
        );
    }

    /// The next line that says something.
    fn line(&mut self) -> String {
        if let Some(line) = self.next.take() {
            return line;
        }
        loop {
            if let Some(line) = self.receive().filter(|line| !line.is_empty()) {
                return line;
            }
        }
    }

    /// The next line; `None` for the mark of an end, and for comments in a stream, which only say that it is alive.
    fn receive(&mut self) -> Option<String> {
        let line = match self.screen.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("nothing more is seen\n\n{}", self.story()),
            Err(RecvTimeoutError::Disconnected) => panic!("the terminal is closed\n\n{}", self.story()),
        };
        if line == DONE {
            self.running -= 1;
            return None;
        }
        let line = line.trim_end().to_owned();
        self.shown.push(line.clone());
        (!line.starts_with(':')).then_some(line)
    }

    fn story(&self) -> String {
        format!("The terminal so far:\n{}", self.shown.join("\n"))
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
