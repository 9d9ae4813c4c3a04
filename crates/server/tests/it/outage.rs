//! A store whose appends fail while its reads work. Events without ids are always reported as a gap (STO-02, D4, D10).

use crate::support::{
    CallScript, ScriptedHandler, V2025_06_18, V2025_11_25, flaky_session, flaky_store, progress_values, push,
};
use rethread::{Limits, MemoryStore};
use rethread_testkit::client::{Events, Session};
use serde_json::{Value, json};
use std::time::Duration;

/// Starts a call, emits the event `1-1` and disconnects.
async fn cut_call(handler: &ScriptedHandler, session: &Session) -> CallScript {
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply);
    script
}

/// STO-02, RES-05: a reader that is still reading the store cannot get an event without an id. Its connection ends after
/// the stored events, and its next resume reports the gap.
#[tokio::test]
async fn sto_02_reader_behind_an_outage_is_closed_and_gets_a_gap() {
    for version in [V2025_06_18, V2025_11_25] {
        let (handler, session, switches) = flaky_session(version).await;
        let script = cut_call(&handler, &session).await;
        script.progress(2).await;
        let mut behind = session.resume("1-1").await; // has not read anything yet
        switches.fail_appends(true);
        script.progress(3).await;
        let first = behind.next().await;
        assert_eq!(first.id.as_deref(), Some("1-2"), "stored events come first");
        script.progress(4).await;
        let after = tokio::time::timeout(Duration::from_secs(2), behind.message()).await;
        assert_eq!(after, Ok(None), "{version}: 3 is missing, so 4 must not come");
        let reply = session.get(Some("1-2")).await;
        assert!(
            reply.header("rethread-gap").is_some(),
            "{version}: the next resume reports the gap"
        );
        script.progress(5).await;
        assert_eq!(progress_values(&[reply.events().next().await]), [5], "and reads on");
        script.finish("unsent").await;
        switches.fail_appends(false);
        let rest = session.resume("1-2").await.rest().await;
        assert_eq!(rest[0].data["error"]["data"]["reason"], "answer_lost", "{version}");
    }
}

/// STO-02, D4: events without ids were sent before the resume.
#[tokio::test]
async fn sto_02_call_stream_resumed_in_an_outage_reports_the_gap() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let script = cut_call(&handler, &session).await;
    let no_gap = session.get(Some("1-1")).await;
    assert_eq!(no_gap.header("rethread-gap"), None);
    drop(no_gap);
    switches.fail_appends(true);
    script.progress(2).await; // no connection and no id
    for _ in 0..2 {
        let reply = session.get(Some("1-1")).await;
        assert_eq!(
            reply.header("rethread-gap").as_deref(),
            Some("1-0"),
            "reported by every resume"
        );
    }
    let mut events = session.resume("1-1").await;
    script.progress(3).await;
    let next = events.next().await;
    assert_eq!((next.id, &next.data["params"]["progress"]), (None, &json!(3)));
}

/// STO-02: the outage starts while the resume reads the status of the stream.
#[tokio::test]
async fn sto_02_outage_during_a_resume_reports_the_gap() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let script = cut_call(&handler, &session).await;
    switches.delay_status(Duration::from_millis(50));
    let (reply, ()) = tokio::join!(session.get(Some("1-1")), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        switches.fail_appends(true);
        script.progress(2).await;
    });
    assert!(reply.header("rethread-gap").is_some());
}

async fn three(events: &mut Events) -> Vec<(Option<String>, Value)> {
    let mut all = Vec::new();
    for _ in 0..3 {
        let message = events.next().await;
        assert!(
            message.data["method"]
                .as_str()
                .is_some_and(|method| method.ends_with("list_changed")),
            "a refresh: {message:?}"
        );
        all.push((message.id, message.data));
    }
    all
}

/// STO-02, D4: every resume starts with a refresh until the store has one.
#[tokio::test(start_paused = true)]
async fn sto_02_push_stream_resumed_after_an_outage_starts_with_a_refresh() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let mut get = session.get(None).await.events();
    push(&handler, &session, 1..2).await;
    assert_eq!(get.next().await.id.as_deref(), Some("2-1"));
    switches.fail_appends(true);
    push(&handler, &session, 2..3).await;
    assert_eq!(get.next().await.id, None); // the client may have missed it
    drop(get);

    // The outage continues.
    for n in 3..5 {
        let reply = session.get(Some("2-1")).await;
        assert!(reply.header("rethread-gap").is_some());
        let mut events = reply.events();
        assert!(three(&mut events).await.iter().all(|(id, _)| id.is_none()));
        push(&handler, &session, n..n + 1).await;
        let message = events.next().await;
        assert_eq!((message.id, &message.data["params"]["data"]), (None, &json!(n)));
    }

    // The store works again: the refresh is stored, and later events get the next numbers.
    switches.fail_appends(false);
    let reply = session.get(Some("2-1")).await;
    assert!(reply.header("rethread-gap").is_some());
    let mut events = reply.events();
    let ids: Vec<_> = three(&mut events).await.into_iter().filter_map(|(id, _)| id).collect();
    assert_eq!(ids, ["2-2", "2-3", "2-4"]);
    push(&handler, &session, 5..6).await;
    assert_eq!(events.next().await.id.as_deref(), Some("2-5"));
    drop(events);
    let mut again = session.resume("2-1").await;
    assert_eq!(three(&mut again).await.len(), 3, "replayed like any event");
    assert_eq!(again.next().await.data["params"]["data"], 5);
}

/// STO-02, RES-06: a connection from the outage is displaced like any other, and no message is lost.
#[tokio::test(start_paused = true)]
async fn sto_02_recovered_push_stream_has_one_reader() {
    let (store, switches) = flaky_store(&MemoryStore::default());
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| {
        b.store(store)
            .limits(Limits::default().with(|limits| limits.push_streams_per_session = 2))
    });
    let session = client.open(V2025_11_25).await;
    let mut old = session.get(None).await.events();
    push(&handler, &session, 1..2).await;
    old.next().await;
    switches.fail_appends(true);
    push(&handler, &session, 2..3).await;
    old.next().await;
    switches.fail_appends(false);
    let mut new = session.resume("2-1").await;
    assert!(old.message().await.is_none(), "EOF for the older one");
    drop(old);
    three(&mut new).await;
    for n in 3..6 {
        push(&handler, &session, n..n + 1).await;
        let message = new.next().await;
        assert_eq!(message.id.unwrap(), format!("2-{}", n + 2));
        assert_eq!(message.data["params"]["data"], n);
    }
    assert_eq!(service.stats().connections, 1);
}

/// STO-02: the store accepts the refresh but its acknowledgement is lost. A repeated refresh is safe, a lost one is not.
#[tokio::test(start_paused = true)]
async fn sto_02_unacknowledged_refresh_is_sent_again() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let mut get = session.get(None).await.events();
    push(&handler, &session, 1..2).await;
    get.next().await;
    switches.fail_appends(true);
    for n in 2..4 {
        push(&handler, &session, n..n + 1).await;
        assert_eq!(get.next().await.id, None);
    }
    drop(get);
    switches.fail_appends(false);
    for resume in 0..2 {
        switches.lose_acknowledgements(1 - resume);
        let reply = session.get(Some("2-1")).await;
        assert!(reply.header("rethread-gap").is_some(), "resume {resume}");
        three(&mut reply.events()).await;
    }
}
