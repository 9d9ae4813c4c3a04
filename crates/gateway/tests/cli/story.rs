//! `rethread demo` in a pseudo-terminal and without one.

use crate::program::{ProgramRunner, installed};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The story must end in this time.
const STORY_LIMIT: Duration = Duration::from_secs(30);
/// The last line of the demo.
const LAST_LINE: &str = "Ctrl-C here stops the demo";

/// A directory that is home, working directory and directory of temporary files.
fn runner() -> ProgramRunner {
    let runner = ProgramRunner::new();
    let tmp = runner.path().display().to_string();
    runner.var("TMPDIR", &tmp).var("RETHREAD_CONFIG", "/nowhere.toml")
}

/// The demo as the only program of a pseudo-terminal, with that terminal's input and output.
fn in_terminal(runner: &ProgramRunner) -> Child {
    let demo = format!("exec {} demo --listen 127.0.0.1:0", env!("CARGO_BIN_EXE_rethread"));
    // Takes environment and directory from the command of the runner.
    let template = runner.command(&[]);
    let mut command = Command::new("script");
    command
        .args(["-qefc", &demo, "/dev/null"])
        .env_clear()
        .current_dir(runner.path());
    for (name, value) in template.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads lines up to the last one of the demo.
fn read_story(output: impl std::io::Read) -> (String, impl std::io::Read) {
    let mut output = BufReader::new(output);
    let mut story = String::new();
    while !story.contains(LAST_LINE) {
        let read = output.read_line(&mut story).unwrap();
        assert!(read > 0, "the demo ended: {story}");
    }
    (story, output)
}

/// Text between ANSI escape sequences.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

fn assert_is_whole_story(story: &str) {
    let mut rest = story;
    for expected in [
        "event 1-3      progress 1.5 of 4",
        "the client closed its socket",
        "returns with Last-Event-ID: 1-3.",
        "event 1-4      progress 2 of 4",
        "event 1-9      answer to request 1: counted down from 4",
        "event 3-1 ",
        "event 5-5 ",
        "ended: signal: 9 (SIGKILL)",
        "nothing answers at this address now",
        "A: Last-Event-ID: 3-1",
        "event 3-2      progress 1 of 2",
        "event 3-5      answer to request 2: counted down from 2",
        "B: Last-Event-ID: 5-5",
        "event 5-6      error for request 3: the server was restarted",
        "23 events in ",
        "Now you: the gateway is at http://127.0.0.1:",
    ] {
        let at = rest.find(expected);
        rest = &rest[at.unwrap_or_else(|| panic!("`{expected}` is missing or too early in {story}"))..];
    }
}

#[test]
fn demo_tells_its_story_in_a_terminal_within_30_seconds() {
    if installed("script").is_none() {
        return;
    }
    let runner = runner();
    let start = Instant::now();
    let mut terminal = in_terminal(&runner);
    let (story, mut rest) = read_story(terminal.stdout.take().unwrap());
    let took = start.elapsed();
    assert!(took < STORY_LIMIT, "{took:?}: {story}");
    assert!(
        story.contains("\x1b[1m") && story.contains("\x1b[32m"),
        "no colors in {story:?}"
    );
    assert_is_whole_story(&without_colors(&story));
    let files = || std::fs::read_dir(runner.path()).unwrap().count();
    assert_eq!(files(), 1, "the data directory exists while the demo runs");
    terminal.stdin.take().unwrap().write_all(b"\x03").unwrap();
    rest.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(terminal.wait().unwrap().code(), Some(0));
    assert_eq!(files(), 0, "Ctrl-C removes the data directory");
}

#[test]
fn demo_has_no_colors_without_a_terminal_and_uses_a_free_port() {
    // The default port may be taken by anybody; this test makes sure that it is.
    let taken = TcpListener::bind("127.0.0.1:8080");
    let runner = runner();
    let mut demo = runner
        .command(&["demo"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (story, _rest) = read_story(demo.stderr.take().unwrap());
    rustix::process::kill_process(rustix::process::Pid::from_child(&demo), rustix::process::Signal::TERM).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    drop(taken);
    assert!(!story.contains('\x1b'), "{story}");
    assert!(
        story.contains("127.0.0.1:8080 is in use, so the demo listens on 127.0.0.1:"),
        "{story}"
    );
    assert_is_whole_story(&story);
}

#[test]
fn demo_that_is_killed_leaves_no_gateway_behind() {
    let runner = runner();
    let mut demo = runner.command(&["demo", "--quiet", "--listen", "127.0.0.1:0"]);
    let mut demo = demo.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (tour, _rest) = read_story(demo.stderr.take().unwrap());
    assert!(!tour.contains("event 1-0"), "--quiet omits the story: {tour}");
    let address = tour
        .split("http://")
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    assert!(std::net::TcpStream::connect(&address).is_ok());
    demo.kill().unwrap();
    demo.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(&address).is_ok() {
        assert!(Instant::now() < deadline, "the gateway outlives its demo");
        std::thread::yield_now();
    }
}

#[test]
fn address_in_use_exits_with_3_and_advice() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = runner().run(&["demo", "--listen", &address]);
    output
        .assert_code(3)
        .assert_stderr_contains(&format!("cannot listen on {address}"))
        .assert_stderr_contains("--listen 127.0.0.1:0");
    assert!(output.stdout.is_empty());
}

#[test]
fn demo_as_json_has_only_json_lines() {
    let runner = runner();
    let mut demo = runner.command(&["demo", "--quiet", "--log-format", "json", "--listen", "127.0.0.1:0"]);
    let mut demo = demo.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (tour, _rest) = read_story(demo.stderr.take().unwrap());
    demo.kill().unwrap();
    demo.wait().unwrap();
    for line in tour.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
        assert_eq!(line["level"], "INFO");
    }
}
