//! The store retains a question only until its answer (D4).

use crate::support::{ScriptedHandler, V2025_03_26, V2025_11_25, tool_call};
use rethread::{Call, Context, Handler, MemoryLimits, MemoryStore, Reply, Retention, RpcError, ServerInfo};
use rethread_testkit::client::Client;
use rethread_testkit::flaky::FlakyStore;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MAX_STORE_BYTES: usize = 8 << 10;

fn bounded_store() -> MemoryStore {
    MemoryStore::new(MemoryLimits::default().with_stream(Retention::default().with_bytes(MAX_STORE_BYTES)))
}

fn form(size: usize) -> Value {
    json!({ "mode": "form", "message": "x".repeat(size), "requestedSchema": { "type": "object", "properties": {} } })
}

/// Waits until the store holds less than `bytes`. Returns the final size.
async fn held_below(store: &MemoryStore, bytes: usize) -> usize {
    for _ in 0..100 {
        if store.held_bytes() < bytes {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.held_bytes()
}

/// A handler that asks with its own timeout.
struct TimeoutHandler(Arc<AtomicUsize>);

impl Handler for TimeoutHandler {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("impatient", "1.0.0")
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let questions = if call.params::<Value>()?["name"] == "many" {
            500
        } else {
            0
        };
        for _ in 0..questions {
            let asked = tokio::time::timeout(Duration::from_millis(1), cx.elicit_json(form(800))).await;
            assert!(asked.is_err(), "the question times out");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        if questions == 0 {
            let (one, two) = tokio::join!(cx.elicit_json(form(10 << 10)), cx.elicit_json(form(10 << 10)));
            one.and(two)?;
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        cx.cancelled().await; // emits nothing more
        Err(RpcError::internal("cancelled"))
    }
}

/// D4, S2C-06: the handler stops waiting.
#[tokio::test(start_paused = true)]
async fn d4_abandoned_question_is_released() {
    let (store, asked) = (bounded_store(), Arc::<AtomicUsize>::default());
    let service = rethread::McpService::builder(TimeoutHandler(Arc::clone(&asked))).store(store.clone());
    let session = Client::new(service.build()).open(V2025_11_25).await;
    drop(session.tool(1, "many", json!({})).await);
    while asked.load(Ordering::Relaxed) < 500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let held = held_below(&store, 2 * MAX_STORE_BYTES).await;
    assert!(
        held < 2 * MAX_STORE_BYTES,
        "{held} bytes held of a stream that may hold {MAX_STORE_BYTES}"
    );
}

/// D4: the release does not wait for the next event of the call.
#[tokio::test(start_paused = true)]
async fn d4_answered_question_is_released_at_once() {
    let (store, answered) = (bounded_store(), Arc::<AtomicUsize>::default());
    let service = rethread::McpService::builder(TimeoutHandler(Arc::clone(&answered))).store(store.clone());
    let session = Client::new(service.build()).open(V2025_11_25).await;
    let mut events = session.tool(1, "two", json!({})).await.events();
    let questions = [
        events.next().await.data["id"].clone(),
        events.next().await.data["id"].clone(),
    ];
    assert!(store.held_bytes() > 20 << 10, "both are retained while open");
    for question in &questions {
        session.answer(question, json!({ "action": "decline" })).await;
    }
    let held = held_below(&store, 15 << 10).await;
    assert_eq!(answered.load(Ordering::Relaxed), 1);
    assert!(
        held < 15 << 10,
        "{held} bytes held: the older question is beyond the bound"
    );
}

/// D4: the other calls of the batch continue.
#[tokio::test(start_paused = true)]
async fn d4_question_of_a_cancelled_call_is_released() {
    let store = bounded_store();
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(store.clone()));
    let session = client.open(V2025_03_26).await;
    let (asking, other) = (handler.script("a"), handler.script("b"));
    let sampling = json!({ "messages": [], "maxTokens": 1, "systemPrompt": "x".repeat(20 << 10) });
    let asked = tokio::spawn(async move { asking.ask("sample", sampling).await });
    let mut events = session
        .post(&json!([tool_call(1, "a"), tool_call(2, "b")]))
        .await
        .events();
    events.next().await;
    other.progress(1).await;
    assert!(store.held_bytes() > 20 << 10);
    session
        .notify("notifications/cancelled", json!({ "requestId": 1 }))
        .await;
    assert!(asked.await.unwrap().is_err());
    let held = held_below(&store, MAX_STORE_BYTES).await;
    assert!(held < MAX_STORE_BYTES, "{held} bytes held");
}

/// STO-02: a release contains no event, so its failure does not stop event ids.
#[tokio::test(start_paused = true)]
async fn sto_02_failed_release_does_not_stop_event_ids() {
    let store = FlakyStore::new(bounded_store());
    let switches = store.switches();
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(store.clone()));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let sampling = json!({ "messages": [], "maxTokens": 1, "systemPrompt": "x".repeat(20 << 10) });
    let (answered, mut events) = tokio::join!(script.ask("sample", sampling), async {
        let mut events = session.tool(1, "a", json!({})).await.events();
        let question = events.next().await.data["id"].clone();
        switches.fail_appends(true);
        session.answer(&question, json!({})).await;
        events
    });
    assert!(answered.is_ok());
    switches.fail_appends(false);
    assert_eq!(switches.failure_count(), 1, "the release was tried once");
    assert!(store.inner().held_bytes() > 20 << 10);
    script.progress(1).await;
    assert_eq!(events.next().await.id.as_deref(), Some("1-2"));
    let held = held_below(store.inner(), MAX_STORE_BYTES).await;
    assert!(
        held < MAX_STORE_BYTES,
        "{held} bytes held: the release went with the next append"
    );
}
