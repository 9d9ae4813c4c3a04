//! Change notifications and their recipients.

use crate::fixture::ServerControl;
use crate::support::{Caller, LEGACY_REVISIONS, serve};
use rethread_testkit::client::{Client, Events};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn methods(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|m| m["method"].as_str().unwrap_or("answer"))
        .collect()
}

/// Only subscribed sessions get resource updates. A custom notification stays on its call's stream.
#[tokio::test]
async fn session_changes_go_to_the_get_stream() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in LEGACY_REVISIONS {
        let session = endpoint.client.open(version).await;
        let bystander = endpoint.client.open(version).await;
        let mut push = session.get(None).await.events();
        let mut other = bystander.get(None).await.events();

        let messages = session
            .tool(1, "changes", json!({ "tag": "x" }))
            .await
            .events()
            .rest()
            .await;
        let own: Vec<_> = messages.into_iter().map(|m| m.data).collect();
        assert_eq!(methods(&own), ["notifications/fixture/custom", "answer"], "{version}");
        assert_eq!(own[0]["params"], json!({ "tag": "x" }));
        let (tools, resources) = (
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
        );
        for expected in [tools, resources] {
            // The server does not declare `prompts.listChanged`, and the client has not subscribed to the resource.
            assert_eq!(push.next().await.data["method"], expected, "{version}");
        }

        let reply = session
            .call(2, "resources/subscribe", json!({ "uri": "mem://a" }))
            .await;
        assert_eq!(reply.json().await["result"], json!({}));
        control.wait_for("subscribe mem://a").await;
        session.tool(3, "changes", json!({})).await.bytes().await;
        for expected in [tools, resources] {
            assert_eq!(push.next().await.data["method"], expected, "{version}");
        }
        let updated = push.next().await.data;
        assert_eq!(updated["method"], "notifications/resources/updated", "{version}");
        assert_eq!(updated["params"], json!({ "uri": "mem://a" }));

        session
            .call(4, "resources/unsubscribe", json!({ "uri": "mem://a" }))
            .await;
        control.wait_for("unsubscribe mem://a").await;
        endpoint
            .service
            .notifier()
            .broadcast("notifications/fixture/end", json!({}));
        assert_eq!(
            other.next().await.data["method"],
            "notifications/fixture/end",
            "the other session got nothing before"
        );
    }
}

fn client_of(client: &Client, name: &'static str) -> Client {
    client.with_request_hook(move |request| {
        request.headers_mut().insert("x-caller", name.parse().unwrap());
    })
}

async fn listen(client: &Client, id: i64) -> Events {
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["mem://a"] });
    let params = json!({ "notifications": filter });
    let mut events = client
        .stateless(id, "subscriptions/listen", params, json!({}))
        .await
        .events();
    let acknowledged = events.next().await.data;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], filter);
    events
}

fn subscription(message: &Value) -> &Value {
    &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

/// SUB-02 to SUB-05: changes by a call go to subscriptions of the same caller only.
#[tokio::test]
async fn sub_05_stateless_changes_go_to_the_callers_subscriptions() {
    for server_handles in [false, true] {
        let control = Arc::new(ServerControl::default());
        control.handles_subscriptions.store(server_handles, Ordering::Relaxed);
        let endpoint = serve(control.handler()).await;
        let (ada, bob) = (client_of(&endpoint.client, "ada"), client_of(&endpoint.client, "bob"));
        let (mut hers, mut his) = (listen(&ada, 7).await, listen(&bob, 8).await);
        for (events, id) in [(&mut hers, 7), (&mut his, 8)] {
            if server_handles {
                // The server's `listen` sends this through its sink.
                let first = events.next().await.data;
                assert_eq!(first["method"], "notifications/tools/list_changed");
                assert_eq!(subscription(&first), id);
            }
        }
        let caller = Caller::new(&ada, "2026-07-28").await;
        let messages = caller
            .tool(1, "changes", json!({ "tag": "x" }))
            .await
            .events()
            .rest()
            .await;
        assert_eq!(
            messages[0].data["method"], "notifications/fixture/custom",
            "the call's own notification"
        );
        let mut received = [hers.next().await.data, hers.next().await.data];
        received.sort_by_key(|message| message["method"].to_string());
        assert_eq!(
            methods(&received),
            ["notifications/resources/updated", "notifications/tools/list_changed"],
            "server handles subscriptions: {server_handles}"
        );
        assert_eq!(received[0]["params"]["uri"], "mem://a");
        assert!(
            received.iter().all(|message| subscription(message) == 7),
            "{received:?}"
        );

        let caller = Caller::new(&bob, "2026-07-28").await;
        caller.tool(1, "changes", json!({})).await.bytes().await;
        let next = his.next().await.data;
        assert_eq!(subscription(&next), 8, "bob received a change of ada");
        assert!(hers.is_silent_for(std::time::Duration::from_millis(100)).await);
        if server_handles {
            drop(hers);
            control.wait_for("subscription ended").await; // SUB-07
        }
    }
}
