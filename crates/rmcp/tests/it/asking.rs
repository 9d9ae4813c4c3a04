//! What a handler asks of the client, on every revision.

use crate::stage::Script;
use crate::support::{ALL, Caller, D, SESSIONS, serve, text};
use rethread_testkit::client::{Client, MODERN};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// What is asked, as which tool, and how it is answered.
fn questions() -> [(&'static str, &'static str, Value, &'static str); 3] {
    let name = json!({ "action": "accept", "content": { "name": "Ada" } });
    let said = json!({ "role": "assistant", "model": "m1", "content": { "type": "text", "text": "hi" } });
    let roots = json!({ "roots": [{ "uri": "file:///home" }] });
    [
        ("elicit", "elicitation/create", name, r#"Accept {"name":"Ada"}"#),
        ("sample", "sampling/createMessage", said, "m1"),
        ("roots", "roots/list", roots, "file:///home"),
    ]
}

/// S2C-02, S2C-03: asked on the call's own stream, answered by POST; progress on the answer reaches who asked.
#[tokio::test]
async fn s2c_02_in_a_session_questions_are_asked_on_the_stream_of_the_call() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in SESSIONS {
        let session = endpoint.client.open(version).await;
        let mut tokens = HashSet::new();
        for (tool, method, answer, expected) in questions() {
            let reply = session.tool(1, tool, json!({})).await;
            if method == "elicitation/create" && version < "2025-06-18" {
                let error = reply.answer().await;
                assert!(
                    error.to_string().contains("no answer"),
                    "{version} has no elicitation: {error}"
                );
                continue;
            }
            let mut events = reply.events();
            let question = events.next().await.data;
            assert_eq!(question["method"], method, "{version}");
            let token = question["params"]["_meta"]["progressToken"].clone();
            assert!(
                tokens.insert(token.to_string()),
                "{version}: {token} names another question"
            );
            let progress = json!({ "progressToken": token, "progress": 0.5 });
            session.notify("notifications/progress", progress).await;
            script.until(&format!("progress on {tool} in {version}")).await;
            assert_eq!(session.answer(&question["id"], answer).await.status, 202);
            assert_eq!(text(&events.next().await.data), expected, "{version}");
        }
    }
}

/// S2C-09, MRTR-02, MRTR-04: the same code yields an input-required result, and the retry completes it.
#[tokio::test]
async fn s2c_09_without_a_session_questions_become_input_required() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for (tool, method, answer, expected) in questions() {
        let mut params = json!({ "name": tool, "arguments": {} });
        let reply = endpoint
            .client
            .stateless(1, "tools/call", params.clone(), json!({}))
            .await;
        let asked = reply.answer().await["result"].take();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], method);
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({ key: answer });
        let reply = endpoint.client.stateless(2, "tools/call", params, json!({})).await;
        let done = reply.answer().await;
        assert_eq!((&done["id"], text(&done)), (&json!(2), expected));
    }
    assert_eq!(endpoint.service.parked_calls(), 0);
}

/// MRTR-01 to MRTR-06: a server that asks in its own answers does so on every revision.
#[tokio::test]
async fn mrtr_a_servers_own_wish_for_input_works_on_every_revision() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    let expected = r#""Ada" Some("my own state")"#;
    let name = json!({ "action": "accept", "content": { "name": "Ada" } });
    for version in ALL {
        match Caller::new(&endpoint.client, version).await {
            Caller::Session(session) => {
                let reply = session.tool(1, "wish", json!({})).await;
                if version < "2025-06-18" {
                    assert_eq!(
                        reply.answer().await["error"]["code"],
                        -32_603,
                        "{version} has no elicitation"
                    );
                    continue;
                }
                let mut events = reply.events();
                let question = events.next().await.data;
                assert_eq!(question["method"], "elicitation/create", "{version}");
                session.answer(&question["id"], name.clone()).await;
                assert_eq!(text(&events.next().await.data), expected, "{version}");
            }
            Caller::Stateless(client) => {
                let mut params = json!({ "name": "wish", "arguments": { "x": 1 } });
                let asked = client
                    .stateless(1, "tools/call", params.clone(), json!({}))
                    .await
                    .json()
                    .await["result"]
                    .take();
                assert_eq!(asked["resultType"], "input_required");
                assert_eq!(
                    asked["inputRequests"]["who"]["method"], "elicitation/create",
                    "its own key"
                );
                assert_eq!(asked["_meta"]["from"], "the stage", "its own _meta");
                let state = asked["requestState"].as_str().unwrap();
                assert!(!state.contains("my own state"), "MRTR-05: sealed");
                params["requestState"] = json!(state);
                params["inputResponses"] = json!({ "who": name });
                let done = client
                    .stateless(2, "tools/call", params.clone(), json!({}))
                    .await
                    .json()
                    .await;
                assert_eq!(text(&done), expected);
                params["arguments"]["x"] = json!(2);
                let stolen = client.stateless(3, "tools/call", params, json!({})).await.json().await;
                assert_eq!(stolen["error"]["code"], -32_602, "MRTR-05: for these arguments only");
            }
        }
    }
}

/// S2C-05, MRTR-03: nothing is asked that the client cannot answer; the handler is told.
#[tokio::test]
async fn s2c_05_a_client_is_not_asked_what_it_did_not_declare() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    let session = endpoint.client.open_with(D, json!({})).await;
    let nothing = json!({ "io.modelcontextprotocol/clientCapabilities": {} });
    for (tool, ..) in questions() {
        let answer = session.tool(1, tool, json!({})).await.answer().await;
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("does not support"),
            "{answer}"
        );
        let params = json!({ "name": tool, "arguments": {} });
        let answer = endpoint
            .client
            .stateless(1, "tools/call", params, nothing.clone())
            .await
            .answer()
            .await;
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("does not support"),
            "{answer}"
        );
    }
    let params = json!({ "name": "wish", "arguments": {} });
    let answer = endpoint
        .client
        .stateless(1, "tools/call", params, nothing)
        .await
        .answer()
        .await;
    assert_eq!(answer["error"]["code"], -32_021, "{MODERN}: {answer}");
}

/// A client's refusal reaches the handler as it is.
#[tokio::test]
async fn a_refusal_of_the_client_reaches_the_handler() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    let session = endpoint.client.open(D).await;
    let mut events = session.tool(1, "sample", json!({})).await.events();
    let question = events.next().await.data;
    let error = json!({ "code": -1, "message": "no model today" });
    let refusal = json!({ "jsonrpc": "2.0", "id": question["id"], "error": error });
    assert_eq!(session.post(&refusal).await.status, 202);
    let answer = events.next().await.data;
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("no model today"),
        "{answer}"
    );
}

/// S2C-06: when the handler no longer waits, the client is told.
#[tokio::test]
async fn s2c_06_a_question_that_timed_out_is_withdrawn() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    let session = endpoint.client.open(D).await;
    let mut events = session.tool(1, "impatient", json!({})).await.events();
    let question = events.next().await.data;
    let withdrawn = events.next().await.data;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert!(text(&events.next().await.data).contains("timeout"));
}

/// A handler may ask as soon as the client is ready, before its notification is answered.
#[tokio::test]
async fn a_handler_may_ask_when_it_hears_that_the_client_is_ready() {
    let script = Arc::new(Script::default());
    script.asks_early.store(true, std::sync::atomic::Ordering::Relaxed);
    let endpoint = serve(script.handler()).await;
    let client: &Client = &endpoint.client;
    for version in SESSIONS {
        let session = client.open(version).await;
        let mut push = session.get(None).await.events();
        let question = push.next().await.data;
        assert_eq!(question["method"], "roots/list", "{version}");
        let roots = json!({ "roots": [{ "uri": format!("file:///{version}") }] });
        session.answer(&question["id"], roots).await;
        script.until(&format!("rooted in file:///{version}")).await;
    }
}
