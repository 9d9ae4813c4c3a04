//! Questions that a handler asks the client, on every revision.

use crate::fixture::ServerControl;
use crate::support::{ALL_REVISIONS, Caller, LEGACY_REVISIONS, V2025_11_25, serve, text};
use rethread_testkit::client::{Client, MODERN};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Tool, method of its question, the client's answer, and the text of the tool result.
fn questions() -> [(&'static str, &'static str, Value, &'static str); 3] {
    let name = json!({ "action": "accept", "content": { "name": "Ada" } });
    let message = json!({ "role": "assistant", "model": "m1", "content": { "type": "text", "text": "hi" } });
    let roots = json!({ "roots": [{ "uri": "file:///home" }] });
    [
        ("elicit", "elicitation/create", name, r#"Accept {"name":"Ada"}"#),
        ("sample", "sampling/createMessage", message, "m1"),
        ("roots", "roots/list", roots, "file:///home"),
    ]
}

/// S2C-02, S2C-03: the question goes to the call's stream and the answer comes by POST. The asking peer gets progress.
#[tokio::test]
async fn s2c_02_session_question_goes_to_the_call_stream() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in LEGACY_REVISIONS {
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
            assert!(tokens.insert(token.to_string()), "{version}: {token} is not unique");
            let progress = json!({ "progressToken": token, "progress": 0.5 });
            session.notify("notifications/progress", progress).await;
            control.wait_for(&format!("progress on {tool} in {version}")).await;
            assert_eq!(session.answer(&question["id"], answer).await.status, 202);
            assert_eq!(text(&events.next().await.data), expected, "{version}");
        }
    }
}

/// S2C-09, MRTR-02, MRTR-04: the same handler returns an input-required result, and the retry completes the call.
#[tokio::test]
async fn s2c_09_stateless_question_becomes_input_required() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
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
    assert_eq!(endpoint.service.stats().parked_calls, 0);
}

/// MRTR-01 to MRTR-06: a handler that returns an input-required result works on every revision.
#[tokio::test]
async fn mrtr_01_input_required_result_works_on_every_revision() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    let expected = r#""Ada" Some("handler state")"#;
    let name = json!({ "action": "accept", "content": { "name": "Ada" } });
    for version in ALL_REVISIONS {
        match Caller::new(&endpoint.client, version).await {
            Caller::Session(session) => {
                let reply = session.tool(1, "input_required", json!({})).await;
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
                let mut params = json!({ "name": "input_required", "arguments": { "x": 1 } });
                let asked = client
                    .stateless(1, "tools/call", params.clone(), json!({}))
                    .await
                    .json()
                    .await["result"]
                    .take();
                assert_eq!(asked["resultType"], "input_required");
                assert_eq!(
                    asked["inputRequests"]["who"]["method"], "elicitation/create",
                    "the handler's key"
                );
                assert_eq!(asked["_meta"]["from"], "the fixture", "the handler's _meta");
                let state = asked["requestState"].as_str().unwrap();
                assert!(!state.contains("handler state"), "MRTR-05: sealed");
                params["requestState"] = json!(state);
                params["inputResponses"] = json!({ "who": name });
                let done = client
                    .stateless(2, "tools/call", params.clone(), json!({}))
                    .await
                    .json()
                    .await;
                assert_eq!(text(&done), expected);
                params["arguments"]["x"] = json!(2);
                let other_arguments = client.stateless(3, "tools/call", params, json!({})).await.json().await;
                assert_eq!(
                    other_arguments["error"]["code"], -32_602,
                    "MRTR-05: the state is bound to its arguments"
                );
            }
        }
    }
}

fn assert_not_supported(answer: &Value) {
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("does not support"), "{answer}");
}

/// S2C-05, MRTR-03: a question that the client did not declare fails, and the handler gets the error.
#[tokio::test]
async fn s2c_05_undeclared_question_fails() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    let session = endpoint.client.open_with(V2025_11_25, json!({})).await;
    let nothing = json!({ "io.modelcontextprotocol/clientCapabilities": {} });
    for (tool, ..) in questions() {
        let answer = session.tool(1, tool, json!({})).await.answer().await;
        assert_not_supported(&answer);
        let params = json!({ "name": tool, "arguments": {} });
        let answer = endpoint
            .client
            .stateless(1, "tools/call", params, nothing.clone())
            .await
            .answer()
            .await;
        assert_not_supported(&answer);
    }
    let params = json!({ "name": "input_required", "arguments": {} });
    let answer = endpoint
        .client
        .stateless(1, "tools/call", params, nothing)
        .await
        .answer()
        .await;
    assert_eq!(answer["error"]["code"], -32_021, "{MODERN}: {answer}");
}

#[tokio::test]
async fn client_error_reaches_the_handler() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    let session = endpoint.client.open(V2025_11_25).await;
    let mut events = session.tool(1, "sample", json!({})).await.events();
    let question = events.next().await.data;
    let error = json!({ "code": -1, "message": "no model today" });
    let response = json!({ "jsonrpc": "2.0", "id": question["id"], "error": error });
    assert_eq!(session.post(&response).await.status, 202);
    let answer = events.next().await.data;
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("no model today"),
        "{answer}"
    );
}

/// S2C-06: when the handler stops waiting, the client gets a cancellation.
#[tokio::test]
async fn s2c_06_timed_out_question_is_cancelled() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    let session = endpoint.client.open(V2025_11_25).await;
    let mut events = session.tool(1, "elicit_timeout", json!({})).await.events();
    let question = events.next().await.data;
    let cancelled = events.next().await.data;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert!(text(&events.next().await.data).contains("timeout"));
}

/// The question goes out before the client's `initialized` POST is answered.
#[tokio::test]
async fn handler_may_ask_in_on_initialized() {
    let control = Arc::new(ServerControl::default());
    control
        .asks_in_on_initialized
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let endpoint = serve(control.handler()).await;
    let client: &Client = &endpoint.client;
    for version in LEGACY_REVISIONS {
        let session = client.open(version).await;
        let mut push = session.get(None).await.events();
        let question = push.next().await.data;
        assert_eq!(question["method"], "roots/list", "{version}");
        let roots = json!({ "roots": [{ "uri": format!("file:///{version}") }] });
        session.answer(&question["id"], roots).await;
        control.wait_for(&format!("roots at file:///{version}")).await;
    }
}
