//! The GET streams of a session, and readers that do not read.

use crate::client::{SILENCE, Session, next, next_within, opened, rest, within};
use crate::desk::{Backstage, rethread, rmcp};
use rethread_testkit::raw::RawConnection;
use serde_json::json;
use std::time::Duration;

/// Two GETs are open, and the one that got the messages breaks.
#[tokio::test]
async fn a_message_comes_on_a_get_that_is_open() {
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut first = session.get(None).await;
    let mut second = session.get(None).await;
    backstage.announce("one").await;
    assert_eq!(heard(&mut first).await, "one", "rmcp: the first has it all");
    drop(first);
    backstage.announce("two").await;
    let silent = next_within(&mut second, SILENCE).await;
    assert_eq!(silent, None, "rmcp: the second gets nothing");
    assert!(!second.ended(), "though it stays open");

    let endpoint = rethread(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut first = session.get(None).await;
    let mut second = session.get(None).await;
    backstage.announce("one").await;
    assert_eq!(heard(&mut second).await, "one", "rethread: the newest has it");
    drop(second);
    // Until the server knows of the break, a message may go to the stream that broke, and wait there for a resumption.
    let on_first = within(async {
        loop {
            backstage.announce("two").await;
            if let Some(event) = next_within(&mut first, SILENCE).await {
                return event;
            }
        }
    });
    assert_eq!(on_first.await.logged(), Some("two"), "rethread: then the other");
}

/// A GET without a cursor is a new stream.
#[tokio::test]
async fn a_new_get_repeats_nothing() {
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(None).await;
    backstage.announce("one").await;
    assert_eq!(heard(&mut get).await, "one");
    drop(get);
    // As long as rmcp does not know of the break, a new GET is one that gets nothing.
    let again = within(async {
        loop {
            let mut get = session.get(None).await;
            if let Some(event) = next_within(&mut get, SILENCE).await {
                return event;
            }
        }
    });
    assert_eq!(again.await.logged(), Some("one"), "rmcp: once more");

    let endpoint = rethread(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut get = session.get(None).await;
    backstage.announce("one").await;
    assert_eq!(heard(&mut get).await, "one");
    drop(get);
    let mut get = session.get(None).await;
    backstage.announce("two").await;
    assert_eq!(heard(&mut get).await, "two", "rethread: what is new");
}

/// A client that does not read the answer of one call.
#[tokio::test]
async fn a_reader_that_does_not_read_is_waited_for_by_nobody() {
    let burst = json!({ "steps": 3_000, "bytes": 1_000 });
    let hello = json!({ "text": "hello" });

    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut stalled = session.call_narrow(2, "work", &burst).await;
    // Everything that fits on the way is on the way when nothing more is said.
    let mut steps = 0;
    while backstage_steps(&backstage, steps + 1).await {
        steps += 1;
    }
    assert!(steps < 3_000, "rmcp: the work waits for its reader");
    let answer = tokio::time::timeout(Duration::from_secs(5), session.answer(3, "echo", &hello)).await;
    assert!(answer.is_err(), "rmcp: and so does the session");
    opened(&mut stalled).await;
    assert_eq!(
        rest(&mut stalled).await.len(),
        3_001,
        "it is the reader that was waited for"
    );
    assert_eq!(session.answer(4, "echo", &hello).await.status, 200);

    let backstage = Backstage::new();
    let endpoint = rethread(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    let mut stalled = session.call_narrow(2, "work", &burst).await;
    backstage.finished(1).await;
    let answer = session.answer(3, "echo", &hello).await;
    assert!(answer.body.contains("hello"), "rethread: {}", answer.body);
    opened(&mut stalled).await;
    let mut events = rest(&mut stalled).await;
    while events.last().is_none_or(|event| event.text().is_none()) {
        let cursor = events.last().expect("something came").id.clone();
        events.extend(rest(&mut session.get(Some(&cursor)).await).await);
    }
    assert_eq!(
        events.len(),
        3_001,
        "rethread: and the one who reads late has everything"
    );
}

/// Whether there is an `n`th step, and soon.
async fn backstage_steps(backstage: &Backstage, n: usize) -> bool {
    tokio::time::timeout(Duration::from_secs(5), backstage.stepped(n))
        .await
        .is_ok()
}

async fn heard(get: &mut RawConnection) -> String {
    let event = next(get).await.expect("it stays open");
    event.logged().expect("a log message").to_owned()
}
