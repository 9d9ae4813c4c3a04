//! Another principal sees exactly what a stranger sees: the same bytes as for an id that never existed (AUTH-20, SEC-05).

use crate::http_sse::HttpSseClient;
use crate::support::{ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25, as_principal, result_text};
use rethread_testkit::client::{Client, Reply};
use serde_json::{Value, json};

pub(crate) const NEVER_EXISTED: &str = "AAAAAAAAAAAAAAAAAAAAAAAA";

/// A whole response: status, headers, body.
pub(crate) async fn bytes_of(reply: Reply) -> (u16, Vec<(String, String)>, String) {
    let headers = reply.headers.iter().map(|(name, value)| {
        let value = value.to_str().unwrap().to_owned();
        (name.to_string(), value)
    });
    let (status, headers) = (reply.status.as_u16(), headers.collect());
    let body = if reply.is_stream() {
        "a stream".to_owned()
    } else {
        String::from_utf8(reply.bytes().await.to_vec()).unwrap()
    };
    (status, headers, body)
}

/// A method, headers and a body.
type RequestParts = (&'static str, Vec<(&'static str, &'static str)>, String);

/// Every request that names a session, with bodies that are valid and invalid.
fn requests() -> Vec<RequestParts> {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "a" } });
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    let answer = json!({ "jsonrpc": "2.0", "id": "s1-1", "result": {} });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    let subscribe = json!({ "jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": { "uri": "a:b" } });
    let twice = r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a","name":"b"}}"#;
    let posts = [&call, &ping, &answer, &cancel, &subscribe].map(Value::to_string);
    let bodies = posts.into_iter().chain([
        json!([call, ping]).to_string(),
        "{".to_owned(),
        "[]".to_owned(),
        twice.to_owned(),
    ]);
    let mut all: Vec<_> = bodies.map(|body| ("POST", vec![], body)).collect();
    for cursor in ["1-0", "1-1", "2-0", "3-0", "nonsense"] {
        all.push(("GET", vec![("last-event-id", cursor)], String::new()));
    }
    all.push(("GET", vec![], String::new()));
    all.push(("DELETE", vec![], String::new()));
    all
}

#[tokio::test]
async fn auth_20_session_of_another_is_byte_for_byte_unknown() {
    for version in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
        let session = alice.open_with(version, json!({ "roots": {} })).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        let asking = tokio::spawn(async move { (script.ask("roots", json!({})).await, script) });
        let mut events = reply.events();
        events.next().await;
        let question = events.next().await.data;
        assert_eq!(question["method"], "roots/list", "{question}");
        for (method, more, body) in requests() {
            let mut seen = Vec::new();
            for id in [session.id.as_str(), NEVER_EXISTED] {
                let mut headers = vec![("mcp-session-id", id), ("mcp-protocol-version", version)];
                headers.extend_from_slice(&more);
                seen.push(bytes_of(mallory.request(method, &headers, body.clone()).await).await);
            }
            assert_eq!(seen[0], seen[1], "{version} {method} {more:?} {body}");
        }
        // Mallory's own session has no such question, and cannot answer Alice's.
        let own = mallory.open_with(version, json!({ "roots": {} })).await;
        let mut answers = Vec::new();
        for id in [&question["id"], &json!("s9-9")] {
            answers.push(bytes_of(own.answer(id, json!({ "roots": [] })).await).await);
        }
        assert_eq!(answers[0], answers[1], "{version}");
        assert_eq!(
            session.answer(&question["id"], json!({ "roots": [] })).await.status,
            202
        );
        let (answer, script) = asking.await.unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        script.finish("for alice").await;
        assert_eq!(result_text(&events.next().await.data), "for alice");
    }
}

#[tokio::test]
async fn auth_20_messages_of_another_are_byte_for_byte_unknown() {
    let handler = ScriptedHandler::new();
    let (service, _) = handler.serve();
    let sse = Client::new(service.http_sse("/messages"));
    let (alice, mallory) = (as_principal(&sse, "alice"), as_principal(&sse, "mallory"));
    let mut session = HttpSseClient::open(&alice).await;
    session.handshake("2024-11-05").await;
    for (_, _, body) in requests().into_iter().filter(|(method, ..)| *method == "POST") {
        let mut seen = Vec::new();
        for path in [
            session.path().to_owned(),
            format!("/messages?sessionId={NEVER_EXISTED}"),
        ] {
            let at_path = mallory.with_request_hook(move |request| {
                *request.uri_mut() = path.parse().unwrap();
            });
            seen.push(bytes_of(at_path.request("POST", &[], body.clone()).await).await);
        }
        assert_eq!(seen[0], seen[1], "{body}");
    }
    let ping = json!({ "jsonrpc": "2.0", "id": 5, "method": "ping" });
    assert_eq!(session.post(ping).await, 202);
    assert_eq!(session.next().await["id"], 5, "Alice is served");
}

/// A parked call, and a state that the handler keeps itself.
#[tokio::test]
async fn auth_20_request_state_of_another_is_like_one_that_never_existed() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
    let capabilities = json!({ "io.modelcontextprotocol/clientCapabilities": { "roots": {} } });
    let script = handler.script("a");
    let asking = tokio::spawn(async move { (script.ask("roots", json!({})).await, script) });
    let call = |client: &Client, params: Value| {
        let (client, meta) = (client.clone(), capabilities.clone());
        async move { client.stateless(1, "tools/call", params, meta).await }
    };
    let asked = call(&alice, json!({ "name": "a" })).await.answer().await;
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    let key = asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    // The same text with another byte in the middle: it was never issued.
    let mut forged = state.clone().into_bytes();
    let middle = forged.len() / 2;
    forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let retry =
        |state: &str| json!({ "name": "a", "requestState": state, "inputResponses": { &key: { "roots": [] } } });
    let mut seen = Vec::new();
    for state in [&state, &forged] {
        seen.push(bytes_of(call(&mallory, retry(state)).await).await);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(service.stats().parked_calls, 1, "Alice's call still waits");
    let retried = tokio::spawn(call(&alice, retry(&state)));
    let (answer, script) = asking.await.unwrap();
    assert!(answer.is_ok(), "{answer:?}");
    script.finish("for alice").await;
    assert_eq!(result_text(&retried.await.unwrap().answer().await), "for alice");
}

/// AUTH-15: two equal members of `params` are refused in every era, whether escaped or not, before any handler.
#[tokio::test]
async fn auth_15_duplicate_members_of_params_are_refused_in_every_era() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let duplicates = [
        r#"{"name":"echo","name":"meta","arguments":{}}"#,
        r#"{"name":"echo","na\u006de":"meta"}"#,
        r#"{"name":"echo","_meta":{"a":1},"_meta":{"b":2}}"#,
        r#"{"name":"echo","_meta":{"a":1},"\u005fmeta":{"b":2}}"#,
    ];
    for version in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let session = client.open(version).await;
        for params in duplicates {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            let reply = session.raw("POST", &[], body).await;
            assert_eq!(reply.status, 400, "{version} {params}");
            assert_eq!(reply.json().await["error"]["code"], -32602, "{version} {params}");
        }
    }
    let (headers, body) =
        rethread_testkit::client::stateless(&json!(1), "tools/call", json!({ "name": "echo" }), json!({}));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let good = body.to_string();
    for (part, twice) in [
        (r#""name":"echo""#, r#""name":"echo","na\u006de":"meta""#),
        (r#""_meta":{"#, r#""_meta":{},"_meta":{"#),
    ] {
        assert!(good.contains(part), "{good}");
        let reply = client.request("POST", &headers, good.replacen(part, twice, 1)).await;
        assert_eq!(reply.status, 400, "{twice}");
        assert_eq!(reply.json().await["error"]["code"], -32602, "{twice}");
    }
    let mut sse = HttpSseClient::open(&Client::new(service.http_sse("/messages"))).await;
    sse.handshake("2024-11-05").await;
    for params in duplicates {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        assert_eq!(sse.post_text(body).await, 400, "{params}");
    }
}
