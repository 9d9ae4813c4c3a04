//! Changes: who is told of them.

use crate::stage::Script;
use crate::support::{Caller, SESSIONS, serve};
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

/// SUB (sessions): changes go to a GET stream of the session, and to nobody who did not subscribe; a handler's own
/// notification stays with its call.
#[tokio::test]
async fn in_a_session_changes_go_to_the_get_stream() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in SESSIONS {
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
        assert_eq!(methods(&own), ["notifications/stage/custom", "answer"], "{version}");
        assert_eq!(own[0]["params"], json!({ "tag": "x" }));
        let (tools, resources) = (
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
        );
        for expected in [tools, resources] {
            // Prompts are not declared to change; the resource is not subscribed to.
            assert_eq!(push.next().await.data["method"], expected, "{version}");
        }

        let reply = session
            .call(2, "resources/subscribe", json!({ "uri": "mem://a" }))
            .await;
        assert_eq!(reply.json().await["result"], json!({}));
        script.until("subscribe mem://a").await;
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
        script.until("unsubscribe mem://a").await;
        endpoint
            .service
            .notifier()
            .broadcast("notifications/stage/end", json!({}));
        assert_eq!(
            other.next().await.data["method"],
            "notifications/stage/end",
            "another session heard nothing"
        );
    }
}

fn known_as(client: &Client, name: &'static str) -> Client {
    client.prepared(move |request| {
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

/// SUB-02 to SUB-05: without sessions the caller's own subscriptions hear of what its calls change, and no one else's.
#[tokio::test]
async fn sub_05_without_a_session_changes_go_to_the_callers_subscriptions() {
    for own in [false, true] {
        let script = Arc::new(Script::default());
        script.listens.store(own, Ordering::Relaxed);
        let endpoint = serve(script.handler()).await;
        let (ada, bob) = (known_as(&endpoint.client, "ada"), known_as(&endpoint.client, "bob"));
        let (mut hers, mut his) = (listen(&ada, 7).await, listen(&bob, 8).await);
        for (events, id) in [(&mut hers, 7), (&mut his, 8)] {
            if own {
                // A server that serves subscriptions itself has its say through its sink.
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
            messages[0].data["method"], "notifications/stage/custom",
            "the call's own"
        );
        let mut heard = [hers.next().await.data, hers.next().await.data];
        heard.sort_by_key(|message| message["method"].to_string());
        assert_eq!(
            methods(&heard),
            ["notifications/resources/updated", "notifications/tools/list_changed"],
            "own: {own}"
        );
        assert_eq!(heard[0]["params"]["uri"], "mem://a");
        assert!(heard.iter().all(|message| subscription(message) == 7), "{heard:?}");

        let caller = Caller::new(&bob, "2026-07-28").await;
        caller.tool(1, "changes", json!({})).await.bytes().await;
        let next = his.next().await.data;
        assert_eq!(
            subscription(&next),
            8,
            "bob's stream had nothing of ada's in it before this"
        );
        assert!(hers.is_silent_for(std::time::Duration::from_millis(100)).await);
        if own {
            drop(hers);
            script.until("no longer listening").await; // SUB-07
        }
    }
}
