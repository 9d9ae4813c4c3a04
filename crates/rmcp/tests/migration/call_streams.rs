//! Call streams.

use crate::client::{Event, QUIET_PERIOD, Session, next, next_within, read_priming_event, read_stream_head, rest};
use crate::fixture::{Endpoint, ServerControl, rethread, rmcp};
use rethread_testkit::raw::RawConnection;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test]
async fn logs_go_to_the_call_stream() {
    let call = async |endpoint: &Endpoint| {
        let session = Session::open(endpoint.addr).await;
        let get = session.get(None).await;
        let response = session
            .start_call(2, "work", &json!({ "steps": 2, "logs": true }))
            .await;
        (logs(&read_stream(response).await), get)
    };
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let (on_call, mut get) = call(&endpoint).await;
    assert_eq!(on_call, [""; 0], "rmcp: not on the call stream");
    for step in ["step 1", "step 2"] {
        let event = next(&mut get).await.expect("an open stream");
        assert_eq!(event.logged(), Some(step), "rmcp: on the GET stream");
    }
    let endpoint = rethread(&control).await;
    let (on_call, mut get) = call(&endpoint).await;
    assert_eq!(on_call, ["step 1", "step 2"], "rethread: on the call stream");
    assert_eq!(
        next_within(&mut get, QUIET_PERIOD).await,
        None,
        "rethread: nothing on the GET stream"
    );
}

/// The call ends while the client is disconnected. Then the client resumes.
#[tokio::test]
async fn result_survives_a_disconnect() {
    let resume = async |endpoint: Endpoint, control: Arc<ServerControl>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = start_and_disconnect(&session, &control, 4).await;
        control.gate.add_permits(3);
        control.wait_for_finished(1).await;
        // rmcp sends responses in order, so this response follows the result.
        session.call(3, "echo", &json!({ "text": "after" })).await;
        rest(&mut session.get(Some(&cursor)).await).await
    };
    let control = ServerControl::new();
    let events = resume(rmcp(&control).await, control).await;
    assert_eq!(events, [], "rmcp: an empty stream");
    let control = ServerControl::new();
    let events = resume(rethread(&control).await, control).await;
    assert_eq!(steps(&events), [2, 3, 4], "rethread: the missed events");
    assert_eq!(events.last().unwrap().text(), Some("4 steps"), "and the result");
}

/// Both: a disconnect does not cancel the call. A client that resumes while it runs gets the result.
#[tokio::test]
async fn call_survives_a_disconnect() {
    let resume = async |endpoint: Endpoint, control: Arc<ServerControl>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = start_and_disconnect(&session, &control, 4).await;
        let mut resumed = session.get(Some(&cursor)).await;
        control.gate.add_permits(3);
        rest(&mut resumed).await
    };
    let control = ServerControl::new();
    let events = resume(rmcp(&control).await, control).await;
    assert_eq!(events.last().unwrap().text(), Some("4 steps"), "rmcp");
    let control = ServerControl::new();
    let events = resume(rethread(&control).await, control).await;
    assert_eq!(events.last().unwrap().text(), Some("4 steps"), "rethread");
}

#[tokio::test]
async fn resume_does_not_repeat_the_cursor_event() {
    let resume = async |endpoint: Endpoint, control: Arc<ServerControl>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = start_and_disconnect(&session, &control, 3).await;
        let mut resumed = session.get(Some(&cursor)).await;
        control.gate.add_permits(2);
        steps(&rest(&mut resumed).await)
    };
    let control = ServerControl::new();
    let received = resume(rmcp(&control).await, control).await;
    assert_eq!(received, [1, 2, 3], "rmcp: repeats the event of the cursor");
    let control = ServerControl::new();
    let received = resume(rethread(&control).await, control).await;
    assert_eq!(received, [2, 3], "rethread: only later events");
}

#[tokio::test]
async fn resume_replays_many_missed_events() {
    let resume = async |endpoint: Endpoint, control: Arc<ServerControl>| {
        let session = Session::open(endpoint.addr).await;
        let cursor = start_and_disconnect(&session, &control, 101).await;
        control.gate.add_permits(99);
        control.wait_for_steps(100).await;
        let mut resumed = session.get(Some(&cursor)).await;
        control.gate.add_permits(1);
        steps(&rest(&mut resumed).await)
    };
    let control = ServerControl::new();
    let received = resume(rmcp(&control).await, control).await;
    let last: Vec<u64> = (85..=101).collect();
    assert_eq!(received, last, "rmcp: only the last 16");
    let control = ServerControl::new();
    let received = resume(rethread(&control).await, control).await;
    let all: Vec<u64> = (2..=101).collect();
    assert_eq!(received, all, "rethread: all of them");
}

#[tokio::test]
async fn event_id_names_its_stream() {
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open(endpoint.addr).await;
    assert!(
        session.initialize_response.contains("id: 0\n"),
        "rmcp: {}",
        session.initialize_response
    );
    control.push_log("for the GET stream").await;
    let mut resumed = session.get(Some("0")).await;
    let event = next(&mut resumed).await.expect("an open stream");
    assert_eq!(
        event.logged(),
        Some("for the GET stream"),
        "rmcp: an id of `initialize` is also one of the GET stream"
    );

    let endpoint = rethread(&control).await;
    let session = Session::open(endpoint.addr).await;
    assert!(
        session.initialize_response.starts_with('{'),
        "rethread: JSON without an event id: {}",
        session.initialize_response
    );
    let mut get = session.get(None).await;
    let mut streams = vec![vec![read_priming_event(&mut get).await]];
    for id in [2, 3] {
        let events = read_stream(session.start_call(id, "work", &json!({ "steps": 2 })).await).await;
        streams.push(events.into_iter().map(|event| event.id).collect());
    }
    let numbers = streams.iter().map(|ids| {
        let mut numbers = ids.iter().map(|id| id.split('-').next());
        let number = numbers.next().flatten().expect("an id");
        assert!(numbers.all(|other| other == Some(number)), "rethread: {ids:?}");
        number
    });
    let numbers: BTreeSet<&str> = numbers.collect();
    assert_eq!(
        numbers.len(),
        3,
        "rethread: each id starts with the number of its stream: {streams:?}"
    );
}

/// Starts a call of `steps` steps, reads the first and disconnects. Returns the cursor of the first step.
async fn start_and_disconnect(session: &Session, control: &ServerControl, steps: usize) -> String {
    let arguments = json!({ "steps": steps, "gated": true });
    let mut connection = session.start_call(2, "work", &arguments).await;
    control.gate.add_permits(1);
    read_stream_head(&mut connection).await;
    let first = next(&mut connection).await.expect("progress");
    assert_eq!(first.step(), Some(1));
    first.id
}

/// All events of a streaming response.
async fn read_stream(mut connection: RawConnection) -> Vec<Event> {
    read_stream_head(&mut connection).await;
    rest(&mut connection).await
}

fn steps(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(Event::step).collect()
}

fn logs(events: &[Event]) -> Vec<String> {
    events.iter().filter_map(Event::logged).map(str::to_owned).collect()
}
