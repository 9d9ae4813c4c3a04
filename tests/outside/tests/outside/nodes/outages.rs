//! Redis restarts or is gone for a while, and nodes are replaced one by one.

use super::cluster::{Cluster, LEASE_SECONDS, V2025_11_25};
use super::every_request::text;
use http::StatusCode;
use rethread_testkit::client::{Client, Session};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// A call that is sent again until a node serves it. Returns the refusals.
async fn call_until_served(session: &Session, id: u64, limit: Duration) -> usize {
    let start = Instant::now();
    let mut refused = 0;
    loop {
        let reply = timeout(limit, session.tool(id, "echo", json!({ "message": "x" }))).await;
        let reply = reply.expect("an answer");
        if reply.status == StatusCode::OK {
            assert_eq!(text(&reply.answer().await), "x");
            return refused;
        }
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        refused += 1;
        assert!(start.elapsed() < limit, "no node serves within {limit:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Redis is restarted at once: the call that runs meanwhile is complete, and no session is lost.
#[tokio::test]
async fn redis_restart_loses_nothing() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let arguments = json!({ "events": 40, "delay_us": 50_000 });
    let mut events = cluster.at(&session, 0).tool(1, "burst", arguments).await.events();
    let mut all = vec![events.next().await, events.next().await];
    cluster.redis.stop();
    cluster.redis.run();
    let restarted = Instant::now();
    all.extend(events.rest().await);
    let (answer, progress) = all.split_last().expect("an answer");
    assert_eq!(text(&answer.data), "burst 40 done");
    let progress = progress
        .iter()
        .filter_map(|message| message.data["params"]["progress"].as_f64());
    assert!(progress.eq((1..=40).map(f64::from)), "{all:?}");
    for node in 0..3 {
        let refused = call_until_served(&cluster.at(&session, node), 2, Duration::from_secs(5)).await;
        println!(
            "node {node}: {refused} refusals, served {:?} after the restart",
            restarted.elapsed()
        );
    }
    // A new stream is resumable on every node.
    let mut events = cluster
        .at(&session, 1)
        .tool(3, "burst", json!({ "events": 5, "delay_us": 50_000 }))
        .await
        .events();
    events.next().await;
    let rest = cluster.at(&session, 2).resume(events.cursor()).await.rest().await;
    assert_eq!(rest.len(), 5);
}

/// Redis is gone for longer than a lease: sessions get 503, stateless requests go on, and everything is back afterwards.
#[tokio::test]
async fn redis_gone_for_longer_than_a_lease() {
    if let Some(cluster) = Cluster::start().await {
        assert_long_outage_loses_no_session(cluster).await;
    }
}

#[tokio::test]
async fn redis_gone_for_longer_than_a_lease_of_gateways() {
    if let Some(cluster) = Cluster::start_gateways().await {
        assert_long_outage_loses_no_session(cluster).await;
    }
}

async fn assert_long_outage_loses_no_session(mut cluster: Cluster) {
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut get = cluster.at(&session, 0).get(None).await.events();
    let ended = cluster
        .at(&session, 0)
        .tool(1, "burst", json!({ "events": 5, "delay_us": 20_000 }))
        .await;
    let ended = ended.events().rest().await;
    let mut running = cluster
        .at(&session, 1)
        .tool(2, "burst", json!({ "events": 400, "delay_us": 50_000 }))
        .await
        .events();
    running.next().await;
    cluster.redis.stop();
    let gone = Instant::now();
    let lease = Duration::from_secs_f64(LEASE_SECONDS);
    // The open connection goes on until the lease ends, then it ends: another node may have taken its stream over.
    let rest = timeout(lease * 2, running.rest())
        .await
        .expect("EOF when the lease has ended");
    println!("the call ended after {:?} and {} events", gone.elapsed(), rest.len());
    assert!(
        rest.iter().all(|message| message.data["result"].is_null()),
        "the call cannot have ended"
    );
    sleep((lease * 3 / 2).saturating_sub(gone.elapsed())).await;
    for node in 0..3 {
        let refused = cluster.at(&session, node).call(3, "ping", json!({})).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "node {node}");
        let params = json!({ "name": "echo", "arguments": { "message": "stateless" } });
        let echo = cluster.client(node).stateless(1, "tools/call", params, json!({})).await;
        assert_eq!(text(&echo.answer().await), "stateless", "node {node}");
    }
    assert!(
        get.is_silent_for(Duration::from_millis(100)).await,
        "the GET stays open"
    );
    cluster.redis.run();
    let back = Instant::now();
    for node in 0..3 {
        let refused = call_until_served(&cluster.at(&session, node), 4, Duration::from_secs(10)).await;
        println!(
            "node {node}: {refused} refusals, served {:?} after the return",
            back.elapsed()
        );
    }
    let rest = timeout(Duration::from_secs(5), get.rest())
        .await
        .expect("EOF on the old GET");
    assert_eq!(rest, []);
    // Streams that had ended before are the same.
    let first = ended[0].id.clone().expect("an id");
    for node in 0..3 {
        let again = cluster.at(&session, node).resume(&first).await.rest().await;
        assert_eq!(again, ended[1..], "node {node}");
    }
    // The call that was cut off ends with an error for a client that resumes it.
    let mut resumed = cluster.at(&session, 2).resume(running.cursor()).await;
    let resumed = timeout(lease * 2, resumed.rest()).await.expect("an end");
    let answer = &resumed.last().expect("an answer").data;
    assert_eq!(
        (answer["id"].as_u64(), answer["error"]["code"].as_i64()),
        (Some(2), Some(-32603)),
        "{answer}"
    );
}

/// The load of a rolling restart.
struct Load {
    client: Client,
    is_over: AtomicBool,
    calls: AtomicUsize,
    resumed: AtomicUsize,
}

impl Load {
    /// JSON calls. Each is answered: a node that stops forwards what it does not take.
    async fn call(&self, session: &Session) {
        let mut id = 0_u64;
        while !self.is_over.load(Relaxed) {
            id += 1;
            let reply = session.tool(id, "echo", json!({ "message": format!("m{id}") })).await;
            assert_eq!(reply.status, StatusCode::OK, "call {id}");
            assert_eq!(text(&reply.answer().await), format!("m{id}"));
            self.calls.fetch_add(1, Relaxed);
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Streamed calls of a second or so. A connection may end early; the stream does not.
    async fn stream(&self, session: &Session) {
        let mut id = 1_000_000_u64;
        while !self.is_over.load(Relaxed) {
            id += 1;
            let reply = session
                .tool(id, "burst", json!({ "events": 20, "delay_us": 50_000 }))
                .await;
            if reply.status != StatusCode::OK {
                let status = reply.status;
                panic!(
                    "stream {id}: {status} {}",
                    String::from_utf8_lossy(&reply.bytes().await)
                );
            }
            let mut events = reply.events();
            let mut all = Vec::new();
            let start = Instant::now();
            loop {
                all.extend(events.rest().await.into_iter().map(|message| message.data));
                if all.last().is_some_and(|last| last["id"] == id) {
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(20), "stream {id} hangs");
                let reply = session.get(Some(events.cursor())).await;
                if reply.status == StatusCode::OK {
                    self.resumed.fetch_add(1, Relaxed);
                    events = reply.events();
                } else {
                    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "resume of {id}");
                    sleep(Duration::from_millis(20)).await;
                }
            }
            let (answer, progress) = all.split_last().expect("an answer");
            assert_eq!(text(answer), "burst 20 done");
            let progress = progress
                .iter()
                .filter_map(|message: &Value| message["params"]["progress"].as_f64());
            assert!(progress.eq((1..=20).map(f64::from)), "stream {id}: {all:?}");
            self.calls.fetch_add(1, Relaxed);
        }
    }

    /// Pushed messages, and a GET that is resumed. Each message comes once.
    async fn push(&self, session: &Session) {
        let (mut sent, mut received) = (0_u64, Vec::new());
        let mut get = session.get(None).await.events();
        loop {
            let is_over = self.is_over.load(Relaxed);
            let pushed = session
                .tool(
                    2_000_000 + sent,
                    "push",
                    json!({ "count": 1, "tag": format!("{sent}") }),
                )
                .await;
            assert_eq!(text(&pushed.answer().await), "pushed 1");
            sent += 1;
            let start = Instant::now();
            while received.len() < sent as usize {
                assert!(
                    start.elapsed() < Duration::from_secs(10),
                    "message {sent} is missing: {received:?}"
                );
                match timeout(Duration::from_secs(10), get.message())
                    .await
                    .expect("a message or EOF")
                {
                    Some(message) => received.push(message.data["params"]["data"]["push"].as_str().map(str::to_owned)),
                    None => {
                        let reply = session.get(Some(get.cursor())).await;
                        if reply.status != StatusCode::OK {
                            assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "resume of the GET");
                            sleep(Duration::from_millis(20)).await;
                            continue;
                        }
                        self.resumed.fetch_add(1, Relaxed);
                        get = reply.events();
                    }
                }
            }
            if is_over {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let expected: Vec<_> = (0..sent).map(|n| Some(n.to_string())).collect();
        assert_eq!(received, expected, "each message once, in order");
    }
}

/// Each node is taken out of the balancer, stopped with SIGTERM and replaced, under load. Nothing is lost, and no call is
/// refused.
#[tokio::test]
async fn rolling_restart_loses_nothing() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let load = Arc::new(Load {
        client: cluster.balanced(),
        is_over: AtomicBool::new(false),
        calls: AtomicUsize::new(0),
        resumed: AtomicUsize::new(0),
    });
    let mut work = JoinSet::new();
    for number in 0..6 {
        let load = Arc::clone(&load);
        let session = load.client.open(V2025_11_25).await;
        work.spawn(async move {
            match number % 3 {
                0 => load.call(&session).await,
                1 => load.stream(&session).await,
                _ => load.push(&session).await,
            }
        });
    }
    sleep(Duration::from_millis(500)).await;
    for number in 0..3 {
        let node = cluster.nodes[number].take().expect("a node");
        let (program, arguments) = node.how_started();
        cluster.update_backends();
        sleep(Duration::from_millis(50)).await; // requests that are on their way arrive
        let stopping = tokio::task::spawn_blocking(move || node.stop());
        let start = Instant::now();
        while !stopping.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(15), "node {number} does not stop");
            tokio::select! {
                Some(ended) = work.join_next() => { ended.expect("no panic"); }
                () = sleep(Duration::from_millis(50)) => {}
            }
        }
        assert!(stopping.await.expect("no panic"), "exit code 0");
        println!("node {number} stopped in {:?}", start.elapsed());
        let started =
            tokio::task::spawn_blocking(move || crate::server::ServerProcess::start_again(program, arguments));
        cluster.nodes[number] = Some(started.await.expect("a start"));
        cluster.update_backends();
        sleep(Duration::from_millis(500)).await;
    }
    load.is_over.store(true, Relaxed);
    while let Some(ended) = work.join_next().await {
        ended.expect("no panic");
    }
    println!(
        "{} calls, {} resumptions",
        load.calls.load(Relaxed),
        load.resumed.load(Relaxed)
    );
}

/// A node that stops passes new work to others while its own calls end.
#[tokio::test]
async fn draining_node_passes_requests_on() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let at = cluster.at(&session, 0);
    let mut own = at
        .tool(1, "burst", json!({ "events": 40, "delay_us": 100_000 }))
        .await
        .events();
    let mut own_events = vec![own.next().await];
    let mut get = at.get(None).await.events();
    let parked = json!({ "name": "ask", "arguments": {} });
    let asked = cluster
        .client(0)
        .stateless(1, "tools/call", parked.clone(), json!({}))
        .await
        .answer()
        .await;
    let client = cluster.client(0);
    let node = cluster.nodes[0].take().expect("a node");
    node.signal("-TERM");
    let ended = timeout(Duration::from_secs(1), get.rest()).await;
    assert_eq!(ended.expect("an open GET ends"), []);
    // A JSON call, a stream, a stateless call and stream, `initialize`, a GET, a notification.
    let echo = at.tool(2, "echo", json!({ "message": "passed on" })).await;
    assert_eq!(text(&echo.answer().await), "passed on");
    let mut burst = at
        .tool(3, "burst", json!({ "events": 10, "delay_us": 20_000 }))
        .await
        .events();
    let mut passed = vec![burst.next().await];
    let mut resumed = cluster.at(&session, 1).resume(burst.cursor()).await;
    passed.extend(resumed.rest().await);
    assert_eq!(passed.len(), 11, "{passed:?}");
    let long_silence = at.tool(4, "sleep", json!({ "ms": 700 })).await;
    assert_eq!(text(&long_silence.answer().await), "slept 700");
    let params = json!({ "name": "burst", "arguments": { "events": 5, "delay_us": 20_000 } });
    let stateless = client
        .stateless(5, "tools/call", params, json!({ "progressToken": 5 }))
        .await;
    assert_eq!(stateless.events().rest().await.len(), 6);
    let other = client.open("2025-06-18").await;
    let silent = other.tool(6, "sleep", json!({ "ms": 700 })).await;
    assert_eq!(text(&silent.answer().await), "slept 700");
    assert_eq!(other.delete().await.status, StatusCode::NO_CONTENT);
    let mut get = at.get(None).await.events();
    let pushed = cluster
        .at(&session, 2)
        .tool(7, "push", json!({ "count": 2, "tag": "d" }))
        .await;
    assert_eq!(text(&pushed.answer().await), "pushed 2");
    assert_eq!([get.next().await, get.next().await].len(), 2);
    let level = at.call(8, "logging/setLevel", json!({ "level": "error" })).await;
    assert_eq!(level.status, StatusCode::OK);
    // Its own calls end on it: a stream, and a parked call.
    let retry = json!({ "name": "ask", "arguments": {}, "requestState": asked["result"]["requestState"],
        "inputResponses": { "q1": { "action": "decline" } } });
    let retried = cluster
        .client(1)
        .stateless(9, "tools/call", retry, json!({}))
        .await
        .answer()
        .await;
    assert_eq!(text(&retried), r#"{"action":"decline"}"#, "{retried}");
    own_events.extend(own.rest().await);
    assert_eq!(own_events.len(), 41);
    let stopped = tokio::task::spawn_blocking(move || node.wait()).await;
    assert!(stopped.expect("no panic"), "exit code 0");
}

/// The calls of the node itself end first. A call that it has passed on has a client, too.
#[tokio::test]
async fn draining_node_waits_for_calls_that_it_has_passed_on() {
    let Some(mut cluster) = Cluster::start().await else {
        return;
    };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut own = cluster
        .at(&session, 0)
        .tool(1, "burst", json!({ "events": 8, "delay_us": 100_000 }))
        .await
        .events();
    own.next().await;
    let client = cluster.client(0);
    let node = cluster.nodes[0].take().expect("a node");
    node.signal("-TERM");
    sleep(Duration::from_millis(200)).await;
    let params = json!({ "name": "burst", "arguments": { "events": 25, "delay_us": 100_000 } });
    let passed = client
        .stateless(2, "tools/call", params, json!({ "progressToken": 2 }))
        .await;
    assert_eq!(passed.status, StatusCode::OK);
    assert_eq!(passed.events().rest().await.len(), 26, "all events and the answer");
    assert_eq!(own.rest().await.len(), 8);
    let stopped = tokio::task::spawn_blocking(move || node.wait()).await;
    assert!(stopped.expect("no panic"), "exit code 0");
    // It has given its lease back, and has not joined again.
    assert_eq!(cluster.redis.command(&["ZCARD", "rt:{nodes}"]), ":2\r\n");
}
