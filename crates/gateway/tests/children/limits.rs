//! Errors when a child cannot be started.

use crate::client::LATEST;
use crate::gateway::gateway_with;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn message(answer: &Value) -> &str {
    answer["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("no error in {answer}"))
}

#[tokio::test]
async fn gw_09_session_beyond_the_child_limit_gets_503() {
    let gateway = gateway_with("legacy")
        .option("--max-children 1 --child-idle never")
        .start();
    let session = gateway.client().open_session(LATEST).await;
    let refused = gateway.client().initialize(LATEST).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers.contains_key("retry-after"));
    let answer = refused.response().await;
    assert!(message(&answer).contains("1 children of"), "{answer}");
    session.call_tool(1, "crash", json!({})).await;
    session.child_pid().await;
    session.delete().await;
    gateway.client().open_session(LATEST).await.child_pid().await;
}

/// A child that was not started has not crashed, so no backoff applies.
#[tokio::test]
async fn gw_09_stateless_call_beyond_the_child_limit_counts_no_crash() {
    let gateway = gateway_with("dual")
        .option("--max-children 1 --child-idle never")
        .start();
    let session = gateway.client().open_session(LATEST).await;
    for n in 0..3 {
        let answer = gateway.client().call_tool(n, "echo", json!({})).await;
        assert!(message(&answer).contains("1 children of"), "{answer}");
    }
    session.delete().await;
    let answer = gateway.client().call_tool(7, "echo", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
}

#[tokio::test]
async fn gw_09_start_timeout_ends_the_gateway_with_an_error() {
    let builder = gateway_with("legacy,ignores-initialize")
        .option("--start-timeout 1s")
        .option("--era legacy");
    let began = Instant::now();
    let (code, stderr) = builder.run_to_exit();
    assert!(began.elapsed() < 6 * SECOND, "{:?}", began.elapsed());
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("within 1 seconds") && stderr.contains("initialize"),
        "{stderr}"
    );
}

#[tokio::test]
async fn gw_09_start_timeout_bounds_initialize() {
    let gateway = gateway_with("dual,ignores-initialize")
        .option("--start-timeout 1s")
        .start();
    let began = Instant::now();
    let answer = gateway.client().initialize(LATEST).await.response().await;
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    assert!(
        message(&answer).contains("did not answer `initialize` within 1 seconds"),
        "{answer}"
    );
    gateway.wait_for_children(0, 3 * SECOND).await;
    let slow = gateway_with("legacy,start-delay=1").start();
    slow.client().open_session(LATEST).await.child_pid().await;
}

#[tokio::test]
async fn gw_05_initialize_error_of_the_child_reaches_the_client() {
    let (code, stderr) = gateway_with("legacy,refuses-initialize").run_to_exit();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("not today"), "{stderr}");
    let gateway = gateway_with("dual,refuses-initialize").start();
    let answer = gateway.client().initialize(LATEST).await.response().await;
    assert_eq!(answer["error"], json!({ "code": -32000, "message": "not today" }));
    gateway.wait_for_children(0, 3 * SECOND).await;
}

#[test]
fn gw_08_missing_command_is_reported_at_startup() {
    let (code, stderr) = gateway_with("legacy")
        .command(&["no-such-program-anywhere"])
        .run_to_exit();
    assert!(matches!(code, Some(1 | 2)), "{code:?} {stderr}");
    assert!(stderr.contains("no-such-program-anywhere"), "{stderr}");
}

/// GW-08, LEG-03: the session of an `/sse` connection ends with it, and so does a child that is still starting.
#[tokio::test]
async fn gw_08_sse_disconnect_while_the_child_starts_leaves_no_child() {
    // The first child answers `initialize` after half a second, the second one never.
    for behavior in ["legacy,start-delay=0.5", "dual,ignores-initialize"] {
        let gateway = gateway_with(behavior).option("--max-children 3").start();
        gateway.wait_for_children(0, 5 * SECOND).await;
        let mut posts = tokio::task::JoinSet::new();
        for n in 0..10 {
            let mut sse = gateway.client().get("/sse").await;
            let endpoint = sse.next().await.unwrap().as_str().unwrap().to_owned();
            let client = gateway.client();
            let request = json!({ "jsonrpc": "2.0", "id": n, "method": "initialize", "params": {
                "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
            // The POST continues: only the stream closes.
            posts.spawn(async move {
                let headers = [("content-type", "application/json")];
                client
                    .send("POST", &endpoint, &headers, request.to_string().as_bytes())
                    .await
                    .status
            });
            gateway.wait_for_any_child(3 * SECOND).await;
            drop(sse);
        }
        gateway.wait_for_children(0, 5 * SECOND).await;
        posts.abort_all();
        let client = gateway.client();
        let opened = tokio::time::timeout(3 * SECOND, client.initialize(LATEST)).await;
        if behavior.contains("ignores-initialize") {
            assert!(opened.is_err(), "a child starts, and does not answer");
        } else {
            assert_eq!(opened.expect("there is room").status, StatusCode::OK);
        }
    }
}
