//! The push queue survives a restart (D6). A restart is a second endpoint on the same store. The first one is abandoned
//! like a killed process, or continues to write.

use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_11_25, flaky_store, push, start};
use proptest::prelude::*;
use rethread::store::StoredQueue;
use rethread::{Call, Context, Handler, ListKind, McpService, MemoryStore, Principal, Reply, RpcError, ServerInfo};
use rethread_testkit::client::{Client, Events, Session};
use serde_json::{Value, json};
use std::time::Duration;

const QUIET_PERIOD: Duration = Duration::from_millis(40);
/// Longer than two sweeps.
const TWO_SWEEPS: Duration = Duration::from_millis(2_200);

/// Reads until the stream is quiet.
async fn all(events: &mut Events) -> Vec<Value> {
    let mut messages = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(QUIET_PERIOD, events.message()).await {
        messages.push(event.data);
    }
    messages
}

/// The pushed numbers, without the refresh after a restart.
fn pushed(messages: &[Value]) -> Vec<u64> {
    messages.iter().filter_map(|m| m["params"]["data"].as_u64()).collect()
}

/// The messages that a new GET stream delivers.
async fn on_a_new_get(session: &Session) -> Vec<u64> {
    pushed(&all(&mut session.get(None).await.events()).await)
}

async fn queue(store: &MemoryStore, session: &Session) -> StoredQueue {
    use rethread::store::PushQueueStore as _;
    let key = rethread::store::SessionKey {
        principal: Principal::anonymous(),
        session: rethread::SessionId::parse(&session.id).unwrap(),
    };
    store.queue(&key).await.unwrap()
}

/// D6, GET-04: with a durable store, messages wait for a GET of the next process.
#[tokio::test]
async fn get_04_waiting_messages_survive_a_restart() {
    for version in LEGACY_REVISIONS {
        let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
        let (_, client) = start(&handler, &store);
        let session = client.open(version).await;
        push(&handler, &session, 1..4).await;

        let (_, client) = start(&handler, &store);
        let session = session.with_client(&client);
        assert_eq!(on_a_new_get(&session).await, [1, 2, 3], "{version}");
    }
}

/// D6: a message belongs to the queue or to one stream.
#[tokio::test]
async fn get_03_taken_message_is_not_queued_again_after_a_restart() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    push(&handler, &session, 1..4).await;
    let mut first = session.get(None).await.events();
    assert_eq!(pushed(&all(&mut first).await), [1, 2, 3]);
    drop(first);
    push(&handler, &session, 4..6).await;

    let (_, client) = start(&handler, &store);
    let session = session.with_client(&client);
    assert_eq!(on_a_new_get(&session).await, [4, 5]);
    let (_, client) = start(&handler, &store);
    let session = session.with_client(&client);
    assert_eq!(on_a_new_get(&session).await, [0; 0]);
    assert_eq!(
        pushed(&all(&mut session.resume("2-1").await).await),
        [2, 3],
        "only a resume of its stream brings a taken message again"
    );
}

/// SES-08.
#[tokio::test]
async fn ses_08_messages_offered_before_initialized_survive_a_restart() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.initialize(V2025_11_25, json!({})).await;
    push(&handler, &session, 1..3).await;

    let (_, client) = start(&handler, &store);
    let session = session.with_client(&client);
    let mut get = session.get(None).await.events();
    assert_eq!(pushed(&all(&mut get).await), [0; 0]);
    session.notify("notifications/initialized", json!({})).await;
    assert_eq!(pushed(&all(&mut get).await), [1, 2]);
}

/// GET-04: a queued list change and the refresh after a restart have the same meaning.
#[tokio::test]
async fn get_04_equal_list_changes_collapse_across_restarts() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (service, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    service.notifier().list_changed(ListKind::Tools);
    tokio::time::sleep(QUIET_PERIOD).await;
    assert_eq!(queue(&store, &session).await.messages().count(), 1);
    let mut session = session;
    for _ in 0..3 {
        let (_, client) = start(&handler, &store);
        session = session.with_client(&client);
        assert_eq!(session.call(1, "ping", json!({})).await.status, 200);
    }
    let messages = all(&mut session.get(None).await.events()).await;
    let methods: Vec<&str> = messages.iter().filter_map(|m| m["method"].as_str()).collect();
    assert_eq!(methods, ListKind::ALL.map(ListKind::changed));
}

/// D13: the limit in the store equals the limit in memory.
#[tokio::test]
async fn get_04_stored_queue_is_bounded_and_drops_the_oldest() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let limits = || rethread::Limits::default().with(|limits| limits.waiting_messages_per_session = 5);
    let (_, client) = handler.serve_with(|b| b.store(store.clone()).limits(limits()));
    let session = client.open(V2025_11_25).await;
    push(&handler, &session, 0..30).await;
    assert_eq!(queue(&store, &session).await.messages().count(), 5);
    let (_, client) = start(&handler, &store);
    assert_eq!(on_a_new_get(&session.with_client(&client)).await, [25, 26, 27, 28, 29]);
}

/// SES-05.
#[tokio::test]
async fn ses_05_queue_of_an_ended_session_is_forgotten() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    push(&handler, &session, 0..30).await;
    assert!(store.held_bytes() > 0);
    assert_eq!(session.delete().await.status, 204);
    assert_eq!((store.sessions(), store.held_bytes()), (0, 0));
}

/// D9: another process owns the session.
#[tokio::test]
async fn d9_fenced_process_takes_no_message() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let fenced = client.open(V2025_11_25).await;
    push(&handler, &fenced, 1..3).await;
    let (_, client) = start(&handler, &store);
    let session = fenced.with_client(&client);
    assert_eq!(session.call(1, "ping", json!({})).await.status, 200);
    let mut stale = fenced.get(None).await.events();
    assert_eq!(pushed(&all(&mut stale).await), [0; 0]);
    assert_eq!(on_a_new_get(&session).await, [1, 2]);
}

/// STO-02.
#[tokio::test]
async fn sto_02_queue_is_stored_after_an_outage() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (flaky, switches) = flaky_store(&store);
    let (_, client) = start(&handler, &flaky);
    let session = client.open(V2025_11_25).await;
    push(&handler, &session, 1..3).await;
    switches.fail_queues(true);
    push(&handler, &session, 3..5).await;
    assert_eq!(queue(&store, &session).await.messages().count(), 2);
    switches.fail_queues(false);
    tokio::time::sleep(TWO_SWEEPS).await;
    let (_, client) = start(&handler, &store);
    assert_eq!(on_a_new_get(&session.with_client(&client)).await, [1, 2, 3, 4]);
}

/// STO-02: the outage sent it without an id. The stored queue drops it afterwards.
#[tokio::test]
async fn sto_02_message_sent_in_an_outage_is_not_repeated() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (flaky, switches) = flaky_store(&store);
    let (_, client) = start(&handler, &flaky);
    let session = client.open(V2025_11_25).await;
    push(&handler, &session, 1..3).await;
    switches.fail_appends(true);
    switches.fail_queues(true);
    let mut get = session.get(None).await.events();
    let first = get.next().await;
    assert_eq!((first.id, first.data["params"]["data"].as_u64()), (None, Some(1)));
    assert_eq!(pushed(&all(&mut get).await), [2]);
    drop(get);
    assert_eq!(queue(&store, &session).await.messages().count(), 2);
    switches.fail_appends(false);
    switches.fail_queues(false);
    tokio::time::sleep(TWO_SWEEPS).await;
    let (_, client) = start(&handler, &store);
    assert_eq!(on_a_new_get(&session.with_client(&client)).await, [0; 0]);
}

/// D6: the update reaches the store after its messages were taken.
#[tokio::test]
async fn get_03_late_queue_update_restores_nothing() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (flaky, switches) = flaky_store(&store);
    let (_, client) = start(&handler, &flaky);
    let session = client.open(V2025_11_25).await;
    switches.delay_queues(QUIET_PERIOD * 8);
    push(&handler, &session, 1..4).await;
    assert_eq!(
        on_a_new_get(&session).await,
        [1, 2, 3],
        "pushes do not wait for the store"
    );
    tokio::time::sleep(QUIET_PERIOD * 24).await;
    assert_eq!(queue(&store, &session).await.messages().count(), 0);
}

/// D6: while the store is busy, a burst becomes one more update.
#[tokio::test]
async fn d6_burst_of_messages_becomes_few_updates() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (flaky, switches) = flaky_store(&store);
    let (_, client) = start(&handler, &flaky);
    let session = client.open(V2025_11_25).await;
    switches.delay_queues(QUIET_PERIOD * 4);
    push(&handler, &session, 0..200).await;
    for _ in 0..100 {
        if queue(&store, &session).await.messages().count() == 200 {
            break;
        }
        tokio::time::sleep(QUIET_PERIOD).await;
    }
    assert_eq!(queue(&store, &session).await.messages().count(), 200);
    assert!(switches.queue_update_count() < 20, "{}", switches.queue_update_count());
}

/// A handler that asks the client outside of the call whenever it is called.
#[derive(Clone)]
struct AskingHandler;

impl Handler for AskingHandler {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("curious", "1.0.0")
    }

    async fn handle(&self, _: Call, cx: &Context) -> Result<Reply, RpcError> {
        let peer = cx.session().expect("a session").clone();
        tokio::spawn(async move { peer.request("roots/list", ()).await });
        Ok(Reply::empty())
    }
}

/// RST-04: the process that waited for the answer is gone.
#[tokio::test]
async fn rst_04_waiting_question_is_not_asked_after_a_restart() {
    let store = MemoryStore::default();
    let serve = || Client::new(McpService::builder(AskingHandler).store(store.clone()).build());
    let session = serve().open(V2025_11_25).await;
    session.call(1, "tools/list", json!({})).await;
    tokio::time::sleep(QUIET_PERIOD).await;
    let session = session.with_client(&serve());
    let messages = all(&mut session.get(None).await.events()).await;
    assert!(messages.is_empty(), "{messages:?}");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    /// The client opens a GET stream for a short time.
    Listen,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..4).prop_map(Step::Push),
        2 => Just(Step::Listen),
        2 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..20)
}

async fn history(steps: Vec<Step>) -> (Vec<u64>, u64) {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let mut session = client.open(V2025_11_25).await;
    let (mut next, mut received) = (0, Vec::new());
    for step in steps.into_iter().chain([Step::Restart, Step::Listen]) {
        match step {
            Step::Push(count) => {
                push(&handler, &session, next..next + count).await;
                next += count;
            }
            Step::Listen => received.extend(on_a_new_get(&session).await),
            Step::Restart => {
                let (_, client) = start(&handler, &store);
                session = session.with_client(&client);
            }
        }
    }
    (received, next)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// D6: each message arrives once, in order, over any sequence of pushes, GET streams and restarts.
    #[test]
    fn d6_each_message_arrives_once_over_restarts(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (received, pushed) = runtime.block_on(history(steps));
        prop_assert_eq!(received, (0..pushed).collect::<Vec<_>>());
    }
}
