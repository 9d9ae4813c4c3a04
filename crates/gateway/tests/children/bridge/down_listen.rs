//! Changes of a server of 2026-07-28 for clients with sessions (requirements 4.2).

use super::{bridge_with, open_session, wait_for_received, within};
use crate::client::{LATEST, tool_result};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";

/// 4.2, subscriptions and list changes: one subscription for all, without a gap.
#[tokio::test]
async fn line_4_2_subscriptions_become_one_listen() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let mut pushed = session.listen().await;
    wait_for_received(&gateway, "subscriptions/listen").await;
    for uri in ["a:1", "a:2"] {
        let reply = session
            .call(1, "resources/subscribe", json!({ "uri": uri }))
            .await
            .response()
            .await;
        assert_eq!(reply["result"], json!({}), "{reply}");
    }
    let refused = session
        .call(2, "resources/subscribe", json!({ "uri": "refuse:x" }))
        .await
        .response()
        .await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let changes =
        json!({ "methods": ["notifications/tools/list_changed", "notifications/resources/updated"], "uri": "a:2" });
    let state = tool_result(&session.call_tool(3, "change", changes.clone()).await);
    let filters: Vec<_> = state["filters"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f.get("resourceSubscriptions").is_some())
        .collect();
    assert_eq!(filters.len(), 1, "{state}");
    assert_eq!(filters[0]["resourceSubscriptions"], json!(["a:1", "a:2"]));
    assert_eq!(
        pushed.next().await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    let updated = pushed.next().await.unwrap();
    assert_eq!(updated["params"], json!({ "uri": "a:2" }), "no modern keys: {updated}");
    session
        .call(4, "resources/unsubscribe", json!({ "uri": "a:2" }))
        .await
        .response()
        .await;
    let only = |uri: &str| json!({ "methods": ["notifications/resources/updated"], "uri": uri });
    let state = tool_result(&session.call_tool(5, "change", only("a:1")).await);
    assert!(state["filters"].to_string().contains(r#"["a:1"]"#), "{state}");
    assert_eq!(pushed.next().await.unwrap()["params"]["uri"], "a:1");
}

/// 4.2: the server ends the subscription with a result or with `notifications/cancelled`. It is opened again, and one change of
/// each type follows.
#[tokio::test]
async fn line_4_2_ended_listen_is_opened_again_with_a_refresh() {
    for behavior in ["ends-listens", "cancels-listens"] {
        let gateway = bridge_with(&format!("modern,{behavior}")).start();
        let session = open_session(&gateway.client(), LATEST).await;
        let mut pushed = session.listen().await;
        let mut methods = Vec::new();
        for _ in 0..2 {
            let message = pushed.next().await;
            methods.push(message.expect("a change of each type comes")["method"].clone());
        }
        methods.sort_by_key(Value::to_string);
        assert_eq!(methods, [RESOURCES_CHANGED, TOOLS_CHANGED], "{behavior}");
        session.call_tool(1, "change", json!({})).await;
        assert_eq!(pushed.next().await.unwrap()["method"], TOOLS_CHANGED, "{behavior}");
    }
}

/// 4.2, list changes: a session with two GET streams gets each change on one of them.
#[tokio::test]
async fn line_4_2_list_change_is_delivered_on_one_stream() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let (sender, mut pushed) = mpsc::unbounded_channel();
    for _ in 0..2 {
        let (mut stream, sender) = (session.listen().await, sender.clone());
        tokio::spawn(async move {
            while let Some(message) = stream.next().await {
                sender.send(message).unwrap();
            }
        });
    }
    drop(sender);
    wait_for_received(&gateway, "subscriptions/listen").await;
    let changes = json!({ "methods": [TOOLS_CHANGED, RESOURCES_CHANGED] });
    tool_result(&session.call_tool(1, "change", changes).await);
    let mut methods = Vec::new();
    for _ in 0..2 {
        let message = within(pushed.recv()).await.expect("a change comes");
        assert_eq!(message["params"]["_meta"], Value::Null, "no modern keys: {message}");
        methods.push(message["method"].as_str().unwrap().to_owned());
    }
    methods.sort_unstable();
    assert_eq!(methods, [RESOURCES_CHANGED, TOOLS_CHANGED]);
    session.delete().await; // ends both streams
    assert_eq!(within(pushed.recv()).await, None, "each change came once");
}
