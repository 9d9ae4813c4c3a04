//! Messages that a handler emits without waiting. They share one append but look like single events.

use crate::support::{V2025_06_18, V2025_11_25, progress_values, result_text};
use rethread::{Call, Context, Handler, McpService, MemoryStore, Reply, RpcError, SseUpgradeDelay};
use rethread_testkit::client::{Client, ReceivedMessage};
use rethread_testkit::flaky::FlakyStore;
use serde_json::json;
use std::time::Duration;

/// Emits its whole burst without awaiting anything else.
struct BurstHandler;

#[derive(serde::Deserialize)]
struct Tool {
    arguments: Burst,
}

#[derive(serde::Deserialize)]
struct Burst {
    events: u32,
    bytes: usize,
}

impl Handler for BurstHandler {
    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        let Tool {
            arguments: Burst { events, bytes },
        } = call.params()?;
        let message = "x".repeat(bytes);
        for n in 1..=events {
            cx.progress(n.into(), message.as_str()).await?;
        }
        Ok(Reply::json(json!({ "content": [{ "type": "text", "text": "done" }] })))
    }
}

const SIZES: [(u64, usize); 7] = [
    (1, 1),
    (3, 20_000),
    (127, 8),
    (128, 8),
    (129, 8),
    (700, 900),
    (150, 16_384),
];

fn burst(events: u64, bytes: usize) -> serde_json::Value {
    json!({ "name": "burst", "arguments": { "events": events, "bytes": bytes }, "_meta": { "progressToken": "p" } })
}

fn is_whole(messages: &[ReceivedMessage], from: u64, events: u64, bytes: usize) {
    let (answer, progress) = messages.split_last().unwrap();
    assert_eq!(result_text(&answer.data), "done");
    assert_eq!(progress_values(progress), (from..=events).collect::<Vec<_>>());
    let is_full = |m: &ReceivedMessage| m.data["params"]["message"].as_str().unwrap().len() == bytes;
    assert!(
        progress
            .iter()
            .filter(|m| m.data["params"].get("message").is_some())
            .all(is_full)
    );
}

/// Every event arrives once, in order, with the id of a single emit. A resume works from every event.
#[tokio::test]
async fn oracle_burst_delivers_the_same_events_as_single_emits() {
    for version in [V2025_06_18, V2025_11_25] {
        let client = Client::new(McpService::builder(BurstHandler).build());
        for (events, bytes) in SIZES {
            let session = client.open(version).await;
            let reply = session.call(1, "tools/call", burst(events, bytes)).await;
            let all = reply.events().rest().await;
            is_whole(&all, 1, events, bytes);
            let ids: Vec<_> = all.iter().map(|m| m.id.clone().unwrap()).collect();
            let expected: Vec<_> = (1..=events + 1).map(|n| format!("1-{n}")).collect();
            assert_eq!(ids, expected);
            for from in [1, events / 2 + 1, events] {
                let rest = session.resume(&format!("1-{from}")).await.rest().await;
                is_whole(&rest, from + 1, events, bytes);
            }
        }
    }
}

/// STO-02: this includes events that the store had not accepted when it failed.
#[tokio::test]
async fn sto_02_unstored_burst_is_delivered_without_ids() {
    for (events, bytes) in [(1, 1), (300, 100), (20, 16_384)] {
        let store = FlakyStore::new(MemoryStore::default());
        let switches = store.switches();
        let client = Client::new(McpService::builder(BurstHandler).store(store).build());
        let session = client.open(V2025_11_25).await;
        switches.fail_appends(true);
        let reply = session.call(1, "tools/call", burst(events, bytes)).await;
        let all = reply.events().rest().await;
        is_whole(&all, 1, events, bytes);
        assert!(all.iter().all(|m| m.id.is_none()), "an id would promise a resume");
    }
}

/// D5: with and without a working store.
#[tokio::test]
async fn d5_immediate_answer_is_a_complete_stream() {
    let now = SseUpgradeDelay::new(Duration::ZERO, SseUpgradeDelay::default().fallback);
    let store = FlakyStore::new(MemoryStore::default());
    let switches = store.switches();
    let client = Client::new(
        McpService::builder(BurstHandler)
            .store(store)
            .upgrade_after(now)
            .build(),
    );
    let session = client.open(V2025_11_25).await;
    for id in [1, 2] {
        let reply = session.call(id, "tools/call", burst(0, 0)).await;
        assert!(reply.is_stream());
        assert_eq!(reply.header("content-length"), None, "framed as any stream");
        let mut events = reply.events();
        let stream = 2 * id - 1;
        assert_eq!(events.block().await.unwrap().id, Some(format!("{stream}-0")));
        let answer = events.next().await;
        assert_eq!(answer.id, Some(format!("{stream}-1")));
        assert_eq!(result_text(&answer.data), "done");
        assert!(events.rest().await.is_empty());
        let again = session.resume(&format!("{stream}-0")).await.rest().await;
        assert_eq!(again[0].data, answer.data);
        let end = session.get(Some(&format!("{stream}-1"))).await;
        assert_eq!(end.status, 400, "the stream is not resumable");
    }
    switches.fail_appends(true);
    let reply = session.call(3, "tools/call", burst(0, 0)).await;
    let all = reply.events().rest().await;
    assert_eq!((all.len(), all[0].id.as_deref()), (1, None));
    assert_eq!(result_text(&all[0].data), "done");
}

/// A slow store only adds time. Beyond 512 KiB of unstored events the handler waits.
#[tokio::test(start_paused = true)]
async fn slow_store_blocks_the_handler() {
    for (events, bytes) in SIZES {
        let store = FlakyStore::new(MemoryStore::default());
        let switches = store.switches();
        let client = Client::new(McpService::builder(BurstHandler).store(store).build());
        let session = client.open(V2025_11_25).await;
        switches.delay_appends(Duration::from_millis(20));
        let start = tokio::time::Instant::now();
        let reply = session.call(1, "tools/call", burst(events, bytes)).await;
        is_whole(&reply.events().rest().await, 1, events, bytes);
        let appends = 1 + events as usize * bytes / (1 << 20);
        assert!(
            start.elapsed() >= Duration::from_millis(20) * appends as u32,
            "the handler did not wait"
        );
        let rest = session.resume("1-1").await.rest().await;
        is_whole(&rest, 2, events, bytes);
    }
}
