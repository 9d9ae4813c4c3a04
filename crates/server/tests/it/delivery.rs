//! Calls and their answers: what is said arrives on the call's stream, in order, once, whatever happens to connections.

use crate::support::{B, C, D, Puppet, SESSION_ERA, progress_of, text_of};
use rethread::SseUpgradeDelay;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test]
async fn http_07_an_answer_without_emissions_is_one_json_object() {
    let (_, client) = Puppet::new().serve();
    for version in SESSION_ERA {
        let session = client.open(version).await;
        let reply = session.tool(1, "echo", json!({ "message": "hi" })).await;
        assert_eq!(reply.header("content-type").as_deref(), Some("application/json"));
        assert_eq!(text_of(&reply.json().await), "hi");
    }
}

/// The seeds' `HttpStreamContext`: upgraded lazily, ended by the response.
#[tokio::test]
async fn http_07_the_first_emission_makes_it_a_stream_that_ends_with_the_answer() {
    for version in SESSION_ERA {
        let puppet = Puppet::new();
        let (_, client) = puppet.serve();
        let session = client.open(version).await;
        let strings = puppet.strings("a");
        let (reply, ()) = tokio::join!(session.tool("x", "a", json!({})), strings.progress(1));
        // SSE-01: the events flow while the handler works.
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-cache, no-transform"));
        assert_eq!(reply.header("x-accel-buffering"), None, "SSE-03: not on this revision");
        let mut events = reply.events();
        assert_eq!(events.next().await.data["params"]["progress"], 1);
        strings.finish("done").await;
        let rest = events.rest().await; // SSE-10: EOF right after the response
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].data["id"], "x");
        assert_eq!(text_of(&rest[0].data), "done");
    }
}

/// SSE-05, SSE-06, T-02: old clients parse every event as JSON and fail on empty data.
#[tokio::test]
async fn sse_05_priming_and_retry_on_2025_11_25_only() {
    for version in SESSION_ERA {
        let puppet = Puppet::new();
        let (_, client) = puppet.serve();
        let session = client.open(version).await;
        let strings = puppet.strings("a");
        let (reply, ()) = tokio::join!(session.tool(7, "a", json!({})), strings.progress(1));
        strings.finish("done").await;
        let body = reply.bytes().await;
        let text = std::str::from_utf8(&body).unwrap();
        if version == D {
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

/// CAN-02, RES-04: the heart of it. RES-03: replay begins strictly after the cursor.
#[tokio::test]
async fn can_02_a_call_whose_connection_is_cut_is_finished_and_its_result_delivered_once() {
    for version in SESSION_ERA {
        let puppet = Puppet::new();
        let (service, client) = puppet.serve();
        let session = client.open(version).await;
        let strings = puppet.strings("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
        let mut events = reply.events();
        events.next().await;
        let cursor = events.cursor().to_owned();
        drop(events); // cut
        strings.progress(2).await;
        strings.progress(3).await;
        strings.finish("late").await;
        let rest = session.resume(&cursor).await.rest().await;
        assert_eq!(progress_of(&rest), [2, 3]);
        assert_eq!(text_of(&rest[2].data), "late");
        assert_eq!(rest.len(), 3);
        let last = rest[2].id.clone().unwrap();
        assert_eq!(
            session.get(Some(&last)).await.status,
            400,
            "RES-07: all seen, nothing to come back for"
        );
        assert_eq!(service.running_calls(), 0);
    }
}

/// The seeds' `handle_reconnection` and `StreamableIncomingConnection`.
#[tokio::test]
async fn res_04_through_several_cuts_every_event_arrives_once_and_in_order() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    let session = client.open(D).await;
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
    let mut events = reply.events();
    let mut seen = vec![events.next().await];
    for round in 1..20u64 {
        let cursor = events.cursor().to_owned();
        drop(events);
        strings.progress(round * 2).await; // while nobody listens
        events = session.resume(&cursor).await;
        strings.progress(round * 2 + 1).await; // while somebody does
        seen.push(events.next().await);
        seen.push(events.next().await);
    }
    strings.finish("done").await;
    seen.extend(events.rest().await);
    assert_eq!(progress_of(&seen), (1..40).collect::<Vec<_>>());
    let numbers: Vec<_> = seen.iter().map(|m| m.id.clone().unwrap()).collect();
    assert_eq!(
        numbers,
        (1..=40).map(|n| format!("1-{n}")).collect::<Vec<_>>(),
        "original ids, no gap"
    );
}

/// RES-05: no hand-over between replay and live delivery, so nothing falls between them.
#[tokio::test]
async fn res_05_emitting_while_resuming_a_thousand_times_leaves_no_gap() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    let session = client.open(D).await;
    let strings = std::sync::Arc::new(puppet.strings("a"));
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
    let mut events = reply.events();
    let mut seen = vec![events.next().await];
    let writer = tokio::spawn({
        let strings = std::sync::Arc::clone(&strings);
        async move {
            for n in 2..=3000 {
                strings.progress(n).await;
            }
            strings.finish("done").await;
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
    assert_eq!(progress_of(&seen), (1..=3000).collect::<Vec<_>>());
    assert_eq!(text_of(&seen.last().unwrap().data), "done");
}

#[tokio::test]
async fn res_06_a_resume_takes_over_from_a_connection_that_still_looks_alive() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    let session = client.open(D).await;
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
    let mut half_open = reply.events();
    half_open.next().await;
    let mut events = session.resume("1-1").await; // never 409 (T-17)
    assert!(half_open.message().await.is_none(), "the older connection gets EOF");
    strings.progress(2).await;
    assert_eq!(events.next().await.data["params"]["progress"], 2);
}

/// RES-06: the older connection ends at once, not with its next keep-alive.
#[tokio::test(start_paused = true)]
async fn res_06_displaced_reader_that_waits_is_woken() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    let session = client.open(D).await;
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
    let mut half_open = reply.events();
    half_open.next().await;
    let waiting = tokio::spawn(async move { half_open.message().await });
    tokio::time::sleep(Duration::from_millis(1)).await; // it has taken everything and waits
    let _newer = session.resume("1-1").await;
    let ended = tokio::time::timeout(Duration::from_secs(1), waiting).await;
    assert!(
        matches!(ended, Ok(Ok(None))),
        "EOF for the older one at once: {ended:?}"
    );
}

#[tokio::test]
async fn res_09_a_resume_with_nothing_new_repeats_the_cursor() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    for version in SESSION_ERA {
        let session = client.open(version).await;
        let strings = puppet.strings("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.progress(1));
        let mut events = reply.events();
        events.next().await;
        drop(events);
        let mut resumed = session.resume("1-1").await;
        if version == D {
            let block = resumed.block().await.unwrap();
            assert_eq!((block.id.as_deref(), block.data.as_deref()), (Some("1-1"), Some("")));
            assert_eq!(
                resumed.block().await.unwrap().retry,
                Some(1000),
                "told again: the cut may have come before it"
            );
        }
        strings.progress(2).await;
        let next = resumed.next().await;
        assert_eq!(next.id.as_deref(), Some("1-2"), "nothing was appended for it");
        strings.finish("x").await;
    }
}

/// RES-01, T-13: unique over all streams of the session, priming events included.
#[tokio::test]
async fn res_01_event_ids_are_unique_over_all_streams_of_a_session() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    let session = client.open(D).await;
    let mut seen = std::collections::HashSet::new();
    let mut gets = Vec::new();
    for n in 0..10 {
        gets.push(session.get(None).await.events());
        let strings = puppet.strings("a");
        let (reply, ()) = tokio::join!(session.tool(n, "a", json!({})), async {
            strings.push(n).await;
            strings.progress(1).await;
        });
        strings.finish("x").await;
        let mut events = reply.events();
        while let Some(block) = events.block().await {
            if let Some(id) = block.id {
                assert!(seen.insert(id.clone()), "{id} came twice");
            }
        }
    }
    for mut get in gets {
        while !get.is_silent_for(Duration::from_millis(5)).await {}
        assert!(seen.insert(get.cursor().to_owned()));
    }
}

/// SSE-07, SSE-08, and the seeds' `sendsRetryOnClose`.
#[tokio::test]
async fn sse_08_a_handler_may_close_its_connection_and_finish_later() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve_with(|b| b.retry(Duration::from_millis(250)));
    let session = client.open(D).await;
    let strings = puppet.strings("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), strings.close());
    let mut events = reply.events();
    let mut last = None;
    while let Some(block) = events.block().await {
        last = Some(block);
    }
    assert_eq!(last.unwrap().retry, Some(250), "SSE-07: the last block before EOF");
    let cursor = events.cursor().to_owned();
    strings.finish("reconnected").await;
    let rest = session.resume(&cursor).await.rest().await;
    assert_eq!(text_of(&rest[0].data), "reconnected");
}

#[tokio::test]
async fn sse_09_closing_early_is_a_no_op_before_2025_11_25() {
    for version in [B, C] {
        let puppet = Puppet::new();
        let (_, client) = puppet.serve();
        let session = client.open(version).await;
        let strings = puppet.strings("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), async {
            strings.close().await;
            strings.finish("whole").await;
        });
        assert!(!reply.is_stream());
        assert_eq!(text_of(&reply.json().await), "whole");
    }
}

/// D5: a call that lasts gets an id to resume from, on the revision that has priming events.
#[tokio::test(start_paused = true)]
async fn d5_a_silent_call_becomes_a_stream_after_a_while() {
    for (version, after) in [(D, 100), (C, 10_000), (B, 10_000)] {
        let puppet = Puppet::new();
        let (_, client) = puppet.serve();
        let session = client.open(version).await;
        let strings = puppet.strings("a");
        let start = tokio::time::Instant::now();
        let mut events = session.tool(1, "a", json!({})).await.events();
        assert_eq!(start.elapsed().as_millis(), after, "{version}");
        // SSE-04: comments keep the connection alive, and yield no event.
        let mut comments = 0;
        while start.elapsed() < Duration::from_secs(60) {
            comments += u32::from(events.block().await.unwrap().comment);
        }
        assert!(comments >= 3, "{comments} comments in a minute");
        strings.finish("slow").await;
        assert_eq!(text_of(&events.next().await.data), "slow");
    }
}

#[tokio::test]
async fn d5_zero_makes_every_call_resumable_from_its_first_byte() {
    let now = SseUpgradeDelay {
        resumable: Duration::ZERO,
        fallback: Duration::from_secs(10),
    };
    let (_, client) = Puppet::new().serve_with(|b| b.upgrade_after(now));
    let session = client.open(D).await;
    let reply = session.tool(1, "echo", json!({ "message": "m" })).await;
    let mut events = reply.events();
    assert_eq!(events.block().await.unwrap().id.as_deref(), Some("1-0"));
    drop(events);
    let rest = session.resume("1-0").await.rest().await;
    assert_eq!(text_of(&rest[0].data), "m");
}

/// D5: no cursor can ever reach it, so the handler finishes and nothing is stored.
#[tokio::test]
async fn d5_a_client_that_leaves_before_the_first_id_leaves_nothing_behind() {
    let store = rethread::MemoryStore::default();
    let puppet = Puppet::new();
    let (service, client) = puppet.serve_with(|b| b.store(store.clone()));
    let session = client.open(C).await;
    let strings = puppet.strings("a");
    let reply = tokio::time::timeout(Duration::from_millis(20), session.tool(1, "a", json!({}))).await;
    assert!(reply.is_err(), "the client left");
    assert_eq!(service.running_calls(), 1, "CAN-02: the handler goes on");
    strings.progress(1).await;
    let asked = strings.ask("sample", json!({ "messages": [], "maxTokens": 1 })).await;
    assert_eq!(asked, Err("the client has left".into()), "its questions fail at once");
    strings.finish("for nobody").await;
    assert_eq!((service.running_calls(), store.streams()), (0, 0));
    assert_eq!(puppet.ended.load(Ordering::Relaxed), 1);
}
