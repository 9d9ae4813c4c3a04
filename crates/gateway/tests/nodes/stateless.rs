//! Servers of 2026-07-28 behind several gateways.

use crate::client::tool_result;
use crate::cluster::{Cluster, SECOND};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn ask_params() -> Value {
    json!({ "name": "ask", "arguments": { "text": "hi" } })
}

#[tokio::test]
async fn gw_07_stateless_calls_run_where_they_arrive() {
    let Some(cluster) = Cluster::start("modern").await else {
        return;
    };
    let mut pids = BTreeSet::new();
    for n in 0..6 {
        let answer = cluster.client().call_tool(n, "echo", json!({ "text": n })).await;
        let result = tool_result(&answer);
        assert_eq!(result["text"], json!(n));
        pids.insert(result["pid"].as_u64().unwrap());
    }
    assert_eq!(pids.len(), 3, "each gateway has a child");
    let progress = json!({ "name": "slow", "arguments": { "ms": 300, "steps": 3 }, "_meta": { "progressToken": "t" } });
    for _ in 0..3 {
        let reply = cluster
            .client()
            .stateless(json!(1), "tools/call", progress.clone(), &[])
            .await;
        assert_eq!(reply.messages().await.len(), 4);
    }
}

#[tokio::test]
async fn mrtr_04_parked_call_continues_from_another_node() {
    let Some(cluster) = Cluster::start("modern").await else {
        return;
    };
    for n in 0..4 {
        let first = cluster
            .client()
            .stateless(json!(n), "tools/call", ask_params(), &[])
            .await;
        let first = first.response().await;
        assert_eq!(first["result"]["resultType"], "input_required", "{first}");
        let retry = |answer: &str| {
            let (key, _) = first["result"]["inputRequests"]
                .as_object()
                .unwrap()
                .iter()
                .next()
                .unwrap();
            let mut params = ask_params();
            params["requestState"] = first["result"]["requestState"].clone();
            params["inputResponses"] = json!({ key: { "model": answer, "role": "assistant", "content": {} } });
            params
        };
        // The balancer sends it to another gateway.
        let id = json!(format!("retry-{n}"));
        let answered = cluster
            .client()
            .stateless(id.clone(), "tools/call", retry("m"), &[])
            .await;
        let answered = answered.response().await;
        assert_eq!(answered["id"], id, "{answered}");
        assert_eq!(tool_result(&answered)["model"], "m", "{answered}");
        let again = cluster
            .client()
            .stateless(id, "tools/call", retry("m"), &[])
            .await
            .response()
            .await;
        assert_eq!(again["error"]["code"], -32602, "a state is used once: {again}");
    }
}

#[tokio::test]
async fn mrtr_04_parked_call_of_a_dead_node_is_refused() {
    let Some(mut cluster) = Cluster::start("modern").await else {
        return;
    };
    let at = |n: usize| crate::client::Client::new(cluster.gateways[n].addr, "");
    let (zero, one) = (at(0), at(1));
    let first = zero
        .stateless(json!(1), "tools/call", ask_params(), &[])
        .await
        .response()
        .await;
    cluster.gateways[0].signal(Signal::KILL);
    cluster.gateways[0].wait_for_exit(5 * SECOND);
    let mut params = ask_params();
    params["requestState"] = first["result"]["requestState"].clone();
    params["inputResponses"] = json!({});
    let refused = one
        .stateless(json!(2), "tools/call", params, &[])
        .await
        .response()
        .await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}
