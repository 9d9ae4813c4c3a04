//! Several servers: a cluster, and a primary with a replica and a sentinel.

use crate::support::{NAME, join, node, runtime, until};
use rethread_store::{ClusterStore as _, EventStore as _, Retention, SessionStore as _};
use rethread_store_redis::{ConnectError, Persistence, RedisCluster, RedisOptions, RedisStore};
use rethread_testkit::redis_server::RedisServers;
use rethread_testkit::store_suite::{self, Harness, StoreFixture, batch, sequence};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// One cluster for all cases. Each case has its own prefix.
struct ClusterHarness {
    servers: RedisServers,
    cases: AtomicU64,
    skew: Arc<AtomicI64>,
}

impl ClusterHarness {
    async fn node(&self, retention: Retention) -> RedisStore {
        let url = format!(
            "{}?prefix=case{}:",
            self.servers.url(),
            self.cases.load(Ordering::SeqCst)
        );
        let options = RedisOptions::parse(&url).expect("a valid URL");
        node(options.with_retention(retention).with_skew(Arc::clone(&self.skew))).await
    }
}

impl Harness for ClusterHarness {
    type Store = RedisStore;

    async fn fresh(&self, retention: Retention) -> RedisStore {
        self.cases.fetch_add(1, Ordering::SeqCst);
        self.node(retention).await
    }

    async fn peer(&self, store: &RedisStore) -> RedisStore {
        self.node(store.retention()).await
    }

    fn advance(&self, _store: &RedisStore, by: Duration) -> bool {
        self.skew.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
        true
    }
}

#[test]
fn suite_passes_on_a_cluster() {
    let Some(servers) = RedisServers::start_cluster(3) else {
        return;
    };
    store_suite::run_all(&ClusterHarness {
        servers,
        cases: AtomicU64::new(0),
        skew: Arc::default(),
    });
}

/// Sessions survive the failover.
#[test]
fn nodes_follow_a_sentinel_failover() {
    let Some(servers) = RedisServers::start_sentinel() else {
        return;
    };
    runtime().block_on(async {
        let options = || RedisOptions::parse(&servers.url()).unwrap();
        let patient = options().with_timeout(Duration::from_secs(20));
        let store = node(patient.with_lease(Duration::from_secs(300))).await;
        let fixture = StoreFixture::new(store.clone()).await;
        let key = fixture.first_call_stream();
        fixture.append(&key, batch(0..3)).await;
        let replica = servers.servers()[1].address();
        let to_replica = RedisOptions::parse(&format!("redis://{replica}")).unwrap();
        let refused = RedisCluster::connect(to_replica).await;
        assert!(matches!(refused, Err(ConnectError::Unsuitable(_))), "{refused:?}");

        until(async || servers.is_replicated()).await;
        servers.fail_over();
        // The old primary accepts writes until the sentinel reconfigures it. These writes are lost.
        let start = std::time::Instant::now();
        until(async || {
            let view = store.open(&fixture.session).await.unwrap();
            view.record.epoch > 10_000 // the new primary may have lost numbers, so it skips some
        })
        .await;
        println!("the new primary was found after {:?}", start.elapsed());
        fixture.append(&key, batch(3..4)).await;
        assert_eq!(sequence(&fixture.page(&key, 0).await), [1, 2, 3]);
        let me = join(&store).await;
        until(async || store.renew(&me).await.is_ok()).await;
        let cluster = RedisCluster::connect(options()).await.unwrap();
        assert!(cluster.promises().fails_over);
        cluster.store(NAME).await.unwrap();
    });
}

/// The promise of a cluster is that of its weakest primary, whichever answers first.
#[test]
fn promise_of_a_cluster_is_that_of_the_weakest_primary() {
    let Some(servers) = RedisServers::start_cluster(2) else {
        return;
    };
    for settings in [["always", "no"], ["no", "always"]] {
        for (server, fsync) in servers.servers().iter().zip(settings) {
            server.config("appendonly", "yes");
            server.config("appendfsync", fsync);
        }
        let cluster = runtime().block_on(async {
            let options = RedisOptions::parse(&servers.url()).unwrap();
            RedisCluster::connect(options).await.unwrap().promises().persistence
        });
        assert_eq!(cluster, Persistence::OperatingSystem, "{settings:?}");
    }
}
