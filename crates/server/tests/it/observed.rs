//! An observer gets every session, call and refusal once, with its facts.

use crate::http_sse::HttpSseClient;
use crate::support::{ScriptedHandler, V2025_03_26, V2025_11_25, as_principal};
use rethread::{
    CallFacts, CallOutcome, Limits, MemoryStore, Observe, Principal, RefusedRequest, SessionEnd, SessionFacts, Tag,
    Timing, UnusedSessions,
};
use rethread_proto::clock::Wall;
use rethread_testkit::client::Client;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Writes one line for each report.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn record(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

fn subject(principal: Option<&Principal>) -> &str {
    principal.map_or("-", Principal::subject)
}

fn text(tag: Option<Tag>) -> String {
    tag.map_or("-".to_owned(), |tag| tag.to_string())
}

impl Observe for Recorder {
    fn session_opened(&self, session: &SessionFacts<'_>) {
        self.record(format!("opened {}", session.is_restored));
    }

    fn session_ended(&self, _: &SessionFacts<'_>, end: SessionEnd, age: Duration) {
        self.record(format!("ended {} {}", end.as_str(), age.as_secs()));
    }

    fn call_ended(&self, call: &CallFacts<'_>, outcome: CallOutcome, _: Duration) {
        let (session, caller) = (text(call.session), subject(Some(call.principal)));
        let (version, tool) = (call.version, call.tool.unwrap_or("-"));
        let method = call.method;
        self.record(format!("call {session} {caller} {version} {method} {tool} {outcome:?}"));
    }

    fn refused(&self, request: &RefusedRequest<'_>) {
        let (session, caller) = (text(request.session), subject(request.principal));
        let version = request.version.map_or("-", |version| version.as_str());
        let (method, tool) = (request.method.unwrap_or("-"), request.tool.unwrap_or("-"));
        let label = request.refusal.label();
        self.record(format!("refused {session} {caller} {version} {method} {tool} {label}"));
    }
}

fn tag(session: &str) -> String {
    Tag::of_session(&rethread::SessionId::parse(session).unwrap()).to_string()
}

/// OPS-14: a refusal on `/sse` and `/messages` has the facts that one on `/mcp` has.
#[tokio::test]
async fn ops_14_refusals_of_http_sse_have_their_facts() {
    let (handler, recorder) = (ScriptedHandler::new(), Arc::new(Recorder::default()));
    let (service, _) = handler.serve_with(|builder| {
        let limits = Limits::default().with(|limits| limits.calls_per_principal = 1);
        builder.observe(recorder.clone()).limits(limits)
    });
    let client = as_principal(&Client::new(service.http_sse("/messages")), "ada");
    let mut session = HttpSseClient::open(&client).await;
    session.handshake(V2025_11_25).await;
    let id = session.path().split_once("sessionId=").unwrap().1.to_owned();
    let held = handler.script("held");
    let call = |id, tool| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } });
    assert_eq!(session.post(call(1, "held")).await, 202);
    held.progress(1).await;
    recorder.take();
    assert_eq!(session.post(call(2, "echo")).await, 429);
    let expected = format!("refused {} ada - tools/call echo too_many", tag(&id));
    assert_eq!(recorder.take(), [expected]);

    let unknown = client.with_request_hook(|request| *request.uri_mut() = "/messages?sessionId=x".parse().unwrap());
    let reply = unknown.request("POST", &[], call(3, "echo").to_string()).await;
    assert_eq!(reply.status, 404);
    let expected = format!("refused {} ada - tools/call echo unknown_session", tag("x"));
    assert_eq!(recorder.take(), [expected]);
}

/// OPS-14: the transport answers some requests without a handler. Each one is reported.
#[tokio::test]
async fn ops_14_calls_without_a_handler_are_reported_in_a_session() {
    let (handler, recorder) = (ScriptedHandler::new(), Arc::new(Recorder::default()));
    let (_service, client) = handler.serve_with(|builder| {
        let limits = Limits::default().with(|limits| limits.calls_per_principal = 1);
        builder.observe(recorder.clone()).limits(limits)
    });
    let client = as_principal(&client, "ada");
    let session = client.open(V2025_03_26).await;
    let of_session = format!("{} ada {V2025_03_26}", tag(&session.id));
    let held = handler.script("held");
    let (_reply, ()) = tokio::join!(session.tool(1, "held", json!({})), held.progress(1));
    recorder.take();

    let call = |id, tool| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } });
    let batch = session.post(&json!([call(2, "echo"), call(3, "other")])).await;
    assert_eq!(batch.events().rest().await.len(), 2);
    let refused = |tool| format!("refused {of_session} tools/call {tool} too_many");
    assert_eq!(recorder.take(), [refused("echo"), refused("other")]);

    let level = session.call(4, "logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(level.answer().await["error"]["code"], -32602);
    assert_eq!(
        recorder.take(),
        [format!("call {of_session} logging/setLevel - Error(-32602)")]
    );

    let invalid = json!({ "jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {} });
    assert_eq!(client.post(&invalid).await.answer().await["error"]["code"], -32602);
    assert_eq!(
        recorder.take(),
        [format!("call - ada {V2025_11_25} initialize - Error(-32602)")]
    );
}

/// SES-10, OPS-14.
#[tokio::test]
async fn ops_14_duplicate_id_in_flight_is_reported() {
    let (handler, recorder) = (ScriptedHandler::new(), Arc::new(Recorder::default()));
    let (_service, client) = handler.serve_with(|builder| builder.observe(recorder.clone()));
    let session = client.open(V2025_11_25).await;
    let held = handler.script("held");
    let (_reply, ()) = tokio::join!(session.tool(1, "held", json!({})), held.progress(1));
    recorder.take();
    let again = session.tool(1, "echo", json!({})).await.answer().await;
    assert_eq!(again["error"]["code"], -32600);
    let expected = format!("call {}  {V2025_11_25} tools/call echo Error(-32600)", tag(&session.id));
    assert_eq!(recorder.take(), [expected]);
}

/// OPS-14: the same for 2026-07-28.
#[tokio::test]
async fn ops_14_calls_without_a_handler_are_reported_without_a_session() {
    let (handler, recorder) = (ScriptedHandler::new(), Arc::new(Recorder::default()));
    let (_service, client) = handler.serve_with(|builder| builder.observe(recorder.clone()));
    let client = as_principal(&client, "ada");
    for (method, tool, params, code) in [
        ("ping", "-", json!({}), -32601),
        ("resources/subscribe", "-", json!({ "uri": "file:///x" }), -32601),
        ("subscriptions/listen", "-", json!({ "notifications": 7 }), -32602),
        (
            "tools/call",
            "echo",
            json!({ "name": "echo", "arguments": {}, "requestState": "forged", "inputResponses": {} }),
            -32602,
        ),
    ] {
        let reply = client.stateless(1, method, params, json!({})).await;
        assert_eq!(reply.answer().await["error"]["code"], code, "{method}");
        let expected = format!("call - ada 2026-07-28 {method} {tool} Error({code})");
        assert_eq!(recorder.take(), [expected]);
    }
}

/// OPS-14: a session that leaves the memory has not ended. An observer sees one beginning and one end.
#[tokio::test(start_paused = true)]
async fn ops_14_unloaded_session_is_reported_once() {
    let (handler, recorder) = (ScriptedHandler::new(), Arc::new(Recorder::default()));
    let store = MemoryStore::default();
    let (service, client) = handler.serve_with(|builder| {
        let builder = builder.store(store.clone()).observe(recorder.clone());
        builder.unused_sessions(UnusedSessions::Unload(Duration::from_secs(60)))
    });
    let mut cursor = rethread::ChangeCursor::default();
    let session = client.open(V2025_11_25).await;
    assert_eq!(service.changes(&mut cursor).opened.len(), 1);
    for call in 1..=2 {
        assert_eq!(session.tool(call, "echo", json!({ "message": "x" })).await.status, 200);
        tokio::time::sleep(Duration::from_secs(63)).await;
        assert_eq!((service.stats().sessions, store.sessions()), (0, 1), "only its record");
        let changes = service.changes(&mut cursor);
        assert_eq!(
            (changes.opened.len(), changes.ended.len(), changes.brief.len()),
            (0, 0, 0)
        );
    }
    let is_life = |line: &String| line.starts_with("opened") || line.starts_with("ended");
    let lives = || recorder.take().into_iter().filter(is_life).collect::<Vec<_>>();
    assert_eq!(lives(), ["opened false"]);
    assert_eq!(session.delete().await.status, 204);
    assert_eq!(lives(), ["ended deleted 126"]);
    assert_eq!(service.changes(&mut cursor).ended.len(), 1);
}

/// The same for one that expires while only the store has it.
#[tokio::test(start_paused = true)]
async fn ops_14_unloaded_session_that_expires_has_ended() {
    let (handler, recorder) = (ScriptedHandler::new(), Arc::new(Recorder::default()));
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    let clock = || Wall::from_millis(NOW.load(Ordering::Relaxed));
    let store = MemoryStore::with_clock(Default::default(), clock);
    let (service, client) = handler.serve_with(|builder| {
        let builder = builder.store(store.clone()).observe(recorder.clone());
        let builder = builder.timing(Timing::default().with(|timing| timing.session_idle = Duration::from_secs(600)));
        builder.unused_sessions(UnusedSessions::Unload(Duration::from_secs(60)))
    });
    let session = client.open(V2025_11_25).await;
    assert_eq!(session.tool(1, "echo", json!({ "message": "x" })).await.status, 200);
    tokio::time::sleep(Duration::from_secs(63)).await;
    assert_eq!(service.stats().sessions, 0);
    recorder.take();
    NOW.fetch_add(900_000, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(store.sessions(), 0, "it has expired");
    let reported = recorder.take();
    assert!(
        reported.len() == 1 && reported[0].starts_with("ended idle "),
        "{reported:?}"
    );
}
