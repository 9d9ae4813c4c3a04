//! RST-01, RST-03: sessions survive a restart of the gateway.

use crate::client::{HttpReply, LATEST, tool_result};
use crate::gateway::{GatewayBuilder, gateway_with, wait_until};
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn durable_gateway() -> GatewayBuilder {
    gateway_with("legacy").with_data_dir().record_messages()
}

#[tokio::test]
async fn rst_01_session_survives_kill_9_with_a_new_child() {
    let gateway = durable_gateway().start();
    let session = gateway.client().open_session(LATEST).await;
    session
        .call("level", "logging/setLevel", json!({ "level": "error" }))
        .await
        .response()
        .await;
    session
        .call("sub", "resources/subscribe", json!({ "uri": "test://a" }))
        .await
        .response()
        .await;
    let before = session.child_pid().await;
    let gateway = gateway.kill_and_restart();
    let session = session.at_address(gateway.addr);
    let pid = session.child_pid().await;
    assert_ne!(pid, before);
    let expected = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
    ];
    assert_eq!(
        gateway.methods_received(pid),
        expected,
        "the state is replayed before the first request"
    );
    let of = |pid: u64| {
        gateway
            .recorded_messages()
            .into_iter()
            .filter(move |message| message["pid"] == pid)
    };
    let params = |pid: u64, n: usize| of(pid).nth(n).unwrap()["params"].clone();
    assert_eq!(params(pid, 0), params(before, 0));
    assert_eq!(params(pid, 2), json!({ "level": "error" }));
    assert_eq!(params(pid, 3), json!({ "uri": "test://a" }));
    let gone = wait_until(3 * SECOND, || gateway.children().len() == 1).await;
    assert!(
        gone,
        "the child of the killed gateway is gone: {:?}",
        gateway.children()
    );
}

#[tokio::test]
async fn rst_01_session_expires_with_the_gateway_on_request() {
    let gateway = durable_gateway().option("--restore expire").start();
    let session = gateway.client().open_session(LATEST).await;
    session.child_pid().await;
    let gateway = gateway.kill_and_restart();
    let reply = session.at_address(gateway.addr).call(1, "tools/list", json!({})).await;
    assert_eq!(reply.status.as_u16(), 404);
}

#[tokio::test]
async fn rst_03_interrupted_call_ends_with_error_and_does_not_rerun() {
    let gateway = durable_gateway().start();
    let session = gateway.client().open_session(LATEST).await;
    let mut running = session
        .start_tool("running", "slow", json!({ "ms": 60_000, "steps": 600 }))
        .await;
    for _ in 0..3 {
        running.next().await.expect("it has begun");
    }
    let mut done = session
        .start_tool("done", "slow", json!({ "ms": 600, "steps": 6, "text": "kept" }))
        .await;
    done.next().await.expect("it has begun");
    let (running, done_at) = (running.cursor(), done.cursor());
    drop(done); // the connection breaks; the call continues
    let answered = session.call_tool("wait", "slow", json!({ "ms": 1500 })).await;
    tool_result(&answered);
    let gateway = gateway.kill_and_restart();
    let session = session.at_address(gateway.addr);

    let rest = session.resume(&done_at).await.messages().await;
    assert_eq!(rest.len(), 6, "{rest:?}");
    assert_eq!(tool_result(&rest[5])["text"], "kept", "a stored response is delivered");
    assert_eq!(rest[5]["id"], "done");

    let rest = session.resume(&running).await.messages().await;
    let last = rest.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!("running"), &json!(-32603)),
        "{last}"
    );
    assert_eq!(last["error"]["data"]["reason"], "restarted", "{last}");
    let slow = gateway
        .recorded_messages()
        .into_iter()
        .filter(|message| message["params"]["name"] == "slow");
    assert_eq!(slow.count(), 3, "no call runs again");
    session.child_pid().await;
}

/// A child may take long to start. Stored events do not need it.
#[tokio::test]
async fn rst_03_stored_events_do_not_wait_for_the_child() {
    let gateway = gateway_with("legacy,start-delay=3").with_data_dir().start();
    let session = gateway.client().open_session(LATEST).await;
    let mut done = session
        .start_tool("done", "slow", json!({ "ms": 200, "steps": 2 }))
        .await;
    done.next().await.expect("it has begun");
    let cursor = done.cursor();
    drop(done);
    tool_result(&session.call_tool("wait", "slow", json!({ "ms": 500 })).await);
    let gateway = gateway.kill_and_restart();
    let session = session.at_address(gateway.addr);
    let began = Instant::now();
    let rest = session.resume(&cursor).await.messages().await;
    assert_eq!(rest.last().unwrap()["id"], "done", "{rest:?}");
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    session.child_pid().await; // a call waits for the child
}

/// D6, GET-04: queued push messages survive, and arrive once.
#[tokio::test]
async fn get_04_queued_messages_survive_kill_9_and_arrive_once() {
    let gateway = durable_gateway().start();
    let session = gateway.client().open_session(LATEST).await;
    session
        .call_tool("notify", "notify-after-response", json!({ "count": 3 }))
        .await;
    // The stored queue follows with a short delay: one update is at the store at a time.
    let mut later = session
        .start_tool("later", "slow", json!({ "ms": 1500, "steps": 3 }))
        .await;
    for _ in 0..2 {
        later.next().await.expect("the call goes on");
    }
    let gateway = gateway.kill_and_restart();
    let session = session.at_address(gateway.addr);

    let mut get = session.listen().await;
    assert_eq!(received_data(&mut get).await, [0, 1, 2]);
    let cursor = get.cursor();
    let gateway = gateway.kill_and_restart();
    let session = session.at_address(gateway.addr);
    assert_eq!(
        received_data(&mut session.listen().await).await,
        [0; 0],
        "the messages belong to the first stream"
    );
    let (stream, _) = cursor.split_once('-').unwrap();
    let mut resumed = session.resume(&format!("{stream}-0")).await;
    assert_eq!(
        received_data(&mut resumed).await,
        [0, 1, 2],
        "a resume of the first stream replays them"
    );
}

/// The `data` of all messages until the stream is silent for a second.
async fn received_data(stream: &mut HttpReply) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(SECOND, stream.next()).await {
        numbers.extend(message["params"]["data"].as_u64());
    }
    numbers
}

#[tokio::test]
async fn rst_01_session_survives_a_graceful_restart() {
    let mut gateway = durable_gateway().start();
    let session = gateway.client().open_session(LATEST).await;
    session.child_pid().await;
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(gateway.wait_for_exit(5 * SECOND).unwrap().code(), Some(0));
    let next = gateway.start_successor();
    session.at_address(next.addr).child_pid().await;
}
