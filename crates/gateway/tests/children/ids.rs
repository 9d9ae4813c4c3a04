//! GW-02: clients use equal ids, and each gets only its own responses.

use crate::client::{LATEST, tool_result};
use crate::gateway::gateway_with;
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[tokio::test]
async fn gw_02_sessions_with_equal_ids_and_tokens_are_isolated() {
    let gateway = gateway_with("legacy").start();
    let client = gateway.client();
    let mut working = JoinSet::new();
    for n in 0..50 {
        let client = client.clone();
        working.spawn(async move {
            let session = client.open_session(LATEST).await;
            let pid = session.first_pid();
            let mut calls = JoinSet::new();
            for (id, token) in [(json!(1), json!(1)), (json!("1"), json!("1")), (json!(2), json!(7))] {
                let (session, own) = (session.clone(), format!("{n} {id}"));
                calls.spawn(async move {
                    let params = json!({ "name": "shuffle", "arguments": { "of": 3, "text": own },
                        "_meta": { "progressToken": token } });
                    let messages = session.call(id.clone(), "tools/call", params).await.messages().await;
                    let [progress, answer] = &messages[..] else {
                        panic!("{messages:?}")
                    };
                    assert_eq!(progress["params"]["progressToken"], token);
                    assert_eq!(progress["params"]["message"], own);
                    assert_eq!((&answer["id"], &tool_result(answer)["text"]), (&id, &json!(own)));
                    assert_eq!(tool_result(answer)["pid"], pid);
                });
            }
            calls.join_all().await;
            pid
        });
    }
    let mut pids = working.join_all().await;
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 50, "each session has a child of its own");
}

#[tokio::test]
async fn gw_02_stateless_requests_with_equal_ids_are_isolated_on_a_shared_child() {
    let gateway = gateway_with("modern").start();
    let client = gateway.client();
    let mut working = JoinSet::new();
    for n in 0..50 {
        let client = client.clone();
        working.spawn(async move {
            let own = format!("client {n}");
            let params = json!({ "name": "shuffle", "arguments": { "of": 50, "text": own } });
            let (headers, mut body) = rethread_testkit::client::stateless(&json!(1), "tools/call", params, json!({}));
            body["params"]["_meta"]["progressToken"] = json!("mine");
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let messages = client.post(&headers, &body).await.messages().await;
            let [progress, answer] = &messages[..] else {
                panic!("{messages:?}")
            };
            assert_eq!(progress["params"]["progressToken"], "mine");
            assert_eq!(progress["params"]["message"], own);
            assert_eq!((&answer["id"], &tool_result(answer)["text"]), (&json!(1), &json!(own)));
            tool_result(answer)["pid"].as_u64().unwrap()
        });
    }
    let mut pids = working.join_all().await;
    pids.dedup();
    assert_eq!(pids.len(), 1, "one child serves all");
}

#[tokio::test]
async fn gw_02_call_without_progress_token_gets_no_progress() {
    let gateway = gateway_with("modern").record_messages().start();
    let params = json!({ "name": "slow", "arguments": { "ms": 50, "steps": 5 } });
    let messages = gateway
        .client()
        .stateless(json!(1), "tools/call", params, &[])
        .await
        .messages()
        .await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let record = gateway.recorded_messages();
    let call = record.iter().find(|message| message["method"] == "tools/call").unwrap();
    assert_eq!(call["params"]["_meta"]["progressToken"], Value::Null);
}

#[tokio::test]
async fn gw_02_cancellation_carries_the_upstream_id() {
    let gateway = gateway_with("legacy").record_messages().start();
    let session = gateway.client().open_session(LATEST).await;
    session.call_tool(1, "counter", json!({})).await;
    let mut call = session
        .start_tool("mine", "slow", json!({ "ms": 30_000, "steps": 300 }))
        .await;
    call.next().await.expect("it has begun");
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "mine" } });
    session.post(&note).await;
    let rest = call.messages().await;
    assert!(
        rest.iter().all(|message| message.get("id").is_none()),
        "no response comes: {rest:?}"
    );
    while tool_result(&session.call_tool(2, "count-cancelled", json!({})).await) != 1 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let record = gateway.recorded_messages();
    let cancellations = record
        .iter()
        .filter(|message| message["method"] == "notifications/cancelled");
    let ids: Vec<_> = cancellations
        .map(|message| message["params"]["requestId"].clone())
        .collect();
    assert!(matches!(&ids[..], [id] if id.is_number()), "{ids:?}");
}

#[tokio::test]
async fn gw_02_question_with_the_id_of_a_call_can_be_cancelled() {
    let gateway = gateway_with("legacy").start();
    let session = gateway.client().open_session(LATEST).await;
    let messages = session
        .start_tool(1, "cancel-question", json!({}))
        .await
        .messages()
        .await;
    let [question, withdrawn, answer] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(tool_result(answer), "done");
}

#[tokio::test]
async fn gw_02_question_carries_a_gateway_id_and_its_answer_returns() {
    let gateway = gateway_with("legacy").start();
    let session = gateway.client().open_session(LATEST).await;
    let mut call = session.start_tool("q1", "ask", json!({ "text": "colour" })).await;
    let question = call.next().await.unwrap();
    assert_eq!(question["params"]["about"], "colour");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "model": "m", "text": "blue" } });
    assert_eq!(session.post(&answer).await.status.as_u16(), 202);
    assert_eq!(tool_result(&call.response().await)["text"], "blue");
}
