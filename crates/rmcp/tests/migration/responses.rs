//! The form of responses.

use crate::client::{Event, QUIET_PERIOD, Session, next, next_within, post, read_stream_head, rest};
use crate::fixture::{Endpoint, ServerControl, rethread, rmcp};
use rethread_testkit::client::stateless;
use serde_json::{Value, json};

/// A call that sends no messages before its result.
#[tokio::test]
async fn silent_call_returns_json() {
    let text = json!({ "text": "hello" });
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let response = Session::open(endpoint.addr).await.call(2, "echo", &text).await;
    assert_eq!(response.content_type(), "text/event-stream", "rmcp");
    assert_eq!(response.body.matches("data:").count(), 2, "rmcp: {}", response.body);

    let endpoint = rethread(&control).await;
    let response = Session::open(endpoint.addr).await.call(2, "echo", &text).await;
    assert_eq!(response.content_type(), "application/json", "rethread");
    assert_eq!(response.json()["result"]["content"][0]["text"], "hello");
}

/// The server never issued this cursor.
#[tokio::test]
async fn unknown_cursor_opens_a_new_stream() {
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(Some("7/99")).await;
    assert_eq!(rest(&mut get).await, [], "rmcp: an empty stream that ends");

    let endpoint = rethread(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(Some("99-7")).await;
    control.push_log("hello").await;
    let event = next(&mut get).await.expect("rethread: an open stream");
    assert_eq!(event.logged(), Some("hello"));
}

/// The handler calls `peer.create_elicitation` for a client of 2026-07-28.
#[tokio::test]
async fn stateless_client_can_be_asked() {
    let request = |meta: Value| {
        let params = json!({ "name": "ask", "arguments": {} });
        let (headers, mut body) = stateless(&json!(1), "tools/call", params, json!({}));
        if let (Some(params), Value::Object(more)) = (body["params"].as_object_mut(), meta) {
            params.extend(more);
        }
        (headers, body)
    };
    let send = async |addr, (headers, body): (Vec<(&str, String)>, Value)| {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        post(addr, &headers, &body.to_string()).await
    };
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let response = send(endpoint.addr, request(json!({}))).await;
    assert!(
        response.body.contains("no answer"),
        "rmcp: the question fails: {}",
        response.body
    );

    let endpoint = rethread(&control).await;
    let required = send(endpoint.addr, request(json!({}))).await.json();
    assert_eq!(
        required["result"]["resultType"], "input_required",
        "rethread: {required}"
    );
    let questions = required["result"]["inputRequests"].as_object().expect("a question");
    let (key, question) = questions.iter().next().expect("a question");
    assert_eq!(question["params"]["message"], "Who?");
    let retry = json!({
        "inputResponses": { key: { "action": "accept", "content": { "name": "Ada" } } },
        "requestState": required["result"]["requestState"],
    });
    let result = send(endpoint.addr, request(retry)).await.json();
    assert_eq!(result["result"]["content"][0]["text"], "Ada", "rethread: {result}");
}

/// The handler reports falling values.
#[tokio::test]
async fn progress_values_must_rise() {
    let steps = async |endpoint: Endpoint| {
        let session = Session::open(endpoint.addr).await;
        let arguments = json!({ "steps": 3, "backwards": true });
        let mut response = session.start_call(2, "work", &arguments).await;
        read_stream_head(&mut response).await;
        let events = rest(&mut response).await;
        events.iter().filter_map(Event::step).collect::<Vec<_>>()
    };
    let control = ServerControl::new();
    assert_eq!(steps(rmcp(&control).await).await, [3, 2, 1], "rmcp");
    assert_eq!(steps(rethread(&control).await).await, [3], "rethread");
}

/// The body is invalid JSON.
#[tokio::test]
async fn invalid_json_gets_a_json_rpc_error() {
    let control = ServerControl::new();
    let response = post(rmcp(&control).await.addr, &[], "{").await;
    assert_eq!(response.status, 415, "rmcp");
    assert_eq!(response.content_type(), "", "rmcp: {}", response.body);

    let response = post(rethread(&control).await.addr, &[], "{").await;
    assert_eq!(response.status, 400, "rethread");
    assert_eq!(response.json()["error"]["code"], -32700, "rethread: {}", response.body);
}

/// Both: progress arrives on the call's stream, before the result.
#[tokio::test]
async fn progress_goes_to_the_call_stream() {
    let control = ServerControl::new();
    for endpoint in [rmcp(&control).await, rethread(&control).await] {
        let session = Session::open(endpoint.addr).await;
        let mut get = session.get(None).await;
        let mut response = session.start_call(2, "work", &json!({ "steps": 2 })).await;
        read_stream_head(&mut response).await;
        let events = rest(&mut response).await;
        let steps: Vec<_> = events.iter().map(Event::step).collect();
        assert_eq!(steps, [Some(1), Some(2), None]);
        assert_eq!(events[2].text(), Some("2 steps"));
        assert_eq!(
            next_within(&mut get, QUIET_PERIOD).await,
            None,
            "nothing on the GET stream"
        );
    }
}
