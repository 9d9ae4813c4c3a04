//! GW-03, GW-04, GW-05: what a child speaks is found out, and nothing else is offered.

use crate::client::{Client, LATEST, said};
use crate::gateway::plan;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SESSIONS: &str = "sessions (2024-11-05 to 2025-11-25)";
const STATELESS: &str = "stateless (2026-07-28)";
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

async fn serves_sessions_only(client: &Client) {
    client.open(LATEST).await.pid().await;
    let reply = client.stateless(json!(1), "tools/list", json!({}), &[]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let answer = reply.answer().await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert_eq!(answer["error"]["data"]["supported"], json!(LEGACY), "{answer}");
}

async fn serves_stateless_only(client: &Client) {
    said(&client.tool(1, "echo", json!({})).await);
    let reply = client.initialize(LATEST).await;
    assert!(reply.headers.get("mcp-session-id").is_none());
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let answer = reply.answer().await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert_eq!(answer["error"]["data"]["supported"], json!(["2026-07-28"]), "{answer}");
}

#[tokio::test]
async fn gw_03_a_modern_child_is_known_as_such() {
    let gateway = plan("modern").start();
    assert_eq!(gateway.eras(), STATELESS);
    serves_stateless_only(&gateway.client()).await;
}

#[tokio::test]
async fn gw_04_a_child_of_both_eras_is_spoken_to_in_the_clients() {
    let gateway = plan("dual").recording().start();
    assert_eq!(gateway.eras(), format!("{SESSIONS} and {STATELESS}"));
    let session = gateway.client().open(LATEST).await;
    let pid = session.pid().await;
    let other = said(&gateway.client().tool(1, "echo", json!({})).await)["pid"]
        .as_u64()
        .unwrap();
    assert_ne!(pid, other);
    assert_eq!(
        gateway.told(pid),
        ["initialize", "notifications/initialized", "tools/call"]
    );
    assert!(!gateway.told(other).contains(&"initialize".to_owned()));
}

#[tokio::test]
async fn gw_03_a_child_that_knows_no_discovery_is_legacy_whatever_its_error() {
    for words in ["legacy", "legacy,wrong-params"] {
        let gateway = plan(words).start();
        assert_eq!(gateway.eras(), SESSIONS);
        serves_sessions_only(&gateway.client()).await;
    }
}

#[tokio::test]
async fn gw_03_a_child_that_is_silent_is_asked_otherwise() {
    let began = Instant::now();
    let gateway = plan("legacy,silent").start();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(gateway.eras(), SESSIONS);
    serves_sessions_only(&gateway.client()).await;
}

#[tokio::test]
async fn gw_03_a_child_that_exits_on_the_question_is_started_again() {
    // One place is enough: the next child waits for the end of the one before.
    let gateway = plan("legacy,touchy").option("--max-children 1").start();
    assert_eq!(gateway.eras(), SESSIONS);
    gateway.client().open(LATEST).await.pid().await;
}

#[tokio::test]
async fn gw_03_an_era_can_be_forced() {
    let gateway = plan("dual").option("--era legacy").recording().start();
    assert_eq!(gateway.eras(), SESSIONS);
    assert!(gateway.record().iter().all(|told| told["method"] != "server/discover"));
    serves_sessions_only(&gateway.client()).await;
}

#[tokio::test]
async fn gw_05_every_revision_is_the_childs_own_affair() {
    let gateway = plan("legacy").start();
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = gateway.client().open(version).await;
        let result = &session.hello["result"];
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(
            result["serverInfo"],
            json!({ "name": "fake", "version": "7", "extra": "kept" })
        );
        assert_eq!(session.hello["id"], "hello");
        let dump = said(&session.tool(1, "dump", json!({})).await);
        assert_eq!(dump["hello"]["protocolVersion"], version);
        assert_eq!(
            dump["hello"]["clientInfo"]["own"], "words",
            "the child is told what the client said"
        );
        session.delete().await;
    }
}

#[tokio::test]
async fn gw_05_an_old_client_is_served_on_the_old_endpoint() {
    let gateway = plan("legacy").start();
    let client = gateway.client();
    let mut stream = client
        .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
        .await;
    let Some(Value::String(place)) = stream.next().await else {
        panic!("the first event names an endpoint")
    };
    let post = async |body: Value| {
        let headers = [("content-type", "application/json")];
        let reply = client.send("POST", &place, &headers, body.to_string().as_bytes()).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED);
    };
    let hello =
        json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    post(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello })).await;
    let answer = stream.next().await.unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
    assert_eq!(answer["result"]["serverInfo"]["name"], "fake");
    post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    post(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "counter" } })).await;
    assert_eq!(said(&stream.next().await.unwrap()), 1);
    gateway.has_children(1, Duration::from_secs(3)).await;
    drop(stream);
    gateway.has_children(0, Duration::from_secs(3)).await;
}

#[tokio::test]
async fn gw_05_a_revision_that_is_not_served_is_refused_and_the_child_ended() {
    let gateway = plan("dual,version=1999-01-01").start();
    let reply = gateway.client().initialize(LATEST).await;
    assert!(reply.headers.get("mcp-session-id").is_none());
    let answer = reply.answer().await;
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("1999-01-01"),
        "{answer}"
    );
    gateway.has_children(0, Duration::from_secs(3)).await;
}

#[tokio::test]
async fn gw_05_a_batch_reaches_the_child_one_by_one() {
    let gateway = plan("legacy").recording().start();
    let session = gateway.client().open("2025-03-26").await;
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
    let told = gateway.told(session.first_pid().into());
    assert_eq!(told.iter().filter(|method| *method == "tools/call").count(), 3);
    assert!(told.contains(&"notifications/roots/list_changed".to_owned()));
}
