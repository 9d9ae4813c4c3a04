//! GW-02: everybody uses the same ids, and nobody sees another's answer.

use crate::client::{LATEST, said};
use crate::gateway::plan;
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[tokio::test]
async fn gw_02_fifty_sessions_with_equal_ids_and_tokens_keep_apart() {
    let gateway = plan("legacy").start();
    let client = gateway.client();
    let mut working = JoinSet::new();
    for n in 0..50 {
        let client = client.clone();
        working.spawn(async move {
            let session = client.open(LATEST).await;
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
                    assert_eq!((&answer["id"], &said(answer)["said"]), (&id, &json!(own)));
                    assert_eq!(said(answer)["pid"], pid);
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
async fn gw_02_fifty_stateless_requests_with_equal_ids_share_a_child_and_nothing_else() {
    let gateway = plan("modern").start();
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
            assert_eq!((&answer["id"], &said(answer)["said"]), (&json!(1), &json!(own)));
            said(answer)["pid"].as_u64().unwrap()
        });
    }
    let mut pids = working.join_all().await;
    pids.dedup();
    assert_eq!(pids.len(), 1, "one child serves all");
}

#[tokio::test]
async fn gw_02_who_asks_for_no_progress_gets_none_and_the_child_is_not_asked_for_any() {
    let gateway = plan("modern").recording().start();
    let params = json!({ "name": "slow", "arguments": { "ms": 50, "steps": 5 } });
    let messages = gateway
        .client()
        .stateless(json!(1), "tools/call", params, &[])
        .await
        .messages()
        .await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let record = gateway.record();
    let call = record.iter().find(|told| told["method"] == "tools/call").unwrap();
    assert_eq!(call["params"]["_meta"]["progressToken"], Value::Null);
}

#[tokio::test]
async fn gw_02_a_cancellation_names_the_call_as_the_child_knows_it() {
    let gateway = plan("legacy").recording().start();
    let session = gateway.client().open(LATEST).await;
    session.tool(1, "counter", json!({})).await;
    let mut call = session
        .begin("mine", "slow", json!({ "ms": 30_000, "steps": 300 }))
        .await;
    call.next().await.expect("it has begun");
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "mine" } });
    session.post(&note).await;
    let rest = call.messages().await;
    assert!(
        rest.iter().all(|message| message.get("id").is_none()),
        "no answer comes: {rest:?}"
    );
    while said(&session.tool(2, "cancelled", json!({})).await) != 1 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let record = gateway.record();
    let told = record.iter().filter(|told| told["method"] == "notifications/cancelled");
    let ids: Vec<_> = told.map(|told| told["params"]["requestId"].clone()).collect();
    assert!(matches!(&ids[..], [id] if id.is_number()), "{ids:?}");
}

#[tokio::test]
async fn gw_02_a_question_with_the_number_of_a_call_is_withdrawn_like_any_other() {
    let gateway = plan("legacy").start();
    let session = gateway.client().open(LATEST).await;
    let messages = session.begin(1, "withdraw", json!({})).await.messages().await;
    let [question, withdrawn, answer] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(said(answer), "done");
}

#[tokio::test]
async fn gw_02_a_question_comes_under_the_gateways_id_and_its_answer_goes_back() {
    let gateway = plan("legacy").start();
    let session = gateway.client().open(LATEST).await;
    let mut call = session.begin("q1", "ask", json!({ "text": "colour" })).await;
    let question = call.next().await.unwrap();
    assert_eq!(question["params"]["about"], "colour");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "model": "m", "said": "blue" } });
    assert_eq!(session.post(&answer).await.status.as_u16(), 202);
    assert_eq!(said(&call.answer().await)["said"], "blue");
}
