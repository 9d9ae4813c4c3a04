//! GW-08: children end when they should, all of them, in bounded time.

use crate::client::LATEST;
use crate::gateway::{Gateway, living, plan, until};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn gw_08_a_stubborn_child_and_its_own_children_are_killed_after_delete() {
    let gateway = plan("legacy,stubborn,spawner").start();
    // The child that was asked what it speaks is as stubborn.
    gateway.has_children(0, 8 * SECOND).await;
    let session = gateway.client().open(LATEST).await;
    gateway.has_children(2, SECOND).await;
    let asked = Instant::now();
    assert_eq!(session.delete().await.as_u16(), 204);
    assert!(asked.elapsed() < SECOND, "the client does not wait for the child");
    gateway.has_children(0, 6 * SECOND).await;
    gateway.has_no_zombies().await;
}

#[tokio::test]
async fn gw_08_a_willing_child_ends_with_its_session_and_takes_its_own_along() {
    let gateway = plan("legacy,spawner").start();
    gateway.has_children(0, 3 * SECOND).await;
    let session = gateway.client().open(LATEST).await;
    gateway.has_children(2, SECOND).await;
    session.delete().await;
    gateway.has_children(0, SECOND).await;
    gateway.has_no_zombies().await;
}

#[tokio::test]
async fn gw_08_a_stop_ends_every_child() {
    let mut gateway = plan("dual,spawner").start();
    for _ in 0..3 {
        gateway.client().open(LATEST).await;
    }
    gateway.client().tool(1, "echo", json!({})).await;
    gateway.has_children(8, 3 * SECOND).await;
    gateway.signal(Signal::TERM);
    let status = gateway.ended_within(5 * SECOND).expect("it ends");
    assert_eq!(status.code(), Some(0));
    gateway.has_children(0, SECOND).await;
}

#[tokio::test]
async fn gw_08_a_stop_does_not_wait_for_a_stubborn_child_for_ever() {
    let mut gateway = plan("legacy,stubborn,spawner").start();
    gateway.client().open(LATEST).await;
    gateway.signal(Signal::TERM);
    let status = gateway.ended_within(7 * SECOND).expect("it ends");
    assert_eq!(status.code(), Some(0));
    gateway.has_children(0, SECOND).await;
}

#[tokio::test]
async fn gw_08_a_stop_does_not_forget_a_child_that_is_just_being_ended() {
    let mut gateway = plan("legacy,stubborn,spawner").start();
    let session = gateway.client().open(LATEST).await;
    session.delete().await;
    gateway.signal(Signal::TERM);
    gateway.ended_within(7 * SECOND).expect("it ends");
    gateway.has_children(0, 2 * SECOND).await;
}

#[tokio::test]
async fn gw_08_a_gateway_that_is_killed_leaves_nobody_behind() {
    let mut gateway = plan("legacy,stubborn,spawner").start();
    for _ in 0..3 {
        gateway.client().open(LATEST).await;
    }
    assert!(gateway.children().len() >= 6);
    gateway.signal(Signal::KILL);
    gateway.ended_within(SECOND).expect("nobody can refuse that");
    let gone = until(3 * SECOND, || living(gateway.plan().marker()).is_empty()).await;
    assert!(gone, "{:?}", living(gateway.plan().marker()));
}

#[tokio::test]
async fn gw_08_a_second_stop_ends_at_once() {
    let mut gateway = plan("legacy,stubborn,spawner").start();
    let session = gateway.client().open(LATEST).await;
    let mut call = session.begin(1, "slow", json!({ "ms": 60_000, "steps": 600 })).await;
    call.next().await;
    gateway.signal(Signal::TERM);
    gateway.says("draining").await;
    assert!(gateway.ended_within(SECOND / 2).is_none(), "a call is running");
    gateway.signal(Signal::TERM);
    let status = gateway.ended_within(SECOND).expect("it ends");
    assert_eq!(status.code(), Some(130));
    gateway.has_children(0, 3 * SECOND).await;
}

#[tokio::test]
async fn gw_08_a_stop_before_it_is_ready_ends_it_too() {
    let (mut gateway, _told) = plan("legacy,mute,spawner").spawn();
    gateway.has_children(2, 5 * SECOND).await;
    gateway.signal(Signal::TERM);
    assert!(gateway.ended_within(5 * SECOND).is_some(), "it ends\n{}", gateway.log());
    gateway.has_children(0, 2 * SECOND).await;
}

/// LEG-03, GW-08: a client of `/sse` that leaves while `initialize` runs leaves no child behind.
#[tokio::test]
async fn leg_03_sse_client_that_leaves_during_initialize_leaves_no_child() {
    let gateway = plan("legacy,late=1").start();
    gateway.has_children(0, 5 * SECOND).await;
    let client = gateway.client();
    let accept = [("accept", "text/event-stream")];
    let mut get = client.send("GET", "/sse", &accept, b"").await;
    let endpoint = get.next().await.expect("the endpoint");
    let path = endpoint.as_str().expect("a path").to_owned();
    let posting = tokio::spawn(async move {
        let params = json!({ "protocolVersion": "2024-11-05", "capabilities": {},
            "clientInfo": { "name": "old", "version": "1" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
        let headers = [("content-type", "application/json")];
        client.send("POST", &path, &headers, hello.as_bytes()).await.status
    });
    gateway.has_children(1, 5 * SECOND).await;
    drop(get);
    assert_eq!(posting.await.unwrap().as_u16(), 202);
    gateway.has_children(0, 5 * SECOND).await;
}

/// GW-08: a server that ends in good order may write until it has ended. It is heard, however it came to its end.
#[tokio::test]
async fn gw_08_a_child_that_writes_while_it_ends_meets_no_broken_pipe() {
    let mut gateway = plan("legacy,farewell").start();
    let heard = |gateway: &Gateway| gateway.log().matches("farewell was read to its end").count();
    let all_heard = async |gateway: &Gateway, count: usize| {
        until(5 * SECOND, || heard(gateway) >= count).await;
        assert_eq!(heard(gateway), count, "{}", gateway.log());
        assert!(!gateway.log().contains("broken pipe"), "{}", gateway.log());
    };
    all_heard(&gateway, 1).await; // the child that was asked what it speaks
    gateway.client().open(LATEST).await.delete().await;
    all_heard(&gateway, 2).await;
    gateway.client().open(LATEST).await;
    gateway.signal(Signal::TERM);
    gateway.ended_within(7 * SECOND).expect("it ends");
    all_heard(&gateway, 3).await;
}
