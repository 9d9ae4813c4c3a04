//! Nodes that die or are paused, and a Redis that is gone for a while.

use super::cluster::{Cluster, LEASE_SECONDS, V2025_11_25, death_bound};
use super::every_request::text;
use super::push::drain;
use http::StatusCode;
use rethread_testkit::client::{Events, Reply, Session};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A second for a busy machine, on top of the bound of the design.
const SLACK: Duration = Duration::from_secs(1);

async fn burst(session: &Session, id: u64, events: u64, delay_ms: u64) -> Reply {
    let arguments = json!({ "events": events, "delay_us": delay_ms * 1_000 });
    session.tool(id, "burst", arguments).await
}

/// The call ended with its node: an error on its id says so.
fn assert_restarted(answer: &Value, id: u64) {
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "restarted", "{answer}");
}

/// Reads until the answer of a call of a dead node. Returns the numbers of the events before it.
async fn read_to_restarted(events: &mut Events, id: u64, killed: Instant) -> Vec<u64> {
    let mut progress = Vec::new();
    loop {
        let left = (death_bound() + SLACK).saturating_sub(killed.elapsed());
        let message = timeout(left, events.message()).await;
        let message = message.unwrap_or_else(|_| panic!("no error within {:?}", death_bound() + SLACK));
        let message = message.expect("the connection to a living node stays open").data;
        match message["params"]["progress"].as_f64() {
            Some(n) => progress.push(n as u64),
            None => {
                assert_restarted(&message, id);
                break;
            }
        }
    }
    assert_eq!(events.message().await, None, "nothing follows the answer");
    progress
}

/// An open connection on another node gets the error, and so does everyone who resumes.
#[tokio::test]
async fn rst_03_reader_on_another_node_gets_an_error_when_the_writer_dies() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut first = burst(&cluster.at(&session, 0), 1, 1_000, 50).await.events();
    let mut progress: Vec<_> = Vec::new();
    for _ in 0..3 {
        progress.push(
            first.next().await.data["params"]["progress"]
                .as_f64()
                .expect("a number") as u64,
        );
    }
    let start = first.cursor().to_owned();
    let mut remote = cluster.at(&session, 1).resume(&start).await;
    drop(first);
    for _ in 0..3 {
        progress.push(
            remote.next().await.data["params"]["progress"]
                .as_f64()
                .expect("a number") as u64,
        );
    }
    cluster.kill(0);
    let killed = Instant::now();
    progress.extend(read_to_restarted(&mut remote, 1, killed).await);
    println!("told {:?} after the kill", killed.elapsed());
    assert!(progress.iter().copied().eq(1..=progress.len() as u64), "{progress:?}");
    // The end is the same on every living node.
    for node in 1..3 {
        let again = cluster.at(&session, node).resume(&start).await.rest().await;
        assert_eq!(again.len(), progress.len() - 3 + 1, "node {node}");
        assert_restarted(&again.last().expect("an answer").data, 1);
    }
    // The session lives on.
    let echo = cluster
        .at(&session, 2)
        .tool(2, "echo", json!({ "message": "on" }))
        .await;
    assert_eq!(text(&echo.answer().await), "on");
}

/// The connection breaks with its node. A resume on another node waits for the end of the lease, on an open connection.
#[tokio::test]
async fn rst_03_resume_elsewhere_gets_an_error_when_the_writer_died() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut first = burst(&cluster.at(&session, 0), 1, 1_000, 50).await.events();
    for _ in 0..3 {
        first.next().await;
    }
    cluster.kill(0);
    let killed = Instant::now();
    let rest = first.rest().await; // in the socket when the node died
    let cursor = first.cursor().to_owned();
    let mut remote = cluster.at(&session, 1).resume(&cursor).await;
    let first_missing = 4 + rest.len() as u64;
    let told = read_to_restarted(&mut remote, 1, killed).await;
    for (expected, n) in (first_missing..).zip(told) {
        assert_eq!(n, expected);
    }
    println!("told {:?} after the kill", killed.elapsed());
}

/// The call goes on when the node of the client's connection dies.
#[tokio::test]
async fn call_outlives_the_node_of_its_connection() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut first = burst(&cluster.at(&session, 0), 1, 40, 50).await.events();
    let mut all = vec![first.next().await];
    let mut remote = cluster.at(&session, 1).resume(first.cursor()).await;
    all.push(remote.next().await);
    cluster.kill(1);
    all.extend(remote.rest().await);
    all.extend(cluster.at(&session, 2).resume(remote.cursor()).await.rest().await);
    let (answer, progress) = all.split_last().expect("an answer");
    assert_eq!(text(&answer.data), "burst 40 done");
    let progress = progress
        .iter()
        .filter_map(|message| message.data["params"]["progress"].as_f64());
    assert!(progress.eq((1..=40).map(f64::from)));
}

/// Messages wait for the next GET, and that of a dead node does not take them.
#[tokio::test]
async fn push_goes_to_the_next_get_when_the_node_of_the_newest_dies() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut older = cluster.at(&session, 1).get(None).await.events();
    let newest = cluster.at(&session, 0).get(None).await.events();
    sleep(Duration::from_millis(200)).await;
    cluster.kill(0);
    let killed = Instant::now();
    let pushed = cluster
        .at(&session, 2)
        .tool(1, "push", json!({ "count": 3, "tag": "x" }))
        .await;
    assert_eq!(text(&pushed.answer().await), "pushed 3");
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let left = (death_bound() + SLACK).saturating_sub(killed.elapsed());
        let message = timeout(left, older.next())
            .await
            .expect("the next GET gets the messages");
        numbers.push(message.data["params"]["data"]["n"].as_u64().expect("a number"));
    }
    assert_eq!(numbers, [1, 2, 3]);
    drop(newest);
    // Without any GET they wait for one.
    drop(older);
    let pushed = cluster
        .at(&session, 1)
        .tool(2, "push", json!({ "count": 2, "tag": "y" }))
        .await;
    assert_eq!(text(&pushed.answer().await), "pushed 2");
    let mut get = cluster.at(&session, 2).get(None).await.events();
    assert_eq!(drain(&mut get).await.len(), 2);
}

/// S2C-04: an answer to a question of a dead node is late.
#[tokio::test]
async fn s2c_04_answer_to_a_question_of_a_dead_node_is_accepted() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut events = cluster.at(&session, 0).tool(1, "ask", json!({})).await.events();
    let question = events.next().await.data;
    let mut remote = cluster.at(&session, 1).resume(events.cursor()).await;
    cluster.kill(0);
    let killed = Instant::now();
    let other = cluster.at(&session, 2);
    let answer = timeout(
        death_bound() + SLACK,
        other.answer(&question["id"], json!({ "action": "decline" })),
    );
    assert_eq!(answer.await.expect("an answer in time").status, StatusCode::ACCEPTED);
    read_to_restarted(&mut remote, 1, killed).await;
}

/// A parked call of 2026-07-28 dies with its node: -32602, as after a restart.
#[tokio::test]
async fn mrtr_retry_of_a_call_of_a_dead_node_is_refused() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let params = json!({ "name": "ask", "arguments": {} });
    let asked = cluster
        .client(0)
        .stateless(1, "tools/call", params.clone(), json!({}))
        .await;
    let asked = asked.answer().await;
    cluster.kill(0);
    let mut retry = params;
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = json!({ "q1": { "action": "decline" } });
    let other = cluster.client(1);
    let reply = other.stateless(2, "tools/call", retry, json!({}));
    let reply = timeout(death_bound() + SLACK, reply).await.expect("an answer in time");
    assert_eq!(reply.answer().await["error"]["code"], -32602);
}

/// A node that was paused for longer than its lease: others have ended its calls, its appends are refused, and it serves
/// again after it has joined again.
#[tokio::test]
async fn paused_node_is_fenced_and_joins_again() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut zombie = burst(&cluster.at(&session, 0), 1, 200, 50).await.events();
    let mut get = cluster.at(&session, 0).get(None).await.events();
    for _ in 0..3 {
        zombie.next().await;
    }
    let start = zombie.cursor().to_owned();
    let mut remote = cluster.at(&session, 1).resume(&start).await;
    remote.next().await;
    cluster.node(0).signal("-STOP");
    let paused = Instant::now();
    read_to_restarted(&mut remote, 1, paused).await;
    println!("told {:?} after the pause", paused.elapsed());
    let ended = cluster.at(&session, 1).resume(&start).await.rest().await;
    sleep(Duration::from_secs_f64(LEASE_SECONDS / 2.0)).await;
    cluster.node(0).signal("-CONT");
    // Its first answers are 503, or it has joined again already. None is an answer of the old view.
    let served = Instant::now();
    let mut refused = 0;
    loop {
        let reply = cluster
            .at(&session, 0)
            .tool(2, "echo", json!({ "message": "back" }))
            .await;
        match reply.status {
            StatusCode::OK => {
                assert_eq!(text(&reply.answer().await), "back");
                break;
            }
            status => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE),
        }
        refused += 1;
        assert!(
            served.elapsed() < Duration::from_secs_f64(LEASE_SECONDS),
            "the node does not serve again"
        );
        sleep(Duration::from_millis(5)).await;
    }
    println!(
        "{refused} times 503, served again {:?} after it continued",
        served.elapsed()
    );
    // The old connections of the paused node end, without an event that is not in the store.
    let late = timeout(Duration::from_secs(3), zombie.rest())
        .await
        .expect("EOF on the old connection");
    let known: Vec<_> = ended.iter().filter_map(|message| message.id.clone()).collect();
    for message in &late {
        assert!(
            message.id.as_ref().is_some_and(|id| known.contains(id)),
            "{message:?} is not in the store"
        );
        assert!(message.data["result"].is_null(), "{message:?}");
    }
    let rest = timeout(Duration::from_secs(3), get.rest())
        .await
        .expect("EOF on the old GET");
    assert_eq!(rest, []);
    // The end of the stream is still the same everywhere.
    sleep(Duration::from_secs(1)).await;
    for node in 0..3 {
        let again = cluster.at(&session, node).resume(&start).await.rest().await;
        assert_eq!(again, ended, "node {node}");
    }
    // A call on the node works as before, also as a stream.
    let burst = burst(&cluster.at(&session, 0), 3, 5, 10).await.events().rest().await;
    assert_eq!(burst.len(), 6);
}

/// A node that lost its lease would not learn of the death of a writer. So it closes its readers, and their clients resume.
#[tokio::test]
async fn reader_of_a_paused_node_is_closed_and_resumes() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut first = burst(&cluster.at(&session, 0), 1, 1_000, 50).await.events();
    first.next().await;
    let mut remote = cluster.at(&session, 1).resume(first.cursor()).await;
    remote.next().await;
    cluster.node(1).signal("-STOP");
    sleep(Duration::from_secs_f64(LEASE_SECONDS * 1.5)).await;
    cluster.node(1).signal("-CONT");
    let rest = timeout(Duration::from_secs(3), remote.rest()).await;
    rest.expect("EOF on the connection of the paused node");
    let cursor = remote.cursor().to_owned();
    let mut resumed = cluster.at(&session, 2).resume(&cursor).await;
    resumed.next().await;
    let killed = Instant::now();
    cluster.kill(0);
    read_to_restarted(&mut resumed, 1, killed).await;
}

/// A session whose only view was on the dead node is served by the others at once.
#[tokio::test]
async fn session_of_a_dead_node_is_served_by_another_at_once() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.client(0).open(V2025_11_25).await;
    cluster.kill(0);
    let asked = Instant::now();
    let echo = cluster
        .at(&session, 1)
        .tool(1, "echo", json!({ "message": "on" }))
        .await;
    assert_eq!(text(&echo.answer().await), "on");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    // A change does not wait for the dead view for long.
    let set = cluster
        .at(&session, 1)
        .call(2, "logging/setLevel", json!({ "level": "error" }))
        .await;
    assert_eq!(set.status, StatusCode::OK);
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
}

/// A stateless call that was passed on has no log. Its client gets an error on its id when the node that runs it dies.
#[tokio::test]
async fn forwarded_stateless_call_ends_with_an_error_when_its_node_dies() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.client(0).open(V2025_11_25).await;
    // The node passes requests on while it drains, for five seconds at most.
    let own = burst(&cluster.at(&session, 0), 1, 100, 100).await.events();
    cluster.node(0).signal("-TERM");
    sleep(Duration::from_millis(200)).await;
    let params = json!({ "name": "burst", "arguments": { "events": 1_000, "delay_us": 50_000 } });
    let reply = cluster
        .client(0)
        .stateless(2, "tools/call", params, json!({ "progressToken": 2 }))
        .await;
    let mut events = reply.events();
    events.next().await;
    cluster.kill(1);
    cluster.kill(2);
    read_to_restarted(&mut events, 2, Instant::now()).await;
    drop(own);
}
