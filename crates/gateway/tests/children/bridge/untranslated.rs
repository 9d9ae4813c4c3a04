//! Messages that have no counterpart in the other era (4.1, 4.2).

use super::caller::Caller;
use super::leases::dropped;
use super::{REVISIONS, bridge_with, open_session, received};
use crate::client::{LATEST, tool_result};
use crate::monitoring::monitor;
use http::StatusCode;
use serde_json::{Value, json};

/// 4.1, `ping`, `logging/setLevel` and `resources/subscribe` from the client: its revision has none of them.
#[tokio::test]
async fn line_4_1_requests_of_sessions_are_unknown_methods() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        let params = json!({ "level": "debug", "uri": "a:1" });
        let reply = caller.send(1, method, params, json!({})).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{method}");
        assert_eq!(reply.response().await["error"]["code"], -32601, "{method}");
        tool_result(&caller.call(2, "echo", json!({})).await);
        assert_eq!(received(&gateway, method), [] as [Value; 0], "{method}");
    }
}

/// 4.1, `ping` from the child: the gateway answers, during any request.
#[tokio::test]
async fn line_4_1_ping_of_the_child_is_answered_by_the_gateway() {
    let gateway = bridge_with("legacy").start();
    for capabilities in [json!({}), json!({ "elicitation": {} })] {
        let caller = Caller::new(&gateway, "ada").with_capabilities(capabilities);
        let reply = caller.start(1, "ask", json!({ "kinds": ["ping"] }), json!({})).await;
        let messages = reply.messages().await;
        assert_eq!(messages.len(), 1, "the client sees no ping: {messages:?}");
        assert_eq!(tool_result(&messages[0])["answers"], json!([{}]));
        let reply = caller
            .send(2, "completion/complete", json!({ "asks": ["ping"] }), json!({}))
            .await;
        let messages = reply.messages().await;
        assert_eq!(messages.len(), 1, "the client sees no ping: {messages:?}");
        assert_eq!(messages[0]["result"]["completion"]["values"], json!(["a", "b", "{}"]));
    }
}

/// 4.1, questions during other methods: the child gets an error, and the client sees nothing.
#[tokio::test]
async fn line_4_1_question_during_another_method_is_refused() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let params = json!({ "asks": ["form", "sample", "roots"] });
    let reply = caller.send(1, "completion/complete", params, json!({})).await;
    let messages = reply.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let values = messages[0]["result"]["completion"]["values"].as_array().unwrap();
    let code = |value: &Value| serde_json::from_str::<Value>(value.as_str().unwrap()).unwrap()["error"]["code"].clone();
    let codes: Vec<_> = values[2..].iter().map(code).collect();
    assert_eq!(codes, [-32602, -32602, -32601]);
}

/// 4.1, `notifications/elicitation/complete` and `notifications/tasks/status`.
#[tokio::test]
async fn line_4_1_notifications_of_elicitations_and_tasks_are_dropped_and_counted() {
    let gateway = bridge_with("legacy").option("--metrics 127.0.0.1:0").start();
    let monitor = monitor(&gateway).await;
    let caller = Caller::new(&gateway, "ada");
    let (mut changes, _) = caller.listen(1, json!({ "toolsListChanged": true })).await;
    let methods = [
        "notifications/elicitation/complete",
        "notifications/tasks/status",
        "notifications/tools/list_changed",
    ];
    let reply = caller
        .start(2, "change", json!({ "methods": methods }), json!({}))
        .await;
    let messages = reply.messages().await;
    assert_eq!(messages.len(), 1, "the call has its response only: {messages:?}");
    assert_eq!(
        changes.next().await.unwrap()["method"],
        methods[2],
        "the others came earlier"
    );
    assert_eq!(dropped(&monitor, "up", "notification").await, 2.0);
}

/// 4.2, `ping`.
#[tokio::test]
async fn line_4_2_ping_is_answered_by_the_gateway() {
    let gateway = bridge_with("modern").start();
    for version in REVISIONS {
        let session = open_session(&gateway.client(), version).await;
        let pong = session.call(1, "ping", json!({})).await.response().await;
        assert_eq!((&pong["id"], &pong["result"]), (&json!(1), &json!({})), "{version}");
        tool_result(&session.call_tool(2, "echo", json!({})).await);
    }
    assert_eq!(received(&gateway, "ping"), [] as [Value; 0]);
}

/// 4.2, `roots/list_changed` from the client.
#[tokio::test]
async fn line_4_2_changed_roots_are_accepted_and_dropped() {
    let gateway = bridge_with("modern").start();
    let method = "notifications/roots/list_changed";
    for version in REVISIONS {
        let session = open_session(&gateway.client(), version).await;
        let reply = session.post(&json!({ "jsonrpc": "2.0", "method": method })).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{version}");
        tool_result(&session.call_tool(1, "echo", json!({})).await);
    }
    assert_eq!(received(&gateway, method), [] as [Value; 0]);
}

/// 4.2, D `tasks` param: the capability is not offered, and a call with `task` is an ordinary one.
#[tokio::test]
async fn line_4_2_task_of_a_call_is_ignored() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let capabilities = &session.initialize_response["result"]["capabilities"];
    assert_eq!(capabilities.get("tasks"), None, "{capabilities}");
    let params = json!({ "name": "echo", "arguments": { "text": "now" }, "task": { "ttl": 60_000 } });
    let reply = session.call(1, "tools/call", params).await.response().await;
    assert_eq!(reply["result"].get("task"), None, "{reply}");
    let echo = tool_result(&reply);
    assert_eq!(
        (&echo["text"], &echo["params"]),
        (&json!("now"), &json!(["_meta", "arguments", "name"]))
    );
}
