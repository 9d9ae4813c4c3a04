//! Calls of clients with sessions at a server of 2026-07-28: errors, batches, cancellation, cut connections (requirements 4.2).

use super::{REVISIONS, SOON, answer, bridge_with, next_question, open_session, received, within};
use crate::client::{HttpReply, LATEST, Session, tool_result};
use crate::gateway::wait_until;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// 4.2, `-32021` from upstream.
#[tokio::test]
async fn line_4_2_missing_capability_becomes_an_error_that_names_it() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let error = session.call_tool(1, "needs-sampling", json!({})).await["error"].clone();
    assert_eq!(error["code"], -32603, "{error}");
    assert!(error["message"].as_str().unwrap().contains("sampling"), "{error}");
    assert_eq!(
        error["data"]["upstream"],
        json!({ "code": -32021, "data": { "requiredCapabilities": { "sampling": {} } } })
    );
}

/// 4.2, resource-not-found `-32602`: revisions with sessions have `-32002`, and the server does not say which error it is.
#[tokio::test]
async fn line_4_2_resource_not_found_is_left_as_it_is() {
    let gateway = bridge_with("modern").start();
    for version in REVISIONS {
        let session = open_session(&gateway.client(), version).await;
        let params = json!({ "uri": "missing:a" });
        let missing = session.call(1, "resources/read", params.clone()).await;
        assert_eq!(missing.status, StatusCode::OK, "{version}");
        assert_eq!(
            missing.response().await["error"],
            json!({ "code": -32602, "message": "no such resource", "data": params }),
            "{version}"
        );
    }
}

/// 4.2, B batch: the server gets single requests, and one stream has every response and the question of a call.
#[tokio::test]
async fn line_4_2_batch_is_split_and_answered_on_one_stream() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), "2025-03-26").await;
    let call = |id: u64, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([
        call(1, "echo", json!({ "text": "one" })),
        { "jsonrpc": "2.0", "method": "notifications/roots/list_changed" },
        call(2, "ask", json!({ "kinds": ["sample"] })),
        { "jsonrpc": "2.0", "id": 3, "method": "ping" },
        call(4, "fail", json!({ "code": 7 })),
    ]);
    let mut stream = session.post(&batch).await;
    assert_eq!(stream.status, StatusCode::OK);
    let mut responses = BTreeMap::new();
    while let Some(message) = stream.next().await {
        if message["method"] == "sampling/createMessage" {
            answer(&session, &message, json!({ "model": "m" })).await;
            continue;
        }
        let id = message["id"]
            .as_u64()
            .unwrap_or_else(|| panic!("not a response: {message}"));
        assert!(responses.insert(id, message).is_none(), "{id} is answered once");
    }
    assert_eq!(responses.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(tool_result(&responses[&1])["text"], "one");
    assert_eq!(tool_result(&responses[&2])["responses"]["k0"]["model"], "m");
    assert_eq!(responses[&3]["result"], json!({}));
    assert_eq!(responses[&4]["error"]["code"], 7);
    let calls = received(&gateway, "tools/call");
    let mut names: Vec<_> = calls.iter().map(|params| params["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["ask", "ask", "echo", "fail"],
        "one call is sent again with its answer"
    );
    for params in &calls {
        let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(version, "2026-07-28", "{params}");
    }
}

async fn start_slow(session: &Session, id: u64, steps: u64, text: &str) -> HttpReply {
    let arguments = json!({ "steps": steps, "text": text });
    let params = json!({ "name": "slow", "arguments": arguments, "_meta": { "progressToken": id } });
    let mut stream = session.call(id, "tools/call", params).await;
    assert_eq!(stream.next().await.unwrap()["params"]["progress"], 1);
    stream
}

async fn cancel(session: &Session, id: u64) {
    let params = json!({ "requestId": id });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(session.post(&note).await.status, StatusCode::ACCEPTED);
}

/// 4.2, cancellation: the server is notified with its own id of the call.
#[tokio::test]
async fn line_4_2_cancellation_reaches_the_call_at_the_server() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let other = start_slow(&session, 1, 20, "other").await;
    let _cancelled = start_slow(&session, 2, 600, "cancelled").await;
    cancel(&session, 2).await;
    let stopped = || received(&gateway, "stopped");
    assert!(
        wait_until(SOON, || !stopped().is_empty()).await,
        "no call was cancelled"
    );
    assert_eq!(stopped(), [json!({ "text": "cancelled" })]);
    let last = other.messages().await.pop().unwrap();
    assert_eq!((&last["id"], &tool_result(&last)["text"]), (&json!(1), &json!("other")));
}

/// 4.2, cancellation: a call that waits for its client is not sent to the server again.
#[tokio::test]
async fn line_4_2_cancellation_withdraws_the_questions_of_the_call() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let mut stream = session
        .start_tool(1, "ask", json!({ "kinds": ["form", "roots"] }))
        .await;
    let questions = [next_question(&mut stream).await, next_question(&mut stream).await];
    cancel(&session, 1).await;
    let rest = within(stream.messages()).await;
    assert!(rest.iter().all(|message| message["id"] != 1), "no response: {rest:?}");
    for question in &questions {
        session
            .post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } }))
            .await;
    }
    tool_result(&session.call_tool(2, "echo", json!({})).await);
    let calls = received(&gateway, "tools/call");
    let names: Vec<_> = calls.iter().map(|params| params["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ask", "echo"]);
}

/// 4.2, disconnect and resume: the call goes on at the server, and the client misses nothing.
#[tokio::test]
async fn line_4_2_call_of_a_cut_connection_goes_on_and_its_events_are_replayed() {
    let gateway = bridge_with("modern").start();
    for version in &REVISIONS[1..] {
        let session = open_session(&gateway.client(), version).await;
        let stream = start_slow(&session, 1, 6, version).await;
        let cursor = stream.cursor();
        drop(stream);
        let mut rest = within(session.resume(&cursor).await.messages()).await;
        let last = rest.pop().unwrap();
        assert_eq!((&last["id"], &tool_result(&last)["text"]), (&json!(1), &json!(version)));
        let progress: Vec<_> = rest
            .iter()
            .map(|message| message["params"]["progress"].clone())
            .collect();
        assert_eq!(progress, [2, 3, 4, 5, 6], "{version}");
    }
    let calls = received(&gateway, "tools/call").len();
    assert_eq!(
        (calls, received(&gateway, "stopped").len()),
        (3, 0),
        "the server saw no cut"
    );
}

/// 4.2: a cut while a question waits; the answer comes on a new connection.
#[tokio::test]
async fn line_4_2_waiting_question_survives_a_cut() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let mut stream = session.start_tool(1, "ask", json!({ "text": "still there?" })).await;
    let question = next_question(&mut stream).await;
    let cursor = stream.cursor();
    drop(stream);
    answer(&session, &question, json!({ "action": "accept", "content": {} })).await;
    let rest = within(session.resume(&cursor).await.messages()).await;
    let result = tool_result(rest.last().unwrap());
    assert_eq!(result["responses"]["k0"]["action"], "accept");
}
