//! The lease of a process with several servers.

use crate::support::options;
use rethread_store::{ClusterStore as _, StoreError};
use rethread_store_redis::RedisCluster;
use rethread_testkit::redis_server::RedisServer;

/// A server that stops must not end the calls of the others, which share its lease.
#[tokio::test]
async fn last_server_of_a_process_releases_the_lease() {
    let Some(server) = RedisServer::start() else { return };
    let cluster = RedisCluster::connect(options(&server)).await.expect("the server runs");
    let first = cluster.store("first").await.expect("the server runs");
    let second = cluster.store("second").await.expect("the server runs");
    let joined = first.join(None).await.expect("a member");
    let same = second.join(None).await.expect("a member");
    assert_eq!(joined.incarnation, same.incarnation);
    first.leave(&joined.incarnation).await.expect("left");
    assert!(second.is_alive(&joined.incarnation).await.expect("known"));
    second.renew(&joined.incarnation).await.expect("renewed");
    second.leave(&joined.incarnation).await.expect("left");
    assert!(!first.is_alive(&joined.incarnation).await.expect("known"));
}

/// A process that was paused beyond its lease does not take its name back from the newer process. It exits.
#[tokio::test]
async fn older_process_of_a_name_is_replaced_for_good() {
    let Some(server) = RedisServer::start() else { return };
    let process = async || {
        let options = options(&server).with_node_id("name");
        let cluster = RedisCluster::connect(options).await.expect("the server runs");
        cluster.store("store").await.expect("the server runs")
    };
    let (older, newer) = (process().await, process().await);
    let first = older.join(None).await.expect("a member").incarnation;
    let second = newer.join(None).await.expect("a member").incarnation;
    let rejoined = older.join(Some(&first)).await;
    assert!(matches!(rejoined, Err(StoreError::Replaced)), "{rejoined:?}");
    newer.renew(&second).await.expect("the newer process stays");
    let renewed = older.renew(&first).await;
    assert!(matches!(renewed, Err(StoreError::Replaced)), "{renewed:?}");
}

/// A process joins again under its own name: also after a join whose reply was lost, and in a store that has lost its last
/// writes and knows an earlier process.
#[tokio::test]
async fn process_joins_again_under_its_own_name() {
    let Some(server) = RedisServer::start() else { return };
    let options = options(&server).with_node_id("name");
    let cluster = RedisCluster::connect(options).await.expect("the server runs");
    let store = cluster.store("store").await.expect("the server runs");
    let names = |key: &str, value: &str| {
        let reply = server.command(&["HSET", &format!("rt:{{nodes}}:{key}"), "name", value]);
        assert_eq!(reply.trim(), ":0");
    };
    let lose_lease = || assert_eq!(server.command(&["DEL", "rt:{nodes}"]).trim(), ":1");
    let first = store.join(None).await.expect("a member").incarnation;
    lose_lease();
    names("names", "99.00000000"); // the process has joined, and does not know it
    let second = store.join(Some(&first)).await.expect("a member").incarnation;
    lose_lease();
    names("names", "0.00000000");
    names("processes", "another process");
    let ended = store.renew(&second).await;
    assert!(matches!(ended, Err(StoreError::LeaseEnded)), "{ended:?}");
    let third = store.join(Some(&second)).await.expect("a member").incarnation;
    store.renew(&third).await.expect("a member");
}
