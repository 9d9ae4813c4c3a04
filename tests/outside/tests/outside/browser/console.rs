//! The console page of the gateway in headless Chromium (OPS-13). `tests/outside/console` has the checks of the page.
//!
//! States that a gateway has only for a moment come from a stand-in for the admin listener, which serves the same page with the same
//! policy.

use crate::browser::chromium;
use crate::gateway::process::Gateway;
use crate::server::{ServerProcess, fixed_port, fresh_folder, root, target};
use rethread_testkit::raw::{RawConnection, request};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(180);

fn start(check: &str, url: &str, endpoint: &str) -> Child {
    let script = root().join("tests/outside/console/console.mjs");
    let page = root().join("crates/gateway/src/admin/page");
    Command::new("node")
        .arg(script)
        .arg(check)
        .args([page, chromium()])
        .arg(url)
        .env("MCP_URL", endpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node starts")
}

/// Runs a check to its end.
async fn passes(check: &str) {
    passes_at(check, "", "").await;
}

async fn passes_at(check: &str, url: &str, endpoint: &str) {
    let output = timeout(LIMIT, start(check, url, endpoint).wait_with_output()).await;
    let output = output.expect("the check ends in time").expect("the check runs");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.trim_end().ends_with("ok"), "{problems}");
}

/// Clients with sessions in front of servers without sessions: all of them share a process for each server.
#[tokio::test]
async fn ops_13_console_scrolls_ten_thousand_sessions_of_a_gateway() {
    let folder = fresh_folder("console-many");
    let admin = format!("127.0.0.1:{}", fixed_port());
    let command = json!([ServerProcess::program(), "--stdio"]);
    let mut config =
        format!("memory = true\nlisten = '127.0.0.1:0'\nadmin = {{ listen = '{admin}', actions = true }}\n");
    for server in ["files", "git", "search"] {
        config += &format!("[servers.{server}]\ncommand = {command}\nera = 'modern'\n");
    }
    let file = folder.join("gateway.toml");
    std::fs::write(&file, config).expect("the configuration can be written");
    let mut program = rethread(&folder, &admin);
    program.env("RUST_LOG", "warn"); // not 10,000 lines that sessions were opened
    let gateway = Gateway::with_config_as(program, &file);
    let endpoint = format!("http://{}", gateway.addr());
    passes_at("many", &console_url(&folder, &admin), &endpoint).await;
    drop(gateway);
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn ops_13_console_shows_hostile_names_as_text() {
    passes("hostile").await;
}

#[tokio::test]
async fn ops_13_console_says_that_the_feed_is_lost() {
    passes("lost").await;
}

#[tokio::test]
async fn ops_13_console_shows_nothing_without_the_token() {
    passes("token").await;
}

#[tokio::test]
async fn ops_13_console_is_readable_in_light_dark_and_narrow() {
    passes("looks").await;
}

/// A session of a client with a hostile name, with an open GET.
async fn hostile_session(addr: SocketAddr) -> RawConnection {
    let both = ("accept", "application/json, text/event-stream");
    let json = ("content-type", "application/json");
    let initialize = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"<img src=x onerror=window.hacked=1>","version":"1"}}}"#;
    let mut connection = RawConnection::open(addr).await.expect("a connection");
    let sent = connection
        .send(&request("POST", "/mcp", &[both, json], initialize))
        .await;
    sent.expect("the gateway listens");
    let (status, headers) = connection.read_head().await.expect("a response");
    assert!(status.is_success(), "{status}");
    let id = headers["mcp-session-id"].to_str().expect("a session id");
    let mut listening = RawConnection::open(addr).await.expect("a connection");
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", id)];
    let sent = listening.send(&request("GET", "/mcp", &headers, b"")).await;
    sent.expect("the gateway listens");
    let (status, _) = listening.read_head().await.expect("a response");
    assert!(status.is_success(), "{status}");
    listening
}

/// The program with a state directory and an admin address of its own.
fn rethread(state: &Path, admin: &str) -> StdCommand {
    let mut command = StdCommand::new(target().join("release/rethread"));
    command.env("XDG_STATE_HOME", state).env("RETHREAD_ADMIN", admin);
    command
}

/// The URL that `rethread console` prints.
fn console_url(state: &Path, admin: &str) -> String {
    let printed = rethread(state, admin).arg("console").output().expect("it runs");
    let url = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    assert!(url.starts_with(&format!("http://{admin}/#rt_")), "{url}");
    url
}

#[tokio::test]
async fn ops_13_console_follows_a_real_gateway_until_it_ends() {
    let admin = format!("127.0.0.1:{}", fixed_port());
    let state = root().join(format!("target/outside/console-{}", std::process::id()));
    let gateway = Gateway::installed(rethread(&state, &admin));
    let listening = hostile_session(gateway.addr()).await;
    let mut check = start("gateway", &console_url(&state, &admin), "");
    let mut lines = BufReader::new(check.stdout.take().expect("stdout is piped")).lines();
    let watching = async {
        while let Some(line) = lines.next_line().await.expect("text") {
            println!("{line}");
            if line.starts_with("ready") {
                return;
            }
        }
    };
    timeout(LIMIT, watching).await.expect("the page is ready in time");
    drop((gateway, listening));
    let ended = timeout(LIMIT, check.wait_with_output()).await;
    let ended = ended.expect("the check ends in time").expect("the check runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let _ = std::fs::remove_dir_all(state);
}
