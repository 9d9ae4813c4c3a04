//! GW-23: a session that nobody uses leaves the memory, and its next request restores it.

use crate::support::{ScriptedHandler, V2025_11_25, flaky_store, push, result_text};
use rethread::{
    Call, Context, Handler, LogLevel, McpService, MemoryStore, Peer, Reply, Restore, RpcError, ServerInfo,
    UnusedSessions,
};
use rethread_testkit::client::{Client, Session};
use rethread_testkit::flaky::Switches;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const UNUSED: Duration = Duration::from_secs(60);
/// Longer than `UNUSED` and two sweeps.
const AFTER_UNUSED: Duration = Duration::from_secs(63);

fn unloading(handler: &ScriptedHandler, store: &MemoryStore) -> (McpService, Client) {
    handler.serve_with(|b| b.store(store.clone()).unused_sessions(UnusedSessions::Unload(UNUSED)))
}

async fn echo(session: &Session, id: u64) -> String {
    let reply = session.tool(id, "echo", json!({ "message": "again" })).await;
    assert_eq!(reply.status, 200);
    result_text(&reply.json().await).to_owned()
}

#[tokio::test(start_paused = true)]
async fn gw_23_used_session_leaves_the_memory_and_is_restored() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (service, client) = unloading(&handler, &store);
    let session = client.open(V2025_11_25).await;
    session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
    for life in 0..3 {
        assert_eq!(echo(&session, 10 + life).await, "again");
        assert_eq!(service.stats().sessions, 1);
        tokio::time::sleep(UNUSED / 2).await;
        assert_eq!(service.stats().sessions, 1, "not before its time");
        tokio::time::sleep(AFTER_UNUSED / 2).await;
        assert_eq!((service.stats().sessions, store.sessions()), (0, 1), "only its record");
    }
    // The record has the level.
    let script = handler.script("a");
    let ((), reply) = tokio::join!(
        async {
            script.log(LogLevel::Info, "too low").await;
            script.log(LogLevel::Error, "above the level").await;
            script.finish("done").await;
        },
        session.tool(5, "a", json!({})),
    );
    let messages = reply.events().rest().await;
    assert_eq!(messages.len(), 2, "one log message and the result");
    assert_eq!(messages[0].data["params"]["data"], "above the level");
}

/// Streams of an unloaded session are resumed, and messages that waited are delivered once.
#[tokio::test(start_paused = true)]
async fn gw_23_unloaded_session_loses_no_message() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (service, client) = unloading(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let mut get = session.get(None).await.events();
    push(&handler, &session, 1..3).await;
    assert_eq!(get.next().await.data["params"]["data"], 1);
    let cursor = get.cursor().to_owned();
    drop(get);
    push(&handler, &session, 3..5).await;
    tokio::time::sleep(AFTER_UNUSED).await;
    assert_eq!(service.stats().sessions, 0);
    let mut get = session.resume(&cursor).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(get.next().await.data["params"]["data"].as_u64()); // others are the refresh
    }
    assert_eq!(seen, [2, 3, 4]);
    drop(get);
    // The store no longer has what was delivered.
    tokio::time::sleep(AFTER_UNUSED).await;
    assert_eq!(service.stats().sessions, 0);
    let mut get = session.get(None).await.events();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(1), get.message()).await {
        assert!(event.data["params"]["data"].is_null(), "{}", event.data);
    }
}

/// Each use keeps a session in memory.
#[tokio::test(start_paused = true)]
async fn gw_23_session_in_use_stays_in_memory() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (service, client) = unloading(&handler, &store);
    let reading = client.open(V2025_11_25).await;
    let get = reading.get(None).await.events();
    let subscribed = client.open(V2025_11_25).await;
    subscribed
        .call(1, "resources/subscribe", json!({ "uri": "test://a" }))
        .await;
    let calling = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(calling.tool(1, "a", json!({})), script.progress(1));
    drop(reply); // the call goes on
    tokio::time::sleep(AFTER_UNUSED * 2).await;
    assert_eq!(service.stats().sessions, 3);
    drop(get);
    script.finish("done").await;
    subscribed
        .call(2, "resources/unsubscribe", json!({ "uri": "test://a" }))
        .await;
    tokio::time::sleep(AFTER_UNUSED).await;
    assert_eq!(service.stats().sessions, 0);
}

/// A change that the store lacks would be lost with the memory.
#[tokio::test(start_paused = true)]
async fn gw_23_session_stays_in_memory_until_the_store_has_it() {
    for fail in [Switches::fail_sessions, Switches::fail_queues] {
        let store = MemoryStore::default();
        let (flaky, switches) = flaky_store(&store);
        let handler = ScriptedHandler::new();
        let (service, client) = handler.serve_with(|b| b.store(flaky).unused_sessions(UnusedSessions::Unload(UNUSED)));
        let session = client.open(V2025_11_25).await;
        fail(&switches, true);
        session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
        push(&handler, &session, 1..2).await;
        tokio::time::sleep(AFTER_UNUSED).await;
        assert_eq!(service.stats().sessions, 1, "the store lacks a change");
        fail(&switches, false);
        tokio::time::sleep(AFTER_UNUSED).await;
        assert_eq!(service.stats().sessions, 0);
        let mut get = session.get(None).await.events();
        let mut data = Vec::new();
        while data.is_empty() {
            data.extend(get.next().await.data["params"]["data"].as_u64());
        }
        assert_eq!(data, [1]);
    }
}

/// A handler that answers at once, and can refuse that its sessions leave the memory.
#[derive(Clone, Default)]
struct Stateful {
    refuses: Arc<AtomicBool>,
    closed: Arc<AtomicUsize>,
}

impl Handler for Stateful {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("stateful", "1.0.0")
    }

    async fn handle(&self, _: Call, _: &Context) -> Result<Reply, RpcError> {
        tokio::task::yield_now().await;
        Ok(Reply::empty())
    }

    fn on_session_closed(&self, _: &rethread::SessionId) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    fn may_unload(&self, _: &Peer) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn gw_23_handler_may_refuse_the_unload() {
    let handler = Stateful::default();
    handler.refuses.store(true, Ordering::Relaxed);
    let service = McpService::builder(handler.clone())
        .unused_sessions(UnusedSessions::Unload(UNUSED))
        .build();
    let session = Client::new(service.clone()).open(V2025_11_25).await;
    session.call(1, "tools/list", json!({})).await;
    tokio::time::sleep(AFTER_UNUSED).await;
    assert_eq!(service.stats().sessions, 1);
    handler.refuses.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        (service.stats().sessions, handler.closed.load(Ordering::Relaxed)),
        (0, 1)
    );
    assert_eq!(session.call(2, "tools/list", json!({})).await.status, 200);
}

/// A session that cannot be restored stays in memory.
#[tokio::test(start_paused = true)]
async fn gw_23_session_that_is_not_restored_stays_in_memory() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (service, client) = handler.serve_with(|b| {
        b.store(store.clone())
            .restore(Restore::Expire)
            .unused_sessions(UnusedSessions::Unload(UNUSED))
    });
    let session = client.open(V2025_11_25).await;
    tokio::time::sleep(AFTER_UNUSED).await;
    assert_eq!(service.stats().sessions, 1);
    assert_eq!(echo(&session, 1).await, "again");
}

/// Only a session that was never used ends.
#[tokio::test(start_paused = true)]
async fn gw_23_used_session_does_not_end_as_unused() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.unused_sessions(UnusedSessions::End(UNUSED)));
    let (used, unused) = (client.open(V2025_11_25).await, client.open(V2025_11_25).await);
    assert_eq!(echo(&used, 1).await, "again");
    tokio::time::sleep(AFTER_UNUSED).await;
    assert_eq!(service.stats().sessions, 1);
    assert_eq!(echo(&used, 2).await, "again");
    assert_eq!(unused.call(1, "ping", json!({})).await.status, 404);
}
