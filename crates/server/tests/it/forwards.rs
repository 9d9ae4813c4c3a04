//! Requests that one node forwards to another one, on a real Redis with faults: lost claims, lost mail, ended leases.

use rethread::{Call, Context, Handler, McpService, Reply, RpcError, ServerInfo, SseUpgradeDelay};
use rethread_store_redis::{RedisCluster, RedisOptions};
use rethread_testkit::client::{self, Client, Session};
use rethread_testkit::flaky::{FlakyStore, Switches};
use rethread_testkit::redis_server::RedisServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Responses stay JSON: no call is silent for this long.
const MAX_SILENCE: Duration = Duration::from_secs(60);
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// Holds while a debug build encrypts a large body on a busy machine.
const LONG_LEASE: Duration = Duration::from_secs(6);

/// A body of this length travels in chunks.
const LARGE_BYTES: usize = 9 << 20;
/// The length of one chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// The longest time of a step on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The tools of all nodes of a test.
#[derive(Default)]
struct Tools {
    /// Runs of `hold`.
    runs: AtomicUsize,
    /// Ends the first run of `hold`. Other runs end at once.
    end: Notify,
}

/// A handler with state of a session, as far as the transport knows.
struct Stateful(Arc<Tools>);

impl Handler for Stateful {
    fn info(&self) -> ServerInfo {
        ServerInfo::new("stateful", "1").with_capabilities(json!({ "tools": {} }))
    }

    async fn handle(&self, call: Call, _: &Context) -> Result<Reply, RpcError> {
        let params: Value = call.params()?;
        if params["name"] == "hold" && self.0.runs.fetch_add(1, Ordering::SeqCst) == 0 {
            self.0.end.notified().await;
        }
        if params["name"] == "large" {
            let text = "x".repeat(LARGE_BYTES);
            return Ok(Reply::json(json!({ "content": [{ "type": "text", "text": text }] })));
        }
        Ok(Reply::json(json!({ "content": [] })))
    }
}

/// A node of its own process, as far as the store knows.
struct TestNode {
    service: McpService,
    switches: Arc<Switches>,
}

async fn node(redis: &RedisServer, tools: &Arc<Tools>, lease: Duration) -> TestNode {
    let options = RedisOptions::parse(&redis.url()).unwrap().with_lease(lease);
    let cluster = RedisCluster::connect(options).await.unwrap();
    let store = FlakyStore::new(cluster.store("forwards").await.unwrap());
    let switches = store.switches();
    let service = McpService::builder(Stateful(Arc::clone(tools)))
        .upgrade_after(SseUpgradeDelay::new(MAX_SILENCE, MAX_SILENCE))
        .store(store)
        .build();
    service.join().await;
    TestNode { service, switches }
}

/// A node that owns a session, and another one that gets its requests.
struct TestNodes {
    redis: RedisServer,
    tools: Arc<Tools>,
    executor: TestNode,
    receiver: TestNode,
    /// The session, as a client of the receiver sees it.
    session: Session,
}

impl TestNodes {
    async fn start(lease: Duration) -> Option<Self> {
        let redis = RedisServer::start()?;
        let tools = Arc::default();
        let executor = node(&redis, &tools, lease).await;
        let receiver = node(&redis, &tools, lease).await;
        let session = Client::new(executor.service.clone()).open("2025-11-25").await;
        let session = session.with_client(&Client::new(receiver.service.clone()));
        Some(TestNodes {
            redis,
            tools,
            executor,
            receiver,
            session,
        })
    }

    /// Calls `large` on the receiver, and returns the response with an unread body.
    async fn large(&self) -> client::Reply {
        let reply = self.session.tool(1, "large", json!({}));
        let reply = timeout(STEP_TIMEOUT, reply).await.expect("a response");
        assert_eq!(reply.status, 200);
        reply
    }

    /// Begins a call of `hold` and waits until it runs.
    async fn hold(&self) -> tokio::task::JoinHandle<Value> {
        let session = self.session.clone();
        let call = tokio::spawn(async move { session.tool(1, "hold", json!({})).await.answer().await });
        eventually("the call runs", || self.tools.runs.load(Ordering::SeqCst) == 1).await;
        call
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// RST-03: the store restarts without the claim of the executing node, which then dies. The claim of the receiving node
/// succeeds, and proves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rst_03_forwarded_call_runs_once_if_the_store_forgets_its_claim() {
    let Some(nodes) = TestNodes::start(SHORT_LEASE).await else {
        return;
    };
    nodes.executor.switches.cluster().lose_claims(true);
    let call = nodes.hold().await;
    nodes.redis.close_connections("pubsub");
    nodes.executor.switches.cluster().fail_renewals(true);
    let answer = timeout(STEP_TIMEOUT, call).await.expect("an answer").unwrap();
    assert_eq!(
        nodes.tools.runs.load(Ordering::SeqCst),
        1,
        "the call ran twice: {answer}"
    );
    assert_eq!(answer["error"]["data"]["reason"], "restarted", "{answer}");
}

/// The store loses one chunk of a body. The client must not take the rest for a complete body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_forwarded_body_with_a_lost_chunk_breaks() {
    let Some(nodes) = TestNodes::start(LONG_LEASE).await else {
        return;
    };
    let mail = nodes.executor.switches.cluster();
    let head = mail.mail_count();
    mail.lose_mail(head + 3..head + 4);
    let body = timeout(STEP_TIMEOUT, nodes.large().await.try_bytes());
    let body = body.await.expect("an end of the body").map(|body| body.len());
    assert!(body.is_err(), "a complete body of {body:?} bytes");
}

/// The store loses the end of a body. The executing node does not know the request any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_forwarded_body_without_its_end_breaks() {
    let Some(nodes) = TestNodes::start(LONG_LEASE).await else {
        return;
    };
    let direct = nodes.session.with_client(&Client::new(nodes.executor.service.clone()));
    let length = direct.tool(1, "large", json!({})).await.bytes().await.len();
    let mail = nodes.executor.switches.cluster();
    let end = mail.mail_count() + length.div_ceil(CHUNK_BYTES) + 1;
    mail.lose_mail(end..end + 1);
    let body = timeout(STEP_TIMEOUT, nodes.large().await.try_bytes());
    let body = body.await.expect("an end of the body").map(|body| body.len());
    assert!(body.is_err(), "a complete body of {body:?} bytes");
}

/// The store loses the messages that let the executing node send more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_forwarded_body_continues_after_lost_credit() {
    let Some(nodes) = TestNodes::start(LONG_LEASE).await else {
        return;
    };
    let mail = nodes.receiver.switches.cluster();
    let request = mail.mail_count();
    mail.lose_mail(request + 1..request + 3); // the first chunks, until the executing node waits
    let body = timeout(STEP_TIMEOUT, nodes.large().await.try_bytes());
    let body = body.await.expect("an end of the body").expect("a complete body");
    assert!(body.len() > LARGE_BYTES);
}

/// The executing node cannot send chunks for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_forwarded_body_continues_after_failed_deliveries() {
    let Some(nodes) = TestNodes::start(LONG_LEASE).await else {
        return;
    };
    let reply = nodes.large().await;
    let mail = nodes.executor.switches.cluster();
    mail.fail_mail(true);
    let body = tokio::spawn(timeout(STEP_TIMEOUT, reply.try_bytes()));
    tokio::time::sleep(LONG_LEASE / 6).await;
    mail.fail_mail(false);
    let body = body
        .await
        .unwrap()
        .expect("an end of the body")
        .expect("a complete body");
    assert!(body.len() > LARGE_BYTES);
}

/// T-38: the executing node forgets a response when the receiving node dies, so its drain does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_38_response_for_a_dead_node_delays_no_drain() {
    let Some(nodes) = TestNodes::start(LONG_LEASE).await else {
        return;
    };
    let reply = nodes.large().await; // not read, so the executing node waits for credit
    let receiver = nodes.receiver.switches.cluster();
    receiver.lose_mail(0..usize::MAX);
    receiver.fail_renewals(true);
    let drain = nodes.executor.service.drain(STEP_TIMEOUT);
    let drained = timeout(LONG_LEASE * 3, drain).await;
    assert!(drained.is_ok(), "the drain waits for the response");
    drop(reply);
}

/// RST-03: the lease of the receiving node ends. No reply reaches it, and the call may have run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rst_03_client_of_a_node_without_a_lease_is_told() {
    let Some(nodes) = TestNodes::start(SHORT_LEASE).await else {
        return;
    };
    let call = nodes.hold().await;
    nodes.receiver.switches.cluster().fail_renewals(true);
    // Without a reply a node waits for three leases.
    let answer = timeout(SHORT_LEASE * 5 / 2, call).await.expect("an answer").unwrap();
    assert_eq!(answer["error"]["data"]["reason"], "restarted", "{answer}");
}

/// RST-03: the same for a client that reads a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rst_03_forwarded_body_breaks_with_the_lease() {
    let Some(nodes) = TestNodes::start(LONG_LEASE).await else {
        return;
    };
    let reply = nodes.large().await;
    nodes.receiver.switches.cluster().fail_renewals(true);
    tokio::time::sleep(LONG_LEASE * 3 / 2).await;
    let body = timeout(STEP_TIMEOUT, reply.try_bytes())
        .await
        .expect("an end of the body");
    let body = body.map(|body| body.len());
    assert!(body.is_err(), "a complete body of {body:?} bytes");
}
