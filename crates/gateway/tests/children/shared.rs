//! GW-07, GW-11, GW-12: the child that stateless requests share.

use crate::client::{LATEST, RESPONSE_TIMEOUT, tool_result};
use crate::gateway::{Gateway, gateway_with, kill, wait_until};
use http::StatusCode;
use rethread_testkit::raw::{RawConnection, request};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

async fn child_pid(gateway: &Gateway) -> u64 {
    tool_result(&gateway.client().call_tool(1, "echo", json!({})).await)["pid"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn gw_07_clients_share_a_child_that_ends_when_idle() {
    let gateway = gateway_with("modern").option("--child-idle 1s").start();
    let (one, other) = (child_pid(&gateway).await, child_pid(&gateway).await);
    assert_eq!(one, other);
    // The child of the probe ends soon.
    gateway.wait_for_children(1, SECOND).await;
    let long = gateway.client().call_tool(2, "slow", json!({ "ms": 2000 })).await;
    assert_eq!(tool_result(&long)["pid"], one, "a running call counts as use");
    gateway.wait_for_children(0, 4 * SECOND).await;
    assert_ne!(child_pid(&gateway).await, one);
}

#[tokio::test]
async fn gw_09_shared_child_restarts_and_its_subscriptions_end() {
    let gateway = gateway_with("modern").start();
    let first = child_pid(&gateway).await;
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = gateway
        .client()
        .stateless(json!("sub"), "subscriptions/listen", params, &[])
        .await;
    let name = "io.modelcontextprotocol/subscriptionId";
    let acknowledged = stream.next().await.unwrap();
    assert_eq!(acknowledged["params"]["_meta"][name], "sub");
    gateway.client().call_tool(2, "change-tools", json!({})).await;
    let change = stream.next().await.unwrap();
    assert_eq!(change["method"], "notifications/tools/list_changed");
    assert_eq!(change["params"]["_meta"][name], "sub");
    kill(first.try_into().unwrap(), Signal::KILL);
    let last = stream.messages().await.pop().unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!("sub"), &json!("complete")),
        "{last}"
    );
    assert_eq!(last["result"]["_meta"][name], "sub");
    assert_ne!(child_pid(&gateway).await, first);
}

#[tokio::test]
async fn gw_09_stateless_call_of_a_crashed_child_fails() {
    let gateway = gateway_with("modern").start();
    let answer = gateway.client().call_tool(5, "crash", json!({ "code": 9 })).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(5), &json!(-32603)),
        "{answer}"
    );
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    child_pid(&gateway).await;
}

#[tokio::test]
async fn gw_11_first_call_is_checked_against_the_schema_of_the_child() {
    let gateway = gateway_with("modern").start();
    let call = async |more: &[(&str, &str)]| {
        let params = json!({ "name": "region", "arguments": { "region": "eu" } });
        gateway.client().stateless(json!(1), "tools/call", params, more).await
    };
    for wrong in [&[("mcp-param-region", "us")][..], &[]] {
        let reply = call(wrong).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert_eq!(reply.response().await["error"]["code"], -32020);
    }
    assert_eq!(
        tool_result(&call(&[("mcp-param-region", "eu")]).await.response().await),
        "eu"
    );
}

/// Starts a call on a connection that the test does not read.
async fn unread_call(gateway: &Gateway, headers: &[(&str, &str)], mut body: Value) -> RawConnection {
    body["params"]["_meta"]["progressToken"] = json!("mine");
    let mut all = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    all.extend_from_slice(headers);
    let mut connection = RawConnection::open_narrow(gateway.addr, 4096).await.unwrap();
    let bytes = request("POST", "/mcp", &all, body.to_string().as_bytes());
    connection.send(&bytes).await.unwrap();
    connection
}

const LARGE_OUTPUT: &str = r#"{ "ms": 2000, "steps": 2000, "bytes": 20000 }"#;

#[tokio::test]
async fn gw_12_stalled_reader_does_not_stall_other_clients_of_a_shared_child() {
    let gateway = gateway_with("modern").start();
    let first = child_pid(&gateway).await;
    let much: Value = serde_json::from_str(LARGE_OUTPUT).unwrap();
    let params = json!({ "name": "slow", "arguments": much });
    let (headers, body) = rethread_testkit::client::stateless(&json!(1), "tools/call", params, json!({}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let _stalled = unread_call(&gateway, &headers, body).await;
    let began = Instant::now();
    while began.elapsed() < 4 * SECOND {
        let asked = Instant::now();
        assert_eq!(child_pid(&gateway).await, first);
        assert!(asked.elapsed() < SECOND, "a neighbour waited {:?}", asked.elapsed());
        tokio::time::sleep(SECOND / 20).await;
    }
    gateway.wait_for_log("reads too slowly").await;
    let cancelled = || async { tool_result(&gateway.client().call_tool(1, "count-cancelled", json!({})).await) };
    assert_eq!(cancelled().await, 1, "the child gets a cancellation");
}

#[tokio::test]
async fn gw_12_stalled_session_does_not_stall_others_and_can_be_deleted() {
    let gateway = gateway_with("legacy").start();
    let (one, other) = (
        gateway.client().open_session(LATEST).await,
        gateway.client().open_session(LATEST).await,
    );
    let much: Value = serde_json::from_str(&LARGE_OUTPUT.replace("2000,", "60000,")).unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "slow", "arguments": much } });
    let headers = [("mcp-session-id", one.id.as_str()), ("mcp-protocol-version", LATEST)];
    let _stalled = unread_call(&gateway, &headers, body).await;
    for n in 0..40 {
        let asked = Instant::now();
        other.call_tool(n, "echo", json!({})).await;
        assert!(asked.elapsed() < SECOND, "a neighbour waited {:?}", asked.elapsed());
        tokio::time::sleep(SECOND / 20).await;
    }
    one.delete().await;
    gateway.wait_for_children(1, 6 * SECOND).await;
}

/// GW-12, SSE-14: all calls of a session share the stdout pipe of its child.
#[tokio::test]
async fn gw_12_stalled_call_does_not_stall_other_calls_of_its_session() {
    let gateway = gateway_with("legacy").start();
    let session = gateway.client().open_session(LATEST).await;
    let burst = json!({ "ms": 0, "steps": 2000, "bytes": 10_000, "text": "burst" });
    let body = json!({ "jsonrpc": "2.0", "id": "burst", "method": "tools/call",
        "params": { "name": "slow", "arguments": burst } });
    let headers = [
        ("mcp-session-id", session.id.as_str()),
        ("mcp-protocol-version", LATEST),
    ];
    let mut unread = unread_call(&gateway, &headers, body).await;
    assert_eq!(unread.read_head().await.unwrap().0, StatusCode::OK);
    let cursor = unread.next_block(RESPONSE_TIMEOUT).await.and_then(|block| block.id);
    for n in 0..20 {
        let echo = tokio::time::timeout(4 * SECOND, session.call_tool(n, "echo", json!({ "text": n }))).await;
        let echo = echo.unwrap_or_else(|_| panic!("no answer to echo {n} in 4 seconds"));
        assert_eq!(tool_result(&echo)["text"], n);
        tokio::time::sleep(SECOND / 20).await;
    }
    // The gateway has closed the connection. The stream can be resumed.
    let answer = session
        .resume(&cursor.expect("the first event has an id"))
        .await
        .response()
        .await;
    assert_eq!(
        (&answer["id"], &tool_result(&answer)["text"]),
        (&json!("burst"), &json!("burst"))
    );
}

#[tokio::test]
async fn gw_12_disconnect_cancels_a_stateless_call() {
    let gateway = gateway_with("modern").start();
    child_pid(&gateway).await;
    let params = json!({ "name": "slow", "arguments": { "ms": 30_000, "steps": 300 } });
    let (headers, body) = rethread_testkit::client::stateless(&json!(1), "tools/call", params, json!({}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let connection = unread_call(&gateway, &headers, body).await;
    tokio::time::sleep(SECOND / 2).await;
    connection.reset().unwrap();
    let mut cancelled = Value::Null;
    let deadline = Instant::now() + RESPONSE_TIMEOUT / 5;
    while cancelled != 1 && Instant::now() < deadline {
        cancelled = tool_result(&gateway.client().call_tool(1, "count-cancelled", json!({})).await);
        wait_until(SECOND / 20, || false).await;
    }
    assert_eq!(cancelled, 1);
}

/// GW-07, MRTR-04: the retry delivers the answer to the question of the child. It is not relayed as a second call, and
/// progress of the parked call carries the token of the retry.
#[tokio::test]
async fn gw_07_question_as_request_runs_the_tool_once() {
    let gateway = gateway_with("modern").record_messages().start();
    let client = gateway.client();
    let call = async |id: u64, more: Value| {
        let mut params = json!({ "name": "ask", "arguments": { "text": "weather", "late": 300 } });
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let token = json!({ "progressToken": format!("token-{id}") });
        let (headers, body) = rethread_testkit::client::stateless(&json!(id), "tools/call", params, token);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        client.post(&headers, &body).await
    };
    let asked = call(1, json!({})).await.response().await;
    let question = &asked["result"]["inputRequests"]["q1"];
    assert_eq!(question["params"]["about"], "weather", "{asked}");
    let reported = || {
        gateway
            .recorded_messages()
            .iter()
            .any(|message| message["method"] == "reported")
    };
    assert!(wait_until(RESPONSE_TIMEOUT, reported).await);
    let answer = json!({ "model": "m", "role": "assistant", "content": { "type": "text", "text": "sunny" } });
    let retry = json!({ "requestState": asked["result"]["requestState"], "inputResponses": { "q1": answer } });
    let messages = call(2, retry.clone()).await.messages().await;
    assert_eq!(
        messages[0]["params"],
        json!({ "progressToken": "token-2", "progress": 1, "extra": "kept" })
    );
    assert_eq!((messages.len(), &messages[1]["id"]), (2, &json!(2)));
    assert_eq!(tool_result(&messages[1]), answer);
    let again = call(3, retry).await.response().await;
    assert_eq!(again["error"]["code"], -32602, "{again}");
    let calls = gateway
        .recorded_messages()
        .iter()
        .filter(|message| message["method"] == "tools/call")
        .count();
    assert_eq!(calls, 1, "the tool runs once");
}
