//! SEC-06: every stored string has a limit in bytes, and its refusal names the limit.

use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_11_25};
use rethread::{
    Call, Context, Handler, Limits, McpService, MemoryLimits, MemoryStore, Params, Principal, Reply as HandlerReply,
    RpcError,
};
use rethread_testkit::client::{Client, Reply};
use serde_json::{Value, json};

async fn body_of(reply: Reply) -> (u16, Value) {
    (reply.status.as_u16(), reply.json().await)
}

fn call(id: Value, token: Value) -> Value {
    let meta = json!({ "progressToken": token });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "x", "_meta": meta } })
}

/// A running call and its stream store the id. Without a limit, 260 calls with ids of 3 MB held 1 GB.
#[tokio::test]
async fn sec_06_long_ids_and_progress_tokens_are_refused() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let long = "i".repeat(Limits::default().id_bytes);
    for version in LEGACY_REVISIONS {
        let session = client.open(version).await;
        let (status, body) = body_of(session.post(&call(json!(long), json!(1))).await).await;
        assert_eq!((status, &body["error"]["code"]), (400, &json!(-32600)));
        assert!(body.get("id").is_none(), "a long id is not repeated");
        let (status, body) = body_of(session.post(&call(json!(7), json!(long))).await).await;
        assert_eq!(
            (status, &body["error"]["code"], &body["id"]),
            (400, &json!(-32602), &json!(7))
        );
    }
    let modern = client
        .stateless(long, "tools/call", json!({ "name": "x" }), json!({}))
        .await;
    assert_eq!(modern.status, 400);
    assert_eq!(modern.json().await["error"]["code"], -32600);
    assert_eq!(service.stats().running_calls, 0);
    assert_eq!(handler.started.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// The session stores the params of `initialize`.
#[tokio::test]
async fn sec_06_long_params_of_initialize_are_refused() {
    let (service, client) = ScriptedHandler::new().serve();
    let initialize = |bytes: usize| {
        let info = json!({ "name": "n".repeat(bytes), "version": "1" });
        let params = json!({ "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": info });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
    };
    let limit = Limits::default().initialize_bytes;
    let (status, body) = body_of(client.post(&initialize(limit)).await).await;
    assert_eq!((status, &body["error"]["code"]), (200, &json!(-32602)));
    assert!(body["error"]["message"].as_str().unwrap().contains("65536"), "{body}");
    assert_eq!(service.stats().sessions, 0);
    assert_eq!(client.post(&initialize(limit - 200)).await.status, 200);
}

#[tokio::test]
async fn sec_06_subscribed_uris_of_a_session_are_bounded_in_bytes() {
    let (_, client) = ScriptedHandler::new()
        .serve_with(|b| b.limits(Limits::default().with(|limits| limits.subscription_bytes_per_session = 100)));
    let session = client.open(V2025_11_25).await;
    let subscribe = async |id: u64, uri: &str| {
        let reply = session.call(id, "resources/subscribe", json!({ "uri": uri })).await;
        reply.json().await["error"]["code"].as_i64()
    };
    let (first, second) = ("a".repeat(60), "b".repeat(41));
    assert_eq!(subscribe(1, &first).await, None);
    assert_eq!(subscribe(2, &second).await, Some(-32602));
    assert_eq!(subscribe(3, &first).await, None, "it is subscribed already");
    session.call(4, "resources/unsubscribe", json!({ "uri": first })).await;
    assert_eq!(subscribe(5, &second).await, None, "there is room again");
}

#[tokio::test]
async fn sec_06_filters_of_listen_streams_are_bounded_in_bytes() {
    let (service, client) = ScriptedHandler::new().serve();
    let listen = async |bytes: usize| {
        let filter = json!({ "notifications": { "resourceSubscriptions": ["u".repeat(bytes)] } });
        client.stateless(1, "subscriptions/listen", filter, json!({})).await
    };
    let limit = Limits::default().uri_bytes_per_subscription;
    let refused = listen(limit).await.json().await;
    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!(service.stats().subscriptions, 0);
    let mut events = listen(limit - 4).await.events();
    assert_eq!(
        events.next().await.data["method"],
        "notifications/subscriptions/acknowledged"
    );
}

/// A handler that serves `subscriptions/listen` itself, as a gateway does, keeps the filter as long as the transport would.
#[tokio::test]
async fn sec_06_filters_are_bounded_for_handlers_that_serve_listen_themselves() {
    struct Listening;

    impl Handler for Listening {
        fn serves_subscription(&self, _: &Params, _: &Principal) -> bool {
            true
        }

        async fn handle(&self, _: Call, _: &Context) -> Result<HandlerReply, RpcError> {
            Ok(HandlerReply::empty())
        }
    }

    let client = Client::new(McpService::builder(Listening).build());
    let listen = async |bytes: usize| {
        let filter = json!({ "notifications": { "resourceSubscriptions": ["u".repeat(bytes)] } });
        let reply = client.stateless(1, "subscriptions/listen", filter, json!({})).await;
        reply.json().await["error"]["code"].as_i64()
    };
    let limit = Limits::default().uri_bytes_per_subscription;
    assert_eq!(listen(limit).await, Some(-32602));
    assert_eq!(listen(limit - 4).await, None);
}

/// D13: a full store refuses a new session with an error.
#[tokio::test]
async fn d13_session_records_count_against_the_total_of_the_store() {
    let limits = MemoryLimits::default().with_total_bytes(64 << 10);
    let store = MemoryStore::new(limits);
    let (_, client) = ScriptedHandler::new().serve_with(|b| b.store(store.clone()));
    let info = json!({ "name": "n".repeat(8 << 10), "version": "1" });
    let params = json!({ "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": info });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let mut opened = 0;
    let refused = loop {
        let reply = client.post(&initialize).await;
        if reply.status != 200 {
            break reply;
        }
        opened += 1;
        assert!(opened < 8, "{opened} records of 8 KiB are held in 64 KiB");
    };
    assert_eq!((opened, refused.status.as_u16()), (7, 503));
    assert!(refused.header("retry-after").is_some());
    assert!(store.held_bytes() <= 64 << 10);
}
