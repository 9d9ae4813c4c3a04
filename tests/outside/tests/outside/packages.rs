//! The packages of `cargo xtask dist`, installed in clean directories without a network, and run in front of a real
//! stdio server.

mod binary_size;
mod npm;
mod tarball;
mod wheel;

use crate::gateway::process::Gateway;
use crate::server::target;
use rethread_testkit::raw::{exchange, request};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

const HOW_TO_MAKE: &str = "make the packages with: cargo xtask dist --profile release";

/// The time for a gateway without running calls to end.
const END_TIMEOUT: Duration = Duration::from_secs(15);

const POLL: Duration = Duration::from_millis(20);

/// A package whose file name starts and ends like this.
fn package(start: &str, end: &str) -> PathBuf {
    let folder = target().join("packages");
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}; {HOW_TO_MAKE}", folder.display()));
    let matches = |name: &str| name.starts_with(start) && name.ends_with(end);
    let mut found = entries
        .flatten()
        .filter(|entry| matches(&entry.file_name().to_string_lossy()));
    let found = found.next().map(|entry| entry.path());
    found.unwrap_or_else(|| panic!("no {start}*{end} in {}; {HOW_TO_MAKE}", folder.display()))
}

/// Runs a command that must succeed, and returns its stdout.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{complaints}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

fn output(command: &mut Command) -> Output {
    let ended = command.stdin(Stdio::null()).output();
    ended.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The program must be that of this source tree.
fn assert_version(mut rethread: Command) {
    let version = run(rethread.arg("--version"));
    let own = std::fs::read_to_string(crate::server::root().join("Cargo.toml")).expect("the manifest of the workspace");
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("version = \""))
        .expect("a version");
    assert_eq!(version.trim(), format!("rethread {}", own.trim_end_matches('"')));
    println!("{}", version.trim());
}

/// Opens a session and calls a tool of the server behind the gateway.
async fn assert_call_through(gateway: &Gateway) {
    let session = open_session(gateway.addr()).await;
    let echo =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"packed"}}}"#;
    let (status, _, body) = post(gateway.addr(), Some(&session), echo).await;
    assert!(status == 200 && body.contains("packed"), "{status}: {body}");
}

async fn open_session(addr: SocketAddr) -> String {
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"packages","version":"1"}}}"#;
    let (status, session, body) = post(addr, None, hello).await;
    assert_eq!(status, 200, "{body}");
    let session = session.expect("a session");
    let begun = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(addr, Some(&session), begun).await.0, 202);
    session
}

async fn post(addr: SocketAddr, session: Option<&str>, body: &str) -> (u16, Option<String>, String) {
    let bytes = post_bytes(session, body);
    let (status, headers, body) = exchange(addr, &bytes).await.expect("the gateway answers");
    let session = headers.get("mcp-session-id").and_then(|value| value.to_str().ok());
    let session = session.map(str::to_owned);
    (status.as_u16(), session, String::from_utf8_lossy(&body).into_owned())
}

fn post_bytes(session: Option<&str>, body: &str) -> Vec<u8> {
    let mut headers = vec![
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ];
    headers.extend(session.map(|id| ("mcp-session-id", id)));
    request("POST", "/mcp", &headers, body.as_bytes())
}

/// Sends a signal to a process, or with a negative number to a process group.
fn signal(name: &str, process: i64) {
    run(Command::new("sh").args(["-c", &format!("kill -{name} {process}")]));
}

/// Waits for the end of the process that was started.
async fn wait_for_exit(gateway: &mut Gateway) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = gateway.process().try_wait().expect("a child can be waited for") {
            return status;
        }
        assert!(start.elapsed() < END_TIMEOUT, "it did not end");
        sleep(POLL).await;
    }
}

/// Waits until nothing listens there.
async fn wait_for_closed_port(addr: SocketAddr) {
    let start = Instant::now();
    while TcpStream::connect(addr).await.is_ok() {
        assert!(start.elapsed() < END_TIMEOUT, "the gateway still listens");
        sleep(POLL).await;
    }
}

/// Serves, answers a call, and ends with success after SIGTERM.
async fn assert_serves(rethread: Command) {
    let mut gateway = Gateway::installed(rethread);
    assert_call_through(&gateway).await;
    let addr = gateway.addr();
    signal("TERM", gateway.process().id().into());
    let status = wait_for_exit(&mut gateway).await;
    assert_eq!(status.code(), Some(0), "{status}");
    wait_for_closed_port(addr).await;
}
