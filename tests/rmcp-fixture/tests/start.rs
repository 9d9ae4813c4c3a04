//! The program starts on either transport and answers. This test also makes `cargo test --workspace` build the program for
//! the outside tests.

use rethread_testkit::raw::{exchange, request};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;

/// Longer than any step takes on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have exited already
        let _ = self.0.wait();
    }
}

async fn answers(transport: &str) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_rmcp-everything"))
        .args(["--transport", transport, "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map(Server)
        .expect("it can be started");
    let mut ready = String::new();
    let stdout = server.0.stdout.take().expect("stdout is piped");
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    let addr = ready.trim_end().strip_prefix("everything: ready at http://");
    let addr = addr.and_then(|rest| rest.strip_suffix("/mcp")?.parse().ok());
    let addr = addr.expect("it says where it is");
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#
        .to_owned()
        + r#""capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let initialize = request("POST", "/mcp", &headers, initialize.as_bytes());
    let answer = timeout(STEP_TIMEOUT, exchange(addr, &initialize)).await;
    let (status, headers, body) = answer.expect("in time").expect("an answer");
    assert_eq!(status, 200);
    assert!(headers.contains_key("mcp-session-id"));
    let body = String::from_utf8_lossy(&body);
    assert!(body.contains(r#""name":"rmcp-everything""#), "{body}");
}

#[tokio::test]
async fn it_answers_on_rmcps_own_transport() {
    answers("rmcp").await;
}

#[tokio::test]
async fn it_answers_on_rethread() {
    answers("rethread").await;
}
