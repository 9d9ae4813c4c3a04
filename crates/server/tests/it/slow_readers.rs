//! Readers that are slow, and the calls beside them (SSE-14, GW-12).

use crate::support::{ScriptedHandler, V2025_11_25};
use rethread::{MemoryLimits, MemoryStore, Retention};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// SSE-14, GW-12: the time that a slow reader may hold up the other calls of its session is bounded in all, not for each
/// message: a reader that takes something now and then is let go too, and may resume.
#[tokio::test(start_paused = true)]
async fn sse_14_reader_that_takes_a_little_now_and_then_does_not_hold_up_other_calls() {
    let handler = ScriptedHandler::new();
    let retention = Retention::default().with_events(10);
    let store = MemoryStore::new(MemoryLimits::default().with_stream(retention));
    let (_, client) = handler.serve_with(|b| b.store(store));
    let session = client.open(V2025_11_25).await;
    let (slow, other) = (handler.script("a"), handler.script("b"));
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), slow.progress(1));
    let (beside, ()) = tokio::join!(session.tool(2, "b", json!({})), other.progress(1));
    let reading = tokio::spawn(async move {
        let mut events = reply.events();
        let mut seen = 0;
        while events.message().await.is_some() {
            seen += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (seen, events.cursor().to_owned())
    });
    let began = Instant::now();
    for n in 2..=200 {
        slow.progress(n).await;
    }
    let took = began.elapsed();
    assert!(
        took <= Duration::from_millis(500),
        "the source was held up for {took:?}"
    );
    let (seen, cursor) = reading.await.unwrap();
    assert!(seen < 100, "{seen} events were waited for");
    let mut resumed = session.get(Some(&cursor)).await.events();
    slow.finish("done").await;
    assert_eq!(resumed.rest().await.last().unwrap().data["id"], 1);
    other.finish("done").await;
    assert_eq!(beside.events().rest().await.last().unwrap().data["id"], 2);
}
