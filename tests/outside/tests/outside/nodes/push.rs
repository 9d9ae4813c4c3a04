//! Messages outside of calls, with the GETs of a session on several nodes.

use super::cluster::{Cluster, V2025_11_25};
use super::every_request::text;
use http::StatusCode;
use rethread_testkit::client::{Client, Events, MODERN, Session};
use serde_json::{Value, json};
use std::time::Duration;

/// No further message comes within this time.
const SILENCE: Duration = Duration::from_millis(800);

/// The messages that arrive until a silence.
pub(super) async fn drain(events: &mut Events) -> Vec<Value> {
    let mut all = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, events.message()).await {
        all.push(message.data);
    }
    all
}

/// `tag.n` of the messages of `push`.
fn pushed(messages: &[Value]) -> Vec<String> {
    let data = messages.iter().map(|message| &message["params"]["data"]);
    data.map(|data| format!("{}.{}", data["push"].as_str().unwrap_or("?"), data["n"]))
        .collect()
}

async fn push(session: &Session, tag: &str, count: u64) {
    let pushed = session
        .tool(format!("push {tag}"), "push", json!({ "count": count, "tag": tag }))
        .await;
    assert_eq!(text(&pushed.answer().await), format!("pushed {count}"));
}

/// SSE-12 across nodes: each message is on exactly one stream.
#[tokio::test]
async fn sse_12_push_arrives_once_with_gets_on_three_nodes() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut gets = Vec::new();
    for node in 0..3 {
        gets.push(cluster.at(&session, node).get(None).await.events());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut expected = Vec::new();
    for round in 0..3 {
        for node in 0..3 {
            let tag = format!("r{round}n{node}");
            push(&cluster.at(&session, node), &tag, 20).await;
            expected.extend((1..=20).map(|n| format!("{tag}.{n}")));
        }
    }
    let mut all = Vec::new();
    for get in &mut gets {
        all.extend(pushed(&drain(get).await));
    }
    assert_eq!(all, expected, "each message once, in order");
    // The newest GET is closed: the next newest takes over, wherever it is.
    for left in (0..2).rev() {
        drop(gets.pop());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let tag = format!("left{left}");
        push(&cluster.at(&session, 2), &tag, 5).await;
        let mut all = Vec::new();
        for get in &mut gets {
            all.extend(pushed(&drain(get).await));
        }
        assert_eq!(all, (1..=5).map(|n| format!("{tag}.{n}")).collect::<Vec<_>>());
    }
}

/// Messages wait for the first GET, which may be on any node. The stream resumes on another one.
#[tokio::test]
async fn sse_push_waits_for_a_get_on_any_node_and_resumes_on_another() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    for node in 0..3 {
        push(&cluster.at(&session, node), &format!("w{node}"), 2).await;
    }
    let mut get = cluster.at(&session, 1).get(None).await.events();
    let first: Vec<_> = [get.next().await, get.next().await, get.next().await].into();
    let cursor = get.cursor().to_owned();
    drop(get);
    let mut get = cluster.at(&session, 2).resume(&cursor).await;
    let rest = drain(&mut get).await;
    let first: Vec<_> = first.into_iter().map(|message| message.data).collect();
    let all = pushed(&[first, rest].concat());
    assert_eq!(all, ["w0.1", "w0.2", "w1.1", "w1.2", "w2.1", "w2.2"]);
    // The stream is live on its new node, and a copy of it can be read from its start on the third.
    push(&cluster.at(&session, 0), "live", 3).await;
    assert_eq!(pushed(&drain(&mut get).await), ["live.1", "live.2", "live.3"]);
    let cursor = get.cursor().to_owned();
    drop(get);
    push(&cluster.at(&session, 0), "away", 2).await;
    let mut get = cluster.at(&session, 0).resume(&cursor).await;
    assert_eq!(pushed(&drain(&mut get).await), ["away.1", "away.2"]);
}

/// A node does not know that its connection is dead, and another node takes the stream over. A resume on the first node reads the
/// stream to its end, in one connection.
#[tokio::test]
async fn res_push_stream_resumes_on_a_node_that_has_lost_it() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut on_first = cluster.at(&session, 0).get(None).await.events();
    push(&cluster.at(&session, 1), "a", 2).await;
    assert_eq!(pushed(&drain(&mut on_first).await), ["a.1", "a.2"]);
    let start = on_first.cursor().to_owned();
    let mut on_second = cluster.at(&session, 1).resume(&start).await;
    push(&cluster.at(&session, 2), "b", 500).await;
    let expected: Vec<_> = (1..=500).map(|n| format!("b.{n}")).collect();
    assert_eq!(pushed(&drain(&mut on_second).await), expected);
    drop(on_second);
    let mut again = cluster.at(&session, 0).resume(&start).await;
    let all = pushed(&drain(&mut again).await);
    assert_eq!((all.len(), &all), (500, &expected));
    push(&cluster.at(&session, 2), "c", 2).await;
    assert_eq!(
        pushed(&drain(&mut again).await),
        ["c.1", "c.2"],
        "the connection is still open"
    );
}

/// A subscription on one node, and the change on another.
#[tokio::test]
async fn subscription_holds_on_every_node() {
    const WATCHED: &str = "test://watched-resource";
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut get = cluster.at(&session, 2).get(None).await.events();
    let updates = |messages: Vec<Value>| {
        let is_update = |message: &&Value| message["method"] == "notifications/resources/updated";
        messages.iter().filter(is_update).count()
    };
    let raise = async |node: usize| {
        let raised = cluster
            .at(&session, node)
            .tool("raise", "notify_all", json!({ "kind": "updated" }))
            .await;
        assert_eq!(raised.status, StatusCode::OK);
    };
    raise(1).await;
    assert_eq!(updates(drain(&mut get).await), 0, "no subscription");
    let subscribed = cluster
        .at(&session, 0)
        .call(1, "resources/subscribe", json!({ "uri": WATCHED }))
        .await;
    assert_eq!(subscribed.status, StatusCode::OK);
    raise(1).await;
    // The example touches the resource on every node every two seconds, so there may be more. None is lost.
    assert!(
        updates(drain(&mut get).await) >= 1,
        "the change of another node arrives"
    );
    let unsubscribed = cluster
        .at(&session, 1)
        .call(2, "resources/unsubscribe", json!({ "uri": WATCHED }))
        .await;
    assert_eq!(unsubscribed.status, StatusCode::OK);
    let _ = drain(&mut get).await; // on their way when the subscription ended
    raise(0).await;
    assert_eq!(
        updates(drain(&mut get).await),
        0,
        "the subscription has ended on every node"
    );
}

/// `subscriptions/listen` of 2026-07-28.
async fn listen(client: &Client) -> Events {
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let reply = client
        .stateless("listen", "subscriptions/listen", filter, json!({}))
        .await;
    assert_eq!((reply.status, reply.is_stream()), (StatusCode::OK, true), "{MODERN}");
    reply.events()
}

/// A broadcast reaches each session once, wherever its views and its GETs are, and every listen stream.
#[tokio::test]
async fn broadcast_reaches_sessions_and_subscriptions_of_all_nodes() {
    let Some(cluster) = Cluster::start().await else { return };
    let mut gets = Vec::new();
    for node in 0..3 {
        let session = cluster.client(node).open(V2025_11_25).await;
        // Views on every node, and two GETs.
        for other in 0..3 {
            assert_eq!(
                cluster.at(&session, other).call(1, "ping", json!({})).await.status,
                StatusCode::OK
            );
        }
        let older = cluster.at(&session, (node + 1) % 3).get(None).await.events();
        gets.push([older, cluster.at(&session, (node + 2) % 3).get(None).await.events()]);
    }
    let mut listens = Vec::new();
    for node in 0..3 {
        let mut listening = listen(&cluster.client(node)).await;
        listening.next().await; // the acknowledgement
        listens.push(listening);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let caller = cluster.balanced().open(V2025_11_25).await;
    for round in 0..3_usize {
        for kind in ["message", "tools"] {
            let arguments = json!({ "kind": kind, "text": format!("all {round}") });
            let sent = cluster.at(&caller, round).tool(1, "notify_all", arguments).await;
            assert_eq!(text(&sent.answer().await), "notified");
        }
    }
    for (number, session) in gets.iter_mut().enumerate() {
        let mut all = Vec::new();
        for get in session {
            all.extend(drain(get).await);
        }
        let texts = all.iter().filter_map(|message| message["params"]["data"].as_str());
        assert_eq!(
            texts.collect::<Vec<_>>(),
            ["all 0", "all 1", "all 2"],
            "session {number}"
        );
        let changes = all
            .iter()
            .filter(|message| message["method"] == "notifications/tools/list_changed");
        let changes = changes.count();
        assert!(
            (1..=3).contains(&changes),
            "session {number}: {changes} changes, which may be collapsed"
        );
    }
    for (node, listening) in listens.iter_mut().enumerate() {
        let messages = drain(listening).await;
        let changes = messages
            .iter()
            .filter(|message| message["method"] == "notifications/tools/list_changed");
        let changes = changes.count();
        assert!(
            (1..=3).contains(&changes),
            "node {node}: {changes} changes: {messages:?}"
        );
    }
}

/// More messages than a queue takes, for a client that reads: they pass through the queue and are not dropped from it.
#[tokio::test]
async fn sse_push_of_many_messages_reaches_a_get_on_another_node() {
    let Some(cluster) = Cluster::start().await else { return };
    let session = cluster.balanced().open(V2025_11_25).await;
    let mut get = cluster.at(&session, 1).get(None).await.events();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let pushing = tokio::spawn({
        let at = cluster.at(&session, 0);
        async move { push(&at, "many", 3_000).await }
    });
    let mut received = Vec::new();
    while received.len() < 3_000 {
        let next = tokio::time::timeout(Duration::from_secs(5), get.next()).await;
        let Ok(message) = next else { break };
        received.extend(pushed(&[message.data]));
    }
    pushing.await.expect("no panic");
    assert_eq!(
        received.len(),
        3_000,
        "from {:?} to {:?}",
        received.first(),
        received.last()
    );
}
