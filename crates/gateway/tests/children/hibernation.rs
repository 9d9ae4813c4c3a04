//! GW-20 to GW-22: children that nobody needs are stopped, and their sessions go on.

use crate::client::{LATEST, Session, tool_result};
use crate::gateway::{Gateway, gateway_with, wait_until};
use http::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than `child_idle` of these tests, and the checks of the pool.
const AFTER_IDLE: Duration = Duration::from_millis(1500);
/// Leaves a busy machine the time between the opening of a session and its need.
const LONG_IDLE: &str = "--child-idle 1500ms";
/// Longer than [`LONG_IDLE`], and the checks of the pool.
const AFTER_LONG_IDLE: Duration = Duration::from_secs(4);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// A gateway whose children are stopped after 300 ms, without the child of its probe.
async fn started(behavior: &str) -> Gateway {
    started_with(behavior, "--child-idle 300ms").await
}

async fn started_with(behavior: &str, option: &str) -> Gateway {
    let gateway = gateway_with(behavior).option(option).record_messages().start();
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    gateway
}

/// The messages that the child with this pid has received.
fn received_by(gateway: &Gateway, pid: u64) -> Vec<(String, Value)> {
    let messages = gateway.recorded_messages().into_iter();
    let own = messages.filter(|message| message["pid"].as_u64() == Some(pid));
    own.map(|message| {
        (
            message["method"].as_str().unwrap().to_owned(),
            message["params"].clone(),
        )
    })
    .collect()
}

#[tokio::test]
async fn gw_20_idle_child_is_stopped_and_session_continues() {
    let gateway = started("legacy").await;
    let session = gateway.client().open_session(LATEST).await;
    session
        .call(1, "logging/setLevel", json!({ "level": "warning" }))
        .await
        .response()
        .await;
    let first = session.child_pid().await;
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    gateway.wait_for_log("child hibernated").await;
    assert!(!gateway.log().contains("cause=\"max_children\""), "{}", gateway.log());
    // A notification starts no child.
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    assert_eq!(session.post(&note).await.status, StatusCode::ACCEPTED);
    tokio::time::sleep(SECOND / 5).await;
    assert_eq!(gateway.children(), []);
    let second = session.child_pid().await;
    assert_ne!(first, second);
    let received = received_by(&gateway, second);
    let methods: Vec<_> = received.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(
        methods,
        [
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
            "tools/call"
        ]
    );
    assert_eq!(received[0].1["clientInfo"]["own"], "words");
    assert_eq!(received[2].1["level"], "warning");
    assert!(!gateway.log().contains("crashed"), "{}", gateway.log());
    assert_eq!(session.delete().await.as_u16(), 204);
}

/// GW-20: a crash loop is counted, hibernations are not.
#[tokio::test]
async fn gw_20_hibernations_are_not_crashes() {
    let gateway = started("legacy").await;
    let session = gateway.client().open_session(LATEST).await;
    for _ in 0..4 {
        session.child_pid().await;
        gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    }
    let asked = Instant::now();
    session.child_pid().await;
    assert!(asked.elapsed() < 2 * SECOND, "no backoff: {:?}", asked.elapsed());
}

/// Asserts that the child is not stopped while `need` lives, and is afterwards.
async fn assert_keeps_child<T>(gateway: &Gateway, need: T) {
    tokio::time::sleep(AFTER_LONG_IDLE).await;
    assert_eq!(gateway.children().len(), 1, "{}", gateway.log());
    drop(need);
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
}

#[tokio::test]
async fn gw_20_each_need_alone_keeps_the_child() {
    let gateway = started_with("legacy", LONG_IDLE).await;
    // A call.
    let session = gateway.client().open_session(LATEST).await;
    let answer = session.call_tool(1, "slow", json!({ "ms": 4000 })).await;
    assert_eq!(tool_result(&answer)["pid"], session.first_pid(), "{answer}");
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    // A GET stream.
    let session = gateway.client().open_session(LATEST).await;
    assert_keeps_child(&gateway, session.listen().await).await;
    // A subscribed URI.
    let session = gateway.client().open_session(LATEST).await;
    let uri = json!({ "uri": "file:///a" });
    session
        .call(1, "resources/subscribe", uri.clone())
        .await
        .response()
        .await;
    tokio::time::sleep(AFTER_LONG_IDLE).await;
    assert_eq!(gateway.children().len(), 1, "{}", gateway.log());
    session.call(2, "resources/unsubscribe", uri).await.response().await;
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    // A question that outlives its call.
    let session = gateway.client().open_session(LATEST).await;
    let answer = session.call_tool(1, "ask-without-waiting", json!({})).await;
    assert_eq!(tool_result(&answer), "asked");
    tokio::time::sleep(AFTER_LONG_IDLE).await;
    assert_eq!(gateway.children().len(), 1, "{}", gateway.log());
    session.delete().await;
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    // An `/sse` connection.
    let mut sse = gateway.client().get("/sse").await;
    let endpoint = sse.next().await.unwrap().as_str().unwrap().to_owned();
    let params =
        json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let headers = [("content-type", "application/json")];
    let body = request.to_string();
    gateway
        .client()
        .send("POST", &endpoint, &headers, body.as_bytes())
        .await;
    sse.next().await.expect("the answer");
    assert_keeps_child(&gateway, sse).await;
}

#[tokio::test]
async fn gw_20_get_starts_the_child_again_in_the_background() {
    let gateway = started("legacy").await;
    let session = gateway.client().open_session(LATEST).await;
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    let stream = session.listen().await;
    assert_eq!(stream.status, StatusCode::OK);
    gateway.wait_for_children(1, RESPONSE_TIMEOUT).await;
    drop(stream);
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
}

#[tokio::test]
async fn gw_20_never_keeps_the_child() {
    for option in ["--child-idle never", "--restore expire"] {
        let gateway = gateway_with("legacy").option(option).option("--max-children 1").start();
        gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
        let session = gateway.client().open_session(LATEST).await;
        tokio::time::sleep(AFTER_IDLE).await;
        assert_eq!(
            gateway.client().initialize(LATEST).await.status,
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(session.child_pid().await, u64::from(session.first_pid()));
    }
}

#[tokio::test]
async fn gw_20_explicit_time_ends_an_expiring_session_with_its_child() {
    let gateway = gateway_with("legacy")
        .option("--restore expire --child-idle 300ms")
        .start();
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    let session = gateway.client().open_session(LATEST).await;
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    let ended = async {
        while session.call(1, "tools/list", json!({})).await.status != StatusCode::NOT_FOUND {
            tokio::time::sleep(SECOND / 10).await;
        }
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, ended)
        .await
        .expect("the session ends");
}

/// GW-20: the session ends if its next child speaks another version.
#[tokio::test]
async fn gw_20_other_version_of_the_next_child_ends_the_session() {
    let gateway = started("legacy,older-each-time").await;
    let session = gateway.client().open_session(LATEST).await;
    assert_eq!(session.version(), "2025-11-25");
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    let answer = session.call_tool(1, "echo", json!({})).await;
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("ended"),
        "{answer}"
    );
    let ended = async {
        while session.call(2, "ping", json!({})).await.status != StatusCode::NOT_FOUND {
            tokio::time::sleep(SECOND / 10).await;
        }
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, ended)
        .await
        .expect("the session ends");
    gateway.client().open_session(LATEST).await;
}

/// GW-20: 1,000 calls that arrive about when the child is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn gw_20_call_that_arrives_during_the_stop_succeeds() {
    const SESSIONS: u64 = 20;
    const CALLS: u64 = 50;
    let gateway = gateway_with("legacy")
        .option("--child-idle 30ms")
        .test_timeout(Duration::from_secs(400))
        .start();
    let mut clients = JoinSet::new();
    for n in 0..SESSIONS {
        let session = gateway.client().open_session(LATEST).await;
        clients.spawn(async move {
            for call in 0..CALLS {
                // From well before to well after the idle limit.
                tokio::time::sleep(Duration::from_millis(20 + (call * 7 + n * 3) % 40)).await;
                let answer = session.call_tool(call, "echo", json!({ "text": call })).await;
                assert_eq!(tool_result(&answer)["text"], call, "{answer}");
            }
        });
    }
    while let Some(finished) = clients.join_next().await {
        finished.unwrap();
    }
    let stops = gateway.log().matches("child hibernated").count();
    assert!(stops > 100, "only {stops} stops");
}

#[tokio::test]
async fn gw_21_two_sessions_take_turns_with_one_child() {
    let gateway = gateway_with("legacy").option("--max-children 1").start();
    let one = gateway.client().open_session(LATEST).await;
    let other = gateway.client().open_session(LATEST).await;
    for _ in 0..2 {
        for session in [&one, &other] {
            session.child_pid().await;
            assert!(gateway.children().len() <= 1, "{:?}", gateway.children());
        }
    }
    assert!(gateway.log().contains("cause=\"max_children\""), "{}", gateway.log());
}

#[tokio::test]
async fn gw_21_start_is_refused_only_while_every_child_is_needed() {
    let gateway = gateway_with("legacy").option("--max-children 1").start();
    let idle = gateway.client().open_session(LATEST).await;
    let busy = gateway.client().open_session(LATEST).await;
    let mut call = busy.start_tool(1, "slow", json!({ "ms": 4000, "steps": 20 })).await;
    call.next().await.expect("it runs");
    let refused = gateway.client().initialize(LATEST).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers.contains_key("retry-after"));
    let answer = idle.call_tool(2, "echo", json!({})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "busy", "{answer}");
    call.messages().await.pop().expect("the call ends");
    idle.child_pid().await; // served again
    gateway.client().open_session(LATEST).await;
}

#[tokio::test]
async fn gw_22_spare_is_claimed_and_sees_the_client() {
    let gateway = gateway_with("legacy,start-delay=2")
        .option("--spare 1")
        .record_messages()
        .start();
    // The process waits 2 s before it reads: a claim of one that has waited already is quick.
    gateway.wait_for_log("Ctrl-C stops it").await;
    gateway.wait_for_children(1, RESPONSE_TIMEOUT).await;
    tokio::time::sleep(3 * SECOND).await;
    let asked = Instant::now();
    let session = gateway.client().open_session(LATEST).await;
    let took = asked.elapsed();
    assert!(took < SECOND * 3 / 2, "{took:?}");
    let received = received_by(&gateway, session.child_pid().await);
    assert_eq!(received[0].0, "initialize", "a spare has received no message");
    assert_eq!(received[0].1["clientInfo"]["own"], "words");
    gateway.wait_for_children(2, RESPONSE_TIMEOUT).await; // the next spare
}

#[tokio::test]
async fn gw_22_spare_that_exits_is_replaced() {
    let gateway = gateway_with("legacy").option("--spare 1").start();
    gateway.wait_for_log("child exited").await; // the process of the probe
    gateway.wait_for_children(1, RESPONSE_TIMEOUT).await;
    let first = gateway.children()[0].pid;
    crate::gateway::kill(first, rustix::process::Signal::KILL);
    let replaced = wait_until(
        RESPONSE_TIMEOUT,
        || matches!(&gateway.children()[..], [one] if one.pid != first),
    );
    assert!(replaced.await, "{:?}\n{}", gateway.children(), gateway.log());
    gateway.wait_for_log("spare process exited").await;
    gateway.client().open_session(LATEST).await.child_pid().await;
}

#[test]
fn gw_22_settings_without_room_are_refused() {
    let refused = |options: &[&str], words: &str| {
        let builder = options
            .iter()
            .fold(gateway_with("legacy"), |builder, option| builder.option(option));
        let (code, stderr) = builder.run_to_exit();
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    };
    refused(&["--spare 2", "--max-children 2"], "leave no room");
    refused(&["--spare many"], "not an integer");
    refused(&["--child-idle soon"], "not a duration");
    refused(&["--child-idle 0s"], "cannot be zero");
}

/// GW-24: stdin is closed first, and the output is read to its end, in each stop.
#[tokio::test]
async fn gw_24_hibernated_child_meets_no_broken_pipe() {
    let gateway = gateway_with("legacy,writes-at-exit")
        .option("--child-idle 300ms")
        .start();
    let session: Session = gateway.client().open_session(LATEST).await;
    session.child_pid().await;
    let complete = || gateway.log().matches("exit output was read to its end").count();
    assert!(
        wait_until(RESPONSE_TIMEOUT, || complete() >= 2).await,
        "{}",
        gateway.log()
    );
    assert!(!gateway.log().contains("broken pipe"), "{}", gateway.log());
    // Its last notifications reach the session, which lives on.
    let mut stream = session.listen().await;
    let message = stream.next().await.expect("a notification");
    assert_eq!(message["method"], "notifications/message", "{message}");
}

/// GW-26: each line has its fields, and no line has a session id.
#[tokio::test]
async fn gw_26_lines_of_children_have_their_fields() {
    let gateway = gateway_with("legacy,noisy-stdout")
        .option("--child-idle 300ms --log-format json")
        .start();
    let session = gateway.client().open_session(LATEST).await;
    session.child_pid().await;
    gateway.wait_for_log("child hibernated").await;
    session.child_pid().await;
    session.delete().await;
    gateway.wait_for_children(0, RESPONSE_TIMEOUT).await;
    let log = gateway.log();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let fields_of = |phrase: &str| {
        let found = lines.iter().filter(|fields| fields["message"] == phrase);
        let found: Vec<_> = found.filter(|fields| fields["session"].is_string()).cloned().collect();
        assert!(!found.is_empty(), "no line `{phrase}` in\n{log}");
        found
    };
    let has = |fields: &Value, names: &[&str]| {
        for name in names {
            assert!(!fields[name].is_null(), "`{name}` is missing in {fields}");
        }
    };
    let started = fields_of("child started");
    let names = [
        "server",
        "session",
        "pid",
        "kind",
        "replayed",
        "duration",
        "children_running",
    ];
    started.iter().for_each(|fields| has(fields, &names));
    assert_eq!(
        (&started[0]["replayed"], &started[1]["replayed"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        (&started[0]["kind"], &started[0]["pid"]),
        (&json!("session"), &json!(session.first_pid()))
    );
    let hibernated = fields_of("child hibernated");
    has(
        &hibernated[0],
        &["server", "session", "pid", "cause", "age", "children_running"],
    );
    assert_eq!(hibernated[0]["cause"], "idle");
    has(&fields_of("child exited")[0], &["server", "session", "pid", "status"]);
    has(&fields_of("child stderr")[0], &["server", "session", "pid", "text"]);
    assert_eq!(started[0]["session"], hibernated[0]["session"]);
    assert!(!log.contains(session.id()), "a session id is in the log");
}
