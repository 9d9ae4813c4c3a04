//! Streams behind Rethread on the wire: they survive their connection and their call, and a slow reader blocks nobody.

use super::raw::{Event, Session, next, read_stream_head, rest};
use crate::server::RMCP;
use rethread_testkit::raw::RawConnection;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Events of 1 KB each. Together they exceed all socket buffers but not the retention of a stream.
const BURST_EVENTS: usize = 3000;

/// More than enough for a response that does not wait for the slow reader.
const PROMPT_RESPONSE: Duration = Duration::from_secs(10);

/// The call ends while no client is connected. Every later resume gets the rest.
#[tokio::test]
async fn result_survives_a_disconnect() {
    let server = RMCP.start();
    let session = Session::open(&server).await;
    let mut connection = session.call(1, "burst", r#"{"events":40,"delay_us":5000}"#).await;
    read_stream_head(&mut connection).await;
    let primed = next(&mut connection).await.expect("a priming event");
    assert_eq!(primed.data, "", "it says nothing");
    let first = next(&mut connection).await.expect("progress");
    assert_progress(&first, 1);
    drop(connection);

    // The call must have ended: an open stream would pass this test too.
    let mut silent = session.call(2, "sleep", r#"{"ms":300}"#).await;
    read_stream_head(&mut silent).await;
    let primed = next(&mut silent).await.expect("a priming event");
    drop(silent);
    let begun = Instant::now();
    while !session.answer(3, "counters", "{}").await.contains(r#"\"finished\":1"#) {
        assert!(begun.elapsed() < PROMPT_RESPONSE, "the call ended with its connection");
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_millis(500)).await; // the result is stored, or lost
    let result = rest(&mut session.get(Some(&primed.id)).await).await;
    assert!(
        result.len() == 1 && result[0].data.contains("slept 300"),
        "a result from a disconnected call: {result:?}"
    );

    let events = rest(&mut session.get(Some(&first.id)).await).await;
    assert_eq!(events.len(), 40, "39 times progress and the result");
    for (event, progress) in events.iter().zip(2..=40) {
        assert_progress(event, progress);
    }
    assert!(events[39].data.contains("burst 40 done"), "{:?}", events[39]);
    let again = rest(&mut session.get(Some(&events[9].id)).await).await;
    assert_eq!(again, events[10..], "the same once more, from further on");
}

/// Each message arrives on one of two GET streams, and none is lost when that stream is cut.
#[tokio::test]
async fn message_goes_to_one_of_two_gets() {
    let server = RMCP.start();
    let session = Session::open(&server).await;
    let mut older = read_priming_event(session.get(None).await).await;
    let mut newer = read_priming_event(session.get(None).await).await;
    session.answer(1, "notify_self", r#"{"events":20,"tag":"both"}"#).await;
    let mut cursor = String::new();
    for n in 1..=20 {
        let event = next(&mut newer).await.expect("it stays open");
        assert!(
            event.data.contains(&format!("both {n} ")),
            "the newer one takes all, in order: {event:?}"
        );
        cursor = event.id;
    }

    // Messages that the server assigned to the newer stream before it noticed the cut stay there.
    drop(newer);
    session.answer(2, "notify_self", r#"{"events":20,"tag":"cut"}"#).await;
    let mut resumed = session.get(Some(&cursor)).await;
    let (mut on_older, mut on_resumed) = (Vec::new(), Vec::new());
    while on_older.len() + on_resumed.len() < 20 {
        tokio::select! {
            event = next(&mut older) => on_older.push(event.expect("it stays open")),
            event = next(&mut resumed) => {
                let event = event.expect("it stays open");
                on_resumed.extend(Some(event).filter(|event| !event.data.is_empty()));
            }
        }
    }
    for events in [&on_older, &on_resumed] {
        assert!(
            numbers(events, "cut").is_sorted(),
            "in order: {on_older:?} {on_resumed:?}"
        );
    }
    let mut all = numbers(&[on_older, on_resumed].concat(), "cut");
    all.sort_unstable();
    assert_eq!(all, (1..=20).collect::<Vec<_>>(), "each once");
}

/// A slow reader blocks neither other calls of its session, nor its other streams, nor its own call.
#[tokio::test]
async fn slow_reader_blocks_nobody() {
    let server = RMCP.start();
    let session = Session::open(&server).await;
    let arguments = format!(r#"{{"events":{BURST_EVENTS},"bytes":1000}}"#);
    let mut stalled_call = session.call_with_small_buffer(1, "burst", &arguments).await;
    let stalled_get = session.get_with_small_buffer().await;
    session.answer(2, "notify_self", &arguments).await;

    let begun = Instant::now();
    let mut listening = read_priming_event(session.get(None).await).await;
    for id in 100..120 {
        let said = session.answer(id, "echo", r#"{"message":"I am not stalled"}"#).await;
        assert!(said.contains("I am not stalled"), "{said}");
    }
    let said = session.answer(3, "burst", r#"{"events":50}"#).await;
    assert!(said.contains("burst 50 done"), "{said}");
    session.answer(4, "notify_self", r#"{"events":5,"tag":"heard"}"#).await;
    // Messages that the stalled stream did not take arrive here first.
    let mut received = Vec::new();
    while received.len() < 5 {
        let event = next(&mut listening).await.expect("it stays open");
        received.extend(Some(event).filter(|event| event.data.contains("\"heard ")));
    }
    assert_eq!(numbers(&received, "heard"), [1, 2, 3, 4, 5], "in order");
    let others = Session::open(&server).await;
    assert!(
        others
            .answer(1, "echo", r#"{"message":"hello"}"#)
            .await
            .contains("hello")
    );
    assert!(
        begun.elapsed() < PROMPT_RESPONSE,
        "others waited: {:?}",
        begun.elapsed()
    );
    drop(stalled_get);

    // A late reader gets all events.
    read_stream_head(&mut stalled_call).await;
    let mut events = rest(&mut stalled_call).await;
    let answered = |events: &[Event]| events.last().is_some_and(|event| event.data.contains("\"result\""));
    while !answered(&events) {
        let cursor = events.last().expect("something came before it was cut").id.clone();
        let more = rest(&mut session.get(Some(&cursor)).await).await;
        assert!(!more.is_empty(), "nothing behind {cursor}, and no result");
        events.extend(more);
    }
    assert_eq!(events.len(), BURST_EVENTS + 1, "all progress and the result");
    for (event, progress) in events[..BURST_EVENTS].iter().zip(1..) {
        assert_progress(event, progress);
    }
}

/// Reads the priming event of a GET stream.
async fn read_priming_event(mut connection: RawConnection) -> RawConnection {
    let event = next(&mut connection).await.expect("a priming event");
    assert_eq!(event.data, "", "it says nothing");
    connection
}

fn assert_progress(event: &Event, progress: usize) {
    let (short, long) = (
        format!("\"progress\":{progress},"),
        format!("\"progress\":{progress}.0,"),
    );
    assert!(
        event.data.contains(&short) || event.data.contains(&long),
        "progress {progress}: {event:?}"
    );
}

/// The numbers in the messages of `notify_self`.
fn numbers(events: &[Event], tag: &str) -> Vec<usize> {
    let number = |event: &Event| {
        let (_, rest) = event.data.split_once(&format!("\"{tag} "))?;
        rest.split(' ').next()?.parse().ok()
    };
    let numbers = events
        .iter()
        .map(|event| number(event).unwrap_or_else(|| panic!("{event:?}")));
    numbers.collect()
}
