//! Drain, reload, and leaks after many clients.

use crate::client::{Client, LATEST, tool_result};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, gateway_with, wait_until};
use http::StatusCode;
use rethread_testkit::raw::{RawConnection, request};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn t_38_drain_finishes_calls_and_refuses_new_sessions() {
    let mut gateway = gateway_with("legacy").start();
    let client = gateway.client();
    let session = client.open_session(LATEST).await;
    assert_eq!(client.get("/readyz").await.status, StatusCode::OK);
    let mut call = session
        .start_tool(1, "slow", json!({ "ms": 2000, "steps": 10, "text": "made it" }))
        .await;
    call.next().await.expect("it has begun");
    gateway.signal(Signal::TERM);
    gateway.wait_for_log("draining").await;
    assert_eq!(client.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(client.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let reply = client.initialize(LATEST).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.headers.contains_key("retry-after"));
    let rest = call.messages().await;
    assert_eq!(tool_result(rest.last().unwrap())["text"], "made it");
    assert_eq!(rest.len(), 10, "{rest:?}");
    assert_eq!(gateway.wait_for_exit(4 * SECOND).expect("it ends").code(), Some(0));
}

/// Writes a file with `servers`: name and behavior of the child.
fn write_config(builder: &GatewayBuilder, servers: &[(&str, &str)]) {
    let mut text = "memory = true\ndrain = \"1s\"\n".to_owned();
    for (name, behavior) in servers {
        let command = serde_json::to_string(&fake_child_command(behavior, builder.marker())).unwrap();
        text.push_str(&format!("[servers.{name}]\ncommand = {command}\n"));
    }
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
}

#[tokio::test]
async fn gw_08_reload_keeps_unchanged_servers() {
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    write_config(&builder, &[("stays", "legacy"), ("goes", "legacy")]);
    let gateway = builder.start();
    let client_of = |name: &str| Client::new(gateway.addr, &format!("/servers/{name}"));
    let (stays, goes) = (
        client_of("stays").open_session(LATEST).await,
        client_of("goes").open_session(LATEST).await,
    );
    let pid = stays.child_pid().await;
    goes.child_pid().await;
    write_config(gateway.builder(), &[("stays", "legacy"), ("comes", "modern")]);
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("configuration reloaded").await;
    assert_eq!(stays.child_pid().await, pid, "the same child serves the same session");
    let gone = client_of("goes").initialize(LATEST).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let text = gone.text().await;
    assert!(
        text.contains("/servers/comes/mcp") && text.contains("/servers/stays/mcp"),
        "{text}"
    );
    tool_result(&client_of("comes").call_tool(1, "echo", json!({})).await);
    gateway.wait_for_children(2, 3 * SECOND).await;

    std::fs::write(gateway.builder().path("rethread.toml"), "nonsense").unwrap();
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("configuration rejected").await;
    assert_eq!(stays.child_pid().await, pid);
}

/// Opens sessions, starts a call in every second one, and drops the connections.
async fn open_and_abandon_sessions(gateway: &Gateway, clients: usize) {
    const AT_ONCE: usize = 16;
    let mut working = JoinSet::new();
    for n in 0..clients {
        if working.len() == AT_ONCE {
            working.join_next().await.unwrap().unwrap();
        }
        let client = gateway.client();
        working.spawn(async move {
            let session = client.open_session(LATEST).await;
            if n % 2 == 0 {
                return; // abandons the session
            }
            let params = json!({ "name": "countdown", "arguments": { "seconds": 1 }, "_meta": { "progressToken": 1 } });
            let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
            let headers = [
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-session-id", session.id.as_str()),
            ];
            let mut connection = RawConnection::open(client.addr).await.unwrap();
            connection
                .send(&request("POST", "/mcp", &headers, call.as_bytes()))
                .await
                .unwrap();
            connection.read_head().await.unwrap();
            connection.reset().unwrap(); // abandons the call
        });
    }
    working.join_all().await;
    let gone = wait_until(20 * SECOND, || gateway.own_children().is_empty()).await;
    assert!(gone, "{:?}", gateway.own_children());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gw_08_abandoned_sessions_leak_no_processes_or_memory() {
    // With one arena the allocator reuses freed memory, so that growth is a leak.
    let builder = gateway_with("none").var("MALLOC_ARENA_MAX", "1");
    let builder = builder.option("--session-idle 2s --max-children 400");
    let gateway = builder
        .command(&[env!("CARGO_BIN_EXE_rethread"), "demo-server"])
        .start();
    let round = async || {
        for _ in 0..2 {
            open_and_abandon_sessions(&gateway, 200).await; // the peak of each round is the same
        }
        gateway.rss()
    };
    let (before, after) = (round().await, round().await);
    assert!(after * 10 <= before * 11, "{before} KiB became {after} KiB");
    gateway.wait_for_no_zombies().await;
}
