//! Servers of 2026-07-28 behind several gateways.

use crate::client::{Client, HttpReply, tool_result};
use crate::cluster::{Cluster, SECOND, after_a_death};
use crate::gateway::gateway_with;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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

/// A call of a tool whose state has a meaning in one process only. With a `requestState`, its retry.
async fn remember(client: &Client, state: Option<&str>) -> HttpReply {
    let mut params = json!({ "name": "remember", "arguments": { "text": "t" } });
    if let Some(state) = state {
        params["requestState"] = json!(state);
        params["inputResponses"] = json!({ "q": { "action": "accept", "content": {} } });
    }
    client.stateless(json!(1), "tools/call", params, &[]).await
}

/// The state that the client gets.
async fn asked(client: &Client) -> String {
    let reply = remember(client, None).await.response().await;
    assert_eq!(reply["result"]["resultType"], "input_required", "{reply}");
    reply["result"]["requestState"].as_str().unwrap().to_owned()
}

/// The pid in a state of the tool.
fn pid_in(state: &Value) -> u64 {
    state.as_str().unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn gw_19_retry_reaches_the_process_that_keeps_the_call() {
    let Some(cluster) = Cluster::start("modern").await else {
        return;
    };
    let mut pids = BTreeSet::new();
    for asking in 0..3 {
        for answering in 0..3 {
            let at = |n: usize| Client::new(cluster.gateways[n].addr, "");
            let state = asked(&at(asking)).await;
            let reply = remember(&at(answering), Some(&state)).await.response().await;
            let result = tool_result(&reply);
            assert_eq!(pid_in(&result["state"]), result["pid"].as_u64().unwrap(), "{reply}");
            assert!(
                result["state"].as_str().unwrap().ends_with(" é \" t"),
                "the server gets its own state: {reply}"
            );
            pids.insert(result["pid"].as_u64());

            let changed = format!("{state}x");
            let refused = remember(&at(answering), Some(&changed)).await.response().await;
            assert_eq!(refused["error"]["code"], -32602, "the server never gets it: {refused}");
        }
    }
    assert_eq!(pids.len(), 3, "each gateway has one child");
    // A state without the name of a node is the server's own.
    let own = remember(&cluster.client(), Some("own")).await.response().await;
    assert_eq!(own["error"]["data"], "own", "{own}");
}

#[tokio::test]
async fn gw_19_retry_for_a_dead_node_gets_the_error_of_the_server() {
    let Some(mut cluster) = Cluster::start("modern").await else {
        return;
    };
    let at = |n: usize| Client::new(cluster.gateways[n].addr, "");
    let (zero, one) = (at(0), at(1));
    let state = asked(&zero).await;
    let killed_at = Instant::now();
    cluster.gateways[0].signal(Signal::KILL);
    cluster.gateways[0].wait_for_exit(5 * SECOND);
    for _ in 0..2 {
        let reply = remember(&one, Some(&state)).await.response().await;
        assert_eq!(reply["error"]["code"], -32001, "{reply}");
        let own = &reply["error"]["data"];
        assert!(
            own.as_str().unwrap().ends_with(" é \" t"),
            "the server's own state: {reply}"
        );
    }
    let waited = killed_at.elapsed();
    assert!(waited < after_a_death(Duration::from_secs(2)), "it took {waited:?}");
}

#[tokio::test]
async fn gw_19_state_passes_a_single_gateway_byte_for_byte() {
    let gateway = gateway_with("modern").start();
    let client = Client::new(gateway.addr, "");
    let state = asked(&client).await;
    assert!(state.ends_with(" é \" t") && pid_in(&json!(state)) > 0, "{state}");
    let reply = remember(&client, Some(&state)).await.response().await;
    assert_eq!(tool_result(&reply)["state"], state, "{reply}");
    let foreign = "rethread-node-v1.a.b";
    let reply = remember(&client, Some(foreign)).await.response().await;
    assert_eq!(reply["error"]["data"], foreign, "{reply}");
}
