//! GW-08: all children end in bounded time.

use crate::client::LATEST;
use crate::gateway::{Gateway, gateway_with, live_processes, wait_until};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn gw_08_delete_kills_a_child_that_ignores_sigterm_and_its_descendants() {
    let gateway = gateway_with("legacy,ignores-sigterm,spawns-descendant").start();
    // The child of the probe ignores SIGTERM too.
    gateway.wait_for_children(0, 8 * SECOND).await;
    let session = gateway.client().open_session(LATEST).await;
    gateway.wait_for_children(2, SECOND).await;
    let asked = Instant::now();
    assert_eq!(session.delete().await.as_u16(), 204);
    assert!(asked.elapsed() < SECOND, "the client does not wait for the child");
    gateway.wait_for_children(0, 6 * SECOND).await;
    gateway.wait_for_no_zombies().await;
}

#[tokio::test]
async fn gw_08_delete_ends_a_child_and_its_descendants() {
    let gateway = gateway_with("legacy,spawns-descendant").start();
    gateway.wait_for_children(0, 3 * SECOND).await;
    let session = gateway.client().open_session(LATEST).await;
    gateway.wait_for_children(2, SECOND).await;
    session.delete().await;
    gateway.wait_for_children(0, SECOND).await;
    gateway.wait_for_no_zombies().await;
}

#[tokio::test]
async fn gw_08_stop_ends_every_child() {
    let mut gateway = gateway_with("dual,spawns-descendant").start();
    for _ in 0..3 {
        gateway.client().open_session(LATEST).await;
    }
    gateway.client().call_tool(1, "echo", json!({})).await;
    gateway.wait_for_children(8, 3 * SECOND).await;
    gateway.signal(Signal::TERM);
    let status = gateway.wait_for_exit(5 * SECOND).expect("it ends");
    assert_eq!(status.code(), Some(0));
    gateway.wait_for_children(0, SECOND).await;
}

#[tokio::test]
async fn gw_08_stop_kills_a_child_that_ignores_sigterm() {
    let mut gateway = gateway_with("legacy,ignores-sigterm,spawns-descendant").start();
    gateway.client().open_session(LATEST).await;
    gateway.signal(Signal::TERM);
    let status = gateway.wait_for_exit(7 * SECOND).expect("it ends");
    assert_eq!(status.code(), Some(0));
    gateway.wait_for_children(0, SECOND).await;
}

#[tokio::test]
async fn gw_08_stop_ends_a_child_whose_session_was_just_deleted() {
    let mut gateway = gateway_with("legacy,ignores-sigterm,spawns-descendant").start();
    let session = gateway.client().open_session(LATEST).await;
    session.delete().await;
    gateway.signal(Signal::TERM);
    gateway.wait_for_exit(7 * SECOND).expect("it ends");
    gateway.wait_for_children(0, 2 * SECOND).await;
}

#[tokio::test]
async fn gw_08_killed_gateway_leaves_no_children() {
    let mut gateway = gateway_with("legacy,ignores-sigterm,spawns-descendant").start();
    for _ in 0..3 {
        gateway.client().open_session(LATEST).await;
    }
    assert!(gateway.children().len() >= 6);
    gateway.signal(Signal::KILL);
    gateway.wait_for_exit(SECOND).expect("SIGKILL cannot be ignored");
    let gone = wait_until(3 * SECOND, || live_processes(gateway.builder().marker()).is_empty()).await;
    assert!(gone, "{:?}", live_processes(gateway.builder().marker()));
}

#[tokio::test]
async fn gw_08_second_stop_exits_at_once() {
    let mut gateway = gateway_with("legacy,ignores-sigterm,spawns-descendant").start();
    let session = gateway.client().open_session(LATEST).await;
    let mut call = session
        .start_tool(1, "slow", json!({ "ms": 60_000, "steps": 600 }))
        .await;
    call.next().await;
    gateway.signal(Signal::TERM);
    gateway.wait_for_log("draining").await;
    assert!(gateway.wait_for_exit(SECOND / 2).is_none(), "a call is running");
    gateway.signal(Signal::TERM);
    let status = gateway.wait_for_exit(SECOND).expect("it ends");
    assert_eq!(status.code(), Some(130));
    gateway.wait_for_children(0, 3 * SECOND).await;
}

#[tokio::test]
async fn gw_08_stop_during_startup_exits() {
    let (mut gateway, _told) = gateway_with("legacy,ignores-initialize,spawns-descendant").spawn();
    gateway.wait_for_children(2, 5 * SECOND).await;
    gateway.signal(Signal::TERM);
    assert!(
        gateway.wait_for_exit(5 * SECOND).is_some(),
        "it ends\n{}",
        gateway.log()
    );
    gateway.wait_for_children(0, 2 * SECOND).await;
}

/// LEG-03, GW-08: the end of an `/sse` connection during `initialize` ends the child.
#[tokio::test]
async fn leg_03_sse_disconnect_during_initialize_ends_the_child() {
    let gateway = gateway_with("legacy,start-delay=1").start();
    gateway.wait_for_children(0, 5 * SECOND).await;
    let client = gateway.client();
    let accept = [("accept", "text/event-stream")];
    let mut get = client.send("GET", "/sse", &accept, b"").await;
    let endpoint = get.next().await.expect("the endpoint");
    let path = endpoint.as_str().expect("a path").to_owned();
    let posting = tokio::spawn(async move {
        let params = json!({ "protocolVersion": "2024-11-05", "capabilities": {},
            "clientInfo": { "name": "old", "version": "1" } });
        let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
        let headers = [("content-type", "application/json")];
        client.send("POST", &path, &headers, request.as_bytes()).await.status
    });
    gateway.wait_for_children(1, 5 * SECOND).await;
    drop(get);
    assert_eq!(posting.await.unwrap().as_u16(), 202);
    gateway.wait_for_children(0, 5 * SECOND).await;
}

/// GW-08: the gateway reads stdout until the child has exited.
#[tokio::test]
async fn gw_08_exiting_child_meets_no_broken_pipe() {
    let mut gateway = gateway_with("legacy,writes-at-exit").start();
    let complete_reads = |gateway: &Gateway| gateway.log().matches("exit output was read to its end").count();
    let assert_complete_reads = async |gateway: &Gateway, count: usize| {
        wait_until(5 * SECOND, || complete_reads(gateway) >= count).await;
        assert_eq!(complete_reads(gateway), count, "{}", gateway.log());
        assert!(!gateway.log().contains("broken pipe"), "{}", gateway.log());
    };
    assert_complete_reads(&gateway, 1).await; // the child of the probe
    gateway.client().open_session(LATEST).await.delete().await;
    assert_complete_reads(&gateway, 2).await;
    gateway.client().open_session(LATEST).await;
    gateway.signal(Signal::TERM);
    gateway.wait_for_exit(7 * SECOND).expect("it ends");
    assert_complete_reads(&gateway, 3).await;
}
