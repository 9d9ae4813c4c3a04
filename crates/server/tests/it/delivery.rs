//! Events arrive on the call's stream, in order, once, across any number of connections.

use crate::support::{
    LEGACY_REVISIONS, ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25, progress_values, result_text,
};
use rethread::SseUpgradeDelay;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn http_07_silent_call_returns_json() {
    let (_, client) = ScriptedHandler::new().serve();
    for version in LEGACY_REVISIONS {
        let session = client.open(version).await;
        let reply = session.tool(1, "echo", json!({ "message": "hi" })).await;
        assert_eq!(reply.header("content-type").as_deref(), Some("application/json"));
        assert_eq!(result_text(&reply.json().await), "hi");
    }
}

/// HTTP-07: the response ends the stream.
#[tokio::test]
async fn http_07_first_emission_starts_a_stream() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool("x", "a", json!({})), script.progress(1));
        // SSE-01: events arrive while the handler runs.
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-cache, no-transform"));
        assert_eq!(reply.header("x-accel-buffering"), None, "SSE-03: not on this revision");
        let mut events = reply.events();
        assert_eq!(events.next().await.data["params"]["progress"], 1);
        script.finish("done").await;
        let rest = events.rest().await; // SSE-10: the stream ends right after the response
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].data["id"], "x");
        assert_eq!(result_text(&rest[0].data), "done");
    }
}

/// SSE-05, SSE-06, T-02: old clients parse every event as JSON and fail on empty data.
#[tokio::test]
async fn sse_05_priming_and_retry_are_sent_on_2025_11_25_only() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(7, "a", json!({})), script.progress(1));
        script.finish("done").await;
        let body = reply.bytes().await;
        let text = std::str::from_utf8(&body).unwrap();
        if version == V2025_11_25 {
            assert!(
                text.starts_with("id: 1-0\ndata:\n\nretry: 1000\n\nid: 1-1\ndata: {"),
                "{text}"
            );
        } else {
            assert!(text.starts_with("id: 1-1\ndata: {"), "{text}");
            assert!(!text.contains("retry:") && !text.contains("data:\n"), "{text}");
        }
        let push = session.get(None).await.events();
        drop(push);
    }
}

/// CAN-02, RES-04. RES-03: replay starts strictly after the cursor.
#[tokio::test]
async fn can_02_call_survives_a_cut_and_delivers_its_result_once() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (service, client) = handler.serve();
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        let mut events = reply.events();
        events.next().await;
        let cursor = events.cursor().to_owned();
        drop(events); // disconnect
        script.progress(2).await;
        script.progress(3).await;
        script.finish("late").await;
        let rest = session.resume(&cursor).await.rest().await;
        assert_eq!(progress_values(&rest), [2, 3]);
        assert_eq!(result_text(&rest[2].data), "late");
        assert_eq!(rest.len(), 3);
        let last = rest[2].id.clone().unwrap();
        assert_eq!(
            session.get(Some(&last)).await.status,
            400,
            "RES-07: all seen, nothing to come back for"
        );
        assert_eq!(service.stats().running_calls, 0);
    }
}

/// RES-04.
#[tokio::test]
async fn res_04_events_arrive_once_in_order_across_cuts() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut events = reply.events();
    let mut seen = vec![events.next().await];
    for round in 1..20u64 {
        let cursor = events.cursor().to_owned();
        drop(events);
        script.progress(round * 2).await; // no connection
        events = session.resume(&cursor).await;
        script.progress(round * 2 + 1).await; // with a connection
        seen.push(events.next().await);
        seen.push(events.next().await);
    }
    script.finish("done").await;
    seen.extend(events.rest().await);
    assert_eq!(progress_values(&seen), (1..40).collect::<Vec<_>>());
    let numbers: Vec<_> = seen.iter().map(|m| m.id.clone().unwrap()).collect();
    assert_eq!(
        numbers,
        (1..=40).map(|n| format!("1-{n}")).collect::<Vec<_>>(),
        "original ids, no gap"
    );
}

/// RES-05: replay and live delivery use the same log, so no event is lost between them.
#[tokio::test]
async fn res_05_emit_during_resume_leaves_no_gap() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = std::sync::Arc::new(handler.script("a"));
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut events = reply.events();
    let mut seen = vec![events.next().await];
    let writer = tokio::spawn({
        let script = std::sync::Arc::clone(&script);
        async move {
            for n in 2..=3000 {
                script.progress(n).await;
            }
            script.finish("done").await;
        }
    });
    for _ in 0..1000 {
        let cursor = events.cursor().to_owned();
        events = session.resume(&cursor).await;
        match events.message().await {
            Some(message) => seen.push(message),
            None => break,
        }
    }
    seen.extend(events.rest().await);
    if seen.last().is_none_or(|m| m.data.get("result").is_none()) {
        let cursor = seen.last().and_then(|m| m.id.clone()).unwrap();
        seen.extend(session.resume(&cursor).await.rest().await);
    }
    writer.await.unwrap();
    assert_eq!(progress_values(&seen), (1..=3000).collect::<Vec<_>>());
    assert_eq!(result_text(&seen.last().unwrap().data), "done");
}

#[tokio::test]
async fn res_06_resume_displaces_a_live_connection() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut half_open = reply.events();
    half_open.next().await;
    let mut events = session.resume("1-1").await; // never 409 (T-17)
    assert!(half_open.message().await.is_none(), "the older connection gets EOF");
    script.progress(2).await;
    assert_eq!(events.next().await.data["params"]["progress"], 2);
}

/// RES-06: the older connection ends at once, before its next keep-alive.
#[tokio::test(start_paused = true)]
async fn res_06_displaced_waiting_reader_is_woken() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut half_open = reply.events();
    half_open.next().await;
    let waiting = tokio::spawn(async move { half_open.message().await });
    tokio::time::sleep(Duration::from_millis(1)).await; // the reader has read everything and waits
    let _newer = session.resume("1-1").await;
    let ended = tokio::time::timeout(Duration::from_secs(1), waiting).await;
    assert!(
        matches!(ended, Ok(Ok(None))),
        "the older connection gets EOF at once: {ended:?}"
    );
}

#[tokio::test]
async fn res_09_resume_without_backlog_repeats_the_cursor() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    for version in LEGACY_REVISIONS {
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        let mut events = reply.events();
        events.next().await;
        drop(events);
        let mut resumed = session.resume("1-1").await;
        if version == V2025_11_25 {
            let block = resumed.block().await.unwrap();
            assert_eq!((block.id.as_deref(), block.data.as_deref()), (Some("1-1"), Some("")));
            assert_eq!(
                resumed.block().await.unwrap().retry,
                Some(1000),
                "repeated: the cut may have preceded it"
            );
        }
        script.progress(2).await;
        let next = resumed.next().await;
        assert_eq!(next.id.as_deref(), Some("1-2"), "nothing was appended for it");
        script.finish("x").await;
    }
}

/// RES-01, T-13: also priming events have unique ids.
#[tokio::test]
async fn res_01_event_ids_are_unique_in_a_session() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let mut seen = std::collections::HashSet::new();
    let mut gets = Vec::new();
    for n in 0..10 {
        gets.push(session.get(None).await.events());
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(n, "a", json!({})), async {
            script.push(n).await;
            script.progress(1).await;
        });
        script.finish("x").await;
        let mut events = reply.events();
        while let Some(block) = events.block().await {
            if let Some(id) = block.id {
                assert!(seen.insert(id.clone()), "{id} is not unique");
            }
        }
    }
    for mut get in gets {
        while !get.is_silent_for(Duration::from_millis(5)).await {}
        assert!(seen.insert(get.cursor().to_owned()));
    }
}

/// SSE-07, SSE-08.
#[tokio::test]
async fn sse_08_handler_closes_its_connection_and_finishes_later() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.retry(Duration::from_millis(250)));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.close());
    let mut events = reply.events();
    let mut last = None;
    while let Some(block) = events.block().await {
        last = Some(block);
    }
    assert_eq!(last.unwrap().retry, Some(250), "SSE-07: the last block before EOF");
    let cursor = events.cursor().to_owned();
    script.finish("reconnected").await;
    let rest = session.resume(&cursor).await.rest().await;
    assert_eq!(result_text(&rest[0].data), "reconnected");
}

#[tokio::test]
async fn sse_09_early_close_does_nothing_before_2025_11_25() {
    for version in [V2025_03_26, V2025_06_18] {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), async {
            script.close().await;
            script.finish("whole").await;
        });
        assert!(!reply.is_stream());
        assert_eq!(result_text(&reply.json().await), "whole");
    }
}

/// D5: a long call gets an id to resume from, on the revision with priming events.
#[tokio::test(start_paused = true)]
async fn d5_silent_call_becomes_a_stream_after_the_delay() {
    for (version, after) in [(V2025_11_25, 100), (V2025_06_18, 10_000), (V2025_03_26, 10_000)] {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open(version).await;
        let script = handler.script("a");
        let start = tokio::time::Instant::now();
        let mut events = session.tool(1, "a", json!({})).await.events();
        assert_eq!(start.elapsed().as_millis(), after, "{version}");
        // SSE-04: comments keep the connection alive and are not events.
        let mut comments = 0;
        while start.elapsed() < Duration::from_secs(60) {
            comments += u32::from(events.block().await.unwrap().comment);
        }
        assert!(comments >= 3, "{comments} comments in a minute");
        script.finish("slow").await;
        assert_eq!(result_text(&events.next().await.data), "slow");
    }
}

#[tokio::test]
async fn d5_zero_delay_makes_every_call_resumable() {
    let now = SseUpgradeDelay::new(Duration::ZERO, Duration::from_secs(10));
    let (_, client) = ScriptedHandler::new().serve_with(|b| b.upgrade_after(now));
    let session = client.open(V2025_11_25).await;
    let reply = session.tool(1, "echo", json!({ "message": "m" })).await;
    let mut events = reply.events();
    assert_eq!(events.block().await.unwrap().id.as_deref(), Some("1-0"));
    drop(events);
    let rest = session.resume("1-0").await.rest().await;
    assert_eq!(result_text(&rest[0].data), "m");
}

/// D5: no cursor can reach the stream, so the handler finishes and nothing is stored.
#[tokio::test]
async fn d5_disconnect_before_the_first_id_stores_nothing() {
    let store = rethread::MemoryStore::default();
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(store.clone()));
    let session = client.open(V2025_06_18).await;
    let script = handler.script("a");
    let reply = tokio::time::timeout(Duration::from_millis(20), session.tool(1, "a", json!({}))).await;
    assert!(reply.is_err(), "disconnected");
    assert_eq!(service.stats().running_calls, 1, "CAN-02: the handler continues");
    script.progress(1).await;
    let asked = script.ask("sample", json!({ "messages": [], "maxTokens": 1 })).await;
    assert_eq!(asked, Err("the client has left".into()), "questions fail at once");
    script.finish("undelivered").await;
    assert_eq!((service.stats().running_calls, store.streams()), (0, 0));
    assert_eq!(handler.ended.load(Ordering::Relaxed), 1);
}
