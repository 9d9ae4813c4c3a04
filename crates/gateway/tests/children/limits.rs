//! What a person or a client is told when a child cannot be had.

use crate::client::LATEST;
use crate::gateway::plan;
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
async fn gw_09_more_children_than_allowed_are_refused_and_a_place_is_used_again() {
    let gateway = plan("legacy").option("--max-children 1").start();
    let session = gateway.client().open(LATEST).await;
    let refused = gateway.client().initialize(LATEST).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers.contains_key("retry-after"));
    let answer = refused.answer().await;
    assert!(message(&answer).contains("1 children of"), "{answer}");
    session.tool(1, "crash", json!({})).await;
    session.pid().await;
    session.delete().await;
    gateway.client().open(LATEST).await.pid().await;
}

/// A child that was not started has not crashed, so no backoff applies.
#[tokio::test]
async fn gw_09_stateless_call_beyond_the_child_limit_counts_no_crash() {
    let gateway = plan("dual").option("--max-children 1").start();
    let session = gateway.client().open(LATEST).await;
    for n in 0..3 {
        let answer = gateway.client().tool(n, "echo", json!({})).await;
        assert!(message(&answer).contains("1 children of"), "{answer}");
    }
    session.delete().await;
    let answer = gateway.client().tool(7, "echo", json!({})).await;
    assert!(answer["result"].is_object(), "{answer}");
}

#[tokio::test]
async fn gw_09_a_child_that_never_answers_is_given_up_in_time() {
    let plan = plan("legacy,mute").option("--start-timeout 1s").option("--era legacy");
    let began = Instant::now();
    let (code, stderr) = plan.fails();
    assert!(began.elapsed() < 6 * SECOND, "{:?}", began.elapsed());
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("within 1 seconds") && stderr.contains("initialize"),
        "{stderr}"
    );
}

#[tokio::test]
async fn gw_09_a_slow_start_is_waited_for_and_a_too_slow_one_is_named() {
    let gateway = plan("dual,mute").option("--start-timeout 1s").start();
    let began = Instant::now();
    let answer = gateway.client().initialize(LATEST).await.answer().await;
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    assert!(
        message(&answer).contains("did not answer `initialize` within 1 seconds"),
        "{answer}"
    );
    gateway.has_children(0, 3 * SECOND).await;
    let slow = plan("legacy,late=1").start();
    slow.client().open(LATEST).await.pid().await;
}

#[tokio::test]
async fn gw_05_a_refusal_of_the_child_reaches_the_client() {
    let (code, stderr) = plan("legacy,refuses").fails();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("not today"), "{stderr}");
    let gateway = plan("dual,refuses").start();
    let answer = gateway.client().initialize(LATEST).await.answer().await;
    assert_eq!(answer["error"], json!({ "code": -32000, "message": "not today" }));
    gateway.has_children(0, 3 * SECOND).await;
}

#[test]
fn gw_08_a_command_that_does_not_exist_is_named_at_the_start() {
    let (code, stderr) = plan("legacy").command(&["no-such-program-anywhere"]).fails();
    assert!(matches!(code, Some(1 | 2)), "{code:?} {stderr}");
    assert!(stderr.contains("no-such-program-anywhere"), "{stderr}");
}

/// GW-08, LEG-03: the connection is the session. When it goes while the child is still starting, so does the child.
#[tokio::test]
async fn gw_08_sse_connections_that_close_while_their_child_starts_leave_no_child_behind() {
    // One child answers `initialize` half a second late, the other never.
    for words in ["legacy,late=0.5", "dual,mute"] {
        let gateway = plan(words).option("--max-children 3").start();
        gateway.has_children(0, 5 * SECOND).await;
        let mut posts = tokio::task::JoinSet::new();
        for n in 0..10 {
            let mut sse = gateway.client().get("/sse").await;
            let endpoint = sse.next().await.unwrap().as_str().unwrap().to_owned();
            let client = gateway.client();
            let hello = json!({ "jsonrpc": "2.0", "id": n, "method": "initialize", "params": {
                "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
            // The client that sends this stays: only its stream is closed.
            posts.spawn(async move {
                let headers = [("content-type", "application/json")];
                client
                    .send("POST", &endpoint, &headers, hello.to_string().as_bytes())
                    .await
                    .status
            });
            gateway.has_some_children(3 * SECOND).await;
            drop(sse);
        }
        gateway.has_children(0, 5 * SECOND).await;
        posts.abort_all();
        let client = gateway.client();
        let opened = tokio::time::timeout(3 * SECOND, client.initialize(LATEST)).await;
        if words.contains("mute") {
            assert!(opened.is_err(), "a child is started for it, and does not answer");
        } else {
            assert_eq!(opened.expect("there is room").status, StatusCode::OK);
        }
    }
}
