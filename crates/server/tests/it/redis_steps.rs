//! The number of steps that operations cost a real Redis.

use crate::node_metrics::node;
use rethread::ListKind;
use rethread_testkit::client::Client;
use rethread_testkit::redis_server::RedisServer;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

const SESSIONS: usize = 20;
const SIGNALS: usize = 50;
const CALLS: usize = 100;
/// Renewals of leases while a test runs on a busy machine.
const RENEWALS: usize = 20;

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
    assert!(
        (needed..needed + RENEWALS).contains(&steps),
        "{steps} steps, {needed} needed"
    );
}

/// The request, its claim and the response. Responses that were read are removed together.
#[tokio::test]
async fn forwarded_call_costs_three_steps() {
    let Some(redis) = RedisServer::start() else { return };
    let end = Arc::new(Notify::new());
    let (owner, other) = (node(&redis, &end).await, node(&redis, &end).await);
    let session = Client::new(owner).open("2025-11-25").await;
    let elsewhere = session.with_client(&Client::new(other));
    let call = async |id| elsewhere.tool(id, "echo", json!({})).await.answer().await;
    assert!(call(0).await["result"].is_object());

    let before = scripts_run(&redis);
    for id in 1..=CALLS {
        assert!(call(id as i64).await["result"].is_object());
    }
    let steps = scripts_run(&redis) - before;
    let needed = 3 * CALLS;
    assert!(
        (needed..needed + RENEWALS + CALLS / 10).contains(&steps),
        "{steps} steps, {needed} needed"
    );
}
