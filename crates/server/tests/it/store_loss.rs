//! Two nodes on a real Redis that loses its last writes, or fails for a while.

use crate::http_sse::HttpSseClient;
use crate::support::{ScriptedHandler, V2025_06_18, V2025_11_25, form};
use rethread::{Call, Context, Handler, HandlerOptions, McpService, Reply, RpcError, ServerInfo};
use rethread_store_redis::{RedisCluster, RedisOptions};
use rethread_testkit::client::{Client, Events, Session};
use rethread_testkit::redis_server::RedisServer;
use serde_json::json;
use std::time::Duration;

/// A repair needs less, even on a busy machine.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(15);

/// A step of the store fails after this time. A shorter outage only delays it.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// The scripted handler without state of sessions: every node runs the calls that it receives.
pub(crate) struct Stateless(pub(crate) ScriptedHandler);

impl Handler for Stateless {
    fn info(&self) -> ServerInfo {
        self.0.info()
    }

    fn options(&self) -> HandlerOptions {
        HandlerOptions::default().without_session_state()
    }

    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        self.0.handle(call, cx).await
    }
}

async fn node(redis: &RedisServer, handler: &ScriptedHandler) -> McpService {
    let options = RedisOptions::parse(&redis.url()).unwrap().with_timeout(STEP_TIMEOUT);
    let cluster = RedisCluster::connect(options).await.unwrap();
    let store = cluster.store("loss").await.unwrap();
    let service = McpService::builder(Stateless(handler.clone())).store(store).build();
    service.join().await;
    service
}

/// A session that the first node has opened, and the same session through the other node.
async fn two_nodes(redis: &RedisServer, handler: &ScriptedHandler) -> (McpService, Session, Session) {
    let (one, other) = (node(redis, handler).await, node(redis, handler).await);
    let session = Client::new(one.clone()).open(V2025_11_25).await;
    let elsewhere = session.with_client(&Client::new(other));
    (one, session, elsewhere)
}

/// The one key with this end.
fn key(redis: &RedisServer, end: &str) -> String {
    let keys = redis.command(&["KEYS", &format!("*{end}")]);
    let key = keys.lines().find(|line| line.ends_with(end));
    key.unwrap_or_else(|| panic!("{end}: {keys}")).to_owned()
}

/// Waits until a command has this reply.
async fn wait_for(redis: &RedisServer, command: &[&str], reply: &str) {
    let holds = async {
        while redis.command(command).trim() != reply {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(REPAIR_TIMEOUT, holds).await;
    assert!(in_time.is_ok(), "{command:?}: {}", redis.command(command));
}

/// The method of the next message of a GET.
async fn next_method(get: &mut Events) -> String {
    let next = tokio::time::timeout(REPAIR_TIMEOUT, get.next()).await;
    next.expect("the GET gets its message").data["method"].to_string()
}

/// S2C-04: an answer reaches the node that waits for it, although the store has lost the entry of its view.
#[tokio::test]
async fn s2c_04_answer_reaches_a_view_that_the_store_lost() {
    let Some(redis) = RedisServer::start() else { return };
    let handler = ScriptedHandler::new();
    let (_one, session, elsewhere) = two_nodes(&redis, &handler).await;
    let script = handler.script("ask");
    let asking = tokio::spawn(async move { script.ask("elicit", form()).await });
    let mut events = elsewhere.tool(1, "ask", json!({})).await.events();
    let question = events.next().await;

    let views = key(&redis, ":v");
    let record = views.strip_suffix(":v").unwrap();
    assert_eq!(redis.command(&["DEL", &views]).trim(), ":1");
    assert_eq!(redis.command(&["HSET", record, "ep", "1"]).trim(), ":0");
    redis.close_connections("pubsub");
    wait_for(&redis, &["HLEN", &views], ":2").await;
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    let reply = session.answer(&question.data["id"], answer).await;
    assert_eq!(reply.status, 202);
    let answered = tokio::time::timeout(REPAIR_TIMEOUT, asking).await;
    let answered = answered.expect("the answer arrives").unwrap();
    assert!(answered.is_ok(), "{answered:?}");
}

/// RST-03: the store has lost the end of a call stream whose writer lives. A client that resumes it elsewhere gets an error.
#[tokio::test]
async fn rst_03_stream_whose_end_the_store_lost_ends_with_an_error() {
    let Some(redis) = RedisServer::start() else { return };
    let handler = ScriptedHandler::new();
    let (_one, session, elsewhere) = two_nodes(&redis, &handler).await;
    let script = handler.script("work");
    let (reply, ()) = tokio::join!(session.tool(1, "work", json!({})), script.progress(1));
    let mut events = reply.events();
    events.next().await;
    let cursor = events.cursor().to_owned();

    let (ordinal, _) = cursor.split_once('-').unwrap();
    let kept = [format!(":h:{ordinal}"), format!(":l:{ordinal}"), ":x".to_owned()].map(|end| key(&redis, &end));
    for key in &kept {
        assert_eq!(redis.command(&["COPY", key, &format!("{key}.kept")]).trim(), ":1");
    }
    script.finish("done").await;
    assert!(events.rest().await.last().unwrap().data["result"].is_object());
    for key in &kept {
        assert_eq!(redis.command(&["RENAME", &format!("{key}.kept"), key]).trim(), "+OK");
    }

    redis.close_connections("pubsub");
    let mut resumed = elsewhere.resume(&cursor).await;
    let rest = tokio::time::timeout(REPAIR_TIMEOUT, resumed.rest()).await;
    let rest = rest.expect("the stream ends");
    let last = &rest.last().unwrap().data;
    assert_eq!(
        (&last["id"], &last["error"]["data"]["reason"]),
        (&json!(1), &json!("answer_lost"))
    );
}

/// D6: the store has lost the entries of GETs, and takes them back. A message then goes to a GET that is open.
#[tokio::test]
async fn d6_get_that_the_store_lost_takes_messages() {
    let Some(redis) = RedisServer::start() else { return };
    let handler = ScriptedHandler::new();
    let (one, session, _elsewhere) = two_nodes(&redis, &handler).await;
    let mut get = session.get(None).await.events();
    one.notifier().broadcast("notifications/first", json!({}));
    assert_eq!(next_method(&mut get).await, "\"notifications/first\"");
    let listeners = key(&redis, ":g");
    assert_eq!(redis.command(&["DEL", &listeners]).trim(), ":1");
    redis.close_connections("pubsub");
    one.notifier().broadcast("notifications/second", json!({}));
    assert_eq!(next_method(&mut get).await, "\"notifications/second\"");
}

/// D6: the store learns of a GET that was opened while it refused writes. No connection was lost.
#[tokio::test]
async fn d6_get_that_is_opened_during_an_outage_takes_messages_later() {
    let Some(redis) = RedisServer::start() else { return };
    let handler = ScriptedHandler::new();
    let service = node(&redis, &handler).await;
    for revision in [V2025_06_18, V2025_11_25] {
        let session = Client::new(service.clone()).open(revision).await;
        redis.config("maxmemory", "1");
        let mut get = session.get(None).await.events();
        tokio::time::sleep(Duration::from_millis(100)).await; // the first attempts fail
        assert_eq!(
            redis.command(&["KEYS", "*:g"]).trim(),
            "*0",
            "{revision}: the store does not know the GET"
        );
        redis.config("maxmemory", "0");
        if revision == V2025_11_25 {
            // Its priming event was not stored, so the stream cannot be resumed. The client opens another one.
            let ended = tokio::time::timeout(REPAIR_TIMEOUT, get.rest()).await;
            assert!(ended.is_ok_and(|rest| rest.is_empty()), "the connection ends");
            get = session.get(None).await.events();
        }
        service.notifier().broadcast("notifications/later", json!({}));
        assert_eq!(next_method(&mut get).await, "\"notifications/later\"", "{revision}");
        drop(get);
        assert_eq!(session.delete().await.status, 204);
    }
}

/// D6: a GET that was closed while the store was down does not hold messages of the other GET.
#[tokio::test]
async fn d6_get_that_is_closed_during_an_outage_takes_no_messages() {
    let Some(mut redis) = RedisServer::start() else { return };
    let handler = ScriptedHandler::new();
    let (one, session, elsewhere) = two_nodes(&redis, &handler).await;
    let mut get = session.get(None).await.events();
    one.notifier().broadcast("notifications/first", json!({}));
    assert_eq!(next_method(&mut get).await, "\"notifications/first\"");
    let listeners = key(&redis, ":g");
    let newest = elsewhere.get(None).await.events();
    wait_for(&redis, &["ZCARD", &listeners], ":2").await;

    redis.stop();
    drop(newest);
    tokio::time::sleep(STEP_TIMEOUT + Duration::from_millis(300)).await; // the first attempt fails
    redis.run();
    wait_for(&redis, &["ZCARD", &listeners], ":1").await;
    one.notifier().broadcast("notifications/second", json!({}));
    assert_eq!(next_method(&mut get).await, "\"notifications/second\"");
}

/// LEG-03: a session of 2024-11-05 ends with its connection. Other nodes cannot reach it after its node has lost its lease, so
/// the client gets EOF and reconnects.
#[tokio::test]
async fn leg_03_session_of_a_node_without_a_lease_ends_with_its_connection() {
    let Some(redis) = RedisServer::start() else { return };
    let service = node(&redis, &ScriptedHandler::new()).await;
    let mut connection = HttpSseClient::open(&Client::new(service.http_sse("/messages"))).await;
    assert_eq!(redis.command(&["DEL", "rt:{nodes}"]).trim(), ":1");
    let ended = tokio::time::timeout(REPAIR_TIMEOUT, connection.events.rest()).await;
    assert!(ended.is_ok_and(|rest| rest.is_empty()), "the connection ends");
    let post = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    service.join().await; // again
    assert_eq!(connection.post(post).await, 404);
}
