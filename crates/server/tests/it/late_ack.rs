//! A store that acknowledges appends late. Readers may see an event first; no event is repeated or lost.
//!
//! Tests with an order of acknowledgements and reads pause the time: on a busy machine a reader may catch up only after the delay,
//! and a failure before that closes it (STO-02).

use crate::support::{V2025_11_25, flaky_session, progress_values, result_text};
use serde_json::json;
use std::time::Duration;

const ACK_DELAY: Duration = Duration::from_millis(60);

/// SSE-08: the client needs an event id before its connection is closed. Otherwise it could not resume.
#[tokio::test(start_paused = true)]
async fn sse_08_close_does_not_overtake_earlier_events() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    switches.delay_acknowledgements(ACK_DELAY);
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.close());
    let mut events = reply.events();
    assert_eq!(events.message().await.map(|m| m.data), None, "closed without a message");
    assert_eq!(events.cursor(), "1-0", "but not without an id");
    script.finish("later").await;
    let rest = session.resume("1-0").await.rest().await;
    assert_eq!(result_text(&rest[0].data), "later");
}

/// SSE-08: the stream has already ended.
#[tokio::test(start_paused = true)]
async fn sse_08_close_after_the_answer_does_nothing() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    switches.delay_acknowledgements(ACK_DELAY);
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), async {
        script.close().await;
        script.finish("at once").await;
    });
    let mut events = reply.events();
    let mut blocks = Vec::new();
    while let Some(block) = events.block().await {
        blocks.push(block);
    }
    let last = blocks.last().unwrap();
    assert_eq!(
        last.id.as_deref(),
        Some("1-1"),
        "nothing follows the answer: {blocks:?}"
    );
}

/// RES-05: the reader finds the event in the store before the writer knows of it.
#[tokio::test(start_paused = true)]
async fn res_05_event_read_before_its_acknowledgement_arrives_once() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply);
    switches.delay_acknowledgements(ACK_DELAY);
    script.progress(2).await; // stored, but the writer has no acknowledgement yet
    let mut first = session.resume("1-1").await;
    assert_eq!(progress_values(&[first.next().await]), [2]);
    drop(first);
    let mut second = session.resume("1-2").await;
    assert!(second.is_silent_for(ACK_DELAY * 2).await, "it has seen 1-2");
    script.progress(3).await;
    assert_eq!(progress_values(&[second.next().await]), [3]);
    let mut behind = session.resume("1-1").await; // during an append, from an older cursor
    script.progress(4).await;
    let seen = [behind.next().await, behind.next().await, behind.next().await];
    assert_eq!(progress_values(&seen), [2, 3, 4]);
    script.finish("x").await;
    assert_eq!(behind.rest().await.len(), 1);
}

/// RES-05, STO-02: the reader has seen the event, so it has no gap.
#[tokio::test(start_paused = true)]
async fn res_05_lost_acknowledgement_does_not_disconnect_its_reader() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply);
    switches.delay_acknowledgements(ACK_DELAY);
    switches.lose_acknowledgements(1);
    script.progress(2).await; // stored, then reported as failed
    let mut events = session.resume("1-1").await;
    assert_eq!(progress_values(&[events.next().await]), [2]);
    tokio::time::sleep(ACK_DELAY * 2).await;
    assert_eq!(switches.failure_count(), 1);
    script.progress(3).await;
    let next = events.message().await;
    let next = next.map(|message| (message.id, message.data["params"]["progress"].as_u64()));
    assert_eq!(next, Some((None, Some(3))), "it reads on, without ids");
}

/// RES-06: a push stream has one writer while readers connect and disconnect.
#[tokio::test]
async fn res_06_resume_during_an_append_loses_nothing() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let script = handler.script("p");
    let pushing = session.clone();
    let call = tokio::spawn(async move { pushing.call(1, "tools/call", json!({ "name": "p" })).await });
    let mut get = session.get(None).await.events();
    script.push(1).await;
    assert_eq!(get.next().await.data["params"]["data"], 1);
    switches.delay_acknowledgements(ACK_DELAY);
    let mut received = vec![1];
    for n in 2..40 {
        script.push(n).await;
        // The connection takes the message and breaks before the acknowledgement.
        let _ = tokio::time::timeout(Duration::from_millis(1), get.message()).await;
        drop(get);
        let cursor = format!("2-{}", received.len());
        let (one, other) = tokio::join!(session.get(Some(&cursor)), session.get(Some(&cursor)));
        drop(one);
        get = other.events();
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(10), get.message()).await {
            assert_eq!(message.id.unwrap(), format!("2-{}", received.len() + 1));
            received.push(message.data["params"]["data"].as_u64().unwrap());
            if received.len() as u64 == n {
                break;
            }
        }
        assert_eq!(received, (1..=n).collect::<Vec<_>>());
    }
    script.finish("x").await;
    call.await.unwrap();
}
