//! `rethread demo`: bash runs the commands that it prints.

use crate::program::ProgramRunner;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Kills the demo when dropped.
struct RunningDemo(Child);

impl Drop for RunningDemo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tour_commands_work_as_printed() {
    let runner = ProgramRunner::new();
    let mut demo = runner.command(&["demo", "--quiet", "--listen", "127.0.0.1:0"]);
    let mut demo = RunningDemo(demo.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(demo.0.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let lines: Vec<String> = lines.take_while(|line| !line.starts_with("Ctrl-C here")).collect();
    let is_command = |line: &&String| ["H=", "SESSION=", "curl "].iter().any(|start| line.starts_with(start));
    let commands: Vec<_> = lines.iter().filter(is_command).cloned().collect();
    let [headers, session, call, resume] = commands.as_slice() else {
        panic!("{lines:#?}")
    };
    // A timeout of two seconds replaces Ctrl-C.
    let script = format!(
        "curl() {{ command curl -s --max-time 2.2 \"$@\"; }}\n{headers}\n{session}\n{call}\necho ---\n{resume}\ntrue\n"
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash is there");
    let output = String::from_utf8(output.stdout).unwrap();
    let (before, after) = output.split_once("---\n").unwrap();
    for (part, has, lacks) in [
        (before, ["id: 1-0", "id: 1-3"], "id: 1-9"),
        (after, ["id: 1-4", "id: 1-7"], "id: 1-3"),
    ] {
        assert!(
            has.iter().all(|id| part.contains(&format!("{id}\n"))),
            "{has:?} not in {part}"
        );
        assert!(!part.contains(&format!("{lacks}\n")), "{lacks} in {part}");
    }
}

#[test]
fn address_in_use_exits_with_3_and_advice() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = ProgramRunner::new().run(&["demo", "--listen", &address]);
    output
        .assert_code(3)
        .assert_stderr_contains(&format!("cannot listen on {address}"))
        .assert_stderr_contains("--listen 127.0.0.1:0");
    assert!(output.stdout.is_empty());
}
