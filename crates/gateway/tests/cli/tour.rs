//! `rethread demo`, followed to the letter: what it prints is run by bash as it is.

use crate::run::Bench;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// Ends the demo when the test ends, whichever way.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_printed_commands_work_as_they_are_printed() {
    let bench = Bench::new();
    let mut demo = bench.command(&["demo", "--quiet", "--listen", "127.0.0.1:0"]);
    let mut demo = Running(demo.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let told = BufReader::new(demo.0.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let told: Vec<String> = told.take_while(|line| !line.starts_with("Ctrl-C here")).collect();
    let is_command = |line: &&String| ["H=", "SESSION=", "curl "].iter().any(|start| line.starts_with(start));
    let commands: Vec<_> = told.iter().filter(is_command).cloned().collect();
    let [headers, session, call, resume] = commands.as_slice() else {
        panic!("{told:#?}")
    };
    // Two seconds stand for Ctrl-C, and for patience.
    let script = format!(
        "curl() {{ command curl -s --max-time 2.2 \"$@\"; }}\n{headers}\n{session}\n{call}\necho ---\n{resume}\ntrue\n"
    );
    let ran = Command::new("bash")
        .args(["-c", &script])
        .output()
        .expect("bash is there");
    let ran = String::from_utf8(ran.stdout).unwrap();
    let (before, after) = ran.split_once("---\n").unwrap();
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
fn an_address_in_use_ends_with_3_and_says_what_to_try() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Bench::new().run(&["demo", "--listen", &address]);
    ran.assert_code(3)
        .assert_says(&format!("cannot listen on {address}"))
        .assert_says("--listen 127.0.0.1:0");
    assert!(ran.stdout.is_empty());
}
