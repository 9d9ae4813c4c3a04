//! GW-03, GW-04, GW-05, GW-15: which era the gateway speaks to a child.

use crate::client::{Client, LATEST, tool_result};
use crate::gateway::gateway_with;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SESSIONS: &str = "2025-11-25 upstream, served as 2024-11-05 to 2026-07-28";
const STATELESS: &str = "2026-07-28 upstream, served as 2024-11-05 to 2026-07-28";
const BOTH: &str = "2025-11-25 and 2026-07-28 upstream, served as 2024-11-05 to 2026-07-28";

/// GW-15: clients of both eras are served.
async fn serves_every_client(client: &Client) {
    client.open_session(LATEST).await.child_pid().await;
    tool_result(&client.call_tool(1, "echo", json!({})).await);
}

#[tokio::test]
async fn gw_03_probe_detects_a_modern_child() {
    let gateway = gateway_with("modern").start();
    assert_eq!(gateway.eras(), STATELESS);
    serves_every_client(&gateway.client()).await;
}

#[tokio::test]
async fn gw_04_dual_child_gets_the_era_of_the_client() {
    let gateway = gateway_with("dual").record_messages().start();
    assert_eq!(gateway.eras(), BOTH);
    let session = gateway.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let other = tool_result(&gateway.client().call_tool(1, "echo", json!({})).await)["pid"]
        .as_u64()
        .unwrap();
    assert_ne!(pid, other);
    assert_eq!(
        gateway.methods_received(pid),
        ["initialize", "notifications/initialized", "tools/call"]
    );
    assert!(!gateway.methods_received(other).contains(&"initialize".to_owned()));
}

#[tokio::test]
async fn gw_03_probe_treats_any_discover_error_as_legacy() {
    for behavior in ["legacy", "legacy,wrong-params"] {
        let gateway = gateway_with(behavior).start();
        assert_eq!(gateway.eras(), SESSIONS);
        serves_every_client(&gateway.client()).await;
    }
}

#[tokio::test]
async fn gw_03_probe_sends_initialize_to_a_silent_child() {
    let began = Instant::now();
    let gateway = gateway_with("legacy,ignores-unknown-methods").start();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(gateway.eras(), SESSIONS);
    serves_every_client(&gateway.client()).await;
}

#[tokio::test]
async fn gw_03_probe_restarts_a_child_that_exits_on_discover() {
    // One permit is enough: the second child waits for the end of the first.
    let gateway = gateway_with("legacy,exits-on-unknown-method")
        .option("--max-children 1")
        .start();
    assert_eq!(gateway.eras(), SESSIONS);
    gateway.client().open_session(LATEST).await.child_pid().await;
}

#[tokio::test]
async fn gw_03_era_option_skips_the_probe() {
    let gateway = gateway_with("dual").option("--era legacy").record_messages().start();
    assert_eq!(gateway.eras(), SESSIONS);
    assert!(
        gateway
            .recorded_messages()
            .iter()
            .all(|message| message["method"] != "server/discover")
    );
    serves_every_client(&gateway.client()).await;
}

#[tokio::test]
async fn gw_05_child_negotiates_the_revision_itself() {
    let gateway = gateway_with("legacy").start();
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = gateway.client().open_session(version).await;
        let result = &session.initialize_response["result"];
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(
            result["serverInfo"],
            json!({ "name": "fake", "version": "7", "extra": "kept" })
        );
        assert_eq!(session.initialize_response["id"], "initialize");
        let dump = tool_result(&session.call_tool(1, "dump", json!({})).await);
        assert_eq!(dump["initialize_params"]["protocolVersion"], version);
        assert_eq!(
            dump["initialize_params"]["clientInfo"]["own"], "words",
            "the child gets the params of the client"
        );
        session.delete().await;
    }
}

#[tokio::test]
async fn gw_05_old_client_is_served_on_the_sse_endpoint() {
    let gateway = gateway_with("legacy").start();
    let client = gateway.client();
    let (mut stream, path) = client.open_sse().await;
    let post = async |body: Value| client.post_sse(&path, body).await;
    let params =
        json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    post(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await;
    let answer = stream.next().await.unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
    assert_eq!(answer["result"]["serverInfo"]["name"], "fake");
    post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    post(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "counter" } })).await;
    assert_eq!(tool_result(&stream.next().await.unwrap()), 1);
    gateway.wait_for_children(1, Duration::from_secs(3)).await;
    drop(stream);
    gateway.wait_for_children(0, Duration::from_secs(3)).await;
}

#[tokio::test]
async fn gw_05_unknown_revision_is_refused_and_the_child_ends() {
    let gateway = gateway_with("dual,version=1999-01-01").start();
    let reply = gateway.client().initialize(LATEST).await;
    assert!(reply.headers.get("mcp-session-id").is_none());
    let answer = reply.response().await;
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("1999-01-01"),
        "{answer}"
    );
    gateway.wait_for_children(0, Duration::from_secs(3)).await;
}

#[tokio::test]
async fn gw_05_batch_reaches_the_child_as_single_messages() {
    let gateway = gateway_with("legacy").record_messages().start();
    let session = gateway.client().open_session("2025-03-26").await;
    let call = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "counter" } });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let answers = session
        .post(&json!([call(1), note, call(2), call(3)]))
        .await
        .messages()
        .await;
    let mut ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    let received = gateway.methods_received(session.first_pid().into());
    assert_eq!(received.iter().filter(|method| *method == "tools/call").count(), 3);
    assert!(received.contains(&"notifications/roots/list_changed".to_owned()));
}
