//! The cost of broadcasts on a real Redis.

use crate::node_metrics::node;
use rethread::ListKind;
use rethread_testkit::client::Client;
use rethread_testkit::redis_server::RedisServer;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

const SESSIONS: usize = 20;
const SIGNALS: usize = 50;

/// The scripts that the server has run.
fn scripts_run(redis: &RedisServer) -> usize {
    let stats = redis.command(&["INFO", "commandstats"]);
    let calls = stats.split("cmdstat_evalsha:calls=").nth(1).unwrap();
    calls.split(',').next().unwrap().parse().unwrap()
}

/// D6: a broadcast costs the store nothing for a session that it does not concern, and two steps for any other.
#[tokio::test]
async fn d6_broadcast_costs_two_steps_for_each_session_that_gets_it() {
    let Some(redis) = RedisServer::start() else { return };
    let service = node(&redis, &Arc::new(Notify::new())).await;
    let client = Client::new(service.clone());
    let mut gets = Vec::new();
    for _ in 0..SESSIONS {
        let session = client.open("2025-11-25").await;
        gets.push(session.get(None).await.events());
    }
    let notifier = service.notifier();
    notifier.broadcast("notifications/start", json!({}));
    for get in &mut gets {
        assert_eq!(get.next().await.data["method"], "notifications/start");
    }

    let before = scripts_run(&redis);
    for _ in 0..SIGNALS {
        notifier.list_changed(ListKind::Tools); // the server does not declare it
    }
    notifier.broadcast("notifications/end", json!({}));
    for get in &mut gets {
        assert_eq!(get.next().await.data["method"], "notifications/end");
    }
    let steps = scripts_run(&redis) - before;
    let needed = SIGNALS + 1 + 2 * SESSIONS;
    let renewals = 20; // the lease, while this runs on a busy machine
    assert!(
        (needed..needed + renewals).contains(&steps),
        "{steps} steps, {needed} needed"
    );
}
