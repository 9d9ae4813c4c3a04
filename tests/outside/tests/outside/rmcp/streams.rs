//! What a stream is behind Rethread, seen on the wire: it outlives its connection and its call, it is one of several, and
//! nobody else waits for its reader.

use super::raw::{Event, Session, next, opened, rest};
use crate::server::RMCP;
use rethread_testkit::raw::RawConnection;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Events of a kilobyte each: together more than fits between a server and a client that does not read, and less than what is
/// kept of a stream.
const MANY: usize = 3000;

/// Far more than others need, and far less than a server that waits for the one who does not read would take.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The call ends while nobody listens. Whoever comes later gets what is left of it, and may come again.
#[tokio::test]
async fn a_result_waits_for_whoever_comes_after_it() {
    let server = RMCP.start();
    let session = Session::open(&server).await;
    let mut connection = session.call(1, "burst", r#"{"events":40,"delay_us":5000}"#).await;
    opened(&mut connection).await;
    let primed = next(&mut connection).await.expect("a priming event");
    assert_eq!(primed.data, "", "it says nothing");
    let first = next(&mut connection).await.expect("progress");
    assert_progress(&first, 1);
    drop(connection);

    // A stream that is still open when it is resumed would pass as well: the call must have ended.
    let mut silent = session.call(2, "sleep", r#"{"ms":300}"#).await;
    opened(&mut silent).await;
    let primed = next(&mut silent).await.expect("a priming event");
    drop(silent);
    let begun = Instant::now();
    while !session.answer(3, "counters", "{}").await.contains(r#"\"finished\":1"#) {
        assert!(begun.elapsed() < AT_ONCE, "the call ended with its connection");
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_millis(500)).await; // and its result is under way, or was lost
    let result = rest(&mut session.get(Some(&primed.id)).await).await;
    assert!(
        result.len() == 1 && result[0].data.contains("slept 300"),
        "a result that came while nobody listened: {result:?}"
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

/// Two GETs of one session: each message comes on one of them, and none is lost when that one is cut.
#[tokio::test]
async fn each_message_comes_on_one_of_two_gets() {
    let server = RMCP.start();
    let session = Session::open(&server).await;
    let mut older = primed(session.get(None).await).await;
    let mut newer = primed(session.get(None).await).await;
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

    // What the server puts on the newer one before it knows of the cut waits there.
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

/// Nobody waits for a reader that does not read: not the other calls of its session, not its other streams, not its own call.
#[tokio::test]
async fn a_reader_that_does_not_read_is_waited_for_by_nobody() {
    let server = RMCP.start();
    let session = Session::open(&server).await;
    let arguments = format!(r#"{{"events":{MANY},"bytes":1000}}"#);
    let mut stalled_call = session.call_narrow(1, "burst", &arguments).await;
    let stalled_get = session.get_narrow().await;
    session.answer(2, "notify_self", &arguments).await;

    let begun = Instant::now();
    let mut listening = primed(session.get(None).await).await;
    for id in 100..120 {
        let said = session.answer(id, "echo", r#"{"message":"I am not stalled"}"#).await;
        assert!(said.contains("I am not stalled"), "{said}");
    }
    let said = session.answer(3, "burst", r#"{"events":50}"#).await;
    assert!(said.contains("burst 50 done"), "{said}");
    session.answer(4, "notify_self", r#"{"events":5,"tag":"heard"}"#).await;
    // What the stalled one did not take comes here first.
    let mut heard = Vec::new();
    while heard.len() < 5 {
        let event = next(&mut listening).await.expect("it stays open");
        heard.extend(Some(event).filter(|event| event.data.contains("\"heard ")));
    }
    assert_eq!(numbers(&heard, "heard"), [1, 2, 3, 4, 5], "in order");
    let others = Session::open(&server).await;
    assert!(
        others
            .answer(1, "echo", r#"{"message":"hello"}"#)
            .await
            .contains("hello")
    );
    assert!(begun.elapsed() < AT_ONCE, "others waited: {:?}", begun.elapsed());
    drop(stalled_get);

    // And nothing is lost for the one who reads late.
    opened(&mut stalled_call).await;
    let mut events = rest(&mut stalled_call).await;
    let answered = |events: &[Event]| events.last().is_some_and(|event| event.data.contains("\"result\""));
    while !answered(&events) {
        let cursor = events.last().expect("something came before it was cut").id.clone();
        let more = rest(&mut session.get(Some(&cursor)).await).await;
        assert!(!more.is_empty(), "nothing behind {cursor}, and no result");
        events.extend(more);
    }
    assert_eq!(events.len(), MANY + 1, "all progress and the result");
    for (event, progress) in events[..MANY].iter().zip(1..) {
        assert_progress(event, progress);
    }
}

/// A GET stream behind its priming event.
async fn primed(mut connection: RawConnection) -> RawConnection {
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

/// The numbers of messages of `notify_self`.
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
