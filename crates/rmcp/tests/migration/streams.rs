//! The stream of a call.

use crate::client::{Event, SILENCE, Session, next, next_within, opened, primed, rest};
use crate::desk::{Backstage, Endpoint, rethread, rmcp};
use rethread_testkit::raw::RawConnection;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test]
async fn logs_travel_on_the_stream_of_their_call() {
    let called = async |endpoint: &Endpoint| {
        let session = Session::open(endpoint.addr).await;
        let get = session.get(None).await;
        let answer = session.call(2, "work", &json!({ "steps": 2, "logs": true })).await;
        (logs(&all_of(answer).await), get)
    };
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let (on_call, mut get) = called(&endpoint).await;
    assert_eq!(on_call, [""; 0], "rmcp: on another stream");
    for step in ["step 1", "step 2"] {
        let event = next(&mut get).await.expect("it stays open");
        assert_eq!(event.logged(), Some(step), "rmcp: on the GET");
    }
    let endpoint = rethread(&backstage).await;
    let (on_call, mut get) = called(&endpoint).await;
    assert_eq!(on_call, ["step 1", "step 2"], "rethread: with the call");
    assert_eq!(next_within(&mut get, SILENCE).await, None, "rethread: and nowhere else");
}

/// The connection breaks, the call ends while nobody listens, the client comes back.
#[tokio::test]
async fn a_result_waits_for_whoever_comes_after_it() {
    let seen = async |endpoint: Endpoint, backstage: Arc<Backstage>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = begun(&session, &backstage, 4).await;
        backstage.gate.add_permits(3);
        backstage.finished(1).await;
        // This answer went the way of the other, behind it.
        session.answer(3, "echo", &json!({ "text": "behind" })).await;
        rest(&mut session.get(Some(&cursor)).await).await
    };
    let backstage = Backstage::new();
    let events = seen(rmcp(&backstage).await, backstage).await;
    assert_eq!(events, [], "rmcp: a stream that ends and says nothing");
    let backstage = Backstage::new();
    let events = seen(rethread(&backstage).await, backstage).await;
    assert_eq!(steps(&events), [2, 3, 4], "rethread: what was missed");
    assert_eq!(events.last().unwrap().text(), Some("4 steps"), "and the result");
}

/// The same on both: a connection that breaks is no cancellation, and who comes back in time gets the result.
#[tokio::test]
async fn a_call_goes_on_without_its_connection() {
    let seen = async |endpoint: Endpoint, backstage: Arc<Backstage>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = begun(&session, &backstage, 4).await;
        let mut resumed = session.get(Some(&cursor)).await;
        backstage.gate.add_permits(3);
        rest(&mut resumed).await
    };
    let backstage = Backstage::new();
    let events = seen(rmcp(&backstage).await, backstage).await;
    assert_eq!(events.last().unwrap().text(), Some("4 steps"), "rmcp");
    let backstage = Backstage::new();
    let events = seen(rethread(&backstage).await, backstage).await;
    assert_eq!(events.last().unwrap().text(), Some("4 steps"), "rethread");
}

#[tokio::test]
async fn what_was_seen_is_not_repeated() {
    let seen = async |endpoint: Endpoint, backstage: Arc<Backstage>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = begun(&session, &backstage, 3).await;
        let mut resumed = session.get(Some(&cursor)).await;
        backstage.gate.add_permits(2);
        steps(&rest(&mut resumed).await)
    };
    let backstage = Backstage::new();
    let came = seen(rmcp(&backstage).await, backstage).await;
    assert_eq!(came, [1, 2, 3], "rmcp: the event of the cursor comes again");
    let backstage = Backstage::new();
    let came = seen(rethread(&backstage).await, backstage).await;
    assert_eq!(came, [2, 3], "rethread: what comes after the cursor");
}

#[tokio::test]
async fn many_events_can_be_missed() {
    let seen = async |endpoint: Endpoint, backstage: Arc<Backstage>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = begun(&session, &backstage, 101).await;
        backstage.gate.add_permits(99);
        backstage.stepped(100).await;
        let mut resumed = session.get(Some(&cursor)).await;
        backstage.gate.add_permits(1);
        steps(&rest(&mut resumed).await)
    };
    let backstage = Backstage::new();
    let came = seen(rmcp(&backstage).await, backstage).await;
    let last: Vec<u64> = (85..=101).collect();
    assert_eq!(came, last, "rmcp: the last 16, and no word of the others");
    let backstage = Backstage::new();
    let came = seen(rethread(&backstage).await, backstage).await;
    let all: Vec<u64> = (2..=101).collect();
    assert_eq!(came, all, "rethread: all of them");
}

/// An id says from which stream it is.
#[tokio::test]
async fn an_event_id_belongs_to_one_stream() {
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    assert!(session.hello.contains("id: 0\n"), "rmcp: {}", session.hello);
    backstage.announce("for the GET").await;
    let mut resumed = session.get(Some("0")).await;
    let came = next(&mut resumed).await.expect("it stays open");
    assert_eq!(
        came.logged(),
        Some("for the GET"),
        "rmcp: the id of `initialize` is one of the GET stream, too"
    );

    let endpoint = rethread(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    assert!(
        session.hello.starts_with('{'),
        "rethread: no stream, no id: {}",
        session.hello
    );
    let mut get = session.get(None).await;
    let mut streams = vec![vec![primed(&mut get).await]];
    for id in [2, 3] {
        let events = all_of(session.call(id, "work", &json!({ "steps": 2 })).await).await;
        streams.push(events.into_iter().map(|event| event.id).collect());
    }
    let names = streams.iter().map(|ids| {
        let mut names = ids.iter().map(|id| id.split('-').next());
        let name = names.next().flatten().expect("an id");
        assert!(names.all(|other| other == Some(name)), "rethread: {ids:?}");
        name
    });
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(
        names.len(),
        3,
        "rethread: each id begins with the name of its stream: {streams:?}"
    );
}

/// Begins a work of some steps, sees the first, and hangs up. The cursor is that of the first step.
async fn begun(session: &Session, backstage: &Backstage, of: usize) -> String {
    let arguments = json!({ "steps": of, "gated": true });
    let mut connection = session.call(2, "work", &arguments).await;
    backstage.gate.add_permits(1);
    opened(&mut connection).await;
    let first = next(&mut connection).await.expect("progress");
    assert_eq!(first.step(), Some(1));
    first.id
}

/// All events of an answer that must be a stream.
async fn all_of(mut connection: RawConnection) -> Vec<Event> {
    opened(&mut connection).await;
    rest(&mut connection).await
}

fn steps(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(Event::step).collect()
}

fn logs(events: &[Event]) -> Vec<String> {
    events.iter().filter_map(Event::logged).map(str::to_owned).collect()
}
