//! A call and its handler: ids in flight, messages on its stream, cancellation, errors, batches.

use crate::support::{
    LEGACY_REVISIONS, ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25, progress_values, result_text,
};
use rethread::{LogLevel, RpcError};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn d8_panicking_handler_returns_an_internal_error() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    // Before the first event: JSON.
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.panic());
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json().await["error"]["code"], -32603);
    // During a stream: the stream ends with the error.
    let script = handler.script("b");
    let (reply, ()) = tokio::join!(session.tool(2, "b", json!({})), script.progress(1));
    script.panic().await;
    let rest = reply.events().rest().await;
    assert_eq!(rest[1].data["error"]["code"], -32603);
    assert_eq!(rest[1].data["id"], 2);
    assert_eq!(service.stats().running_calls, 0);
    let reply = session.tool(3, "echo", json!({ "message": "alive" })).await;
    assert_eq!(result_text(&reply.json().await), "alive");
}

/// SES-10: the first call keeps its id and gets its answer.
#[tokio::test]
async fn ses_10_duplicate_id_does_not_affect_the_first_call() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(7, "a", json!({})), script.progress(1));
    let second = session.tool(7, "echo", json!({ "message": "no" })).await;
    assert_eq!(second.status, 200);
    assert_eq!(second.json().await["error"]["code"], -32600);
    let as_text = session.tool("7", "echo", json!({ "message": "another id" })).await;
    assert_eq!(result_text(&as_text.json().await), "another id", "7 is not \"7\"");
    script.finish("mine").await;
    let rest = reply.events().rest().await;
    assert_eq!(result_text(&rest[1].data), "mine");
    let again = session.tool(7, "echo", json!({ "message": "free again" })).await;
    assert_eq!(result_text(&again.json().await), "free again");
}

#[tokio::test]
async fn ses_10_equal_ids_in_many_sessions_do_not_collide() {
    let (_, client) = ScriptedHandler::new().serve();
    let calls = (0..100).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            let session = client.open(LEGACY_REVISIONS[n % 3]).await;
            let reply = session.tool(1, "echo", json!({ "message": n.to_string() })).await;
            assert_eq!(result_text(&reply.json().await), n.to_string());
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

/// GET-02, SSE-12, SSE-13: messages of a call go to its stream, all others to a GET stream.
#[tokio::test]
async fn sse_13_logs_and_progress_go_to_the_call_stream() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let mut get = session.get(None).await.events();
    let (one, two) = (handler.script("one"), handler.script("two"));
    let (first, second, ()) = tokio::join!(
        session.tool("t1", "one", json!({})),
        session.tool("t2", "two", json!({})),
        async {
            for n in 1..=5 {
                one.progress(n).await;
                two.progress(n).await;
                one.log(LogLevel::Info, "from one").await;
                two.log(LogLevel::Info, "from two").await;
            }
            service.notifier().list_changed(rethread::ListKind::Tools);
            one.finish("1").await;
            two.finish("2").await;
        }
    );
    for (reply, token, log) in [(first, "t1", "from one"), (second, "t2", "from two")] {
        let messages = reply.events().rest().await;
        assert_eq!(progress_values(&messages), [1, 2, 3, 4, 5]);
        for message in &messages[..10] {
            let params = &message.data["params"];
            assert!(params["progressToken"] == token || params["data"] == log, "{message:?}");
        }
    }
    assert_eq!(get.next().await.data["method"], "notifications/tools/list_changed");
    assert!(
        get.is_silent_for(Duration::from_millis(20)).await,
        "GET-02: and nothing else"
    );
}

#[tokio::test]
async fn prg_01_progress_rises_and_ends_with_the_answer() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    for token in [json!(1), json!("1")] {
        let script = handler.script("a");
        let params = json!({ "name": "a", "_meta": { "progressToken": token } });
        let (reply, ()) = tokio::join!(session.call(5, "tools/call", params), async {
            for n in [1, 3, 3, 2, 4] {
                script.progress(n).await;
            }
            script.finish("x").await;
        });
        let messages = reply.events().rest().await;
        assert_eq!(
            progress_values(&messages),
            [1, 3, 4],
            "values that do not rise are dropped"
        );
        assert!(messages[..3].iter().all(|m| m.data["params"]["progressToken"] == token));
    }
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.call(6, "tools/call", json!({ "name": "a" })), async {
        script.progress(1).await; // dropped: the call has no token
        script.finish("quiet").await;
    });
    assert_eq!(result_text(&reply.json().await), "quiet");
}

#[tokio::test]
async fn log_01_session_level_filters_logs() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let set = session.call(1, "logging/setLevel", json!({ "level": "warning" })).await;
    assert_eq!(set.json().await["result"], json!({}));
    let wrong = session.call(2, "logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(wrong.json().await["error"]["code"], -32602);
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(3, "a", json!({})), async {
        for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Warning, LogLevel::Emergency] {
            script.log(level, level.as_str()).await;
        }
        script.finish("x").await;
    });
    let messages = reply.events().rest().await;
    let levels: Vec<_> = messages
        .iter()
        .filter_map(|m| m.data["params"]["level"].as_str())
        .collect();
    assert_eq!(levels, ["warning", "emergency"]);
}

#[tokio::test]
async fn can_01_cancelled_call_ends_without_an_answer() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    // During a stream.
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let cancelled = json!({ "requestId": 1, "reason": "enough" });
    assert_eq!(session.notify("notifications/cancelled", cancelled).await.status, 202);
    let rest = reply.events().rest().await;
    assert_eq!(progress_values(&rest), [1]);
    assert_eq!(rest.len(), 1, "no answer");
    script.wait_for_end().await;
    // Before the first event: an SSE response without events.
    let script = handler.script("b");
    let (reply, ()) = tokio::join!(session.tool(2, "b", json!({})), async {
        while handler.started.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        session
            .notify("notifications/cancelled", json!({ "requestId": 2 }))
            .await;
    });
    assert!(reply.is_stream() && reply.status == 200);
    assert!(reply.bytes().await.is_empty());
    script.wait_for_end().await;
    assert_eq!(service.stats().running_calls, 0);
    // Invalid cancellations are ignored.
    for params in [
        json!({ "requestId": 99 }),
        json!({}),
        json!({ "requestId": [] }),
        json!({ "requestId": "1" }),
    ] {
        assert_eq!(session.notify("notifications/cancelled", params).await.status, 202);
    }
}

#[tokio::test(start_paused = true)]
async fn d8_cancelled_handler_is_dropped_after_the_grace() {
    let (service, client) = {
        struct UncancellableHandler;
        impl rethread::Handler for UncancellableHandler {
            async fn handle(&self, _: rethread::Call, cx: &rethread::Context) -> Result<rethread::Reply, RpcError> {
                let _ = cx.progress(1.0, None).await;
                std::future::pending().await
            }
        }
        let service = rethread::McpService::builder(UncancellableHandler).build();
        (service.clone(), rethread_testkit::client::Client::new(service))
    };
    let session = client.open(V2025_11_25).await;
    let reply = session.tool(1, "x", json!({})).await;
    session
        .notify("notifications/cancelled", json!({ "requestId": 1 }))
        .await;
    reply.events().rest().await;
    assert_eq!(service.stats().running_calls, 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(service.stats().running_calls, 0);
}

#[tokio::test]
async fn http_11_handler_error_is_sent_with_200() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let reply = session.call(1, "no/such", json!({})).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json().await["error"]["code"], -32601);
    let script = handler.script("a");
    let error = RpcError::new(-32002, "no such resource").with_data(json!({ "uri": "x" }));
    let (reply, ()) = tokio::join!(session.tool("e", "a", json!({})), script.fail(error));
    assert_eq!(reply.status, 200);
    let body = reply.json().await;
    assert_eq!(
        body,
        json!({ "jsonrpc": "2.0", "id": "e", "error": {
        "code": -32002, "message": "no such resource", "data": { "uri": "x" } } })
    );
    assert_eq!(
        session.call(2, "ping", json!({})).await.json().await["result"],
        json!({})
    );
}

/// HTTP-09, T-21: only 2025-03-26 has batches.
#[tokio::test]
async fn http_09_batch_stream_ends_after_the_last_answer() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_03_26).await;
    let script = handler.script("slow");
    let call = |id: u64, name: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": name, "arguments": { "message": "m" }, "_meta": { "progressToken": id } } })
    };
    let batch = json!([
        call(1, "slow"), call(2, "echo"), { "jsonrpc": "2.0", "id": 3, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/roots/list_changed" },
    ]);
    let reply = session.post(&batch).await;
    let mut events = reply.events();
    let mut ids: Vec<Value> = vec![
        events.next().await.data["id"].clone(),
        events.next().await.data["id"].clone(),
    ];
    script.progress(1).await;
    let progress = events.next().await;
    assert_eq!(progress.data["params"]["progressToken"], 1);
    drop(events); // a batch stream can be resumed too
    script.finish("x").await;
    let rest = session.resume(progress.id.as_deref().unwrap()).await.rest().await;
    assert_eq!(rest.len(), 1);
    ids.push(rest[0].data["id"].clone());
    ids.sort_by_key(Value::as_u64);
    assert_eq!(ids, [1, 2, 3]);
    assert_eq!(
        *handler.notifications.lock().unwrap(),
        ["notifications/roots/list_changed"]
    );

    let only_notes = json!([{ "jsonrpc": "2.0", "method": "notifications/x" }]);
    let reply = session.post(&only_notes).await;
    assert_eq!(reply.status, 202);
    assert!(reply.bytes().await.is_empty());
    // HTTP-10
    for version in [V2025_06_18, V2025_11_25, "2024-11-05"] {
        let session = client.open(version).await;
        let reply = session.post(&batch).await;
        assert_eq!(reply.status, 400, "{version}");
        let error = reply.json().await;
        assert_eq!(error["error"]["code"], -32600);
        assert!(error.get("id").is_none());
    }
    let mixed =
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }, { "jsonrpc": "2.0", "id": "s1-1", "result": {} }]);
    let with_hello = json!([{ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {} }]);
    for wrong in [json!([]), mixed, with_hello] {
        assert_eq!(session.post(&wrong).await.status, 400, "{wrong}");
    }
}

/// T-23.
#[tokio::test]
async fn t_23_2024_11_05_handshake_works_on_the_single_endpoint() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open("2024-11-05").await;
    assert_eq!(session.version, "2024-11-05");
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), async {
        script.progress(1).await;
        script.finish("old").await;
    });
    let messages = reply.events().rest().await;
    assert_eq!(messages[0].id.as_deref(), Some("1-1"), "no priming");
    assert_eq!(result_text(&messages[1].data), "old");
}

/// CAN-01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn can_01_fast_handler_cannot_answer_a_cancelled_call() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    for n in 0..300 {
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(n, "a", json!({})), script.progress(1));
        session
            .notify("notifications/cancelled", json!({ "requestId": n }))
            .await;
        let rest = reply.events().rest().await;
        assert_eq!(rest.len(), 1, "{rest:?}");
    }
}
