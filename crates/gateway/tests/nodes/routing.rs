//! Any gateway serves any request of a session, and one child answers them all.

use crate::client::{LATEST, tool_result};
use crate::cluster::{Cluster, SECOND};
use crate::gateway::{Gateway, wait_until};
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn gw_05_one_child_answers_on_every_node() {
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let pid = u64::from(session.first_pid());
    for n in 1..=12 {
        let counted = session.call_tool(n, "counter", json!({})).await;
        assert_eq!(tool_result(&counted), json!(n), "the state of the child");
        assert_eq!(session.child_pid().await, pid);
    }
    for gateway in 0..3 {
        assert_eq!(cluster.at(&session, gateway).child_pid().await, pid);
    }
    assert_eq!(cluster.children(), 1);
    let received = cluster.gateways[cluster.owner(pid)].methods_received(pid);
    let count = |method: &str| received.iter().filter(|other| *other == method).count();
    assert_eq!(
        (count("initialize"), count("notifications/initialized")),
        (1, 1),
        "{received:?}"
    );
}

#[tokio::test]
async fn gw_05_sessions_are_spread_and_end_on_every_node() {
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(cluster.client().open_session(LATEST).await);
    }
    for gateway in &cluster.gateways {
        assert_ne!(gateway.children().len(), 0, "each gateway has sessions");
    }
    assert_eq!(cluster.children(), 6);
    for session in &sessions {
        let elsewhere = cluster.at(session, cluster.others(u64::from(session.first_pid()))[0]);
        assert_eq!(elsewhere.delete().await, StatusCode::NO_CONTENT);
        for gateway in 0..3 {
            let reply = cluster.at(session, gateway).call(1, "tools/list", json!({})).await;
            assert_eq!(reply.status, StatusCode::NOT_FOUND);
        }
    }
    let ended = wait_until(5 * SECOND, || cluster.children() == 0).await;
    assert!(ended, "their children end");
}

#[tokio::test]
async fn d5_forwarded_call_streams_and_resumes_on_another_node() {
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let [one, other] = cluster.others(u64::from(session.first_pid()));
    let steps = json!({ "ms": 1500, "steps": 10, "text": "step" });
    let mut stream = cluster.at(&session, one).start_tool("long", "slow", steps).await;
    for n in 1..=3 {
        let progress = stream.next().await.unwrap();
        assert_eq!(progress["params"]["progress"], json!(n), "{progress}");
        assert_eq!(progress["params"]["progressToken"], "mine");
    }
    let cursor = stream.cursor();
    drop(stream); // the connection breaks; the call continues
    let rest = cluster.at(&session, other).resume(&cursor).await.messages().await;
    let progress: Vec<_> = rest
        .iter()
        .filter_map(|message| message["params"]["progress"].as_u64())
        .collect();
    assert_eq!(progress, (4..=10).collect::<Vec<_>>(), "{rest:?}");
    let last = rest.last().unwrap();
    assert_eq!(
        (&last["id"], &tool_result(last)["text"]),
        (&json!("long"), &json!("step"))
    );
}

#[tokio::test]
async fn s2c_04_child_gets_the_answer_that_another_node_received() {
    let Some(cluster) = Cluster::start("legacy,asks-for-roots").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let [one, other] = cluster.others(u64::from(session.first_pid()));
    let answer = |question: &Value, result: Value| {
        assert!(question["method"].is_string(), "{question}");
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
    };

    // A question within a call.
    let mut call = cluster
        .at(&session, one)
        .start_tool("ask", "ask", json!({ "text": "hi" }))
        .await;
    let question = call.next().await.unwrap();
    assert_eq!(question["params"]["about"], "hi");
    let sampled = answer(&question, json!({ "model": "m", "role": "assistant" }));
    let elsewhere = cluster.at(&session, other);
    assert_eq!(elsewhere.post(&sampled).await.status, StatusCode::ACCEPTED);
    let messages = call.messages().await;
    assert_eq!(tool_result(messages.last().unwrap())["model"], "m", "{messages:?}");
    assert_eq!(elsewhere.post(&sampled).await.status, StatusCode::ACCEPTED, "late");
    let never = json!({ "jsonrpc": "2.0", "id": "s900000-1", "result": {} });
    assert_eq!(elsewhere.post(&never).await.status, StatusCode::BAD_REQUEST);

    // A question outside of calls, on a GET of another node.
    let mut get = cluster.at(&session, one).listen().await;
    let question = get.next().await.unwrap();
    assert_eq!(question["method"], "roots/list");
    let roots = answer(&question, json!({ "roots": [{ "uri": "file:///there" }] }));
    assert_eq!(elsewhere.post(&roots).await.status, StatusCode::ACCEPTED);
    let mut received = String::new();
    for _ in 0..100 {
        received = session.call_tool("received", "received", json!({})).await.to_string();
        if received.contains("file:///there") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the child has no answer: {received}");
}

#[tokio::test]
async fn sse_01_messages_of_the_child_reach_a_stream_of_another_node_once() {
    const COUNT: usize = 200;
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let [one, other] = cluster.others(u64::from(session.first_pid()));
    let mut get = cluster.at(&session, one).listen().await;
    let logged = cluster
        .at(&session, other)
        .start_tool("log", "log", json!({ "text": "of a call" }))
        .await;
    let messages = logged.messages().await;
    assert_eq!(messages[0]["params"]["data"], "of a call", "{messages:?}");
    for _ in 0..2 {
        let args = json!({ "count": COUNT });
        let soon = cluster
            .at(&session, other)
            .call_tool("push", "notify-after-response", args)
            .await;
        assert_eq!(tool_result(&soon), "soon");
        for n in 0..COUNT {
            let message = get.next().await.unwrap();
            assert_eq!(message["params"]["data"], json!(n), "{message}");
        }
    }
    // A newer GET on another node takes the messages, and the older one gets none.
    let mut newer = cluster.at(&session, other).listen().await;
    let args = json!({ "count": 3 });
    cluster
        .at(&session, one)
        .call_tool("push", "notify-after-response", args)
        .await;
    for n in 0..3 {
        assert_eq!(newer.next().await.unwrap()["params"]["data"], json!(n));
    }
    let silent = tokio::time::timeout(Duration::from_millis(300), get.next()).await;
    assert!(silent.is_err(), "{silent:?}");
}

#[tokio::test]
async fn can_01_cancellation_on_another_node_reaches_the_child() {
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let [one, other] = cluster.others(u64::from(session.first_pid()));
    let slow = json!({ "ms": 60_000, "steps": 600 });
    let mut call = cluster.at(&session, one).start_tool("slow", "slow", slow).await;
    call.next().await.unwrap();
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "slow" } });
    assert_eq!(
        cluster.at(&session, other).post(&note).await.status,
        StatusCode::ACCEPTED
    );
    let rest = tokio::time::timeout(5 * SECOND, call.messages())
        .await
        .expect("it ends");
    assert!(rest.iter().all(|message| message["result"].is_null()), "{rest:?}");
    let cancelled = session.call_tool("count", "count-cancelled", json!({})).await;
    assert_eq!(tool_result(&cancelled), 1);
}

#[tokio::test]
async fn leg_02_old_transport_works_across_nodes() {
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let client = cluster.client();
    let mut sse = client.get("/sse").await;
    let Value::String(endpoint) = sse.next().await.unwrap() else {
        panic!("no endpoint")
    };
    let headers = [("content-type", "application/json")];
    let post = async |body: Value| {
        let reply = client
            .send("POST", &endpoint, &headers, body.to_string().as_bytes())
            .await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{body}");
    };
    let params = json!({ "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "old", "version": "1" } });
    post(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
    assert_eq!(sse.next().await.unwrap()["id"], 0);
    for n in 1..=6 {
        let params = json!({ "name": "counter", "arguments": {} });
        post(json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params })).await;
        let answer = sse.next().await.unwrap();
        assert_eq!((answer["id"].clone(), tool_result(&answer)), (json!(n), json!(n)));
    }
}

/// GW-23: a session that nobody uses leaves the memory of every gateway. The one that gets its next request continues it.
#[tokio::test]
async fn gw_23_unused_session_leaves_all_nodes_and_any_node_continues_it() {
    let options = "--session-unused 2s --child-idle 300ms";
    let Some(cluster) = Cluster::start_with("legacy", |gateway| gateway.option(options)).await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let first = cluster.at(&session, 0).child_pid().await;
    for gateway in [1, 2] {
        assert_eq!(cluster.at(&session, gateway).child_pid().await, first, "a view on each");
    }
    let owner = cluster.owner(first);
    let ended = |gateway: &Gateway| gateway.log().matches("session unloaded").count();
    let have_all_ended = || cluster.gateways.iter().all(|gateway| ended(gateway) == 1);
    assert!(wait_until(30 * SECOND, have_all_ended).await);
    let next = (owner + 1) % 3;
    let second = cluster.at(&session, next).child_pid().await;
    assert_ne!(first, second);
    assert_eq!(cluster.owner(second), next, "it has claimed the session");
    for gateway in 0..3 {
        assert_eq!(cluster.at(&session, gateway).child_pid().await, second);
    }
    assert_eq!(cluster.at(&session, owner).delete().await, StatusCode::NO_CONTENT);
}
