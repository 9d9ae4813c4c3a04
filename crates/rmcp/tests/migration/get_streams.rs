//! GET streams of a session, and clients that do not read.

use crate::client::{QUIET_PERIOD, Session, next, next_within, read_stream_head, rest, within};
use crate::fixture::{ServerControl, rethread, rmcp};
use rethread_testkit::raw::RawConnection;
use serde_json::json;
use std::time::Duration;

/// Two GET streams are open, and the one with the messages disconnects.
#[tokio::test]
async fn push_moves_to_an_open_get() {
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut first = session.get(None).await;
    let mut second = session.get(None).await;
    control.push_log("one").await;
    assert_eq!(
        next_log(&mut first).await,
        "one",
        "rmcp: the first stream gets messages"
    );
    drop(first);
    control.push_log("two").await;
    let silent = next_within(&mut second, QUIET_PERIOD).await;
    assert_eq!(silent, None, "rmcp: the second stream gets nothing");
    assert!(!second.ended(), "rmcp: the second stream stays open");

    let endpoint = rethread(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut first = session.get(None).await;
    let mut second = session.get(None).await;
    control.push_log("one").await;
    assert_eq!(
        next_log(&mut second).await,
        "one",
        "rethread: the newest stream gets messages"
    );
    drop(second);
    // Until the server notices the disconnect, a message may go to the broken stream and wait for a resume.
    let on_first = within(async {
        loop {
            control.push_log("two").await;
            if let Some(event) = next_within(&mut first, QUIET_PERIOD).await {
                return event;
            }
        }
    });
    assert_eq!(
        on_first.await.logged(),
        Some("two"),
        "rethread: the other stream takes over"
    );
}

/// A GET request without a cursor opens a new stream.
#[tokio::test]
async fn new_get_does_not_replay() {
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(None).await;
    control.push_log("one").await;
    assert_eq!(next_log(&mut get).await, "one");
    drop(get);
    // Until rmcp notices the disconnect, a new GET stream gets nothing.
    let again = within(async {
        loop {
            let mut get = session.get(None).await;
            if let Some(event) = next_within(&mut get, QUIET_PERIOD).await {
                return event;
            }
        }
    });
    assert_eq!(again.await.logged(), Some("one"), "rmcp: replayed");

    let endpoint = rethread(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(None).await;
    control.push_log("one").await;
    assert_eq!(next_log(&mut get).await, "one");
    drop(get);
    let mut get = session.get(None).await;
    control.push_log("two").await;
    assert_eq!(next_log(&mut get).await, "two", "rethread: only the new message");
}

/// A client does not read the response of one call.
#[tokio::test]
async fn slow_reader_blocks_nobody() {
    let burst = json!({ "steps": 3_000, "bytes": 1_000 });
    let hello = json!({ "text": "hello" });

    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut stalled = session.start_call_with_small_buffer(2, "work", &burst).await;
    // Steps stop when all buffers between the server and the client are full.
    let mut steps = 0;
    while step_happens(&control, steps + 1).await {
        steps += 1;
    }
    assert!(steps < 3_000, "rmcp: the call waits for its reader");
    let response = tokio::time::timeout(Duration::from_secs(5), session.call(3, "echo", &hello)).await;
    assert!(response.is_err(), "rmcp: so does the session");
    read_stream_head(&mut stalled).await;
    assert_eq!(
        rest(&mut stalled).await.len(),
        3_001,
        "rmcp: all events arrive once the client reads"
    );
    assert_eq!(session.call(4, "echo", &hello).await.status, 200);

    let control = ServerControl::new();
    let endpoint = rethread(&control).await;
    let session = Session::open(endpoint.addr).await;
    let mut stalled = session.start_call_with_small_buffer(2, "work", &burst).await;
    control.wait_for_finished(1).await;
    let response = session.call(3, "echo", &hello).await;
    assert!(response.body.contains("hello"), "rethread: {}", response.body);
    read_stream_head(&mut stalled).await;
    let mut events = rest(&mut stalled).await;
    while events.last().is_none_or(|event| event.text().is_none()) {
        let cursor = events.last().expect("at least one event").id.clone();
        events.extend(rest(&mut session.get(Some(&cursor)).await).await);
    }
    assert_eq!(events.len(), 3_001, "rethread: a late reader gets all events");
}

/// Whether the `n`th step happens within 5 seconds.
async fn step_happens(control: &ServerControl, n: usize) -> bool {
    tokio::time::timeout(Duration::from_secs(5), control.wait_for_steps(n))
        .await
        .is_ok()
}

async fn next_log(get: &mut RawConnection) -> String {
    let event = next(get).await.expect("an open stream");
    event.logged().expect("a log message").to_owned()
}
