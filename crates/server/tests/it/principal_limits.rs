//! Limits per principal: running calls and messages, in both eras, on `/sse` and in batches.

use crate::http_sse::HttpSseClient;
use crate::support::{ScriptedHandler, V2025_03_26, V2025_11_25, as_principal};
use rethread::auth::Rate;
use rethread::{Limits, McpService};
use rethread_testkit::client::{Client, Reply};
use serde_json::{Value, json};
use std::time::Duration;

fn serve(handler: &ScriptedHandler, change: impl FnOnce(&mut Limits)) -> (McpService, Client) {
    handler.serve_with(|builder| builder.limits(Limits::default().with(change)))
}

fn assert_slowed(reply: &Reply, seconds: &str) {
    let found = (reply.status.as_u16(), reply.header("retry-after"));
    assert_eq!(found, (429, Some(seconds.to_owned())));
}

async fn stateless_echo(client: &Client, id: u64) -> Reply {
    let params = json!({ "name": "echo", "arguments": {} });
    client.stateless(id, "tools/call", params, json!({})).await
}

/// Sessions and stateless requests of one principal share the limit. Each other principal has its own.
#[tokio::test]
async fn ops_16_running_calls_of_a_principal_are_bounded_over_sessions_and_eras() {
    let handler = ScriptedHandler::new();
    let (service, client) = serve(&handler, |limits| limits.calls_per_principal = 2);
    let (alice, bob) = (as_principal(&client, "alice"), as_principal(&client, "bob"));
    let (one, two) = (alice.open(V2025_11_25).await, alice.open(V2025_11_25).await);
    let (first, second) = (handler.script("first"), handler.script("second"));
    let (held, ()) = tokio::join!(one.tool(1, "first", json!({})), first.progress(1));
    let modern = alice.clone();
    let modern = tokio::spawn(async move {
        let params = json!({ "name": "second", "_meta": { "progressToken": 1 } });
        modern
            .stateless(1, "tools/call", params, json!({}))
            .await
            .answer()
            .await
    });
    second.progress(1).await;

    let refused = two.tool(1, "echo", json!({})).await;
    assert_slowed(&refused, "1");
    assert_eq!(refused.json().await["id"], 1);
    assert_slowed(&stateless_echo(&alice, 2).await, "1");
    let mut sse = HttpSseClient::open(&as_principal(&Client::new(service.http_sse("/messages")), "alice")).await;
    sse.handshake("2024-11-05").await;
    let echo = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "echo" } });
    assert_eq!(sse.post(echo.clone()).await, 429);
    assert_eq!(
        two.call(2, "ping", json!({})).await.status,
        200,
        "the transport answers itself"
    );
    assert_eq!(stateless_echo(&bob, 1).await.status, 200, "another principal");
    assert_eq!(
        stateless_echo(&client, 1).await.status,
        200,
        "the anonymous one has no limit"
    );

    first.finish("done").await;
    drop(held);
    assert_eq!(two.tool(3, "echo", json!({})).await.status, 200);
    assert_eq!(sse.post(echo).await, 202);
    second.finish("done").await;
    modern.await.unwrap();
    for id in 10..20 {
        assert_eq!(stateless_echo(&alice, id).await.status, 200, "every permit came back");
    }
}

/// In a batch, each request beyond the limit gets an error of its own.
#[tokio::test]
async fn ops_16_batch_gets_an_error_for_each_call_beyond_the_limit() {
    let handler = ScriptedHandler::new();
    let (_, client) = serve(&handler, |limits| limits.calls_per_principal = 1);
    let session = as_principal(&client, "alice").open(V2025_03_26).await;
    let script = handler.script("first");
    let call =
        |id: u64, name: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name } });
    let batch = session.post(&json!([call(1, "first"), call(2, "echo")])).await;
    let mut events = batch.events();
    let refused = events.next().await.data;
    assert_eq!(refused["id"], 2);
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(text.contains("running calls of this caller"), "{text}");
    script.finish("done").await;
    assert_eq!(events.next().await.data["id"], 1);
}

/// A call that waits for input does not count, and continues whatever was begun meanwhile.
#[tokio::test]
async fn ops_16_parked_call_does_not_count() {
    let handler = ScriptedHandler::new();
    let (service, client) = serve(&handler, |limits| limits.calls_per_principal = 1);
    let alice = as_principal(&client, "alice");
    let script = handler.script("ask");
    let asking = alice.clone();
    let asked = tokio::spawn(async move {
        let meta = json!({ "io.modelcontextprotocol/clientCapabilities": { "roots": {} } });
        let reply = asking.stateless(1, "tools/call", json!({ "name": "ask" }), meta).await;
        reply.answer().await
    });
    let answering = tokio::spawn(async move { (script.ask("roots", json!({})).await, script) });
    let asked = asked.await.unwrap();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(service.stats().parked_calls, 1);
    assert_eq!(stateless_echo(&alice, 2).await.status, 200);

    let busy = handler.script("busy");
    let other = alice.clone();
    let running = tokio::spawn(async move {
        let params = json!({ "name": "busy", "_meta": { "progressToken": 1 } });
        other.stateless(3, "tools/call", params, json!({})).await.answer().await
    });
    busy.progress(1).await;
    let key = asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    let retry = json!({ "name": "ask", "requestState": asked["result"]["requestState"],
        "inputResponses": { key: { "roots": [] } } });
    let retrying = alice.clone();
    let retried = tokio::spawn(async move {
        let meta = json!({ "io.modelcontextprotocol/clientCapabilities": { "roots": {} } });
        retrying.stateless(4, "tools/call", retry, meta).await.answer().await
    });
    let (answer, script) = answering.await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    script.finish("done").await;
    assert_eq!(retried.await.unwrap()["id"], 4);
    assert_slowed(&stateless_echo(&alice, 5).await, "1");
    busy.finish("done").await;
    running.await.unwrap();
    assert_eq!(stateless_echo(&alice, 6).await.status, 200);
}

/// `rate` counts messages, also those of a batch, of `/sse` and of notifications.
#[tokio::test(start_paused = true)]
async fn ops_16_messages_of_a_principal_have_a_rate() {
    let handler = ScriptedHandler::new();
    let rate = Rate::new(10, Duration::from_secs(50));
    let (service, client) = serve(&handler, |limits| limits.rate = rate);
    let (alice, bob) = (as_principal(&client, "alice"), as_principal(&client, "bob"));
    let session = alice.open(V2025_03_26).await; // two messages
    let ping = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    let batch: Vec<Value> = (0..5).map(ping).collect();
    assert_eq!(session.post(&json!(batch)).await.status, 200);
    assert_slowed(&session.post(&json!(batch)).await, "10");
    assert_eq!(stateless_echo(&alice, 1).await.status, 200);
    assert_eq!(
        session
            .notify("notifications/roots/list_changed", json!({}))
            .await
            .status,
        202
    );
    let sse_client = as_principal(&Client::new(service.http_sse("/messages")), "alice");
    let sse = HttpSseClient::open(&sse_client).await; // not a message
    assert_eq!(sse.post(ping(1)).await, 202);
    for refused in [session.post(&ping(9)).await, stateless_echo(&alice, 2).await] {
        assert_slowed(&refused, "5");
        let error = refused.json().await["error"].clone();
        assert_eq!(error["code"], -32600, "{error}");
    }
    assert_eq!(sse.post(ping(2)).await, 429);
    assert_eq!(session.get(None).await.status, 200, "a GET is not a message");
    assert_eq!(stateless_echo(&bob, 1).await.status, 200);
    for id in 0..30 {
        assert_eq!(stateless_echo(&client, id).await.status, 200, "the anonymous principal");
    }
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(stateless_echo(&alice, 3).await.status, 200);
    assert_slowed(&stateless_echo(&alice, 4).await, "5");
}
