//! Sessions: open, use, expiry, limits, end.

use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_06_18, V2025_11_25};
use rethread::{Limits, MemoryStore, Principal, Timing};
use serde_json::{Value, json};
use std::time::Duration;

fn initialize(version: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } } })
}

#[tokio::test]
async fn ses_01_initialize_returns_a_session_id_and_server_info() {
    let (_, client) = ScriptedHandler::new().serve();
    for version in LEGACY_REVISIONS {
        let reply = client.post(&initialize(json!(version))).await;
        let id = reply.header("mcp-session-id").unwrap();
        assert!(
            id.len() >= 22 && id.bytes().all(|b| (0x21..=0x7e).contains(&b)),
            "SES-02"
        );
        let result = reply.json().await["result"].clone();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"], json!({ "name": "handler", "version": "1.0.0" }));
        assert!(result["capabilities"]["tools"].is_object());
    }
}

#[tokio::test]
async fn ses_02_session_ids_do_not_repeat() {
    let (_, client) =
        ScriptedHandler::new().serve_with(|b| b.limits(Limits::default().with(|limits| limits.sessions = 100_000)));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..2_000 {
        let reply = client.post(&initialize(json!(V2025_11_25))).await;
        assert!(seen.insert(reply.header("mcp-session-id").unwrap()));
    }
}

#[tokio::test]
async fn ver_01_initialize_negotiates() {
    let (_, client) = ScriptedHandler::new().serve();
    for (asked, answer) in [
        ("2024-11-05", "2024-11-05"),
        (V2025_06_18, V2025_06_18),
        ("2026-07-28", V2025_11_25),
        ("1999-01-01", V2025_11_25),
    ] {
        let reply = client.post(&initialize(json!(asked))).await;
        assert_eq!(reply.json().await["result"]["protocolVersion"], answer, "{asked}");
    }
    for wrong in [json!(7), Value::Null] {
        let reply = client.post(&initialize(wrong)).await;
        assert_eq!(reply.header("mcp-session-id"), None);
        assert_eq!(reply.json().await["error"]["code"], -32602);
    }
}

/// VER-02, VER-03.
#[tokio::test]
async fn ver_02_invalid_version_header_returns_400() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let with = |value: &'static str| {
        let (session, ping) = (session.clone(), ping.clone());
        async move { session.raw("POST", &[("mcp-protocol-version", value)], ping).await }
    };
    let bad = with("foo").await;
    assert_eq!(bad.status, 400);
    let error = bad.json().await;
    assert_eq!(error["error"]["code"], -32022);
    assert_eq!(error["error"]["data"]["requested"], "foo");
    assert_eq!(error["id"], 1);
    assert_eq!(
        with(V2025_06_18).await.status,
        200,
        "VER-03: another supported one is tolerated"
    );
    let absent = client
        .request("POST", &[("mcp-session-id", &session.id)], ping.clone())
        .await;
    assert_eq!(absent.status, 200);
    for method in ["GET", "DELETE"] {
        assert_eq!(
            session.raw(method, &[("mcp-protocol-version", "foo")], "").await.status,
            400
        );
    }
    assert_eq!(session.call(2, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn ses_03_request_without_a_session_returns_400() {
    let (_, client) = ScriptedHandler::new().serve();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let post = client.post(&ping).await;
    assert_eq!(post.status, 400);
    let error = post.json().await;
    assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32600), &json!(1)));
    assert_eq!(client.request("GET", &[], "").await.status, 400);
    assert_eq!(client.request("DELETE", &[], "").await.status, 400);
}

/// SES-04: for any payload and every method, also DELETE.
#[tokio::test]
async fn ses_04_unknown_session_returns_404() {
    let (_, client) = ScriptedHandler::new().serve();
    for id in ["AAAAAAAAAAAAAAAAAAAAAAAA", "x", "a b"] {
        let header = [("mcp-session-id", id)];
        for body in [
            json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            json!({ "jsonrpc": "2.0", "id": "s1-1", "result": {} }),
            json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]),
        ] {
            assert_eq!(client.request("POST", &header, body.to_string()).await.status, 404);
        }
        assert_eq!(client.request("GET", &header, "").await.status, 404);
        assert_eq!(client.request("DELETE", &header, "").await.status, 404);
    }
}

#[tokio::test]
async fn ses_05_delete_ends_the_session_or_returns_405() {
    let (service, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    assert_eq!(session.delete().await.status, 204);
    assert_eq!(session.delete().await.status, 404);
    assert_eq!(service.stats().sessions, 0);
    let (_, client) = ScriptedHandler::new().serve_with(rethread::Builder::without_delete);
    let session = client.open(V2025_11_25).await;
    let reply = session.delete().await;
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("allow").as_deref(), Some("GET, POST"));
    assert_eq!(session.call(1, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn ses_07_initialize_with_a_stale_session_header_opens_a_new_one() {
    let (service, client) = ScriptedHandler::new().serve();
    let old = client.open(V2025_11_25).await;
    let reply = old.raw("POST", &[], initialize(json!(V2025_06_18)).to_string()).await;
    let new = reply.header("mcp-session-id").unwrap();
    assert_ne!(new, old.id);
    assert_eq!(service.stats().sessions, 2);
    assert_eq!(
        old.call(1, "ping", json!({})).await.status,
        200,
        "the old one is untouched"
    );
}

#[tokio::test(start_paused = true)]
async fn ses_09_idle_session_expires_and_a_used_one_does_not() {
    let store = MemoryStore::default();
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(store.clone()));
    let idle = client.open(V2025_11_25).await;
    let listening = client.open(V2025_11_25).await;
    let busy = client.open(V2025_11_25).await;
    let used = client.open(V2025_11_25).await;
    let get = listening.get(None).await;
    let script = handler.script("long");
    let (call, ()) = tokio::join!(busy.tool(1, "long", json!({})), script.progress(1));
    drop(call); // the call continues without its connection
    for _ in 0..7 {
        tokio::time::sleep(Duration::from_secs(5 * 60)).await;
        assert_eq!(used.call(1, "ping", json!({})).await.status, 200);
    }
    assert_eq!(idle.call(1, "ping", json!({})).await.status, 404, "after 30 minutes");
    assert_eq!(service.stats().sessions, 3);
    script.finish("x").await;
    drop(get);
    assert_eq!(busy.resume("1-1").await.rest().await.len(), 1, "its answer waited");
    tokio::time::sleep(Duration::from_secs(31 * 60)).await;
    assert_eq!(
        (
            service.stats().sessions,
            store.sessions(),
            store.streams(),
            store.held_bytes()
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(listening.get(None).await.status, 404);
}

#[tokio::test]
async fn ses_09_sessions_are_bounded_in_total_and_per_principal() {
    let (service, client) = ScriptedHandler::new().serve_with(|b| {
        b.limits(Limits::default().with(|limits| {
            limits.sessions = 5;
            limits.sessions_per_principal = 2;
        }))
    });
    let alice = client.with_request_hook(|r| {
        r.extensions_mut().insert(Principal::new("i", "alice"));
    });
    let first = alice.open(V2025_11_25).await;
    alice.open(V2025_11_25).await;
    let refused = alice.post(&initialize(json!(V2025_11_25))).await;
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    first.delete().await;
    alice.open(V2025_11_25).await;
    for _ in 0..3 {
        client.open(V2025_11_25).await; // limits per principal do not apply to anonymous clients
    }
    assert_eq!(client.post(&initialize(json!(V2025_11_25))).await.status, 503);
    assert_eq!(service.stats().sessions, 5);
}

#[tokio::test]
async fn sec_06_running_calls_are_bounded_per_session_and_in_total() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| {
        b.limits(Limits::default().with(|limits| {
            limits.calls = 3;
            limits.calls_per_session = 2;
        }))
    });
    let (one, two) = (client.open(V2025_11_25).await, client.open(V2025_11_25).await);
    let mut held = Vec::new();
    for n in 0..2 {
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(one.tool(n, "a", json!({})), script.progress(1));
        held.push((reply, script));
    }
    assert_eq!(one.tool(9, "echo", json!({})).await.status, 429);
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(two.tool(1, "a", json!({})), script.progress(1));
    assert_eq!(two.tool(2, "echo", json!({})).await.status, 503);
    assert_eq!(two.call(3, "ping", json!({})).await.status, 200, "a ping costs nothing");
    script.finish("x").await;
    drop(reply);
    assert_eq!(two.tool(4, "echo", json!({})).await.status, 200);
    for (_, script) in held {
        script.finish("x").await;
    }
    assert_eq!(service.stats().running_calls, 0);
}

/// SEC-07: logs never contain a full session id.
#[tokio::test]
async fn sec_07_debug_output_hides_the_session_id() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let id = rethread::SessionId::parse(&session.id).unwrap();
    assert!(!format!("{id:?}").contains(&session.id));
}

/// SES-09: each has a bounded cost and expires when idle.
#[tokio::test(start_paused = true)]
async fn ses_09_abandoned_sessions_do_not_accumulate() {
    let store = MemoryStore::default();
    let (service, client) = ScriptedHandler::new().serve_with(|b| {
        b.store(store.clone())
            .timing(Timing::default().with(|timing| timing.session_idle = Duration::from_secs(60)))
    });
    for _ in 0..50 {
        for _ in 0..20 {
            let session = client.open(V2025_11_25).await;
            drop(session.get(None).await);
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert!(service.stats().sessions <= 80, "{} sessions", service.stats().sessions);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        (service.stats().sessions, store.sessions(), store.held_bytes()),
        (0, 0, 0)
    );
}
