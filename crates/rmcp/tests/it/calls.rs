//! What a call says, answers and hears, on every revision.

use crate::stage::Script;
use crate::support::{ALL, Caller, SESSIONS, serve, text};
use rethread_testkit::client::MODERN;
use serde_json::json;
use std::sync::Arc;

/// PRG-01, LOG-01: what a call says travels on its own stream, before its answer.
#[tokio::test]
async fn log_01_prg_01_messages_of_a_call_travel_on_its_stream() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
        let caller = Caller::new(&endpoint.client, version).await;
        let messages = caller
            .tool(1, "work", json!({ "tag": "a" }))
            .await
            .events()
            .rest()
            .await;
        let methods: Vec<_> = messages
            .iter()
            .map(|m| m.data["method"].as_str().unwrap_or("answer"))
            .collect();
        let (log, progress) = ("notifications/message", "notifications/progress");
        assert_eq!(
            methods,
            [log, progress, log, progress, log, progress, log, "answer"],
            "{version}"
        );
        assert_eq!(messages[0].data["params"]["data"], json!({ "tag": "a", "step": 1 }));
        assert_eq!(
            messages[1].data["params"],
            json!({ "progressToken": "t1", "progress": 1, "total": 3 })
        );
        assert_eq!(text(&messages[7].data), "a");
    }
}

#[tokio::test]
async fn a_plain_call_is_answered_with_json_on_every_revision() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
        let caller = Caller::new(&endpoint.client, version).await;
        let reply = caller.tool(7, "echo", json!({ "text": "hi" })).await;
        assert!(!reply.is_stream(), "{version}");
        let answer = reply.json().await;
        assert_eq!((&answer["id"], text(&answer)), (&json!(7), "hi"), "{version}");
        let typed = answer["result"].get("resultType").is_some();
        assert_eq!(typed, version == MODERN, "resultType belongs to 2026-07-28 only");
        let seen = caller.tool(8, "version", json!({})).await.answer().await;
        assert_eq!(text(&seen), version, "the handler sees the true revision");
    }
}

#[allow(unused)]
fn later() {
    let _ = SESSIONS;
}
