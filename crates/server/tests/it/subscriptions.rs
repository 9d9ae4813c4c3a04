//! `subscriptions/listen` (SUB-01 to SUB-08).

use crate::support::{ScriptedHandler, V2025_11_25};
use rethread::{Limits, ListKind, Principal};
use rethread_testkit::client::{Client, Events, Reply};
use serde_json::{Value, json};
use std::time::Duration;

const ID: &str = "io.modelcontextprotocol/subscriptionId";
const QUIET_PERIOD: Duration = Duration::from_millis(20);

async fn listen(client: &Client, id: impl Into<Value>, filter: Value) -> Reply {
    client
        .stateless(
            id,
            "subscriptions/listen",
            json!({ "notifications": filter }),
            json!({}),
        )
        .await
}

async fn acknowledged(reply: Reply) -> (Events, Value) {
    let mut events = reply.events();
    let first = events.next().await;
    assert_eq!(first.id, None);
    assert_eq!(first.data["method"], "notifications/subscriptions/acknowledged");
    (events, first.data["params"].clone())
}

/// SUB-02, SUB-03: the acknowledgement comes first. `7` and `"7"` are different ids.
#[tokio::test]
async fn sub_03_ids_keep_their_type() {
    let (service, client) = ScriptedHandler::new().serve();
    for id in [json!(7), json!("7")] {
        let (mut events, ack) =
            acknowledged(listen(&client, id.clone(), json!({ "toolsListChanged": true })).await).await;
        assert_eq!(
            ack,
            json!({ "_meta": { ID: id }, "notifications": { "toolsListChanged": true } })
        );
        service.notifier().list_changed(ListKind::Tools);
        let change = events.next().await.data;
        assert_eq!(change["method"], "notifications/tools/list_changed");
        assert_eq!(change["params"]["_meta"][ID], id);
    }
}

/// SUB-04, SUB-05: a stream gets only the kinds in its filter.
#[tokio::test]
async fn sub_05_every_matching_stream_gets_its_own_copy() {
    let (service, client) = ScriptedHandler::new().serve();
    let legacy = client.open(V2025_11_25).await;
    let mut get = legacy.get(None).await.events();
    let (mut tools, _) = acknowledged(listen(&client, 1, json!({ "toolsListChanged": true })).await).await;
    let both = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["test://a"] });
    let (mut both, _) = acknowledged(listen(&client, 2, both).await).await;
    let (mut prompts, _) = acknowledged(listen(&client, 3, json!({ "promptsListChanged": true })).await).await;
    let notifier = service.notifier();
    notifier.list_changed(ListKind::Tools);
    notifier.list_changed(ListKind::Prompts);
    notifier.list_changed(ListKind::Resources);
    notifier.resource_updated("test://a/below");
    notifier.resource_updated("test://other");
    notifier.broadcast("notifications/message", json!({ "level": "info", "data": "x" }));
    let methods = |messages: Vec<Value>| -> Vec<String> {
        messages
            .iter()
            .map(|m| {
                m["method"]
                    .as_str()
                    .unwrap()
                    .rsplit("notifications/")
                    .next()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    let mut received = vec![both.next().await.data, both.next().await.data, both.next().await.data];
    assert_eq!(received[2]["params"]["uri"], "test://a/below");
    assert!(received.iter().all(|m| m["params"]["_meta"][ID] == 2));
    assert_eq!(
        methods(std::mem::take(&mut received)),
        ["tools/list_changed", "prompts/list_changed", "resources/updated"]
    );
    assert_eq!(methods(vec![tools.next().await.data]), ["tools/list_changed"]);
    assert_eq!(methods(vec![prompts.next().await.data]), ["prompts/list_changed"]);
    for events in [&mut tools, &mut both, &mut prompts] {
        assert!(events.is_silent_for(QUIET_PERIOD).await);
    }
    // The same change reaches sessions.
    assert_eq!(
        get.next().await.data,
        json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
    );
}

/// SUB-01, SUB-08.
#[tokio::test]
async fn sub_01_filters_are_validated() {
    let (service, client) = ScriptedHandler::new().serve();
    for wrong in [
        json!(null),
        json!([]),
        json!({ "toolsListChanged": 1 }),
        json!({ "resourceSubscriptions": "x" }),
    ] {
        let reply = listen(&client, 1, wrong.clone()).await;
        assert!(!reply.is_stream(), "{wrong}");
        assert_eq!(reply.json().await["error"]["code"], -32602);
    }
    let many: Vec<_> = (0..300).map(|n| format!("test://{n}")).collect();
    assert_eq!(
        listen(&client, 1, json!({ "resourceSubscriptions": many }))
            .await
            .json()
            .await["error"]["code"],
        -32602
    );
    let (_events, ack) =
        acknowledged(listen(&client, 1, json!({ "unknown": true, "toolsListChanged": false })).await).await;
    assert_eq!(ack["notifications"], json!({}));
    assert_eq!(service.stats().subscriptions, 1);
}

/// SUB-08: a paused reader has a bounded cost and gets every kind once.
#[tokio::test]
async fn sub_08_burst_collapses_for_a_slow_reader() {
    let (service, client) = ScriptedHandler::new().serve();
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://a"] });
    let (mut events, _) = acknowledged(listen(&client, 1, filter).await).await;
    for _ in 0..500 {
        service.notifier().list_changed(ListKind::Tools);
        service.notifier().resource_updated("test://a");
    }
    tokio::time::sleep(QUIET_PERIOD * 10).await;
    events.next().await;
    events.next().await;
    assert!(events.is_silent_for(QUIET_PERIOD).await);
}

/// SUB-06, SUB-07.
#[tokio::test]
async fn sub_06_shutdown_ends_subscriptions_with_a_result() {
    let (service, client) = ScriptedHandler::new().serve();
    let (events, _) = acknowledged(listen(&client, 1, json!({})).await).await;
    assert_eq!(service.stats().subscriptions, 1);
    drop(events);
    assert_eq!((service.stats().subscriptions, service.stats().connections), (0, 0));
    let (mut events, _) = acknowledged(listen(&client, "last", json!({ "toolsListChanged": true })).await).await;
    let draining = tokio::spawn({
        let service = service.clone();
        async move { service.shutdown(Duration::from_secs(5)).await }
    });
    let rest = events.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].data["id"], "last");
    assert_eq!(rest[0].data["result"]["resultType"], "complete");
    assert_eq!(rest[0].data["result"]["_meta"][ID], "last");
    drop(events);
    draining.await.unwrap();
    assert_eq!(listen(&client, 2, json!({})).await.status, 503);
}

#[tokio::test]
async fn sub_08_subscriptions_are_bounded() {
    let (_, client) = ScriptedHandler::new().serve_with(|b| {
        b.limits(Limits::default().with(|limits| {
            limits.subscriptions = 3;
            limits.subscriptions_per_principal = 1;
        }))
    });
    let alice = client.with_request_hook(|r| {
        r.extensions_mut().insert(Principal::new("i", "alice"));
    });
    let _one = listen(&alice, 1, json!({})).await;
    assert_eq!(listen(&alice, 2, json!({})).await.status, 429);
    let _more = [listen(&client, 1, json!({})).await, listen(&client, 2, json!({})).await];
    assert_eq!(listen(&client, 3, json!({})).await.status, 503);
}
