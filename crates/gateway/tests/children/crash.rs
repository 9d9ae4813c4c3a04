//! GW-09: children that crash.

use crate::client::{LATEST, tool_result};
use crate::gateway::{gateway_with, kill};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn gw_09_call_of_a_killed_child_fails_and_the_session_continues() {
    let gateway = gateway_with("legacy").record_messages().start();
    let (one, other) = (
        gateway.client().open_session(LATEST).await,
        gateway.client().open_session(LATEST).await,
    );
    one.call("level", "logging/setLevel", json!({ "level": "warning" }))
        .await
        .response()
        .await;
    one.call("sub", "resources/subscribe", json!({ "uri": "test://a" }))
        .await
        .response()
        .await;
    one.call_tool("c", "counter", json!({})).await;
    let mut neighbour = other.start_tool(1, "slow", json!({ "ms": 1500, "steps": 5 })).await;
    let mut call = one.start_tool(7, "slow", json!({ "ms": 60_000, "steps": 600 })).await;
    call.next().await.expect("it has begun");
    kill(one.first_pid(), Signal::KILL);
    let killed = Instant::now();
    let answer = call.response().await;
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
    assert_eq!(tool_result(&neighbour.response().await)["pid"], other.first_pid());

    let again = one.call_tool(8, "counter", json!({})).await;
    assert_eq!(tool_result(&again), 1, "a new child counts from zero");
    let pid = one.child_pid().await;
    assert_ne!(pid, u64::from(one.first_pid()));
    let expected = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
        "tools/call",
    ];
    assert_eq!(gateway.methods_received(pid), expected);
    let initialize_params = |pid: u64| {
        let message = gateway
            .recorded_messages()
            .into_iter()
            .find(|message| message["pid"] == pid)
            .unwrap();
        message["params"].clone()
    };
    assert_eq!(
        initialize_params(pid),
        initialize_params(one.first_pid().into()),
        "it gets the same params"
    );
    let slow = |message: &&serde_json::Value| message["params"]["name"] == "slow";
    assert_eq!(
        gateway.recorded_messages().iter().filter(slow).count(),
        2,
        "no call runs again"
    );
}

#[tokio::test]
async fn gw_09_exit_is_detected_while_a_descendant_holds_stdout() {
    let gateway = gateway_with("legacy,spawns-descendant").start();
    gateway.wait_for_children(0, 3 * SECOND).await;
    let session = gateway.client().open_session(LATEST).await;
    let mut call = session
        .start_tool(1, "slow", json!({ "ms": 60_000, "steps": 600 }))
        .await;
    call.next().await.expect("it has begun");
    kill(session.first_pid(), Signal::KILL);
    let killed = Instant::now();
    let answer = call.response().await;
    assert!(killed.elapsed() < 3 * SECOND, "{:?}", killed.elapsed());
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    session.child_pid().await;
    gateway.wait_for_children(2, 3 * SECOND).await;
    gateway.wait_for_no_zombies().await;
}

#[tokio::test]
async fn gw_09_child_that_closes_stdin_is_restarted() {
    let gateway = gateway_with("legacy").start();
    let session = gateway.client().open_session(LATEST).await;
    session.call_tool(1, "close-stdin", json!({})).await;
    let answer = session.call_tool(2, "echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "server_exited", "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("stdin"),
        "{answer}"
    );
    assert_ne!(session.child_pid().await, u64::from(session.first_pid()));
    gateway.wait_for_children(1, 6 * SECOND).await;
}

#[tokio::test]
async fn gw_09_session_expires_with_its_child_on_request() {
    let gateway = gateway_with("legacy").option("--restore expire").start();
    let (one, other) = (
        gateway.client().open_session(LATEST).await,
        gateway.client().open_session(LATEST).await,
    );
    let mut call = one.start_tool(7, "slow", json!({ "ms": 60_000, "steps": 600 })).await;
    call.next().await.expect("it has begun");
    kill(one.first_pid(), Signal::KILL);
    let killed = Instant::now();
    let answer = call.messages().await.pop();
    let reason = answer.as_ref().map(|answer| &answer["error"]["data"]["reason"]);
    assert_eq!(reason, Some(&json!("server_exited")), "{answer:?}");
    let mut next = one.call(8, "tools/list", json!({})).await;
    while next.status.as_u16() != 404 {
        let answer = next.response().await;
        assert_eq!(answer["error"]["data"]["reason"], "server_unavailable", "{answer}");
        tokio::time::sleep(SECOND / 10).await;
        assert!(killed.elapsed() < 2 * SECOND, "the session ends");
        next = one.call(8, "tools/list", json!({})).await;
    }
    other.child_pid().await;
    gateway.wait_for_children(1, SECOND).await;
}

#[tokio::test]
async fn gw_09_repeated_crashes_cause_backoff_and_then_an_error() {
    let gateway = gateway_with("legacy").record_messages().start();
    let session = gateway.client().open_session(LATEST).await;
    let (mut pauses, mut last) = (Vec::new(), json!(null));
    for n in 0..8 {
        let began = Instant::now();
        last = session.call_tool(n, "crash", json!({ "code": 3 })).await;
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
        session.call_tool(n, "crash", json!({})).await;
    }
    assert!(began.elapsed() < SECOND, "the error comes without a delay");
    let starts = gateway
        .recorded_messages()
        .iter()
        .filter(|message| message["method"] == "initialize")
        .count();
    assert!(starts <= 8, "{starts} starts are too many");
    gateway.client().open_session(LATEST).await.child_pid().await;
}
