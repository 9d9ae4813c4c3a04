//! `rethread demo --quiet`: shells run the commands that it prints.

use crate::program::{ProgramRunner, installed};
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A running demo without its story. SIGTERM ends it when dropped, so that it ends its gateway.
struct RunningDemo {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    _runner: ProgramRunner,
}

impl RunningDemo {
    fn start(shell: &str) -> Self {
        let runner = ProgramRunner::new();
        let tmp = runner.path().display().to_string();
        let runner = runner.var("TMPDIR", &tmp);
        let mut demo = runner.command(&["demo", "--quiet", "--listen", "127.0.0.1:0", "--shell", shell]);
        let mut child = demo.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        RunningDemo {
            child,
            stderr,
            _runner: runner,
        }
    }

    /// The lines up to one that starts with `start`.
    fn lines_until(&mut self, start: &str) -> Vec<String> {
        let lines = self.stderr.by_ref().map(Result::unwrap);
        lines.take_while(|line| !line.starts_with(start)).collect()
    }
}

impl Drop for RunningDemo {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// How a test uses a shell.
struct ShellUnderTest {
    program: &'static str,
    /// The value of `--shell`.
    kind: &'static str,
    /// Ends a response after event 3 or 7, in place of Ctrl-C: a busy machine is slow, and the events are the same.
    limit: &'static str,
    /// The assignment of a session id, up to its value.
    assign: &'static str,
}

const POSIX_LIMIT: &str = "curl() { command curl \"$@\" | sed -u '/^id: 1-[37]$/q'; }";

fn run(shell: &ShellUnderTest, script: &str) -> String {
    let output = Command::new("timeout")
        .args(["30", shell.program, "-c", script])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // curl says so when `sed` has ended, with code 23.
    let only_cuts = errors.lines().all(|line| line.contains("(23)"));
    assert!(only_cuts, "{}: {errors}", shell.program);
    String::from_utf8(output.stdout).unwrap()
}

fn assert_ids(part: &str, has: &[&str], lacks: &[&str]) {
    let has_id = |id: &&str| part.contains(&format!("id: {id}\n"));
    assert!(has.iter().all(has_id), "{has:?} not in {part}");
    assert!(!lacks.iter().any(has_id), "{lacks:?} in {part}");
}

fn follow_the_tour(shell: &ShellUnderTest) {
    if installed(shell.program).is_none() {
        return;
    }
    let mut demo = RunningDemo::start(shell.kind);
    let lines = demo.lines_until("Ctrl-C here");
    let after = |title: &str, at: usize| {
        let title = lines.iter().position(|line| line.starts_with(title)).unwrap();
        lines[title + at].clone()
    };
    let (define, session, call) = (after("1. ", 1), after("1. ", 2), after("2. ", 1));
    let (resume, kill) = (after("3. ", 1), after("4. ", 1));
    let limit = shell.limit;
    let script = format!("{limit}\n{define}\n{session}\n{call}\necho ---\n{resume}\necho ---\necho $SESSION\n");
    let output = run(shell, &script);
    let parts: Vec<_> = output.split("---\n").collect();
    let [called, resumed, session] = parts[..] else {
        panic!("{output}")
    };
    assert_ids(called, &["1-0", "1-3"], &["1-9"]);
    assert_ids(resumed, &["1-4", "1-7"], &["1-3"]);
    run(shell, &kill);
    demo.lines_until("The gateway (process ");
    let assign = format!("{}{}", shell.assign, session.trim());
    let output = run(shell, &format!("{define}\n{assign}\n{resume}\ntrue\n"));
    assert_ids(&output, &["1-4", "1-5"], &["1-3"]);
    assert!(
        output.contains("the server was restarted while this request was running"),
        "{output}"
    );
}

#[test]
fn tour_works_in_sh() {
    follow_the_tour(&ShellUnderTest {
        program: "sh",
        kind: "sh",
        limit: POSIX_LIMIT,
        assign: "SESSION=",
    });
}

#[test]
fn tour_works_in_bash() {
    follow_the_tour(&ShellUnderTest {
        program: "bash",
        kind: "sh",
        limit: POSIX_LIMIT,
        assign: "SESSION=",
    });
}

#[test]
fn tour_works_in_zsh() {
    follow_the_tour(&ShellUnderTest {
        program: "zsh",
        kind: "sh",
        limit: POSIX_LIMIT,
        assign: "SESSION=",
    });
}

#[test]
fn tour_works_in_fish() {
    follow_the_tour(&ShellUnderTest {
        program: "fish",
        kind: "fish",
        limit: "function curl; command curl $argv | sed -u '/^id: 1-[37]$/q'; end",
        assign: "set SESSION ",
    });
}

#[test]
fn tour_works_in_powershell() {
    if installed("pwsh").is_none() {
        return;
    }
    let mut demo = RunningDemo::start("powershell");
    let lines = demo.lines_until("Ctrl-C here");
    let is_command = |line: &&String| {
        ["$curl", "$session", "'{", "mcp -H"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let script: Vec<_> = lines.iter().filter(is_command).cloned().collect();
    assert_eq!(script.len(), 4, "{lines:#?}");
    let script = script.join("\n").replace("-sSN", "-sSN --max-time 2.2");
    let output = Command::new("pwsh")
        .args(["-NoProfile", "-Command", &script])
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    assert_ids(&output, &["1-0", "1-3", "1-4", "1-7"], &["1-9"]);
}
