//! Limits that hold for all nodes together, with two nodes on a real Redis. Refusals are those of one node.

use crate::store_loss::Stateless;
use crate::support::{ScriptedHandler, V2025_11_25, as_principal, push};
use rethread::{Limits, McpService};
use rethread_store_redis::{RedisCluster, RedisOptions};
use rethread_testkit::client::{Client, Reply};
use rethread_testkit::redis_server::RedisServer;
use serde_json::json;
use std::time::Duration;

/// A connection on another node is closed within this time.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Two nodes with the same limits, each with a client of its own.
struct TwoNodes {
    handler: ScriptedHandler,
    services: [McpService; 2],
    clients: [Client; 2],
    _redis: RedisServer,
}

impl TwoNodes {
    /// `None` without a Redis.
    async fn start(change: impl Fn(&mut Limits)) -> Option<Self> {
        let redis = RedisServer::start()?;
        let handler = ScriptedHandler::new();
        let (mut services, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let options = RedisOptions::parse(&redis.url()).unwrap();
            let cluster = RedisCluster::connect(options).await.unwrap();
            let store = cluster.store("limits").await.unwrap();
            let limits = Limits::default().with(&change);
            // Sessions have no owner, so each node serves its own requests.
            let builder = McpService::builder(Stateless(handler.clone()));
            let service = builder.limits(limits).store(store).build();
            service.join().await;
            clients.push(Client::new(service.clone()));
            services.push(service);
        }
        Some(TwoNodes {
            handler,
            services: services.try_into().ok()?,
            clients: clients.try_into().ok()?,
            _redis: redis,
        })
    }
}

async fn initialize(client: &Client) -> Reply {
    let params = json!({
        "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "testkit", "version": "1" },
    });
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params });
    client.post(&request).await
}

/// OPS-16: sessions of all nodes count, in total and for each principal. The end of one makes room on every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ops_16_sessions_of_all_nodes_are_bounded() {
    let Some(nodes) = TwoNodes::start(|limits| {
        limits.sessions = 3;
        limits.sessions_per_principal = 2;
    })
    .await
    else {
        return;
    };
    let [one, two] = &nodes.clients;
    let (alice_one, alice_two) = (as_principal(one, "alice"), as_principal(two, "alice"));
    let first = alice_one.open(V2025_11_25).await;
    let _second = alice_two.open(V2025_11_25).await;
    for client in [&alice_one, &alice_two] {
        assert_eq!(initialize(client).await.status, 429, "two sessions of alice");
    }
    let _third = two.open(V2025_11_25).await;
    for client in [one, two] {
        let refused = initialize(client).await;
        assert_eq!(refused.status, 503, "three sessions in all");
        assert_eq!(refused.json().await["id"], 7);
        let sse = |service: &McpService| Client::new(service.http_sse("/messages"));
        let sse = sse(&nodes.services[usize::from(std::ptr::eq(client, two))]);
        let refused = sse.request("GET", &[("accept", "text/event-stream")], "").await;
        assert_eq!(refused.status, 503, "a 2024-11-05 session");
    }
    let ended = first.with_client(&alice_two).delete().await;
    assert_eq!(ended.status, 204);
    assert_eq!(initialize(one).await.status, 200, "there is room");
    assert_eq!(initialize(two).await.status, 503);
}

/// GET-03: a GET on one node closes the oldest one, on another node. It may resume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_03_gets_of_all_nodes_close_the_oldest() {
    let Some(nodes) = TwoNodes::start(|limits| limits.push_streams_per_session = 2).await else {
        return;
    };
    let session = nodes.clients[0].open(V2025_11_25).await;
    let elsewhere = session.with_client(&nodes.clients[1]);
    let mut first = session.get(None).await.events();
    // The store counts a GET after its response has begun: a message on it shows that.
    push(&nodes.handler, &session, 1..2).await;
    let seen = first.next().await;
    let mut second = elsewhere.get(None).await.events();
    loop {
        push(&nodes.handler, &session, 2..3).await;
        let on_second = tokio::time::timeout(Duration::from_millis(300), second.next()).await;
        if on_second.is_ok() {
            break;
        }
    }
    let _third = elsewhere.get(None).await;
    let closed = async { while first.message().await.is_some() {} };
    let closed = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    assert!(closed.is_ok(), "the oldest makes room");
    let again = session.get(seen.id.as_deref()).await;
    assert_eq!(again.status, 200, "and may come back");
}

/// SEC-06: subscribed resources of a session count on every node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sec_06_subscriptions_of_a_session_are_bounded_across_nodes() {
    let Some(nodes) = TwoNodes::start(|limits| limits.subscriptions_per_session = 2).await else {
        return;
    };
    let session = nodes.clients[0].open(V2025_11_25).await;
    let sessions = [session.clone(), session.with_client(&nodes.clients[1])];
    let call = async |at: usize, method: &str, uri: &str| {
        let reply = sessions[at].call(uri, method, json!({ "uri": uri })).await;
        reply.answer().await["error"]["code"].as_i64()
    };
    assert_eq!(call(0, "resources/subscribe", "test://a").await, None);
    assert_eq!(call(1, "resources/subscribe", "test://b").await, None);
    for at in [0, 1] {
        assert_eq!(call(at, "resources/subscribe", "test://c").await, Some(-32602));
    }
    assert_eq!(call(1, "resources/unsubscribe", "test://a").await, None);
    assert_eq!(call(0, "resources/subscribe", "test://c").await, None, "there is room");
}
