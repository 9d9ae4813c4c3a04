//! Questions and subscriptions of another principal: an answer to them, or an end of them, is like one for an id that never
//! existed, byte for byte (AUTH-20, SEC-05).

use crate::http_sse::HttpSseClient;
use crate::strangers::{NEVER_EXISTED, bytes_of};
use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_03_26, as_principal, result_text};
use rethread_testkit::client::Client;
use serde_json::{Value, json};
use std::time::Duration;

const NEVER_ASKED: &str = "s99-99";
const QUIET_PERIOD: Duration = Duration::from_millis(20);

/// Every form of an answer to the question `id`; a batch only where there are batches.
fn answers(id: &Value, has_batches: bool) -> Vec<String> {
    let result = json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } });
    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -1, "message": "no" } });
    let mut all = vec![result.to_string(), error.to_string()];
    if has_batches {
        all.push(json!([result, error]).to_string());
    }
    all
}

#[tokio::test]
async fn auth_20_answer_to_a_question_of_another_is_like_one_to_no_question() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
        let session = alice.open_with(version, json!({ "roots": {} })).await;
        let own = mallory.open_with(version, json!({ "roots": {} })).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        let asking = tokio::spawn(async move { (script.ask("roots", json!({})).await, script) });
        let mut events = reply.events();
        events.next().await;
        let question = events.next().await.data["id"].clone();
        assert!(question.is_string() || question.is_number(), "{question}");
        let asked = answers(&question, version == V2025_03_26);
        let never_asked = answers(&json!(NEVER_ASKED), version == V2025_03_26);
        let cancel = |id: Value| {
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }).to_string()
        };
        let asked = asked.into_iter().chain([cancel(json!(1))]);
        let never_asked = never_asked.into_iter().chain([cancel(json!(99))]);
        for (asked, never_asked) in asked.zip(never_asked) {
            let send = async |id: &str, body: &str| {
                let headers = [("mcp-session-id", id), ("mcp-protocol-version", version)];
                bytes_of(mallory.request("POST", &headers, body.to_owned()).await).await
            };
            let stranger = send(NEVER_EXISTED, &asked).await;
            assert_eq!(stranger.0, 404, "{version} {asked}");
            assert_eq!(send(&session.id, &asked).await, stranger, "{version} {asked}");
            assert_eq!(
                send(&session.id, &never_asked).await,
                stranger,
                "{version} {never_asked}"
            );
            let unknown = send(&own.id, &never_asked).await;
            assert_eq!(send(&own.id, &asked).await, unknown, "{version} {asked}");
        }
        let answered = session.answer(&question, json!({ "roots": [] })).await;
        assert_eq!(answered.status, 202, "{version}: the question still waits");
        let (answer, script) = asking.await.unwrap();
        assert_eq!(answer, Ok(json!({ "roots": [] })), "{version}: Alice's answer counts");
        script.finish("for alice").await;
        assert_eq!(result_text(&events.next().await.data), "for alice");
    }
}

#[tokio::test]
async fn auth_20_answer_on_messages_to_a_question_of_another_is_like_one_to_no_question() {
    let handler = ScriptedHandler::new();
    let (service, _) = handler.serve();
    let sse = Client::new(service.http_sse("/messages"));
    let (alice, mallory) = (as_principal(&sse, "alice"), as_principal(&sse, "mallory"));
    let (mut session, mut own) = (HttpSseClient::open(&alice).await, HttpSseClient::open(&mallory).await);
    session.handshake("2024-11-05").await;
    own.handshake("2024-11-05").await;
    let script = handler.script("a");
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a" } });
    assert_eq!(session.post(call).await, 202);
    let asking = tokio::spawn(async move { (script.ask("roots", json!({})).await, script) });
    let question = session.next().await["id"].clone();
    let send = async |path: &str, body: String| {
        let path = path.to_owned();
        let at_path = mallory.with_request_hook(move |request| *request.uri_mut() = path.parse().unwrap());
        bytes_of(at_path.request("POST", &[], body).await).await
    };
    let never = format!("/messages?sessionId={NEVER_EXISTED}");
    for (asked, never_asked) in answers(&question, false)
        .into_iter()
        .zip(answers(&json!(NEVER_ASKED), false))
    {
        let stranger = send(&never, asked.clone()).await;
        assert_eq!(send(session.path(), asked.clone()).await, stranger, "{asked}");
        assert_eq!(send(session.path(), never_asked.clone()).await, stranger);
        assert_eq!(
            send(own.path(), asked.clone()).await,
            send(own.path(), never_asked).await
        );
    }
    let answer = json!({ "jsonrpc": "2.0", "id": question, "result": { "roots": [1] } });
    assert_eq!(session.post(answer).await, 202);
    let (answer, script) = asking.await.unwrap();
    assert_eq!(answer, Ok(json!({ "roots": [1] })), "Alice's answer counts");
    script.finish("for alice").await;
    assert_eq!(result_text(&session.next().await), "for alice");
    assert!(
        own.events.is_silent_for(QUIET_PERIOD).await,
        "Mallory sees nothing of it"
    );
}

/// 2026-07-28: questions are keys in a result. Without its state, the key of another's question is like any other key.
#[tokio::test]
async fn auth_20_input_for_a_question_of_another_is_like_input_for_none() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
    let capabilities = json!({ "io.modelcontextprotocol/clientCapabilities": { "roots": {} } });
    let script = handler.script("a");
    let asking = tokio::spawn(async move { (script.ask("roots", json!({})).await, script) });
    let call =
        async |client: &Client, params: Value| client.stateless(1, "tools/call", params, capabilities.clone()).await;
    let asked = call(&alice, json!({ "name": "a" })).await.answer().await;
    let state = asked["result"]["requestState"].clone();
    let questions = asked["result"]["inputRequests"].as_object().unwrap();
    let key = questions.keys().next().unwrap().clone();
    let mut seen = Vec::new();
    for key in [key.as_str(), NEVER_ASKED] {
        let input = json!({ key: { "roots": [] } });
        for name in ["a", "echo"] {
            let params = json!({ "name": name, "inputResponses": input });
            seen.push((name, bytes_of(call(&mallory, params).await).await));
        }
    }
    assert_eq!(seen[..2], seen[2..]);
    assert_eq!(service.stats().parked_calls, 1, "Alice's call still waits");
    let retry = json!({ "name": "a", "requestState": state, "inputResponses": { &key: { "roots": [2] } } });
    let retried = tokio::spawn({
        let (alice, meta) = (alice.clone(), capabilities.clone());
        async move { alice.stateless(1, "tools/call", retry, meta).await.answer().await }
    });
    let (answer, script) = asking.await.unwrap();
    assert_eq!(answer, Ok(json!({ "roots": [2] })), "Alice's answer counts");
    script.finish("for alice").await;
    assert_eq!(result_text(&retried.await.unwrap()), "for alice");
}

/// The subscriptions of a session: nobody else can see them or end them.
#[tokio::test]
async fn auth_20_subscription_of_another_session_is_like_none() {
    const WATCHED: &str = "test://alice";
    for version in LEGACY_REVISIONS {
        let (service, client) = ScriptedHandler::new().serve();
        let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
        let (session, own) = (alice.open(version).await, mallory.open(version).await);
        let (mut events, mut others) = (session.get(None).await.events(), own.get(None).await.events());
        let subscribed = session.call(1, "resources/subscribe", json!({ "uri": WATCHED })).await;
        assert_eq!(subscribed.status, 200);
        let end = |uri: &str| {
            json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/unsubscribe", "params": { "uri": uri } })
                .to_string()
        };
        let send = async |id: &str, body: String| {
            let headers = [("mcp-session-id", id), ("mcp-protocol-version", version)];
            bytes_of(mallory.request("POST", &headers, body).await).await
        };
        let stranger = send(NEVER_EXISTED, end(WATCHED)).await;
        assert_eq!(stranger.0, 404, "{version}");
        assert_eq!(send(&session.id, end(WATCHED)).await, stranger, "{version}");
        assert_eq!(
            send(&own.id, end(WATCHED)).await,
            send(&own.id, end("test://nobody")).await,
            "{version}"
        );
        service.notifier().resource_updated(WATCHED);
        let update = events.next().await.data;
        assert_eq!(update["params"]["uri"], WATCHED, "{version}: Alice is still subscribed");
        assert!(others.is_silent_for(QUIET_PERIOD).await, "{version}: Mallory never was");
    }
}

/// `subscriptions/listen`: the id of another's subscription is free, and names nothing.
#[tokio::test]
async fn auth_20_listen_with_the_id_of_another_is_like_one_with_a_free_id() {
    let (service, client) = ScriptedHandler::new().serve();
    let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
    let listen = async |client: &Client| {
        let filter = json!({ "notifications": { "resourceSubscriptions": ["test://alice"] } });
        let reply = client.stateless("sub", "subscriptions/listen", filter, json!({})).await;
        let (status, headers) = (reply.status, reply.headers.clone());
        let mut events = reply.events();
        let first = events.block().await.map(|block| (block.id, block.event, block.data));
        ((status, headers, first), events)
    };
    let (free, unused) = listen(&mallory).await;
    drop(unused);
    let (_, mut watched) = listen(&alice).await;
    let (taken, unused) = listen(&mallory).await;
    assert_eq!(taken, free);
    let cancel = async |id: &str| {
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "notifications/cancelled"),
        ];
        bytes_of(mallory.request("POST", &headers, note.to_string()).await).await
    };
    assert_eq!(cancel("sub").await, cancel("non").await);
    drop(unused); // Mallory's own subscription with that id ends
    service.notifier().resource_updated("test://alice");
    let update = watched.next().await.data;
    assert_eq!(update["params"]["uri"], "test://alice", "Alice's subscription goes on");
}
