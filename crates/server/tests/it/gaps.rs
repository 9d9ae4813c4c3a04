//! Evicted events are always reported as a gap (D4, RES-07, RES-08).

use crate::support::{ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25, progress_values, result_text, tool_call};
use rethread::{MemoryLimits, MemoryStore, Retention, SseUpgradeDelay, Timing};
use rethread_testkit::flaky::FlakyStore;
use serde_json::json;
use std::time::Duration;

fn limits_of(events: usize) -> MemoryLimits {
    MemoryLimits::default().with_stream(Retention::default().with_events(events))
}

#[tokio::test]
async fn res_08_evicted_cursor_gets_the_retained_events_and_a_gap() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(10))));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply); // without a reader the handler does not wait
    for n in 2..=50 {
        script.progress(n).await;
    }
    script.finish("kept").await;
    let reply = session.get(Some("1-1")).await;
    assert_eq!(reply.header("rethread-gap").as_deref(), Some("1-42"));
    let rest = reply.events().rest().await;
    assert_eq!(progress_values(&rest), (42..=50).collect::<Vec<_>>());
    assert_eq!(
        result_text(&rest.last().unwrap().data),
        "kept",
        "the answer is retained"
    );
    let no_gap = session.get(Some("1-45")).await;
    assert_eq!(no_gap.header("rethread-gap"), None);
}

/// RES-08: an open question is retained. The oldest retained event therefore does not mark the end of the gap.
#[tokio::test]
async fn res_08_gap_after_a_retained_question_is_reported() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(10))));
    let session = client.open(V2025_03_26).await;
    let (asking, other) = (handler.script("a"), handler.script("b"));
    let asked = tokio::spawn(async move { asking.ask("roots", json!({})).await });
    // Two calls of one batch share a stream: one asks, the other continues.
    let batch = json!([tool_call(1, "a"), tool_call(2, "b")]);
    let mut events = session.post(&batch).await.events();
    assert_eq!(events.next().await.id.as_deref(), Some("1-1"), "the question");
    drop(events); // without a reader the handler does not wait
    for n in 2..=50 {
        other.progress(n).await;
    }
    let reply = session.get(Some("1-1")).await;
    let oldest = reply.header("rethread-gap");
    assert_eq!(
        oldest.as_deref(),
        Some("1-1"),
        "the question is retained, 1-2 is evicted"
    );
    assert_eq!(reply.events().next().await.id.as_deref(), Some("1-42"));
    asked.abort();
}

/// D4: events are evicted while a reader is paging through the store. Its connection ends, and the next resume reports
/// the gap.
#[tokio::test]
async fn d4_reader_overtaken_between_pages_is_closed() {
    for told_before in [false, true] {
        // These bytes retain about 1100 events.
        let retention = Retention::default().with_bytes(210_000).with_events(100_000);
        let limits = MemoryLimits::default().with_stream(retention);
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits)));
        let session = client.open(V2025_11_25).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        drop(reply);
        let written = if told_before { 1300 } else { 1000 };
        for n in 2..=written {
            script.progress(n).await;
        }
        let reply = session.get(Some("1-1")).await;
        assert_eq!(reply.header("rethread-gap").is_some(), told_before);
        let mut events = reply.events();
        let mut seen = vec![events.next().await]; // from the first page; the second page is loaded
        for n in written + 1..=written + 1050 {
            script.progress(n).await; // beyond the retention, below the backpressure limit
        }
        script.finish("done").await;
        seen.extend(events.rest().await);
        let seen = progress_values(&seen);
        let contiguous: Vec<_> = (seen[0]..).take(seen.len()).collect();
        assert_eq!(seen, contiguous, "nothing is missing in the middle");
        let cursor = format!("1-{}", seen.last().unwrap());
        let resumed = session.get(Some(&cursor)).await;
        assert!(
            resumed.header("rethread-gap").is_some(),
            "{cursor}: the next resume reports the gap"
        );
    }
}

/// RES-07: also if the answer was the only event of the call.
#[tokio::test]
async fn res_07_lost_immediate_answer_gives_an_error_for_its_id() {
    let limits = MemoryLimits::default().with_total_bytes(16 << 10);
    let now = SseUpgradeDelay::new(Duration::ZERO, Duration::from_secs(10));
    let (_, client) = ScriptedHandler::new().serve_with(|b| b.store(MemoryStore::new(limits)).upgrade_after(now));
    let session = client.open(V2025_11_25).await;
    for n in 0..8 {
        let answer = session.tool(format!("call-{n}"), "echo", json!({ "message": "x".repeat(3000) }));
        assert!(answer.await.is_stream());
    }
    let rest = session.resume("1-0").await.rest().await;
    assert_eq!(rest.len(), 1, "an error instead of the answer: {rest:?}");
    assert_eq!(rest[0].data["id"], "call-0");
    assert_eq!(rest[0].data["error"]["data"]["reason"], "answer_expired");
}

/// RES-07, D4: the store lost its latest events, so the client's cursor is ahead. Holds for every kind of stream.
#[tokio::test(start_paused = true)]
async fn res_07_client_ahead_of_the_store_gets_a_gap() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply);
    let refused = session.get(Some("1-2")).await;
    assert_eq!(refused.status, 400, "nothing would ever come of it");
    assert_eq!(refused.json().await["error"]["code"], -32600);

    drop(session.get(None).await);
    let mut fresh = session.resume("2-1").await;
    assert_eq!(
        fresh.block().await.unwrap().id.as_deref(),
        Some("4-0"),
        "a stream of its own"
    );
    let first = fresh.message().await.map(|message| message.data["method"].clone());
    assert!(
        first
            .as_ref()
            .is_some_and(|method| method.as_str().unwrap().ends_with("list_changed")),
        "it begins with the refresh: {first:?}"
    );
}

/// RES-07: the answer is evicted, but the stream still knows its request.
#[tokio::test]
async fn res_07_lost_answer_gives_an_error_for_its_id() {
    let limits = MemoryLimits::default().with_total_bytes(16 << 10);
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits)));
    let session = client.open(V2025_11_25).await;
    for n in 0..8 {
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(format!("call-{n}"), "a", json!({})), script.progress(1));
        drop(reply);
        script.finish(&"x".repeat(3000)).await;
    }
    let rest = session.resume("1-1").await.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].data["id"], "call-0");
    assert_eq!(rest[0].data["error"]["code"], -32603);
    assert_eq!(
        session.get(Some(rest[0].id.as_deref().unwrap())).await.status,
        400,
        "and lets the client rest"
    );
    let newest = session.resume("15-1").await.rest().await;
    assert_eq!(result_text(&newest[0].data).len(), 3000);
}

/// RES-07, T-16: 400 with a reason, never 404 while the session exists, never an empty 200.
#[tokio::test]
async fn res_07_forgotten_call_stream_returns_400() {
    let limits = MemoryLimits::default().with_ended_streams_per_session(1);
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits)));
    let session = client.open(V2025_11_25).await;
    for n in 0..2 {
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(n, "a", json!({})), script.progress(1));
        drop(reply);
        script.finish("x").await;
    }
    let reply = session.get(Some("1-1")).await;
    assert_eq!(reply.status, 400);
    let error = reply.json().await;
    assert_eq!(error["error"]["code"], -32600);
    assert!(error.get("id").is_none());
    assert_eq!(session.resume("3-1").await.rest().await.len(), 1);
    assert_eq!(session.call(9, "ping", json!({})).await.status, 200);
}

/// D4: a refresh is a set of `list_changed` notifications.
#[tokio::test]
async fn res_07_push_stream_with_a_gap_starts_with_a_refresh() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(3))));
    let session = client.open(V2025_11_25).await;
    session
        .call(1, "resources/subscribe", json!({ "uri": "test://a" }))
        .await;
    let mut get = session.get(None).await.events();
    let script = handler.script("p");
    let (_, ()) = tokio::join!(session.call(2, "tools/call", json!({ "name": "p" })), async {
        for n in 1..=10 {
            script.push(n).await;
            get.next().await;
        }
        script.finish("x").await;
    });
    drop(get);
    let reply = session.get(Some("2-2")).await;
    assert_eq!(reply.header("rethread-gap").as_deref(), Some("2-8"));
    let mut events = reply.events();
    let mut refresh = Vec::new();
    for _ in 0..4 {
        let message = events.next().await;
        assert_eq!(message.id, None, "no id: older retained events follow");
        refresh.push(message.data["method"].as_str().unwrap().to_owned());
    }
    refresh.sort();
    assert_eq!(
        refresh,
        [
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
    );
    for n in 8..=10 {
        assert_eq!(events.next().await.data["params"]["data"], n);
    }
}

#[tokio::test(start_paused = true)]
async fn res_07_forgotten_push_stream_restarts_with_a_refresh() {
    let (_, client) = ScriptedHandler::new()
        .serve_with(|b| b.timing(Timing::default().with(|timing| timing.session_idle = Duration::from_secs(36_000))));
    let session = client.open(V2025_11_25).await;
    drop(session.get(None).await);
    tokio::time::sleep(Duration::from_secs(700)).await; // longer than the retention age
    let mut events = session.resume("2-0").await;
    assert_eq!(
        events.block().await.unwrap().id.as_deref(),
        Some("4-0"),
        "a stream of its own"
    );
    let lists: Vec<_> = [events.next().await, events.next().await, events.next().await]
        .into_iter()
        .collect();
    assert!(
        lists
            .iter()
            .all(|m| m.data["method"].as_str().unwrap().ends_with("list_changed") && m.id.is_some())
    );
}

/// D4, SSE-14: the handler waits for a reader that is a full buffer behind, then disconnects it. Its resume reports the
/// gap.
#[tokio::test(start_paused = true)]
async fn sse_14_reader_overtaken_by_eviction_is_disconnected() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(10))));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut stalled = reply.events();
    stalled.next().await;
    let start = tokio::time::Instant::now();
    for n in 2..=40 {
        script.progress(n).await; // the first event that would overtake the reader waits, once
    }
    assert_eq!(
        start.elapsed(),
        Duration::from_secs(10),
        "bounded, and by the stall time"
    );
    assert!(stalled.rest().await.is_empty(), "disconnected");
    let reply = session.get(Some("1-1")).await;
    assert_eq!(reply.header("rethread-gap").as_deref(), Some("1-31"));
    let mut resumed = reply.events();
    assert_eq!(resumed.next().await.data["params"]["progress"], 31);
    script.finish("x").await;
    let rest = resumed.rest().await;
    assert_eq!(result_text(&rest.last().unwrap().data), "x");
}

/// SSE-14, GW-12: one source may emit the messages of all calls of a session. Once a second call runs, a stalled reader
/// blocks only briefly. It may resume later.
#[tokio::test(start_paused = true)]
async fn sse_14_stalled_reader_blocks_only_briefly_while_other_calls_run() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(10))));
    for begins in [Duration::ZERO, Duration::from_secs(2)] {
        let session = client.open(V2025_11_25).await;
        let (stalled, other) = (handler.script("a"), handler.script("b"));
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), stalled.progress(1));
        let mut unread = reply.events();
        unread.next().await;
        let start = tokio::time::Instant::now();
        let burst = async {
            for n in 2..=40 {
                stalled.progress(n).await;
            }
            start.elapsed()
        };
        let beside = async {
            tokio::time::sleep(begins).await;
            tokio::join!(session.tool(2, "b", json!({})), other.progress(1)).0
        };
        let (took, beside) = tokio::join!(burst, beside);
        let limit = begins + Duration::from_millis(250);
        assert!(
            begins <= took && took <= limit,
            "the writer waited {took:?}, not {limit:?}"
        );
        assert!(unread.rest().await.is_empty(), "disconnected");
        let mut resumed = session.get(Some("1-1")).await.events();
        stalled.finish("x").await;
        assert_eq!(result_text(&resumed.rest().await.last().unwrap().data), "x");
        other.finish("y").await;
        assert_eq!(result_text(&beside.events().rest().await.last().unwrap().data), "y");
    }
}

/// SSE-14: calls of another session or of the same batch do not shorten the wait.
#[tokio::test(start_paused = true)]
async fn sse_14_stalled_reader_of_a_lone_call_gets_the_full_wait() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(10))));
    for version in [V2025_03_26, V2025_11_25] {
        let session = client.open(version).await;
        let (stalled, other) = (handler.script("a"), handler.script("b"));
        let call = |id: u32, name: &str| {
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": { "name": name, "arguments": {}, "_meta": { "progressToken": id } } })
        };
        let _elsewhere;
        let mut unread = if version == V2025_03_26 {
            let batch = json!([call(1, "a"), call(2, "b")]);
            let (reply, ()) = tokio::join!(session.post(&batch), stalled.progress(1));
            other.progress(1).await;
            reply.events()
        } else {
            let neighbour = client.open(version).await;
            let (a, b) = (call(1, "a"), call(2, "b"));
            let (reply, ()) = tokio::join!(neighbour.post(&b), other.progress(1));
            _elsewhere = reply;
            let (reply, ()) = tokio::join!(session.post(&a), stalled.progress(1));
            reply.events()
        };
        unread.next().await;
        let start = tokio::time::Instant::now();
        for n in 2..=40 {
            stalled.progress(n).await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(10), "{version}");
        stalled.finish("x").await;
        other.finish("y").await;
    }
}

#[tokio::test]
async fn sse_14_slow_reader_loses_nothing() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(MemoryStore::new(limits_of(10))));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let writer = async {
        for n in 2..=500 {
            script.progress(n).await;
        }
        script.finish("x").await;
    };
    let (messages, ()) = tokio::join!(async { reply.events().rest().await }, writer);
    assert_eq!(progress_values(&messages), (1..=500).collect::<Vec<_>>());
}

/// STO-02: events are delivered live without ids.
#[tokio::test]
async fn sto_02_call_continues_without_ids_when_the_store_fails() {
    for version in [V2025_06_18, V2025_11_25] {
        let store = FlakyStore::new(MemoryStore::default());
        let switches = store.switches();
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve_with(|b| b.store(store));
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        let mut events = reply.events();
        assert!(events.next().await.id.is_some());
        switches.fail_appends(true);
        script.progress(2).await;
        script.progress(3).await;
        switches.fail_appends(false);
        script.progress(4).await;
        script.finish("done").await;
        let rest = events.rest().await;
        assert_eq!(progress_values(&rest), [2, 3, 4]);
        assert!(rest.iter().all(|m| m.id.is_none()), "an id would promise a resume");
        assert_eq!(result_text(&rest[3].data), "done");
        // A later stream uses the store again.
        let script = handler.script("b");
        let (reply, ()) = tokio::join!(session.tool(2, "b", json!({})), script.progress(1));
        assert!(reply.events().next().await.id.is_some());
    }
}

/// D10: requests that need the store get 503; others continue.
#[tokio::test]
async fn sto_02_outage_refuses_sessions_and_resumes_with_503() {
    let store = FlakyStore::new(MemoryStore::default());
    let switches = store.switches();
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(store));
    let session = client.open(V2025_11_25).await;
    switches.fail_appends(true);
    switches.fail_reads(true);
    switches.fail_sessions(true);
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } } });
    let refused = client.post(&initialize).await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(service.stats().sessions, 1, "its place was given back");
    let reply = session.tool(2, "echo", json!({ "message": "still" })).await;
    assert_eq!(result_text(&reply.json().await), "still");
    switches.fail_appends(false);
    switches.fail_reads(false);
    switches.fail_sessions(false);
    assert_eq!(
        client.open(V2025_11_25).await.call(1, "ping", json!({})).await.status,
        200,
        "it recovers by itself"
    );
}

/// A slow store only adds time.
#[tokio::test(start_paused = true)]
async fn slow_store_delays_but_does_not_reorder_events() {
    let store = FlakyStore::new(MemoryStore::default());
    store.switches().delay_appends(Duration::from_millis(50));
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(store));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), async {
        for n in 1..=100 {
            script.progress(n).await;
        }
        script.finish("done").await;
    });
    let mut events = reply.events();
    for n in 1..=40 {
        assert_eq!(events.next().await.data["params"]["progress"], n);
    }
    let cursor = events.cursor().to_owned();
    drop(events);
    let rest = session.resume(&cursor).await.rest().await;
    assert_eq!(progress_values(&rest), (41..=100).collect::<Vec<_>>());
    assert_eq!(result_text(&rest.last().unwrap().data), "done");
}
