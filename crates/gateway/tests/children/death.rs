//! GW-09: children that die.

use crate::client::{LATEST, said};
use crate::gateway::{kill, plan};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn gw_09_a_caller_learns_that_its_child_died_and_the_session_goes_on() {
    let gateway = plan("legacy").recording().start();
    let (one, other) = (gateway.client().open(LATEST).await, gateway.client().open(LATEST).await);
    one.call("level", "logging/setLevel", json!({ "level": "warning" }))
        .await
        .answer()
        .await;
    one.call("sub", "resources/subscribe", json!({ "uri": "test://a" }))
        .await
        .answer()
        .await;
    one.tool("c", "counter", json!({})).await;
    let mut neighbour = other.begin(1, "slow", json!({ "ms": 1500, "steps": 5 })).await;
    let mut call = one.begin(7, "slow", json!({ "ms": 60_000, "steps": 600 })).await;
    call.next().await.expect("it has begun");
    kill(one.first_pid(), Signal::KILL);
    let killed = Instant::now();
    let answer = call.answer().await;
    assert!(killed.elapsed() < SECOND, "{:?}", killed.elapsed());
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32603)),
        "{answer}"
    );
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("signal: 9"),
        "{answer}"
    );

    assert_eq!(neighbour.next().await.unwrap()["method"], "notifications/progress");
    assert_eq!(said(&neighbour.answer().await)["pid"], other.first_pid());

    let again = one.tool(8, "counter", json!({})).await;
    assert_eq!(said(&again), 1, "a new child counts anew");
    let pid = one.pid().await;
    assert_ne!(pid, u64::from(one.first_pid()));
    let expected = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
        "tools/call",
    ];
    assert_eq!(gateway.told(pid), expected);
    let hello = |pid: u64| {
        let told = gateway.record().into_iter().find(|told| told["pid"] == pid).unwrap();
        told["params"].clone()
    };
    assert_eq!(hello(pid), hello(one.first_pid().into()), "it is told the same");
    let slow = |told: &&serde_json::Value| told["params"]["name"] == "slow";
    assert_eq!(gateway.record().iter().filter(slow).count(), 2, "nothing is run again");
}

#[tokio::test]
async fn gw_09_a_dead_child_is_noticed_though_its_own_child_holds_its_stdout() {
    let gateway = plan("legacy,spawner").start();
    gateway.has_children(0, 3 * SECOND).await;
    let session = gateway.client().open(LATEST).await;
    let mut call = session.begin(1, "slow", json!({ "ms": 60_000, "steps": 600 })).await;
    call.next().await.expect("it has begun");
    kill(session.first_pid(), Signal::KILL);
    let killed = Instant::now();
    let answer = call.answer().await;
    assert!(killed.elapsed() < 3 * SECOND, "{:?}", killed.elapsed());
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    session.pid().await;
    gateway.has_children(2, 3 * SECOND).await;
    gateway.has_no_zombies().await;
}

#[tokio::test]
async fn gw_09_a_child_that_does_not_listen_any_more_is_as_good_as_dead() {
    let gateway = plan("legacy").start();
    let session = gateway.client().open(LATEST).await;
    session.tool(1, "deaf", json!({})).await;
    let answer = session.tool(2, "echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("stdin"),
        "{answer}"
    );
    assert_ne!(session.pid().await, u64::from(session.first_pid()));
    gateway.has_children(1, 6 * SECOND).await;
}

#[tokio::test]
async fn gw_09_a_session_may_end_with_its_child() {
    let gateway = plan("legacy").option("--restore expire").start();
    let (one, other) = (gateway.client().open(LATEST).await, gateway.client().open(LATEST).await);
    let mut call = one.begin(7, "slow", json!({ "ms": 60_000, "steps": 600 })).await;
    call.next().await.expect("it has begun");
    kill(one.first_pid(), Signal::KILL);
    let killed = Instant::now();
    let answer = call.messages().await.pop();
    let reason = answer.as_ref().map(|answer| &answer["error"]["data"]["reason"]);
    assert_eq!(reason, Some(&json!("server_exited")), "{answer:?}");
    let mut next = one.call(8, "tools/list", json!({})).await;
    while next.status.as_u16() != 404 {
        let answer = next.answer().await;
        assert_eq!(answer["error"]["data"]["reason"], "server_unavailable", "{answer}");
        tokio::time::sleep(SECOND / 10).await;
        assert!(killed.elapsed() < 2 * SECOND, "the session ends");
        next = one.call(8, "tools/list", json!({})).await;
    }
    other.pid().await;
    gateway.has_children(1, SECOND).await;
}

#[tokio::test]
async fn gw_09_crashes_in_a_row_lead_to_pauses_and_then_to_a_clear_error() {
    let gateway = plan("legacy").recording().start();
    let session = gateway.client().open(LATEST).await;
    let (mut pauses, mut last) = (Vec::new(), json!(null));
    for n in 0..8 {
        let began = Instant::now();
        last = session.tool(n, "crash", json!({ "code": 3 })).await;
        if last["error"]["data"]["reason"] != "server_exited" {
            break;
        }
        assert!(
            last["error"]["message"].as_str().unwrap().contains("exit status: 3"),
            "{last}"
        );
        pauses.push(began.elapsed());
    }
    assert_eq!(last["error"]["code"], -32603, "{last}");
    assert_eq!(last["error"]["data"]["reason"], "server_unavailable", "{last}");
    assert!(last["error"]["message"].as_str().unwrap().contains("crashed"), "{last}");
    assert!((3..=6).contains(&pauses.len()), "{pauses:?}");
    assert!(pauses.last().unwrap() > &SECOND, "{pauses:?}");
    let began = Instant::now();
    for n in 0..50 {
        session.tool(n, "crash", json!({})).await;
    }
    assert!(began.elapsed() < SECOND, "an error comes at once");
    let starts = gateway
        .record()
        .iter()
        .filter(|told| told["method"] == "initialize")
        .count();
    assert!(starts <= 8, "{starts} starts are a storm");
    gateway.client().open(LATEST).await.pid().await;
}
