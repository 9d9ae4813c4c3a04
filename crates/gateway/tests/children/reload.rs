//! SIGHUP: what is changed, what goes on, and what the log says.

use crate::client::{Client, LATEST, said};
use crate::gateway::{Gateway, Plan, fake, until};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A file with these lines at its top and these servers.
fn write_config(plan: &Plan, top: &str, servers: &[(&str, &str)]) {
    let mut text = format!("{top}\n");
    for (name, words) in servers {
        let command = match *words {
            "missing" => vec!["no-such-program-here".to_owned()],
            words => fake(words, plan.marker()),
        };
        let command = serde_json::to_string(&command).unwrap();
        text.push_str(&format!("[servers.{name}]\ncommand = {command}\n"));
    }
    std::fs::write(plan.path("rethread.toml"), text).unwrap();
}

fn start(top: &str, servers: &[(&str, &str)]) -> Gateway {
    let plan = Plan::new().option("--config rethread.toml");
    write_config(&plan, top, servers);
    plan.start()
}

/// Has the file read again, and waits until the log tells what came of it.
async fn reload(gateway: &Gateway, top: &str, servers: &[(&str, &str)]) {
    let told = |gateway: &Gateway| gateway.log().matches(" configuration ").count();
    let before = told(gateway);
    write_config(gateway.plan(), top, servers);
    gateway.signal(Signal::HUP);
    let done = until(40 * SECOND, || told(gateway) > before).await;
    assert!(done, "no word of a reload in\n{}", gateway.log());
}

fn at(gateway: &Gateway, name: &str) -> Client {
    Client::new(gateway.addr, &format!("/servers/{name}"))
}

/// RST-01: a changed server takes over the store of its predecessor, and the sessions in it.
#[tokio::test]
async fn rst_01_changed_and_readded_servers_keep_their_sessions_on_disk() {
    let top = "data = 'data'\ndrain = '1s'";
    let gateway = start(top, &[("a", "legacy"), ("b", "legacy")]);
    let (a, b) = (
        at(&gateway, "a").open(LATEST).await,
        at(&gateway, "b").open(LATEST).await,
    );
    let (pid_a, pid_b) = (a.pid().await, b.pid().await);

    reload(&gateway, top, &[("a", "legacy,changed"), ("b", "legacy")]).await;
    assert_eq!(at(&gateway, "a").initialize(LATEST).await.status, StatusCode::OK);
    let changed = a.pid().await;
    assert_ne!(changed, pid_a, "the session goes on with a new child");
    assert_eq!(b.pid().await, pid_b, "the other is undisturbed");

    reload(&gateway, top, &[("b", "legacy")]).await;
    assert_eq!(at(&gateway, "a").initialize(LATEST).await.status, StatusCode::NOT_FOUND);
    reload(&gateway, top, &[("a", "legacy"), ("b", "legacy")]).await;
    assert_eq!(at(&gateway, "a").initialize(LATEST).await.status, StatusCode::OK);
    assert_ne!(a.pid().await, changed);
    assert_eq!(b.pid().await, pid_b);
}

/// A memory store too outlives a change of its server: sessions end with the gateway, not before.
#[tokio::test]
async fn rst_01_changed_server_keeps_its_sessions_in_memory() {
    let top = "memory = true\ndrain = '1s'";
    let gateway = start(top, &[("a", "legacy")]);
    let session = at(&gateway, "a").open(LATEST).await;
    let pid = session.pid().await;
    reload(&gateway, top, &[("a", "legacy,changed")]).await;
    assert_ne!(session.pid().await, pid);
}

/// GW-08: what cannot be started changes nothing, and everything else is changed all the same.
#[tokio::test]
async fn gw_08_failing_server_leaves_the_others_alone() {
    let top = "memory = true\ndrain = '1s'";
    let gateway = start(top, &[("a", "legacy"), ("b", "legacy"), ("c", "legacy")]);
    let kept = at(&gateway, "a").open(LATEST).await;
    let pid = kept.pid().await;
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
    assert_eq!(kept.pid().await, pid, "the old one goes on");
    assert_eq!(at(&gateway, "b").initialize(LATEST).await.status, StatusCode::OK);
    assert_eq!(at(&gateway, "c").initialize(LATEST).await.status, StatusCode::NOT_FOUND);
    said(&at(&gateway, "d").tool(1, "echo", json!({})).await);
    let log = gateway.log();
    assert!(log.contains("configuration reloaded in part"), "{log}");
    for server in ["a", "e"] {
        let named = format!("error=\"{server}: the program no-such-program-here is not on PATH\"");
        let line = log.lines().find(|line| line.contains(&named));
        assert!(line.is_some_and(|line| line.contains("server not changed")), "{log}");
    }
}

/// SES-04: 404 says that a session is gone. It is not, while its server changes.
#[tokio::test]
async fn ses_04_server_that_is_being_changed_answers_503() {
    let top = "memory = true\ndrain = '10s'";
    let gateway = start(top, &[("a", "legacy")]);
    let session = at(&gateway, "a").open(LATEST).await;
    let mut call = session
        .begin(1, "slow", json!({ "ms": 3000, "steps": 10, "text": "made it" }))
        .await;
    call.next().await.expect("it has begun");
    write_config(gateway.plan(), top, &[("a", "legacy,changed")]);
    gateway.signal(Signal::HUP);
    gateway.says("server closing").await;
    let meanwhile = session.call(2, "tools/list", json!({})).await;
    assert_eq!(meanwhile.status, StatusCode::SERVICE_UNAVAILABLE);
    let rest = call.messages().await;
    assert_eq!(said(rest.last().unwrap())["said"], "made it");
    gateway.says("configuration reloaded").await;
    session.pid().await;
}

/// SEC-01, SEC-02: top-level keys are applied to servers that run, or named as needing a restart.
#[tokio::test]
async fn sec_01_reload_applies_top_level_keys_and_names_the_rest() {
    let servers = [("a", "legacy")];
    let gateway = start("memory = true", &servers);
    let session = at(&gateway, "a").open(LATEST).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let from_page = [("origin", "https://app.example"), ("host", "mcp.example")];
    let before = session.raw("POST", &from_page, ping.as_bytes()).await;
    assert_eq!(before.status, StatusCode::FORBIDDEN);
    let top = "memory = true\nallow_origins = ['https://app.example']\npublic_url = 'https://mcp.example/x'\n\
               drain = '3s'\nsession_idle = '2h'\nmax_connections_per_peer = 900";
    reload(&gateway, top, &servers).await;
    let after = session.raw("POST", &from_page, ping.as_bytes()).await;
    assert_eq!(after.status, StatusCode::OK, "{}", gateway.log());
    let mut sse = at(&gateway, "a")
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
