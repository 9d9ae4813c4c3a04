//! The commands that `rethread demo --shell powershell` prints, read by a PowerShell grammar.

use crate::script;
use crate::server::target;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

const PARSER: &str = "py2/bin/python";
const SCRIPT: &str = "py/powershell.py";

/// The demo prints five commands in its four steps.
const COMMANDS: usize = 5;

#[tokio::test]
async fn demo_prints_valid_powershell() {
    let commands = printed_commands();
    assert_eq!(commands.len(), COMMANDS, "{commands:#?}");
    let arguments: Vec<&str> = [SCRIPT]
        .into_iter()
        .chain(commands.iter().map(String::as_str))
        .collect();
    script::run(PARSER, &arguments).await;
}

#[tokio::test]
async fn parser_rejects_invalid_powershell() {
    let checks = script::checks(PARSER, &[SCRIPT, "mcp -H 'accept: *'", "function mcp { $input | & | }"]).await;
    assert_eq!(
        (checks.passed.len(), checks.failed.len()),
        (1, 1),
        "{:?}",
        checks.failed
    );
}

/// The lines after the titles of the steps. A title starts with its number.
fn printed_commands() -> Vec<String> {
    let mut demo = Command::new(target().join("release/rethread"))
        .args(["demo", "--quiet", "--listen", "127.0.0.1:0", "--shell", "powershell"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("built with: cargo build --release -p rethread-gateway");
    let stderr = BufReader::new(demo.stderr.take().expect("stderr is piped"));
    let lines = stderr.lines().map_while(Result::ok);
    let mut in_step = false;
    let mut commands = Vec::new();
    for line in lines.take_while(|line| !line.starts_with("Or open ")) {
        match line.chars().next() {
            Some(first) if first.is_ascii_digit() => in_step = true,
            Some(_) if in_step => commands.push(line),
            _ => in_step = false,
        }
    }
    // SIGTERM lets the demo end its gateway.
    let terminated = Command::new("kill").arg(demo.id().to_string()).status();
    assert!(terminated.is_ok_and(|status| status.success()), "kill");
    demo.wait().expect("the demo ends");
    commands
}
