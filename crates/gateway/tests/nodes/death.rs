//! A gateway that is killed: another one serves its sessions with restored children.

use crate::client::{LATEST, tool_result};
use crate::cluster::{Cluster, LEASE, SECOND, after_a_death};
use crate::gateway::wait_until;
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// How long the start of a child may take on a busy machine.
const CHILD_START: Duration = Duration::from_secs(2);

#[tokio::test]
async fn rst_01_owner_dies_and_another_node_restores_the_child() {
    let Some(mut cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let level = json!({ "level": "error" });
    session.call("level", "logging/setLevel", level).await.response().await;
    let subscribe = json!({ "uri": "test://a" });
    session
        .call("sub", "resources/subscribe", subscribe)
        .await
        .response()
        .await;
    let unrelated = loop {
        let other = cluster.client().open_session(LATEST).await;
        if cluster.owner(u64::from(other.first_pid())) != cluster.owner(pid) {
            break other;
        }
    };

    let others = cluster.others(pid);
    assert_eq!(cluster.counter(&others, "rethread_takeovers_total").await, 0.0);
    let (owner, killed_at) = (cluster.owner(pid), Instant::now());
    cluster.gateways[owner].signal(Signal::KILL);
    cluster.gateways[owner].wait_for_exit(5 * SECOND);
    let at_once = Instant::now();
    assert_eq!(unrelated.child_pid().await, u64::from(unrelated.first_pid()));
    assert!(at_once.elapsed() < LEASE, "a session of another node does not wait");

    let restored = session.child_pid().await;
    let waited = killed_at.elapsed();
    assert!(waited < after_a_death(CHILD_START), "it took {waited:?}");
    assert_ne!(restored, pid);
    let heir = cluster.owner(restored);
    assert_ne!(heir, owner);
    let expected = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
    ];
    assert_eq!(cluster.gateways[heir].methods_received(restored), expected);
    for _ in 0..6 {
        assert_eq!(session.child_pid().await, restored, "one child on every node");
    }
    let takeovers = cluster.counter(&others, "rethread_takeovers_total").await;
    assert_eq!(takeovers, 1.0, "one node claimed the one session");
    assert_eq!(cluster.counter(&[heir], "rethread_sessions_restored_total").await, 1.0);
    let gone = wait_until(5 * SECOND, || cluster.gateways[owner].children().is_empty()).await;
    assert!(gone, "the guardian ends the children of the killed gateway");
}

#[tokio::test]
async fn rst_03_call_of_a_dead_node_ends_with_an_error_on_every_stream() {
    let Some(mut cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let (owner, [one, other]) = (cluster.owner(pid), cluster.others(pid));
    let endless = json!({ "ms": 600_000, "steps": 6000 });
    let mut forwarded = cluster
        .at(&session, one)
        .start_tool("forwarded", "slow", endless.clone())
        .await;
    forwarded.next().await.unwrap();
    let mut direct = cluster.at(&session, owner).start_tool("direct", "slow", endless).await;
    direct.next().await.unwrap();
    let cursor = direct.cursor();
    drop(direct);

    let killed_at = Instant::now();
    cluster.gateways[owner].signal(Signal::KILL);
    cluster.gateways[owner].wait_for_exit(5 * SECOND);
    let rest = forwarded.messages().await;
    assert!(
        killed_at.elapsed() < after_a_death(Duration::ZERO),
        "it took {:?}",
        killed_at.elapsed()
    );
    let last = rest.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["data"]["reason"]),
        (&json!("forwarded"), &json!("restarted"))
    );

    let resumed = cluster.at(&session, other).resume(&cursor).await.messages().await;
    let last = resumed.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["data"]["reason"]),
        (&json!("direct"), &json!("restarted"))
    );
    assert_ne!(session.child_pid().await, pid, "the session goes on");
    let orphaned = cluster.counter(&[one, other], "rethread_calls_orphaned_total").await;
    assert_eq!(orphaned, 2.0, "each call was ended once");
}

#[tokio::test]
async fn rst_01_stopped_owner_is_replaced_and_serves_again() {
    let Some(cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let (owner, [one, other]) = (cluster.owner(pid), cluster.others(pid));
    cluster.gateways[owner].pause();
    let restored = cluster.at(&session, one).child_pid().await;
    assert_ne!(restored, pid);
    cluster.gateways[owner].signal(Signal::CONT);
    let gone = wait_until(10 * SECOND, || {
        !cluster.gateways[owner]
            .children()
            .iter()
            .any(|c| u64::from(c.pid) == pid)
    });
    assert!(gone.await, "the stopped gateway ends its child");
    let mut again = cluster
        .at(&session, owner)
        .call("again", "tools/call", json!({ "name": "echo" }))
        .await;
    let deadline = Instant::now() + 10 * SECOND;
    while again.status == StatusCode::SERVICE_UNAVAILABLE && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        again = cluster
            .at(&session, owner)
            .call("again", "tools/call", json!({ "name": "echo" }))
            .await;
    }
    assert_eq!(
        tool_result(&again.response().await)["pid"],
        restored,
        "one child answers"
    );
    assert_eq!(cluster.at(&session, other).child_pid().await, restored);
}

#[tokio::test]
async fn rst_01_session_expires_with_its_owner_on_request() {
    let Some(mut cluster) = Cluster::start_with("legacy", |node| node.option("--restore expire")).await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    for _ in 0..6 {
        assert_eq!(session.child_pid().await, pid, "a view on another node ends nothing");
    }
    let owner = cluster.owner(pid);
    cluster.gateways[owner].signal(Signal::KILL);
    cluster.gateways[owner].wait_for_exit(5 * SECOND);
    for _ in 0..3 {
        let reply = session.call(1, "tools/list", json!({})).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND);
    }
}
