//! GET streams and the messages that the server pushes to them.

use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_06_18, V2025_11_25, push};
use rethread::{Limits, ListKind, MemoryStore, Timing};
use rethread_testkit::client::Events;
use rethread_testkit::flaky::FlakyStore;
use serde_json::{Value, json};
use std::time::Duration;

async fn numbers(events: &mut Events, count: usize) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(events.next().await.data["params"]["data"].as_u64().unwrap());
    }
    all
}

const QUIET_PERIOD: Duration = Duration::from_millis(20);

#[tokio::test]
async fn get_01_get_is_an_event_stream_or_405() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let reply = session.get(None).await;
    assert!(reply.status == 200 && reply.is_stream());
    let (_, client) = ScriptedHandler::new().serve_with(rethread::Builder::without_get);
    let session = client.open(V2025_11_25).await;
    let reply = session.get(None).await;
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("allow").as_deref(), Some("POST, DELETE"));
}

/// GET-04.
#[tokio::test]
async fn get_04_messages_without_a_get_arrive_on_the_next() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (service, client) = handler.serve();
        let session = client.open(version).await;
        push(&handler, &session, 1..4).await;
        service.notifier().list_changed(ListKind::Tools);
        service.notifier().list_changed(ListKind::Tools);
        tokio::time::sleep(QUIET_PERIOD * 10).await; // both streams are attached before the first message
        let mut get = session.get(None).await.events();
        assert_eq!(numbers(&mut get, 3).await, [1, 2, 3]);
        assert_eq!(get.next().await.data["method"], ListKind::Tools.changed(), "{version}");
        assert!(get.is_silent_for(QUIET_PERIOD).await, "equal list changes collapse");
    }
}

#[tokio::test]
async fn get_03_message_goes_to_one_of_three_gets() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let mut gets = Vec::new();
    for _ in 0..3 {
        gets.push(session.get(None).await.events());
    }
    push(&handler, &session, 0..100).await;
    let mut newest = gets.pop().unwrap();
    assert_eq!(
        numbers(&mut newest, 100).await,
        (0..100).collect::<Vec<_>>(),
        "the newest stream gets messages"
    );
    for get in &mut gets {
        assert!(get.is_silent_for(QUIET_PERIOD).await, "never broadcast");
    }
    // After a disconnect the next open stream gets new messages. Messages of the closed stream stay with it.
    let dead = newest.cursor().to_owned();
    drop(newest);
    push(&handler, &session, 100..103).await;
    let mut next = gets.pop().unwrap();
    assert_eq!(numbers(&mut next, 3).await, [100, 101, 102]);
    assert!(
        session.resume(&dead).await.is_silent_for(QUIET_PERIOD).await,
        "nothing is moved between streams"
    );
    assert!(gets.pop().unwrap().is_silent_for(QUIET_PERIOD).await);
}

/// D6: a message that was assigned to a broken connection is delivered only by a resume of that stream.
#[tokio::test]
async fn get_03_message_stays_with_its_stream() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let mut first = session.get(None).await.events();
    push(&handler, &session, 1..2).await;
    first.next().await;
    let cursor = first.cursor().to_owned();
    push(&handler, &session, 2..3).await;
    // The connection takes message 2 and is cut before the client reads it.
    assert!(!first.is_silent_for(QUIET_PERIOD).await);
    drop(first);
    let mut other = session.get(None).await.events();
    push(&handler, &session, 3..4).await;
    assert_eq!(numbers(&mut other, 1).await, [3], "a fresh GET replays nothing");
    let mut resumed = session.resume(&cursor).await;
    assert_eq!(numbers(&mut resumed, 1).await, [2]);
    push(&handler, &session, 4..5).await;
    assert_eq!(
        numbers(&mut resumed, 1).await,
        [4],
        "a resumed stream is the newest and continues its numbers"
    );
    assert_eq!(resumed.cursor(), "2-3");
}

#[tokio::test]
async fn get_05_closing_a_get_keeps_the_session() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    drop(session.get(None).await);
    assert_eq!(service.stats().connections, 0);
    assert_eq!(session.call(1, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn get_05_half_open_get_is_displaced() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let mut half_open = session.get(None).await.events();
    push(&handler, &session, 1..2).await;
    half_open.next().await;
    let cursor = half_open.cursor().to_owned();
    for n in 2..6 {
        let mut next = session.resume(&cursor).await;
        push(&handler, &session, n..n + 1).await;
        assert_eq!(numbers(&mut next, n as usize - 1).await, (2..=n).collect::<Vec<_>>());
        assert!(half_open.message().await.is_none(), "EOF for the older one");
        half_open = next;
    }
}

/// T-20: without priming, clients could not poll a GET stream.
#[tokio::test]
async fn t_20_get_streams_are_primed_on_2025_11_25_only() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let block = session.get(None).await.events().block().await.unwrap();
    assert_eq!((block.id.as_deref(), block.data.as_deref()), (Some("2-0"), Some("")));
    let session = client.open(V2025_06_18).await;
    assert!(session.get(None).await.events().is_silent_for(QUIET_PERIOD).await);
}

/// SSE-14: only the unread connection is closed.
#[tokio::test]
async fn sse_14_unread_get_delays_nobody_and_memory_is_bounded() {
    let store = MemoryStore::default();
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| {
        b.store(store.clone())
            .limits(Limits::default().with(|limits| limits.waiting_messages_per_session = 100))
    });
    let session = client.open(V2025_11_25).await;
    let other = client.open(V2025_11_25).await;
    let _never_read = session.get(None).await;
    push(&handler, &session, 0..5000).await; // would block for ever if a push waited for the reader
    for id in 0..100 {
        let reply = session.tool(id, "echo", json!({ "message": "m" })).await;
        assert_eq!(reply.status, 200);
        assert_eq!(other.tool(id, "echo", json!({})).await.status, 200);
    }
    assert!(store.held_bytes() < 100_000, "{} bytes held", store.held_bytes());
    let mut fresh = session.get(None).await.events();
    assert_eq!(
        numbers(&mut fresh, 100).await,
        (4900..5000).collect::<Vec<_>>(),
        "the newest hundred waited"
    );
}

/// SSE-14: another GET stream gets the messages.
#[tokio::test(start_paused = true)]
async fn sse_14_messages_skip_a_stalled_get() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let mut older = session.get(None).await.events();
    let _stalled = session.get(None).await;
    push(&handler, &session, 1..3).await;
    assert_eq!(numbers(&mut older, 2).await, [1, 2]);
}

/// GET-03.
#[tokio::test]
async fn get_03_too_many_gets_close_the_oldest() {
    let handler = ScriptedHandler::new();
    let (service, client) =
        handler.serve_with(|b| b.limits(Limits::default().with(|limits| limits.push_streams_per_session = 2)));
    let session = client.open(V2025_11_25).await;
    let mut first = session.get(None).await.events();
    let _second = session.get(None).await;
    let _third = session.get(None).await;
    assert!(first.message().await.is_none(), "the oldest makes room");
    drop(first);
    assert_eq!(service.stats().connections, 2);
    assert_eq!(session.get(Some("2-0")).await.status, 200, "and may come back");
}

#[tokio::test]
async fn change_notifications_reach_subscribed_sessions() {
    let (service, client) = ScriptedHandler::new().serve();
    let subscribed = client.open(V2025_11_25).await;
    let stranger = client.open(V2025_06_18).await;
    let uri = json!({ "uri": "test://folder" });
    let reply = subscribed.call(1, "resources/subscribe", uri.clone()).await;
    assert_eq!(reply.json().await["result"], json!({}));
    let (mut theirs, mut others) = (subscribed.get(None).await.events(), stranger.get(None).await.events());
    for raised in ["test://other", "test://folder", "test://folder/leaf", "test://folders"] {
        service.notifier().resource_updated(raised);
    }
    let updated = |message: Value| message["params"]["uri"].as_str().unwrap().to_owned();
    assert_eq!(updated(theirs.next().await.data), "test://folder");
    assert_eq!(updated(theirs.next().await.data), "test://folder/leaf", "T-26");
    assert!(theirs.is_silent_for(QUIET_PERIOD).await && others.is_silent_for(QUIET_PERIOD).await);
    subscribed.call(2, "resources/unsubscribe", uri).await;
    service.notifier().resource_updated("test://folder");
    service.notifier().list_changed(ListKind::Prompts);
    service
        .notifier()
        .broadcast("notifications/message", json!({ "level": "info", "data": "all" }));
    for events in [&mut theirs, &mut others] {
        assert_eq!(events.next().await.data["method"], ListKind::Prompts.changed());
        assert_eq!(events.next().await.data["params"]["data"], "all");
    }
}

#[tokio::test(start_paused = true)]
async fn sse_04_idle_get_stream_gets_keep_alive_comments() {
    let (_, client) = ScriptedHandler::new()
        .serve_with(|b| b.timing(Timing::default().with(|timing| timing.keep_alive = Duration::from_secs(5))));
    let session = client.open(V2025_06_18).await;
    let mut get = session.get(None).await.events();
    let start = tokio::time::Instant::now();
    for n in 1..4 {
        assert!(get.block().await.unwrap().comment);
        assert_eq!(start.elapsed(), Duration::from_secs(5 * n));
    }
}

/// SES-08.
#[tokio::test]
async fn ses_08_pushes_wait_for_initialized() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.initialize(V2025_11_25, json!({})).await;
    let mut get = session.get(None).await.events();
    push(&handler, &session, 1..3).await;
    assert!(get.is_silent_for(QUIET_PERIOD).await);
    session.notify("notifications/initialized", json!({})).await;
    assert_eq!(numbers(&mut get, 2).await, [1, 2]);
}

/// RES-06: the connection ends while a resume looks up its stream. The stream has one writer.
#[tokio::test]
async fn res_06_connection_ending_during_a_resume_yields_the_stream() {
    let handler = ScriptedHandler::new();
    let store = FlakyStore::new(MemoryStore::default());
    let switches = store.switches();
    let (_, client) = handler.serve_with(|b| b.store(store));
    let session = client.open(V2025_11_25).await;
    let mut first = session.get(None).await.events();
    push(&handler, &session, 1..2).await;
    assert_eq!(numbers(&mut first, 1).await, [1]);
    let cursor = first.cursor().to_owned();

    switches.delay_status(QUIET_PERIOD * 5);
    let (mut second, ()) = tokio::join!(session.resume(&cursor), async {
        tokio::time::sleep(QUIET_PERIOD).await;
        drop(first);
    });
    switches.delay_status(Duration::ZERO);
    let mut third = session.resume(&cursor).await;
    assert!(
        second.message().await.is_none(),
        "the newest connection wins, and the older one ends"
    );
    push(&handler, &session, 2..4).await;
    assert_eq!(numbers(&mut third, 2).await, [2, 3]);
}
