//! RST-01, RST-03 through the gateway: sessions outlive it.

use crate::client::{LATEST, Reply, said};
use crate::gateway::{Plan, plan, until};
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn durable() -> Plan {
    plan("legacy").durable().recording()
}

#[tokio::test]
async fn rst_01_a_session_survives_kill_9_of_the_gateway_with_a_new_child() {
    let gateway = durable().start();
    let session = gateway.client().open(LATEST).await;
    session
        .call("level", "logging/setLevel", json!({ "level": "error" }))
        .await
        .answer()
        .await;
    session
        .call("sub", "resources/subscribe", json!({ "uri": "test://a" }))
        .await
        .answer()
        .await;
    let before = session.pid().await;
    let gateway = gateway.restarted();
    let session = session.at(gateway.addr);
    let pid = session.pid().await;
    assert_ne!(pid, before);
    let expected = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
    ];
    assert_eq!(
        gateway.told(pid),
        expected,
        "it is brought up to date before the first request"
    );
    let of = |pid: u64| gateway.record().into_iter().filter(move |told| told["pid"] == pid);
    let params = |pid: u64, n: usize| of(pid).nth(n).unwrap()["params"].clone();
    assert_eq!(params(pid, 0), params(before, 0));
    assert_eq!(params(pid, 2), json!({ "level": "error" }));
    assert_eq!(params(pid, 3), json!({ "uri": "test://a" }));
    let gone = until(3 * SECOND, || gateway.children().len() == 1).await;
    assert!(gone, "the child of the life before is gone: {:?}", gateway.children());
}

#[tokio::test]
async fn rst_01_a_session_may_end_with_the_gateway() {
    let gateway = durable().option("--restore expire").start();
    let session = gateway.client().open(LATEST).await;
    session.pid().await;
    let gateway = gateway.restarted();
    let reply = session.at(gateway.addr).call(1, "tools/list", json!({})).await;
    assert_eq!(reply.status.as_u16(), 404);
}

#[tokio::test]
async fn rst_03_a_call_that_ran_at_the_kill_is_told_so_and_not_run_again() {
    let gateway = durable().start();
    let session = gateway.client().open(LATEST).await;
    let mut running = session
        .begin("running", "slow", json!({ "ms": 60_000, "steps": 600 }))
        .await;
    for _ in 0..3 {
        running.next().await.expect("it has begun");
    }
    let mut done = session
        .begin("done", "slow", json!({ "ms": 600, "steps": 6, "text": "kept" }))
        .await;
    done.next().await.expect("it has begun");
    let (running, done_at) = (running.cursor(), done.cursor());
    drop(done); // the connection breaks; the call goes on
    let answered = session.tool("wait", "slow", json!({ "ms": 1500 })).await;
    said(&answered);
    let gateway = gateway.restarted();
    let session = session.at(gateway.addr);

    let rest = session.resume(&done_at).await.messages().await;
    assert_eq!(rest.len(), 6, "{rest:?}");
    assert_eq!(said(&rest[5])["said"], "kept", "an answer that was given is delivered");
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
        .record()
        .into_iter()
        .filter(|told| told["params"]["name"] == "slow");
    assert_eq!(slow.count(), 3, "nothing is run again");
    session.pid().await;
}

/// A server may take long to start. What is stored needs none.
#[tokio::test]
async fn rst_03_what_is_stored_does_not_wait_for_the_server() {
    let gateway = plan("legacy,late=3").durable().start();
    let session = gateway.client().open(LATEST).await;
    let mut done = session.begin("done", "slow", json!({ "ms": 200, "steps": 2 })).await;
    done.next().await.expect("it has begun");
    let cursor = done.cursor();
    drop(done);
    said(&session.tool("wait", "slow", json!({ "ms": 500 })).await);
    let gateway = gateway.restarted();
    let session = session.at(gateway.addr);
    let began = Instant::now();
    let rest = session.resume(&cursor).await.messages().await;
    assert_eq!(rest.last().unwrap()["id"], "done", "{rest:?}");
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    session.pid().await; // and what needs it waits for it
}

/// D6, GET-04: messages that wait for a GET survive, and arrive once.
#[tokio::test]
async fn get_04_waiting_messages_survive_kill_9_and_arrive_once() {
    let gateway = durable().start();
    let session = gateway.client().open(LATEST).await;
    session.tool("aside", "aside", json!({ "count": 3 })).await;
    // The stored queue follows in a moment: one update is at the store at a time, and the next one has all that is new.
    let mut later = session.begin("later", "slow", json!({ "ms": 1500, "steps": 3 })).await;
    for _ in 0..2 {
        later.next().await.expect("it goes on");
    }
    let gateway = gateway.restarted();
    let session = session.at(gateway.addr);

    let mut get = session.listen().await;
    assert_eq!(spoken(&mut get).await, [0, 1, 2]);
    let cursor = get.cursor();
    let gateway = gateway.restarted();
    let session = session.at(gateway.addr);
    assert_eq!(
        spoken(&mut session.listen().await).await,
        [0; 0],
        "they belong to the stream that took them"
    );
    let (stream, _) = cursor.split_once('-').unwrap();
    let mut resumed = session.resume(&format!("{stream}-0")).await;
    assert_eq!(
        spoken(&mut resumed).await,
        [0, 1, 2],
        "and a resume of that brings them again"
    );
}

/// The numbers among the messages that come until it is silent for a while.
async fn spoken(stream: &mut Reply) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(SECOND, stream.next()).await {
        numbers.extend(message["params"]["data"].as_u64());
    }
    numbers
}

#[tokio::test]
async fn rst_01_a_session_survives_a_polite_restart() {
    let mut gateway = durable().start();
    let session = gateway.client().open(LATEST).await;
    session.pid().await;
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(gateway.ended_within(5 * SECOND).unwrap().code(), Some(0));
    let next = gateway.again();
    session.at(next.addr).pid().await;
}
