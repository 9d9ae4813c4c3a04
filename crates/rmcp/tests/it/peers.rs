//! Peers: whose words they carry, and for how long.

use crate::stage::{Script, log};
use crate::support::{Caller, D, SESSIONS, eventually, serve, text};
use rethread_testkit::client::{Events, Session};
use rmcp::model::{CustomRequest, LoggingLevel, ProgressNotificationParam, ProgressToken, ServerRequest};
use serde_json::{Value, json};
use std::sync::Arc;

fn tags(messages: &[rethread_testkit::client::Received]) -> Vec<Value> {
    let logs = messages.iter().filter(|m| m.data["method"] == "notifications/message");
    logs.map(|m| m.data["params"]["data"].clone()).collect()
}

/// LOG-01: calls that run side by side in one session never say each other's words.
#[tokio::test]
async fn log_01_two_calls_in_one_session_never_mix() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in SESSIONS {
        let session = endpoint.client.open(version).await;
        for round in 0..3 {
            // Both run at once, and speak in turns; what they said is complete, in order, and theirs alone.
            let call = |tag: &'static str, id: i64| {
                let session = session.clone();
                let arguments = json!({ "tag": tag, "times": 5 });
                tokio::spawn(async move { session.tool(id, "chat", arguments).await.events().rest().await })
            };
            let (a, b) = (call("a", 1), call("b", 2));
            for _ in 0..5 {
                script.open("b");
                script.open("a");
            }
            for (tag, messages) in [("a", a.await.unwrap()), ("b", b.await.unwrap())] {
                let expected: Vec<_> = (0..5).map(|n| json!({ "tag": tag, "n": n })).collect();
                assert_eq!(tags(&messages), expected, "{version}, round {round}");
                assert_eq!(text(&messages.last().unwrap().data), tag);
            }
        }
    }
}

async fn keep(session: &Session, tag: &str) {
    session.tool(1, "keep", json!({ "tag": tag })).await.answer().await;
}

/// A peer that is kept beyond its call speaks to the session's GET stream, and never on another call's stream.
#[tokio::test]
async fn a_kept_peer_speaks_to_the_session_while_other_calls_run() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in SESSIONS {
        script.kept.lock().unwrap().clear();
        let session = endpoint.client.open(version).await;
        let mut push = session.get(None).await.events();
        keep(&session, "first").await;
        let peer = script.kept(0);
        let chat = tokio::spawn({
            let session = session.clone();
            async move {
                session
                    .tool(7, "chat", json!({ "tag": "c", "times": 2 }))
                    .await
                    .events()
                    .rest()
                    .await
            }
        });
        script.open("c");
        for n in 0..3 {
            let said = log(LoggingLevel::Info, json!({ "kept": n }));
            peer.notify_logging_message(said).await.unwrap();
            let heard = push.next().await.data;
            assert_eq!(heard["params"]["data"], json!({ "kept": n }), "{version}");
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
        script.open("c");
        let chat = chat.await.unwrap();
        assert_eq!(
            tags(&chat),
            [json!({ "tag": "c", "n": 0 }), json!({ "tag": "c", "n": 1 })],
            "{version}"
        );
        let pong = tokio::spawn(async move {
            let request = ServerRequest::CustomRequest(CustomRequest::new("stage/ask", None));
            peer.send_request(request).await
        });
        let question = push.next().await.data;
        assert_eq!(question["method"], "stage/ask", "{version}: it may ask, too");
        session.answer(&question["id"], json!({ "ok": true })).await;
        assert!(pong.await.unwrap().is_ok());
    }
}

/// Progress goes to the call that its token names, through whichever peer of the session it is reported (PRG-01).
#[tokio::test]
async fn prg_01_progress_goes_to_the_call_of_its_token() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    let session = endpoint.client.open(D).await;
    keep(&session, "first").await;
    let peer = script.kept(0);
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
    script.until("waiting p").await;
    report(json!(9), 1.0).await;
    report(json!(9), 1.0).await; // values must rise
    report(json!("9"), 2.0).await; // not the token of any call
    report(json!(9), 3.0).await;
    script.open("p");
    let messages = waiting.await.unwrap();
    let progress: Vec<_> = messages
        .iter()
        .filter_map(|m| m.data["params"]["progress"].as_i64())
        .collect();
    assert_eq!(progress, [1, 3]);
    report(json!(9), 4.0).await; // the call has ended: to nobody
    let mut push = session.get(None).await.events();
    peer.notify_logging_message(log(LoggingLevel::Info, json!("next")))
        .await
        .unwrap();
    assert_eq!(
        push.next().await.data["params"]["data"],
        "next",
        "no progress came before it"
    );
}

/// Handlers may keep a bounded number of peers; those that are dropped do not count.
#[tokio::test]
async fn kept_peers_are_bounded_and_dropped_ones_are_forgotten() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    let session = endpoint.client.open(D).await;
    for _ in 0..100 {
        keep(&session, "dropped").await;
        script.kept.lock().unwrap().clear();
    }
    for _ in 0..33 {
        keep(&session, "kept").await;
    }
    eventually(|| script.kept(0).is_transport_closed()).await;
    let closed: Vec<_> = (0..33).filter(|n| script.kept(*n).is_transport_closed()).collect();
    assert_eq!(closed, [0], "32 peers of a session are kept, and the oldest made room");
    let mut push = session.get(None).await.events();
    for n in [1, 32] {
        let said = log(LoggingLevel::Info, json!(n));
        script.kept(n).notify_logging_message(said).await.unwrap();
        assert_eq!(push.next().await.data["params"]["data"], n);
    }
    assert_eq!(
        text(&session.tool(2, "echo", json!({ "text": "on" })).await.answer().await),
        "on"
    );
}

/// When a session ends, its peers say so.
#[tokio::test]
async fn a_session_that_ended_has_no_peers() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    let session = endpoint.client.open(D).await;
    keep(&session, "kept").await;
    let peer = script.kept(0);
    assert!(!peer.is_transport_closed());
    assert_eq!(session.delete().await.status, 204);
    let said = peer
        .notify_logging_message(log(LoggingLevel::Info, json!("late")))
        .await;
    assert!(said.is_err());
}

/// Without a session a peer that is kept can still tell of changes; the rest fails, and reaches nobody.
#[tokio::test]
async fn a_kept_peer_without_a_session_can_only_tell_of_changes() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    let filter = json!({ "toolsListChanged": true });
    let params = json!({ "notifications": filter });
    let mut listening: Events = endpoint
        .client
        .stateless(1, "subscriptions/listen", params, json!({}))
        .await
        .events();
    listening.next().await; // acknowledged
    let caller = Caller::new(&endpoint.client, "2026-07-28").await;
    caller.tool(2, "keep", json!({})).await.answer().await;
    let peer = script.kept(0);
    let others = caller.tool(3, "work", json!({ "tag": "w" })).await.events();
    assert!(
        peer.notify_logging_message(log(LoggingLevel::Info, json!("late")))
            .await
            .is_err()
    );
    assert!(peer.list_roots().await.is_err());
    peer.notify_tool_list_changed().await.unwrap();
    assert_eq!(
        listening.next().await.data["method"],
        "notifications/tools/list_changed"
    );
    let mut others = others;
    let others = others.rest().await;
    assert!(tags(&others).iter().all(|data| data["tag"] == "w"), "{others:?}");
}
