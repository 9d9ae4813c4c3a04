//! Shutdown: refuse new work, let calls finish, then close (T-38).

use crate::support::{ScriptedHandler, V2025_06_18, V2025_11_25, result_text};
use rethread::{McpService, Timing};
use serde_json::json;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn t_38_shutdown_closes_get_streams_and_lets_calls_finish() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| {
        b.timing(Timing::default().with(|timing| {
            timing.retry = Duration::from_millis(100);
            timing.retry_spread = Duration::from_secs(2);
        }))
    });
    let session = client.open(V2025_11_25).await;
    let old = client.open(V2025_06_18).await;
    let script = handler.script("a");
    let (call, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut gets = Vec::new();
    for _ in 0..8 {
        gets.push(client.open(V2025_11_25).await.get(None).await.events());
    }
    let mut old_get = old.get(None).await.events();
    let draining = tokio::spawn({
        let service = service.clone();
        async move { service.shutdown(Duration::from_secs(30)).await }
    });
    tokio::task::yield_now().await;

    let mut delays = std::collections::BTreeSet::new();
    for get in &mut gets {
        let mut last = None;
        while let Some(block) = get.block().await {
            last = block.retry.or(last);
        }
        delays.insert(last.unwrap());
    }
    assert!(
        delays.len() == 8 && delays.iter().all(|d| (100..2100).contains(d)),
        "spread: {delays:?}"
    );
    assert!(old_get.block().await.is_none(), "SSE-06: plain EOF before 2025-11-25");
    drop((gets, old_get));

    let refused = session.tool(2, "echo", json!({})).await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(session.get(None).await.status, 503);
    assert_eq!(session.call(3, "ping", json!({})).await.status, 200);

    // A running call may be cut and resumed during the shutdown.
    drop(call);
    let mut resumed = session.resume("1-1").await;
    script.finish("in time").await;
    assert_eq!(result_text(&resumed.rest().await[0].data), "in time");
    drop(resumed);
    draining.await.unwrap();
    assert_eq!((service.stats().running_calls, service.stats().connections), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn t_38_shutdown_ends_at_its_deadline() {
    let handler = ScriptedHandler::new();
    let (service, client): (McpService, _) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (call, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let reading = tokio::spawn(async move {
        let mut events = call.events();
        let mut retry = None;
        while let Some(block) = events.block().await {
            retry = block.retry.or(retry);
        }
        retry
    });
    let start = tokio::time::Instant::now();
    service.shutdown(Duration::from_secs(5)).await;
    assert!(start.elapsed() >= Duration::from_secs(5) && start.elapsed() < Duration::from_secs(6));
    assert!(
        reading.await.unwrap().is_some(),
        "SSE-07: also then the client gets a retry time"
    );
}
