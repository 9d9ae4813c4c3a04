//! Every request of a session goes to another node than the one before.

use super::cluster::{Cluster, V2025_11_25};
use http::StatusCode;
use rethread_testkit::client::{ReceivedMessage, Reply, Session};
use serde_json::{Value, json};
use std::time::Duration;

/// A change that other nodes see late has had time enough.
const SETTLED: Duration = Duration::from_millis(300);

/// The `progress` of each message but the last, and the text of the last.
fn progress_and_text(messages: &[ReceivedMessage]) -> (Vec<u64>, String) {
    let (answer, before) = messages.split_last().expect("an answer");
    let progress = before
        .iter()
        .filter_map(|message| message.data["params"]["progress"].as_f64());
    let text = answer.data["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no text: {}", answer.data));
    (progress.map(|n| n as u64).collect(), text.to_owned())
}

pub(super) fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The counters of `sleep` on one node.
async fn counter(session: &Session, name: &str) -> u64 {
    let answer = session
        .tool(format!("counter of {name}"), "counters", json!({}))
        .await
        .answer()
        .await;
    let counters: Value = serde_json::from_str(text(&answer)).expect("JSON in a text");
    counters[name].as_u64().expect("a counter")
}

#[tokio::test]
async fn session_is_the_same_on_every_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let capabilities = json!({});
    let session = cluster.client(0).initialize(V2025_11_25, capabilities).await;
    let accepted = cluster
        .at(&session, 1)
        .notify("notifications/initialized", json!({}))
        .await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    for id in 0..9_usize {
        let answer = cluster
            .at(&session, id % 3)
            .tool(id, "echo", json!({ "message": format!("m{id}") }))
            .await;
        assert_eq!(
            (answer.status, answer.is_stream()),
            (StatusCode::OK, false),
            "call {id}"
        );
        assert_eq!(text(&answer.answer().await), format!("m{id}"));
    }
    // Another id than any node knows is unknown on all of them.
    let mut unknown = session.clone();
    unknown.id = format!("{}x", session.id);
    for node in 0..3 {
        let answer = cluster.at(&unknown, node).call(1, "ping", json!({})).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "node {node}");
    }
}

#[tokio::test]
async fn res_03_cut_call_goes_on_live_on_another_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let arguments = json!({ "events": 12, "delay_us": 200_000 });
    let mut events = cluster.at(&session, 0).tool(1, "burst", arguments).await.events();
    let mut received = vec![events.next().await, events.next().await];
    // Each connection reads two events, and the next is on the next node, the writer included.
    for node in [1, 2, 0, 1] {
        let cursor = events.cursor().to_owned();
        drop(events);
        events = cluster.at(&session, node).resume(&cursor).await;
        received.push(events.next().await);
        received.push(events.next().await);
    }
    received.extend(events.rest().await);
    let ids: Vec<_> = received.iter().map(|message| message.id.clone()).collect();
    assert_eq!(
        progress_and_text(&received),
        ((1..=12).collect(), "burst 12 done".to_owned())
    );
    // The end is the same for all nodes, from any cursor.
    let first = received[0].id.clone().expect("an id");
    for node in 0..3 {
        let again = cluster.at(&session, node).resume(&first).await.rest().await;
        assert_eq!(again, received[1..], "node {node}");
        let at_end = cluster.at(&session, node).get(ids[12].as_deref()).await;
        assert_eq!(at_end.status, StatusCode::BAD_REQUEST, "node {node}: nothing follows");
    }
}

/// RES-06 across nodes: the newest connection of a stream is the only one.
#[tokio::test]
async fn res_06_resumption_on_another_node_closes_the_earlier_connection() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let arguments = json!({ "events": 20, "delay_us": 100_000 });
    let mut first = cluster.at(&session, 0).tool(1, "burst", arguments).await.events();
    let mut received = vec![first.next().await, first.next().await];
    let mut second = cluster.at(&session, 1).resume(first.cursor()).await;
    received.push(second.next().await);
    let late = tokio::time::timeout(Duration::from_secs(1), first.rest()).await;
    let late = late.expect("the connection on the writer's node ends");
    assert!(late.len() <= 1, "{late:?}");
    let mut third = cluster.at(&session, 2).resume(second.cursor()).await;
    received.push(third.next().await);
    let late = tokio::time::timeout(Duration::from_secs(1), second.rest()).await;
    let late = late.expect("the connection on another node ends");
    assert!(late.len() <= 1, "{late:?}");
    received.extend(third.rest().await);
    assert_eq!(
        progress_and_text(&received),
        ((1..=20).collect(), "burst 20 done".to_owned())
    );
}

/// A large answer does not outrun a reader on another node.
#[tokio::test]
async fn d4_remote_reader_gets_a_long_stream_without_a_gap() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let arguments = json!({ "events": 3_000, "bytes": 2_000, "delay_us": 1 });
    let mut events = cluster.at(&session, 0).tool(1, "burst", arguments).await.events();
    let mut received = vec![events.next().await];
    let reply = cluster.at(&session, 1).get(Some(events.cursor())).await;
    drop(events);
    assert_eq!(reply.header("rethread-gap"), None);
    let mut events = reply.events();
    for _ in 0..20 {
        received.push(events.next().await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    received.extend(events.rest().await);
    let (progress, text) = progress_and_text(&received);
    assert_eq!(text, "burst 3000 done");
    assert_eq!(progress.len(), 3_000);
    assert!(progress.iter().copied().eq(1..=3_000));
}

#[tokio::test]
async fn s2c_02_question_is_answered_on_another_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    for (id, (asks, answers)) in [(0, 1), (1, 2), (2, 0), (1, 1)].into_iter().enumerate() {
        let mut events = cluster
            .at(&session, asks)
            .tool(id, "ask_many", json!({ "rounds": 2 }))
            .await
            .events();
        for round in 1..=2 {
            let question = events.next().await.data;
            assert_eq!(question["method"], "elicitation/create", "{question}");
            let answer = json!({ "action": "accept", "content": { "answer": format!("{id}.{round}") } });
            let other = cluster.at(&session, answers);
            assert_eq!(
                other.answer(&question["id"], answer.clone()).await.status,
                StatusCode::ACCEPTED
            );
            // S2C-04: the same answer on a third node is late, and accepted.
            let third = cluster.at(&session, (answers + 1) % 3);
            assert_eq!(third.answer(&question["id"], answer).await.status, StatusCode::ACCEPTED);
        }
        let answer = events.next().await.data;
        let expected =
            json!([1, 2].map(|round| json!({ "action": "accept", "content": { "answer": format!("{id}.{round}") } })));
        let answers: Value = serde_json::from_str(text(&answer)).expect("JSON in a text");
        assert_eq!(answers, expected);
    }
    // S2C-04: nobody has asked this question.
    let never = cluster
        .at(&session, 0)
        .answer(&json!("s1-999"), json!({ "action": "cancel" }))
        .await;
    let here = never.status;
    for node in 1..3 {
        let never = cluster
            .at(&session, node)
            .answer(&json!("s1-999"), json!({ "action": "cancel" }))
            .await;
        assert_eq!(never.status, here, "node {node}");
    }
}

/// The question is asked again on the node that the client resumes on, and is answered on a third one.
#[tokio::test]
async fn s2c_question_is_replayed_on_another_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut events = cluster.at(&session, 0).tool(1, "ask", json!({})).await.events();
    let block = events.block().await.expect("a priming event");
    let cursor = block.id.expect("an id");
    let question = events.next().await;
    drop(events);
    let mut events = cluster.at(&session, 1).resume(&cursor).await;
    assert_eq!(events.next().await, question);
    let answer = json!({ "action": "decline" });
    let accepted = cluster.at(&session, 2).answer(&question.data["id"], answer).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    assert_eq!(text(&events.next().await.data), r#"{"action":"decline"}"#);
    assert_eq!(events.message().await, None);
}

#[tokio::test]
async fn can_01_cancellation_on_another_node_stops_the_call() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    for (id, (runs, cancels)) in [(0, 1), (1, 2), (2, 0)].into_iter().enumerate() {
        let runs_at = cluster.at(&session, runs);
        let call = tokio::spawn({
            let runs_at = runs_at.clone();
            async move {
                runs_at
                    .tool(id, "sleep", json!({ "ms": 20_000 }))
                    .await
                    .events()
                    .rest()
                    .await
            }
        });
        while counter(&runs_at, "started").await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let cancel = json!({ "requestId": id, "reason": "test" });
        let accepted = cluster
            .at(&session, cancels)
            .notify("notifications/cancelled", cancel)
            .await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED);
        let rest = tokio::time::timeout(Duration::from_secs(2), call).await;
        let rest = rest.expect("the stream ends soon").expect("no panic");
        assert_eq!(rest, [], "a cancelled call has no answer");
        assert_eq!(counter(&runs_at, "cancelled").await, 1);
    }
}

/// A log level holds on every node from the answer on.
#[tokio::test]
async fn log_level_holds_on_every_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    for node in 0..3 {
        // Each node has a view before the level is changed.
        let _ = cluster
            .at(&session, node)
            .call(format!("ping {node}"), "ping", json!({}))
            .await;
    }
    for round in 0..10_usize {
        for (level, logs) in [("error", 0), ("info", 3)] {
            let set = cluster
                .at(&session, round % 3)
                .call(1, "logging/setLevel", json!({ "level": level }))
                .await;
            assert_eq!(set.status, StatusCode::OK);
            for node in 0..3 {
                let reply = cluster
                    .at(&session, node)
                    .tool(2, "log_burst", json!({ "count": 3 }))
                    .await;
                let logged = match reply.is_stream() {
                    true => reply.events().rest().await.len() - 1,
                    false => 0,
                };
                assert_eq!(logged, logs, "round {round}, level {level}, node {node}");
            }
        }
    }
}

#[tokio::test]
async fn ses_05_deleted_session_is_unknown_on_every_node() {
    let Some(cluster) = Cluster::start().await else { return };
    for round in 0..6_usize {
        let session = cluster.balanced().open(V2025_11_25).await;
        let mut gets = Vec::new();
        for node in 0..3 {
            let at = cluster.at(&session, node);
            assert_eq!(at.call(1, "ping", json!({})).await.status, StatusCode::OK);
            gets.push(at.get(None).await.events());
        }
        let sleeping = cluster
            .at(&session, round % 3)
            .tool(2, "sleep", json!({ "ms": 20_000 }))
            .await
            .events();
        let deleted = cluster.at(&session, (round + 1) % 3).delete().await;
        assert_eq!(deleted.status, StatusCode::NO_CONTENT, "round {round}");
        for node in 0..3 {
            let at = cluster.at(&session, node);
            let ping = at.call(3, "ping", json!({})).await;
            assert_eq!(ping.status, StatusCode::NOT_FOUND, "round {round}, node {node}");
            assert_eq!(at.get(None).await.status, StatusCode::NOT_FOUND);
        }
        for mut open in gets.into_iter().chain([sleeping]) {
            let rest = tokio::time::timeout(Duration::from_secs(1), open.rest()).await;
            assert_eq!(rest.expect("connections end with the session"), [], "round {round}");
        }
    }
}

/// SES-02 of 2025-03-26: a batch is one stream, and resumes on another node.
#[tokio::test]
async fn http_09_batch_resumes_on_another_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open("2025-03-26").await;
    let call = |id: u64, tool: &str, arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments, "_meta": { "progressToken": id } } })
    };
    let batch = json!([
        call(1, "burst", json!({ "events": 5, "delay_us": 150_000 })),
        call(2, "echo", json!({ "message": "b" })),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }),
    ]);
    let mut events = cluster.at(&session, 0).post(&batch).await.events();
    let mut received = vec![events.next().await, events.next().await];
    let mut events = cluster.at(&session, 1).resume(events.cursor()).await;
    received.extend(events.rest().await);
    let mut answered: Vec<_> = received
        .iter()
        .filter_map(|message| message.data["id"].as_u64())
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 3]);
    let progress = received
        .iter()
        .filter_map(|message| message.data["params"]["progress"].as_f64());
    assert!(progress.eq((1..=5).map(f64::from)));
    // A question of a batch on one node, with the answers in a batch on another.
    let ask = json!({ "what": "roots" });
    let asking = json!([call(4, "ask", ask.clone()), call(5, "ask", ask)]);
    let mut events = cluster.at(&session, 2).post(&asking).await.events();
    let questions = [events.next().await.data, events.next().await.data];
    assert!(
        questions.iter().all(|question| question["method"] == "roots/list"),
        "{questions:?}"
    );
    let answers = json!(
        questions.map(|question| { json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } }) })
    );
    let accepted = cluster.at(&session, 0).post(&answers).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED);
    let rest = tokio::time::timeout(Duration::from_secs(3), events.rest()).await;
    let rest = rest.expect("both calls end");
    assert!(
        rest.iter().all(|answer| text(&answer.data) == r#"{"roots":[]}"#) && rest.len() == 2,
        "{rest:?}"
    );
}

/// The transport of 2024-11-05: the node of the GET has the session, and POSTs arrive on other nodes.
#[tokio::test]
async fn leg_03_posts_of_the_old_transport_arrive_on_any_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let get = request("GET", "/sse", "");
    let reply = cluster.client(0).send(get).await;
    let mut events = reply.events();
    let endpoint = events.block().await.expect("an endpoint");
    let path = endpoint.data.expect("a path");
    assert!(path.starts_with("/messages"), "{path}");
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": { "roots": {} }, "clientInfo": { "name": "old", "version": "1" } } });
    let post = |node: usize, body: Value| {
        let client = cluster.client(node);
        let request = request("POST", &path, &body.to_string());
        async move { client.send(request).await.status }
    };
    assert_eq!(post(1, hello).await, StatusCode::ACCEPTED);
    assert_eq!(events.next().await.data["result"]["protocolVersion"], "2024-11-05");
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(2, initialized).await, StatusCode::ACCEPTED);
    for id in 1..=9_usize {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "echo", "arguments": { "message": format!("m{id}") } } });
        assert_eq!(post(id % 3, call).await, StatusCode::ACCEPTED);
        let answer = events.next().await.data;
        assert_eq!(
            (answer["id"].as_u64(), text(&answer)),
            (Some(id as u64), format!("m{id}").as_str())
        );
    }
    let ask = json!({ "jsonrpc": "2.0", "id": 20, "method": "tools/call", "params": { "name": "ask", "arguments": { "what": "roots" } } });
    assert_eq!(post(1, ask).await, StatusCode::ACCEPTED);
    let question = events.next().await.data;
    assert_eq!(question["method"], "roots/list", "{question}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    assert_eq!(post(2, answer).await, StatusCode::ACCEPTED);
    let answer = events.next().await.data;
    assert_eq!((answer["id"].as_u64(), text(&answer)), (Some(20), r#"{"roots":[]}"#));
    drop(events);
    tokio::time::sleep(SETTLED).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 30, "method": "ping" });
    for node in 0..3 {
        assert_eq!(
            post(node, ping.clone()).await,
            StatusCode::NOT_FOUND,
            "node {node}: the session ended with its stream"
        );
    }
}

fn request(method: &str, path: &str, body: &str) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    let request = http::Request::builder().method(method).uri(path);
    let request = request
        .header("host", "localhost")
        .header("accept", "text/event-stream");
    let request = request.header("content-type", "application/json");
    request.body(body.to_owned().into()).expect("a request")
}

/// Many sessions at once, each with its requests on the nodes in turn.
#[tokio::test]
async fn concurrent_sessions_are_served_through_the_balancer() {
    let Some(cluster) = Cluster::start().await else { return };
    let mut work = tokio::task::JoinSet::new();
    for number in 0..20_u64 {
        let client = cluster.balanced();
        work.spawn(async move {
            let session = client.open(V2025_11_25).await;
            for id in 1..=20_u64 {
                let echo = session
                    .tool(id, "echo", json!({ "message": format!("{number}.{id}") }))
                    .await;
                assert_eq!(text(&answered(echo).await), format!("{number}.{id}"));
            }
            let burst = session
                .tool(100, "burst", json!({ "events": 20, "delay_us": 5_000 }))
                .await;
            let messages = burst.events().rest().await;
            assert_eq!(progress_and_text(&messages).0, (1..=20).collect::<Vec<_>>());
            assert_eq!(session.delete().await.status, StatusCode::NO_CONTENT);
        });
    }
    while let Some(done) = work.join_next().await {
        done.expect("no panic");
    }
}

async fn answered(reply: Reply) -> Value {
    assert_eq!(reply.status, StatusCode::OK);
    reply.answer().await
}
