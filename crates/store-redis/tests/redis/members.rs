//! The lease of a process with several servers.

use crate::support::options;
use rethread_store::ClusterStore as _;
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
