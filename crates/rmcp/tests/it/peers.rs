//! The destination of a peer's messages, and the lifetime of a peer.

use crate::fixture::{ServerControl, log};
use crate::support::{Caller, LEGACY_REVISIONS, V2025_11_25, eventually, serve, text};
use rethread_testkit::client::{Events, Session};
use rmcp::model::{CustomRequest, LoggingLevel, ProgressNotificationParam, ProgressToken, ServerRequest};
use serde_json::{Value, json};
use std::sync::Arc;

fn tags(messages: &[rethread_testkit::client::ReceivedMessage]) -> Vec<Value> {
    let logs = messages.iter().filter(|m| m.data["method"] == "notifications/message");
    logs.map(|m| m.data["params"]["data"].clone()).collect()
}

/// LOG-01: the messages of concurrent calls in one session stay separate.
#[tokio::test]
async fn log_01_concurrent_calls_do_not_mix() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in LEGACY_REVISIONS {
        let session = endpoint.client.open(version).await;
        for round in 0..3 {
            // Both calls run at once and log in turns.
            let call = |tag: &'static str, id: i64| {
                let session = session.clone();
                let arguments = json!({ "tag": tag, "times": 5 });
                tokio::spawn(async move { session.tool(id, "log_at_gate", arguments).await.events().rest().await })
            };
            let (a, b) = (call("a", 1), call("b", 2));
            for _ in 0..5 {
                control.open_gate("b");
                control.open_gate("a");
            }
            for (tag, messages) in [("a", a.await.unwrap()), ("b", b.await.unwrap())] {
                let expected: Vec<_> = (0..5).map(|n| json!({ "tag": tag, "n": n })).collect();
                assert_eq!(tags(&messages), expected, "{version}, round {round}");
                assert_eq!(text(&messages.last().unwrap().data), tag);
            }
        }
    }
}

async fn retain_peer(session: &Session, tag: &str) {
    session
        .tool(1, "retain_peer", json!({ "tag": tag }))
        .await
        .answer()
        .await;
}

/// After its call a peer sends to the session's GET stream, never to another call's stream.
#[tokio::test]
async fn retained_peer_sends_to_the_session() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in LEGACY_REVISIONS {
        control.retained_peers.lock().unwrap().clear();
        let session = endpoint.client.open(version).await;
        let mut push = session.get(None).await.events();
        retain_peer(&session, "first").await;
        let peer = control.retained_peer(0);
        let gated = tokio::spawn({
            let session = session.clone();
            async move {
                session
                    .tool(7, "log_at_gate", json!({ "tag": "c", "times": 2 }))
                    .await
                    .events()
                    .rest()
                    .await
            }
        });
        control.open_gate("c");
        for n in 0..3 {
            let message = log(LoggingLevel::Info, json!({ "retained": n }));
            peer.notify_logging_message(message).await.unwrap();
            let received = push.next().await.data;
            assert_eq!(received["params"]["data"], json!({ "retained": n }), "{version}");
            let other = session
                .tool(100 + n, "work", json!({ "tag": "w" }))
                .await
                .events()
                .rest()
                .await;
            assert!(
                tags(&other).iter().all(|data| data["tag"] == "w"),
                "{version}: {other:?}"
            );
        }
        control.open_gate("c");
        let gated = gated.await.unwrap();
        assert_eq!(
            tags(&gated),
            [json!({ "tag": "c", "n": 0 }), json!({ "tag": "c", "n": 1 })],
            "{version}"
        );
        let pong = tokio::spawn(async move {
            let request = ServerRequest::CustomRequest(CustomRequest::new("fixture/ask", None));
            peer.send_request(request).await
        });
        let question = push.next().await.data;
        assert_eq!(question["method"], "fixture/ask", "{version}: a retained peer may ask");
        session.answer(&question["id"], json!({ "ok": true })).await;
        assert!(pong.await.unwrap().is_ok());
    }
}

/// PRG-01: any peer of the session may report it.
#[tokio::test]
async fn prg_01_progress_goes_to_the_call_with_its_token() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    let session = endpoint.client.open(V2025_11_25).await;
    retain_peer(&session, "first").await;
    let peer = control.retained_peer(0);
    let report = async |token: Value, progress: f64| {
        let token: ProgressToken = serde_json::from_value(token).unwrap();
        peer.notify_progress(ProgressNotificationParam::new(token, progress))
            .await
            .unwrap();
    };
    let waiting = tokio::spawn({
        let session = session.clone();
        async move {
            session
                .tool(9, "wait", json!({ "tag": "p" }))
                .await
                .events()
                .rest()
                .await
        }
    });
    control.wait_for("waiting p").await;
    report(json!(9), 1.0).await;
    report(json!(9), 1.0).await; // dropped: values must rise
    report(json!("9"), 2.0).await; // dropped: no call has this token
    report(json!(9), 3.0).await;
    control.open_gate("p");
    let messages = waiting.await.unwrap();
    let progress: Vec<_> = messages
        .iter()
        .filter_map(|m| m.data["params"]["progress"].as_i64())
        .collect();
    assert_eq!(progress, [1, 3]);
    report(json!(9), 4.0).await; // dropped: the call has ended
    let mut push = session.get(None).await.events();
    peer.notify_logging_message(log(LoggingLevel::Info, json!("next")))
        .await
        .unwrap();
    assert_eq!(
        push.next().await.data["params"]["data"],
        "next",
        "no progress before it"
    );
}

/// Dropped peers do not count.
#[tokio::test]
async fn retained_peers_are_bounded() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    let session = endpoint.client.open(V2025_11_25).await;
    for _ in 0..100 {
        retain_peer(&session, "dropped").await;
        control.retained_peers.lock().unwrap().clear();
    }
    for _ in 0..33 {
        retain_peer(&session, "retained").await;
    }
    eventually(|| control.retained_peer(0).is_transport_closed()).await;
    let closed: Vec<_> = (0..33)
        .filter(|n| control.retained_peer(*n).is_transport_closed())
        .collect();
    assert_eq!(closed, [0], "the limit is 32, and the oldest is closed");
    let mut push = session.get(None).await.events();
    for n in [1, 32] {
        let message = log(LoggingLevel::Info, json!(n));
        control.retained_peer(n).notify_logging_message(message).await.unwrap();
        assert_eq!(push.next().await.data["params"]["data"], n);
    }
    assert_eq!(
        text(&session.tool(2, "echo", json!({ "text": "on" })).await.answer().await),
        "on"
    );
}

#[tokio::test]
async fn session_end_closes_its_peers() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    let session = endpoint.client.open(V2025_11_25).await;
    retain_peer(&session, "retained").await;
    let peer = control.retained_peer(0);
    assert!(!peer.is_transport_closed());
    assert_eq!(session.delete().await.status, 204);
    let sent = peer
        .notify_logging_message(log(LoggingLevel::Info, json!("late")))
        .await;
    assert!(sent.is_err());
}

/// Other messages fail and reach no stream.
#[tokio::test]
async fn retained_stateless_peer_sends_only_changes() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    let filter = json!({ "toolsListChanged": true });
    let params = json!({ "notifications": filter });
    let mut subscription: Events = endpoint
        .client
        .stateless(1, "subscriptions/listen", params, json!({}))
        .await
        .events();
    subscription.next().await; // the acknowledgement
    let caller = Caller::new(&endpoint.client, "2026-07-28").await;
    caller.tool(2, "retain_peer", json!({})).await.answer().await;
    let peer = control.retained_peer(0);
    let others = caller.tool(3, "work", json!({ "tag": "w" })).await.events();
    assert!(
        peer.notify_logging_message(log(LoggingLevel::Info, json!("late")))
            .await
            .is_err()
    );
    assert!(peer.list_roots().await.is_err());
    peer.notify_tool_list_changed().await.unwrap();
    assert_eq!(
        subscription.next().await.data["method"],
        "notifications/tools/list_changed"
    );
    let mut others = others;
    let others = others.rest().await;
    assert!(tags(&others).iter().all(|data| data["tag"] == "w"), "{others:?}");
}
