//! SIGHUP: changed servers, unchanged servers, and the log.

use crate::client::{Client, LATEST, tool_result};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, wait_until};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Writes a file with the lines `top` and with `servers`: name and behavior of the child.
fn write_config(builder: &GatewayBuilder, top: &str, servers: &[(&str, &str)]) {
    let mut text = format!("{top}\n");
    for (name, behavior) in servers {
        let command = match *behavior {
            "missing" => vec!["no-such-program-here".to_owned()],
            behavior => fake_child_command(behavior, builder.marker()),
        };
        let command = serde_json::to_string(&command).unwrap();
        text.push_str(&format!("[servers.{name}]\ncommand = {command}\n"));
    }
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
}

fn start(top: &str, servers: &[(&str, &str)]) -> Gateway {
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    write_config(&builder, top, servers);
    builder.start()
}

/// Reloads the file, and waits for the outcome in the log.
async fn reload(gateway: &Gateway, top: &str, servers: &[(&str, &str)]) {
    let outcomes = |gateway: &Gateway| gateway.log().matches(" configuration ").count();
    let before = outcomes(gateway);
    write_config(gateway.builder(), top, servers);
    gateway.signal(Signal::HUP);
    let done = wait_until(40 * SECOND, || outcomes(gateway) > before).await;
    assert!(done, "no reload in\n{}", gateway.log());
}

fn client_of(gateway: &Gateway, name: &str) -> Client {
    Client::new(gateway.addr, &format!("/servers/{name}"))
}

/// RST-01: a changed server takes over the store and the sessions of its predecessor.
#[tokio::test]
async fn rst_01_changed_and_readded_servers_keep_sessions_on_disk() {
    let top = "data = 'data'\ndrain = '1s'";
    let gateway = start(top, &[("a", "legacy"), ("b", "legacy")]);
    let (a, b) = (
        client_of(&gateway, "a").open_session(LATEST).await,
        client_of(&gateway, "b").open_session(LATEST).await,
    );
    let (pid_a, pid_b) = (a.child_pid().await, b.child_pid().await);

    reload(&gateway, top, &[("a", "legacy,changed"), ("b", "legacy")]).await;
    assert_eq!(client_of(&gateway, "a").initialize(LATEST).await.status, StatusCode::OK);
    let changed = a.child_pid().await;
    assert_ne!(changed, pid_a, "the session continues with a new child");
    assert_eq!(b.child_pid().await, pid_b, "the other server keeps its child");

    reload(&gateway, top, &[("b", "legacy")]).await;
    assert_eq!(
        client_of(&gateway, "a").initialize(LATEST).await.status,
        StatusCode::NOT_FOUND
    );
    reload(&gateway, top, &[("a", "legacy"), ("b", "legacy")]).await;
    assert_eq!(client_of(&gateway, "a").initialize(LATEST).await.status, StatusCode::OK);
    assert_ne!(a.child_pid().await, changed);
    assert_eq!(b.child_pid().await, pid_b);
}

/// A memory store also survives a change of its server.
#[tokio::test]
async fn rst_01_changed_server_keeps_sessions_in_memory() {
    let top = "memory = true\ndrain = '1s'";
    let gateway = start(top, &[("a", "legacy")]);
    let session = client_of(&gateway, "a").open_session(LATEST).await;
    let pid = session.child_pid().await;
    reload(&gateway, top, &[("a", "legacy,changed")]).await;
    assert_ne!(session.child_pid().await, pid);
}

/// GW-08: a server that cannot start changes nothing. The other changes take effect.
#[tokio::test]
async fn gw_08_failing_server_does_not_affect_others() {
    let top = "memory = true\ndrain = '1s'";
    let gateway = start(top, &[("a", "legacy"), ("b", "legacy"), ("c", "legacy")]);
    let kept = client_of(&gateway, "a").open_session(LATEST).await;
    let pid = kept.child_pid().await;
    reload(
        &gateway,
        top,
        &[
            ("a", "missing"),
            ("b", "legacy,changed"),
            ("d", "modern"),
            ("e", "missing"),
        ],
    )
    .await;
    assert_eq!(kept.child_pid().await, pid, "the old server continues");
    assert_eq!(client_of(&gateway, "b").initialize(LATEST).await.status, StatusCode::OK);
    assert_eq!(
        client_of(&gateway, "c").initialize(LATEST).await.status,
        StatusCode::NOT_FOUND
    );
    tool_result(&client_of(&gateway, "d").call_tool(1, "echo", json!({})).await);
    let log = gateway.log();
    assert!(log.contains("configuration reloaded in part"), "{log}");
    for server in ["a", "e"] {
        let named = format!("error=\"{server}: the program no-such-program-here is not on PATH\"");
        let line = log.lines().find(|line| line.contains(&named));
        assert!(line.is_some_and(|line| line.contains("server not changed")), "{log}");
    }
}

/// SES-04: 404 would end the session, which continues after the change.
#[tokio::test]
async fn ses_04_server_answers_503_while_it_is_replaced() {
    let top = "memory = true\ndrain = '10s'";
    let gateway = start(top, &[("a", "legacy")]);
    let session = client_of(&gateway, "a").open_session(LATEST).await;
    let mut call = session
        .start_tool(1, "slow", json!({ "ms": 3000, "steps": 10, "text": "made it" }))
        .await;
    call.next().await.expect("it has begun");
    write_config(gateway.builder(), top, &[("a", "legacy,changed")]);
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("server closing").await;
    let meanwhile = session.call(2, "tools/list", json!({})).await;
    assert_eq!(meanwhile.status, StatusCode::SERVICE_UNAVAILABLE);
    let rest = call.messages().await;
    assert_eq!(tool_result(rest.last().unwrap())["text"], "made it");
    gateway.wait_for_log("configuration reloaded").await;
    session.child_pid().await;
}

/// SEC-01, SEC-02: a reload applies gateway options to running servers, or reports that they need a restart.
#[tokio::test]
async fn sec_01_reload_applies_gateway_options_or_names_them() {
    let servers = [("a", "legacy")];
    let gateway = start("memory = true", &servers);
    let session = client_of(&gateway, "a").open_session(LATEST).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let from_page = [("origin", "https://app.example"), ("host", "mcp.example")];
    let before = session.raw("POST", &from_page, ping.as_bytes()).await;
    assert_eq!(before.status, StatusCode::FORBIDDEN);
    let top = "memory = true\nallow_origins = ['https://app.example']\npublic_url = 'https://mcp.example/x'\n\
               drain = '3s'\nsession_idle = '2h'\nmax_connections_per_peer = 900";
    reload(&gateway, top, &servers).await;
    let after = session.raw("POST", &from_page, ping.as_bytes()).await;
    assert_eq!(after.status, StatusCode::OK, "{}", gateway.log());
    let mut sse = client_of(&gateway, "a")
        .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
        .await;
    assert_eq!(sse.headers["x-accel-buffering"], "no", "SSE-03");
    let endpoint = sse.next().await.unwrap();
    assert!(
        endpoint.as_str().unwrap().starts_with("/x/servers/a/messages"),
        "{endpoint}"
    );
    let log = gateway.log();
    let line = log
        .lines()
        .find(|line| line.contains("configuration reloaded"))
        .unwrap();
    let applied = "public_url, allow_hosts, allow_origins, drain, max_connections_per_peer";
    let expected = format!("applied=\"{applied}\" need_restart=\"session_idle\"");
    assert!(line.ends_with(&expected), "{line}");

    reload(&gateway, "memory = true\nsession_idle = '2h'", &servers).await;
    let withdrawn = session.raw("POST", &from_page, ping.as_bytes()).await;
    assert_eq!(withdrawn.status, StatusCode::FORBIDDEN);
}

/// OPS-16: changed limits hold at once, and end no session, no child and no running call.
#[tokio::test]
async fn ops_16_changed_limits_leave_sessions_children_and_calls_alone() {
    let servers = [("a", "legacy")];
    let gateway = start("memory = true\ndrain = '1s'", &servers);
    let session = client_of(&gateway, "a").open_session(LATEST).await;
    let pid = session.child_pid().await;
    let mut call = session
        .start_tool(1, "slow", json!({ "ms": 5000, "steps": 10, "text": "made it" }))
        .await;
    call.next().await.expect("it has begun");
    let top = "memory = true\ndrain = '1s'\n[limits]\ncalls_per_session = 1\nsessions = 1\nheader_bytes = 4096\nbody_bytes = 2000";
    reload(&gateway, top, &servers).await;
    let beyond = session.call(2, "tools/list", json!({})).await;
    assert_eq!(beyond.status, StatusCode::TOO_MANY_REQUESTS, "one call runs already");
    let second = client_of(&gateway, "a").initialize(LATEST).await;
    assert_eq!(
        second.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "one session is open already"
    );
    let padded =
        json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": { "pad": "x".repeat(3000) } }).to_string();
    let large = session.raw("POST", &[], padded.as_bytes()).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    let pad = "x".repeat(5000);
    let many = session.raw("GET", &[("x-pad", pad.as_str())], b"").await;
    assert_eq!(many.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let rest = call.messages().await;
    assert_eq!(tool_result(rest.last().unwrap())["text"], "made it");
    assert_eq!(session.child_pid().await, pid, "{}", gateway.log());
    let log = gateway.log();
    assert!(!log.contains("server closing"), "{log}");
    assert!(log.contains("applied=\"limits\""), "{log}");

    reload(&gateway, "memory = true\ndrain = '1s'", &servers).await;
    let second = client_of(&gateway, "a").initialize(LATEST).await;
    assert_eq!(second.status, StatusCode::OK, "the defaults hold again");
}
