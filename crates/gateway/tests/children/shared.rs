//! GW-07, GW-11, GW-12: one child for all stateless requests.

use crate::client::{LATEST, PATIENCE, said};
use crate::gateway::{Gateway, kill, plan, until};
use http::StatusCode;
use rethread_testkit::raw::{RawConnection, request};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

async fn pid(gateway: &Gateway) -> u64 {
    said(&gateway.client().tool(1, "echo", json!({})).await)["pid"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn gw_07_two_clients_share_a_child_that_ends_when_nobody_needs_it() {
    let gateway = plan("modern").option("--session-idle 1s").start();
    let (one, other) = (pid(&gateway).await, pid(&gateway).await);
    assert_eq!(one, other);
    // The one that was asked at the start is gone by now or soon.
    gateway.has_children(1, SECOND).await;
    let long = gateway.client().tool(2, "slow", json!({ "ms": 2000 })).await;
    assert_eq!(said(&long)["pid"], one, "a call that runs is use");
    gateway.has_children(0, 4 * SECOND).await;
    assert_ne!(pid(&gateway).await, one);
}

#[tokio::test]
async fn gw_09_a_shared_child_is_started_again_and_its_subscriptions_end() {
    let gateway = plan("modern").start();
    let first = pid(&gateway).await;
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = gateway
        .client()
        .stateless(json!("sub"), "subscriptions/listen", params, &[])
        .await;
    let name = "io.modelcontextprotocol/subscriptionId";
    let acknowledged = stream.next().await.unwrap();
    assert_eq!(acknowledged["params"]["_meta"][name], "sub");
    gateway.client().tool(2, "touch", json!({})).await;
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
    assert_ne!(pid(&gateway).await, first);
}

#[tokio::test]
async fn gw_09_a_stateless_call_learns_that_its_child_died() {
    let gateway = plan("modern").start();
    let answer = gateway.client().tool(5, "crash", json!({ "code": 9 })).await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(5), &json!(-32603)),
        "{answer}"
    );
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    pid(&gateway).await;
}

#[tokio::test]
async fn gw_11_the_first_call_ever_is_checked_against_the_childs_schema() {
    let gateway = plan("modern").start();
    let call = async |more: &[(&str, &str)]| {
        let params = json!({ "name": "region", "arguments": { "region": "eu" } });
        gateway.client().stateless(json!(1), "tools/call", params, more).await
    };
    for wrong in [&[("mcp-param-region", "us")][..], &[]] {
        let reply = call(wrong).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert_eq!(reply.answer().await["error"]["code"], -32020);
    }
    assert_eq!(said(&call(&[("mcp-param-region", "eu")]).await.answer().await), "eu");
}

/// A call that says much, on a connection that nobody reads.
async fn stalled(gateway: &Gateway, headers: &[(&str, &str)], mut body: Value) -> RawConnection {
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

const MUCH: &str = r#"{ "ms": 2000, "steps": 2000, "bytes": 20000 }"#;

#[tokio::test]
async fn gw_12_a_stalled_reader_does_not_stall_others_of_the_same_child() {
    let gateway = plan("modern").start();
    let first = pid(&gateway).await;
    let much: Value = serde_json::from_str(MUCH).unwrap();
    let params = json!({ "name": "slow", "arguments": much });
    let (headers, body) = rethread_testkit::client::stateless(&json!(1), "tools/call", params, json!({}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let _stalled = stalled(&gateway, &headers, body).await;
    let began = Instant::now();
    while began.elapsed() < 4 * SECOND {
        let asked = Instant::now();
        assert_eq!(pid(&gateway).await, first);
        assert!(asked.elapsed() < SECOND, "a neighbour waited {:?}", asked.elapsed());
        tokio::time::sleep(SECOND / 20).await;
    }
    gateway.says("reads too slowly").await;
    let told = || async { said(&gateway.client().tool(1, "cancelled", json!({})).await) };
    assert_eq!(told().await, 1, "the child is told that nobody listens any more");
}

#[tokio::test]
async fn gw_12_a_stalled_session_stalls_no_other_and_can_be_ended() {
    let gateway = plan("legacy").start();
    let (one, other) = (gateway.client().open(LATEST).await, gateway.client().open(LATEST).await);
    let much: Value = serde_json::from_str(&MUCH.replace("2000,", "60000,")).unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "slow", "arguments": much } });
    let headers = [("mcp-session-id", one.id.as_str()), ("mcp-protocol-version", LATEST)];
    let _stalled = stalled(&gateway, &headers, body).await;
    for n in 0..40 {
        let asked = Instant::now();
        other.tool(n, "echo", json!({})).await;
        assert!(asked.elapsed() < SECOND, "a neighbour waited {:?}", asked.elapsed());
        tokio::time::sleep(SECOND / 20).await;
    }
    one.delete().await;
    gateway.has_children(1, 6 * SECOND).await;
}

/// GW-12, SSE-14: all calls of a session share the pipe of its child, and one of them is not read.
#[tokio::test]
async fn gw_12_a_stalled_call_does_not_stall_the_other_calls_of_its_session() {
    let gateway = plan("legacy").start();
    let session = gateway.client().open(LATEST).await;
    let burst = json!({ "ms": 0, "steps": 2000, "bytes": 10_000, "text": "burst" });
    let body = json!({ "jsonrpc": "2.0", "id": "burst", "method": "tools/call",
        "params": { "name": "slow", "arguments": burst } });
    let headers = [
        ("mcp-session-id", session.id.as_str()),
        ("mcp-protocol-version", LATEST),
    ];
    let mut unread = stalled(&gateway, &headers, body).await;
    assert_eq!(unread.read_head().await.unwrap().0, StatusCode::OK);
    let cursor = unread.next_block(PATIENCE).await.and_then(|block| block.id);
    for n in 0..20 {
        let echo = tokio::time::timeout(4 * SECOND, session.tool(n, "echo", json!({ "text": n }))).await;
        let echo = echo.unwrap_or_else(|_| panic!("no answer to echo {n} in 4 seconds"));
        assert_eq!(said(&echo)["said"], n);
        tokio::time::sleep(SECOND / 20).await;
    }
    // The connection was closed, not the stream.
    let answer = session
        .resume(&cursor.expect("the first event has an id"))
        .await
        .answer()
        .await;
    assert_eq!(
        (&answer["id"], &said(&answer)["said"]),
        (&json!("burst"), &json!("burst"))
    );
}

#[tokio::test]
async fn gw_12_who_hangs_up_is_not_worked_for() {
    let gateway = plan("modern").start();
    pid(&gateway).await;
    let params = json!({ "name": "slow", "arguments": { "ms": 30_000, "steps": 300 } });
    let (headers, body) = rethread_testkit::client::stateless(&json!(1), "tools/call", params, json!({}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let connection = stalled(&gateway, &headers, body).await;
    tokio::time::sleep(SECOND / 2).await;
    connection.reset().unwrap();
    let mut told = Value::Null;
    let deadline = Instant::now() + PATIENCE / 5;
    while told != 1 && Instant::now() < deadline {
        told = said(&gateway.client().tool(1, "cancelled", json!({})).await);
        until(SECOND / 20, || false).await;
    }
    assert_eq!(told, 1);
}

/// GW-07, MRTR-04: a child that asks with a request of its own gets the answer that the retry brings. The retry is not
/// passed on as a second call, and progress of the waiting call goes out under the retry's token.
#[tokio::test]
async fn gw_07_child_that_asks_with_a_request_runs_its_tool_once() {
    let gateway = plan("modern").recording().start();
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
    let asked = call(1, json!({})).await.answer().await;
    let question = &asked["result"]["inputRequests"]["q1"];
    assert_eq!(question["params"]["about"], "weather", "{asked}");
    let reported = || gateway.record().iter().any(|told| told["method"] == "reported");
    assert!(until(PATIENCE, reported).await);
    let answer = json!({ "model": "m", "role": "assistant", "content": { "type": "text", "text": "sunny" } });
    let retry = json!({ "requestState": asked["result"]["requestState"], "inputResponses": { "q1": answer } });
    let messages = call(2, retry.clone()).await.messages().await;
    assert_eq!(
        messages[0]["params"],
        json!({ "progressToken": "token-2", "progress": 1, "extra": "kept" })
    );
    assert_eq!((messages.len(), &messages[1]["id"]), (2, &json!(2)));
    assert_eq!(said(&messages[1]), answer);
    let again = call(3, retry).await.answer().await;
    assert_eq!(again["error"]["code"], -32602, "{again}");
    let calls = gateway
        .record()
        .iter()
        .filter(|told| told["method"] == "tools/call")
        .count();
    assert_eq!(calls, 1, "the tool runs once");
}
