//! A server, and nodes that use it.

use rethread_store::{ClusterStore as _, Incarnation, Retention, SessionId, SessionKey};
use rethread_store_redis::{RedisCluster, RedisOptions, RedisStore};
use rethread_testkit::redis_server::RedisServer;
use rethread_testkit::store_suite::Harness;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The name of the server whose sessions are tested.
pub(crate) const NAME: &str = "suite";

/// A server for one case. Each store belongs to its own node, so `peer` is another node.
pub(crate) struct RedisHarness {
    server: Option<RedisServer>,
    skew: Arc<AtomicI64>,
}

impl RedisHarness {
    pub(crate) fn start() -> Self {
        RedisHarness {
            server: RedisServer::start(),
            skew: Arc::default(),
        }
    }

    async fn node(&self, retention: Retention) -> RedisStore {
        let server = self.server.as_ref().expect("a server");
        node(
            options(server)
                .with_retention(retention)
                .with_skew(Arc::clone(&self.skew)),
        )
        .await
    }
}

pub(crate) fn options(server: &RedisServer) -> RedisOptions {
    RedisOptions::parse(&server.url()).expect("a valid URL")
}

/// Connects a node and joins.
pub(crate) async fn node(options: RedisOptions) -> RedisStore {
    let cluster = RedisCluster::connect(options).await.expect("the server runs");
    let store = cluster.store(NAME).await.expect("the server runs");
    store.join(None).await.expect("a member");
    store
}

impl Harness for RedisHarness {
    type Store = RedisStore;

    fn is_available(&self) -> bool {
        self.server.is_some()
    }

    async fn fresh(&self, retention: Retention) -> RedisStore {
        self.node(retention).await
    }

    async fn peer(&self, store: &RedisStore) -> RedisStore {
        use rethread_store::EventStore as _;
        self.node(store.retention()).await
    }

    fn advance(&self, _store: &RedisStore, by: Duration) -> bool {
        self.skew.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
        true
    }
}

/// Joins and returns the incarnation.
pub(crate) async fn join(store: &RedisStore) -> Incarnation {
    store.join(None).await.expect("a member").incarnation
}

/// A runtime with several threads, as in a server.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime")
}

/// A session that no test has created.
pub(crate) fn session() -> SessionKey {
    SessionKey {
        principal: rethread_testkit::store_suite::principal(),
        session: SessionId::from_random([9; 18]),
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "the condition did not hold in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
