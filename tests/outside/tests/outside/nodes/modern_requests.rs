//! 2026-07-28: requests without sessions, each on another node.

use super::cluster::Cluster;
use super::every_request::text;
use http::StatusCode;
use rethread_testkit::client::Client;
use serde_json::{Value, json};

async fn tool(client: &Client, id: u64, name: &str, arguments: Value, retry: Value) -> Value {
    let mut params = json!({ "name": name, "arguments": arguments });
    if let (Some(params), Value::Object(retry)) = (params.as_object_mut(), retry) {
        params.extend(retry);
    }
    let reply = client.stateless(id, "tools/call", params, json!({})).await;
    assert_eq!(reply.status, StatusCode::OK, "call {id} of {name}");
    reply.answer().await
}

#[tokio::test]
async fn mrtr_parked_call_is_retried_on_another_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let mut id = 0;
    for first in 0..3 {
        id += 1;
        let mut asked = tool(
            &cluster.client(first),
            id,
            "ask_many",
            json!({ "rounds": 3 }),
            json!({}),
        )
        .await;
        for round in 1..=3_usize {
            id += 1;
            let questions = asked["result"]["inputRequests"]
                .as_object()
                .unwrap_or_else(|| panic!("{asked}"));
            let answer = json!({ "action": "accept", "content": { "answer": format!("a{round}") } });
            let answers: serde_json::Map<_, _> = questions.keys().map(|key| (key.clone(), answer.clone())).collect();
            let retry = json!({ "requestState": asked["result"]["requestState"], "inputResponses": answers });
            let other = cluster.client((first + round) % 3);
            asked = tool(&other, id, "ask_many", json!({ "rounds": 3 }), retry).await;
        }
        let answers: Value = serde_json::from_str(text(&asked)).expect("JSON in a text");
        assert_eq!(answers[2]["content"]["answer"], "a3", "{asked}");
    }
}

/// A retry that becomes a stream on the node of the parked call arrives as a stream on the node of the client.
#[tokio::test]
async fn mrtr_retry_on_another_node_streams() {
    let Some(cluster) = Cluster::start().await else { return };
    let params = json!({ "name": "test_streaming_elicitation", "arguments": {} });
    let meta = json!({ "progressToken": "p" });
    let asked = cluster
        .client(0)
        .stateless(1, "tools/call", params.clone(), meta.clone())
        .await;
    let asked = asked.answer().await;
    let answers = json!({ "q1": { "action": "accept", "content": { "answer": "x" } } });
    let mut retry = params;
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = answers;
    let reply = cluster
        .client(1)
        .stateless(2, "tools/call", retry.clone(), meta.clone())
        .await;
    assert_eq!(reply.status, StatusCode::OK);
    let messages = match reply.is_stream() {
        true => reply
            .events()
            .rest()
            .await
            .into_iter()
            .map(|message| message.data)
            .collect(),
        false => vec![reply.json().await],
    };
    let answer = messages.last().expect("an answer");
    assert!(text(answer).starts_with("User response: action=accept"), "{messages:?}");
    assert_eq!(answer["id"], 2);
    assert!(
        messages.iter().any(|message| message["params"]["progress"] == 2.0),
        "{messages:?}"
    );
    // The call has ended: a second retry is refused on every node.
    for node in 0..3 {
        let again = cluster
            .client(node)
            .stateless(3, "tools/call", retry.clone(), meta.clone())
            .await;
        assert_eq!(again.answer().await["error"]["code"], -32602, "node {node}");
    }
}
