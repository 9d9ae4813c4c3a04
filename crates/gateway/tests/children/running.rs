//! Draining, reloading, and what many clients leave behind.

use crate::client::{Client, LATEST, said};
use crate::gateway::{Gateway, Plan, fake, plan, until};
use http::StatusCode;
use rethread_testkit::raw::{RawConnection, request};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn t_38_a_stop_lets_a_call_finish_and_begins_nothing_new() {
    let mut gateway = plan("legacy").start();
    let client = gateway.client();
    let session = client.open(LATEST).await;
    assert_eq!(client.get("/readyz").await.status, StatusCode::OK);
    let mut call = session
        .begin(1, "slow", json!({ "ms": 2000, "steps": 10, "text": "made it" }))
        .await;
    call.next().await.expect("it has begun");
    gateway.signal(Signal::TERM);
    gateway.says("draining").await;
    assert_eq!(client.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(client.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let reply = client.initialize(LATEST).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(reply.headers.contains_key("retry-after"));
    let rest = call.messages().await;
    assert_eq!(said(rest.last().unwrap())["said"], "made it");
    assert_eq!(rest.len(), 10, "{rest:?}");
    assert_eq!(gateway.ended_within(4 * SECOND).expect("it ends").code(), Some(0));
}

/// A file with these servers.
fn write_config(plan: &Plan, servers: &[(&str, &str)]) {
    let mut text = "memory = true\ndrain = \"1s\"\n".to_owned();
    for (name, words) in servers {
        let command = serde_json::to_string(&fake(words, plan.marker())).unwrap();
        text.push_str(&format!("[servers.{name}]\ncommand = {command}\n"));
    }
    std::fs::write(plan.path("rethread.toml"), text).unwrap();
}

#[tokio::test]
async fn gw_08_a_reload_disturbs_only_what_has_changed() {
    let plan = Plan::new().option("--config rethread.toml");
    write_config(&plan, &[("stays", "legacy"), ("goes", "legacy")]);
    let gateway = plan.start();
    let at = |name: &str| Client::new(gateway.addr, &format!("/servers/{name}"));
    let (stays, goes) = (at("stays").open(LATEST).await, at("goes").open(LATEST).await);
    let pid = stays.pid().await;
    goes.pid().await;
    write_config(gateway.plan(), &[("stays", "legacy"), ("comes", "modern")]);
    gateway.signal(Signal::HUP);
    gateway.says("configuration reloaded").await;
    assert_eq!(stays.pid().await, pid, "the same child serves the same session");
    let gone = at("goes").initialize(LATEST).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let text = gone.text().await;
    assert!(
        text.contains("/servers/comes/mcp") && text.contains("/servers/stays/mcp"),
        "{text}"
    );
    said(&at("comes").tool(1, "echo", json!({})).await);
    gateway.has_children(2, 3 * SECOND).await;

    std::fs::write(gateway.plan().path("rethread.toml"), "nonsense").unwrap();
    gateway.signal(Signal::HUP);
    gateway.says("configuration rejected").await;
    assert_eq!(stays.pid().await, pid);
}

/// Clients that open a session, begin something, and are never heard of again.
async fn come_and_go(gateway: &Gateway, clients: usize) {
    const AT_ONCE: usize = 16;
    let mut working = JoinSet::new();
    for n in 0..clients {
        if working.len() == AT_ONCE {
            working.join_next().await.unwrap().unwrap();
        }
        let client = gateway.client();
        working.spawn(async move {
            let session = client.open(LATEST).await;
            if n % 2 == 0 {
                return; // just leaves
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
            connection.reset().unwrap(); // dies in the middle
        });
    }
    working.join_all().await;
    let gone = until(20 * SECOND, || gateway.own_children().is_empty()).await;
    assert!(gone, "{:?}", gateway.own_children());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gw_08_four_hundred_clients_that_vanish_leave_nothing_behind() {
    // One arena: what the allocator has back is used again, and what is not used again is a leak.
    let plan = plan("none").var("MALLOC_ARENA_MAX", "1");
    let plan = plan.option("--session-idle 2s --max-children 400");
    let gateway = plan.command(&[env!("CARGO_BIN_EXE_rethread"), "demo-server"]).start();
    let round = async || {
        for _ in 0..2 {
            come_and_go(&gateway, 200).await; // never more than these at a time: the most there were is what is kept
        }
        gateway.rss()
    };
    let (before, after) = (round().await, round().await);
    assert!(after * 10 <= before * 11, "{before} KiB became {after} KiB");
    gateway.has_no_zombies().await;
}
