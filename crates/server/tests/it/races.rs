//! Races: each test holds one operation at an await, completes another, and checks the result.

use crate::support::{
    ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25, as_principal, flaky_session, flaky_store, push,
};
use rethread::store::{SessionKey, SessionStore as _};
use rethread::{Call, Context, Handler, McpService, MemoryStore, Principal, Reply, RpcError, SessionId};
use rethread_testkit::client::{Client, Events, Session};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const SHORT_DELAY: Duration = Duration::from_millis(20);
/// Longer than any step takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A push stream with one message and no reader. Returns its cursor.
async fn abandoned_push_stream(handler: &ScriptedHandler, session: &Session) -> String {
    let mut get = session.get(None).await.events();
    push(handler, session, 1..2).await;
    assert_eq!(get.next().await.data["params"]["data"], 1);
    get.cursor().to_owned()
}

/// Whether the connection ends without another message.
async fn ends(events: &mut Events) -> bool {
    matches!(timeout(TEST_TIMEOUT / 2, events.message()).await, Ok(None))
}

/// SES-06, RST-01.
#[tokio::test]
async fn ses_06_request_during_a_restore_is_checked_for_its_principal() {
    let store = MemoryStore::default();
    let (flaky, switches) = flaky_store(&store);
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.store(store));
    let session = as_principal(&client, "alice").open(V2025_11_25).await;
    switches.delay_sessions(SHORT_DELAY);
    let (service, client) = handler.serve_with(|b| b.store(flaky));
    let alice = session.with_client(&as_principal(&client, "alice"));
    let mallory = session.with_client(&as_principal(&client, "mallory"));
    let (restored, refused, deleted) = tokio::join!(
        alice.call(1, "ping", json!({})),
        mallory.call(1, "ping", json!({})),
        mallory.delete(),
    );
    assert_eq!(
        (
            restored.status.as_u16(),
            refused.status.as_u16(),
            deleted.status.as_u16()
        ),
        (200, 404, 404)
    );
    assert_eq!(service.stats().sessions, 1);
    assert_eq!(alice.call(2, "ping", json!({})).await.status, 200);
}

/// SES-05: its connection gets EOF.
#[tokio::test]
async fn ses_05_stream_opened_while_the_session_ends_is_stopped() {
    let store = MemoryStore::default();
    let (flaky, switches) = flaky_store(&store);
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(flaky));
    let session = client.open(V2025_06_18).await; // no priming event, so the store is not called
    let cursor = abandoned_push_stream(&handler, &session).await;
    let get = |last_event_id: String| {
        let session = session.clone();
        tokio::spawn(async move { session.get(Some(&last_event_id)).await })
    };
    switches.delay_status(SHORT_DELAY * 5);
    let looking_up = get(cursor);
    sleep(SHORT_DELAY).await;
    let opening = get("800-1".to_owned()); // an unknown id: a new stream
    sleep(SHORT_DELAY).await;
    assert_eq!(session.delete().await.status, 204);
    let opened = timeout(TEST_TIMEOUT, opening)
        .await
        .expect("the GET is answered")
        .unwrap();
    let mut events = opened.events();
    assert!(ends(&mut events).await, "a stream of an ended session stays open");
    drop((events, looking_up.await.unwrap()));
    assert_eq!(
        (service.stats().connections, service.stats().sessions, store.streams()),
        (0, 0, 0)
    );
}

/// RES-06: the later connection reads, and the stream has one writer.
#[tokio::test]
async fn res_06_push_stream_resumed_twice_at_once_has_one_reader() {
    let (handler, session, switches) = flaky_session(V2025_11_25).await;
    let cursor = abandoned_push_stream(&handler, &session).await;
    switches.delay_status(SHORT_DELAY * 2);
    let (mut first, mut second) = tokio::join!(session.resume(&cursor), session.resume(&cursor));
    switches.delay_status(Duration::ZERO);
    assert!(ends(&mut first).await, "two connections read one stream");
    push(&handler, &session, 2..3).await;
    let message = second.next().await;
    assert_eq!(
        (message.data["params"]["data"].as_u64(), message.id.as_deref()),
        (Some(2), Some("2-2"))
    );
}

/// D9: two changes of a session are saved at once.
#[tokio::test]
async fn d9_record_of_the_later_change_is_stored_last() {
    let store = MemoryStore::default();
    let (flaky, switches) = flaky_store(&store);
    let (_, client) = ScriptedHandler::new().serve_with(|b| b.store(flaky));
    let session = client.open(V2025_11_25).await;
    let set_level = |id: u64, level: &'static str| {
        let session = session.clone();
        tokio::spawn(async move {
            session
                .call(id, "logging/setLevel", json!({ "level": level }))
                .await
                .status
        })
    };
    switches.delay_sessions(SHORT_DELAY * 10);
    let earlier = set_level(1, "error");
    sleep(SHORT_DELAY * 2).await;
    switches.delay_sessions(Duration::ZERO);
    let later = set_level(2, "debug");
    let both = timeout(TEST_TIMEOUT, async { (earlier.await.unwrap(), later.await.unwrap()) });
    let (earlier, later) = both.await.expect("both are answered");
    assert_eq!((earlier.as_u16(), later.as_u16()), (200, 200));
    let key = SessionKey {
        principal: Principal::anonymous(),
        session: SessionId::parse(&session.id).unwrap(),
    };
    let level = store.load(&key).await.unwrap().record.log_level;
    assert_eq!(
        level.as_deref(),
        Some("debug"),
        "the record in the store is older than the session"
    );
}

/// D9: the request is dropped while its change is being saved.
#[tokio::test]
async fn d9_change_is_saved_after_its_client_disconnects() {
    let store = MemoryStore::default();
    let (flaky, switches) = flaky_store(&store);
    let (_, client) = ScriptedHandler::new().serve_with(|b| b.store(flaky));
    let session = client.open(V2025_11_25).await;
    switches.delay_sessions(SHORT_DELAY * 5);
    let call = session.call(1, "logging/setLevel", json!({ "level": "error" }));
    assert!(timeout(SHORT_DELAY, call).await.is_err(), "the client leaves first");
    switches.delay_sessions(Duration::ZERO);
    let key = SessionKey {
        principal: Principal::anonymous(),
        session: SessionId::parse(&session.id).unwrap(),
    };
    let mut level = None;
    for _ in 0..150 {
        level = store.load(&key).await.unwrap().record.log_level;
        if level.is_some() {
            break;
        }
        sleep(SHORT_DELAY).await;
    }
    assert_eq!(level.as_deref(), Some("error"));
}

/// HTTP-09: the client disconnects before the response starts. The stream would never end.
#[tokio::test]
async fn http_09_abandoned_batch_leaves_no_stream() {
    let store = MemoryStore::default();
    let (flaky, switches) = flaky_store(&store);
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(flaky));
    let session = client.open(V2025_03_26).await;
    let request = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let batch = json!([
        request(1, "ping", json!({})),
        request(2, "logging/setLevel", json!({ "level": "error" })),
        request(
            3,
            "tools/call",
            json!({ "name": "echo", "arguments": { "message": "x" } })
        ),
    ]);
    switches.delay_sessions(SHORT_DELAY * 5);
    assert!(
        timeout(SHORT_DELAY, session.post(&batch)).await.is_err(),
        "the client leaves first"
    );
    switches.delay_sessions(Duration::ZERO);
    sleep(SHORT_DELAY * 10).await;
    assert_eq!(
        (store.streams(), service.stats().running_calls),
        (0, 0),
        "no stream stays open"
    );
    let answers = timeout(TEST_TIMEOUT, session.post(&batch).await.events().rest()).await;
    assert_eq!(answers.expect("a whole batch ends").len(), 3);
}

/// A handler that panics before it returns its future.
struct EarlyPanicHandler;

impl Handler for EarlyPanicHandler {
    fn handle(&self, call: Call, _: &Context) -> impl Future<Output = Result<Reply, RpcError>> + Send {
        assert_ne!(call.method(), "early/panic", "as the test wished");
        async { Ok(Reply::empty()) }
    }
}

/// D8.
#[tokio::test]
async fn d8_panic_before_the_first_await_returns_an_error() {
    let service = McpService::builder(EarlyPanicHandler).build();
    let client = Client::new(service.clone());
    let request = |id: u64, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
    let session = client.open(V2025_03_26).await;
    let batch = json!([request(1, "early/panic"), request(2, "fine")]);
    let mut events = session.post(&batch).await.events();
    let answers = timeout(TEST_TIMEOUT / 2, events.rest()).await;
    let mut answers = answers.expect("the batch ends");
    answers.sort_by_key(|answer| answer.data["id"].as_u64());
    assert_eq!(answers[0].data["error"]["code"], -32603);
    assert_eq!(answers[1].data["result"], json!({}));
    for version in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let session = client.open(version).await;
        let posted = tokio::spawn(async move { session.post(&request(1, "early/panic")).await.answer().await });
        let answer = posted.await.expect("the panic stays in the call");
        assert_eq!(answer["error"]["code"], -32603, "{version}");
    }
    let posted = tokio::spawn(async move {
        client
            .stateless(1, "early/panic", json!({}), json!({}))
            .await
            .json()
            .await
    });
    assert_eq!(
        posted.await.expect("the panic stays in the call")["error"]["code"],
        -32603
    );
    assert_eq!(service.stats().running_calls, 0);
}
