//! The form of answers.

use crate::client::{Event, SILENCE, Session, next, next_within, opened, post, rest};
use crate::desk::{Backstage, Endpoint, rethread, rmcp};
use rethread_testkit::client::stateless;
use serde_json::{Value, json};

/// A call that says nothing before its result.
#[tokio::test]
async fn a_silent_call_is_answered_with_json() {
    let text = json!({ "text": "hello" });
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let answer = Session::open(endpoint.addr).await.answer(2, "echo", &text).await;
    assert_eq!(answer.kind(), "text/event-stream", "rmcp");
    assert_eq!(answer.body.matches("data:").count(), 2, "rmcp: {}", answer.body);

    let endpoint = rethread(&backstage).await;
    let answer = Session::open(endpoint.addr).await.answer(2, "echo", &text).await;
    assert_eq!(answer.kind(), "application/json", "rethread");
    assert_eq!(answer.json()["result"]["content"][0]["text"], "hello");
}

/// A cursor that the server never gave.
#[tokio::test]
async fn an_unknown_cursor_is_no_dead_end() {
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(Some("7/99")).await;
    assert_eq!(rest(&mut get).await, [], "rmcp: an empty stream that ends");

    let endpoint = rethread(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(Some("99-7")).await;
    backstage.announce("hello").await;
    let event = next(&mut get).await.expect("rethread: a new stream that stays open");
    assert_eq!(event.logged(), Some("hello"));
}

/// The handler calls `peer.create_elicitation`, the client speaks 2026-07-28.
#[tokio::test]
async fn clients_of_2026_07_28_can_be_asked() {
    let asked = |meta: Value| {
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
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let answer = send(endpoint.addr, asked(json!({}))).await;
    assert!(
        answer.body.contains("no answer"),
        "rmcp: the question fails: {}",
        answer.body
    );

    let endpoint = rethread(&backstage).await;
    let wish = send(endpoint.addr, asked(json!({}))).await.json();
    assert_eq!(wish["result"]["resultType"], "input_required", "rethread: {wish}");
    let questions = wish["result"]["inputRequests"].as_object().expect("a question");
    let (key, question) = questions.iter().next().expect("a question");
    assert_eq!(question["params"]["message"], "Who?");
    let retry = json!({
        "inputResponses": { key: { "action": "accept", "content": { "name": "Ada" } } },
        "requestState": wish["result"]["requestState"],
    });
    let result = send(endpoint.addr, asked(retry)).await.json();
    assert_eq!(result["result"]["content"][0]["text"], "Ada", "rethread: {result}");
}

/// The handler counts down.
#[tokio::test]
async fn progress_rises() {
    let seen = async |endpoint: Endpoint| {
        let session = Session::open(endpoint.addr).await;
        let arguments = json!({ "steps": 3, "backwards": true });
        let mut answer = session.call(2, "work", &arguments).await;
        opened(&mut answer).await;
        let events = rest(&mut answer).await;
        events.iter().filter_map(Event::step).collect::<Vec<_>>()
    };
    let backstage = Backstage::new();
    assert_eq!(seen(rmcp(&backstage).await).await, [3, 2, 1], "rmcp");
    assert_eq!(seen(rethread(&backstage).await).await, [3], "rethread");
}

/// The body is no JSON.
#[tokio::test]
async fn a_refusal_says_why_in_json_rpc() {
    let backstage = Backstage::new();
    let answer = post(rmcp(&backstage).await.addr, &[], "{").await;
    assert_eq!(answer.status, 415, "rmcp");
    assert_eq!(answer.kind(), "", "rmcp: {}", answer.body);

    let answer = post(rethread(&backstage).await.addr, &[], "{").await;
    assert_eq!(answer.status, 400, "rethread");
    assert_eq!(answer.json()["error"]["code"], -32700, "rethread: {}", answer.body);
}

/// The same on both: what a call says with its progress token comes on its stream, before the result.
#[tokio::test]
async fn progress_travels_on_the_stream_of_its_call() {
    let backstage = Backstage::new();
    for endpoint in [rmcp(&backstage).await, rethread(&backstage).await] {
        let session = Session::open(endpoint.addr).await;
        let mut get = session.get(None).await;
        let mut answer = session.call(2, "work", &json!({ "steps": 2 })).await;
        opened(&mut answer).await;
        let events = rest(&mut answer).await;
        let steps: Vec<_> = events.iter().map(Event::step).collect();
        assert_eq!(steps, [Some(1), Some(2), None]);
        assert_eq!(events[2].text(), Some("2 steps"));
        assert_eq!(next_within(&mut get, SILENCE).await, None, "nothing elsewhere");
    }
}
