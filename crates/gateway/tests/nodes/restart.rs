//! Rolling restarts, reloads and replaced nodes.

use crate::client::{Client, LATEST, Session, tool_result};
use crate::cluster::{Cluster, SECOND, node};
use crate::gateway::wait_until;
use http::StatusCode;
use rethread_testkit::redis_server::RedisServer;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Calls one after the other, until the end. Returns their number.
fn keep_calling(session: Session, done: Arc<AtomicBool>) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let mut calls = 0;
        while !done.load(Ordering::Relaxed) {
            let args = json!({ "ms": 30, "text": calls });
            let reply = session
                .call(calls, "tools/call", json!({ "name": "slow", "arguments": args }))
                .await;
            if reply.status != StatusCode::OK {
                let (status, headers) = (reply.status, reply.headers.clone());
                panic!("call {calls}: {status} {headers:?} {}", reply.text().await);
            }
            let answer = reply.response().await;
            assert_eq!(answer["id"], json!(calls), "{answer}");
            assert_eq!(tool_result(&answer)["text"], json!(calls), "{answer}");
            calls += 1;
        }
        calls
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn t_38_no_call_fails_in_a_rolling_restart() {
    let Some(mut cluster) = Cluster::start("legacy").await else {
        return;
    };
    let done = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..6 {
        let session = cluster.client().open_session(LATEST).await;
        callers.push(keep_calling(session, Arc::clone(&done)));
    }
    for at in 0..3 {
        tokio::time::sleep(SECOND / 2).await;
        let started = Instant::now();
        cluster.gateways[at].signal(Signal::TERM);
        let gateway = &mut cluster.gateways[at];
        let exit = tokio::task::block_in_place(|| gateway.wait_for_exit(15 * SECOND));
        assert_eq!(exit.and_then(|status| status.code()), Some(0), "{}", gateway.log());
        assert!(
            started.elapsed() < 9 * SECOND,
            "idle sessions are handed over at once: {:?}",
            started.elapsed()
        );
        cluster.gateways[at] = tokio::task::block_in_place(|| cluster.gateways[at].start_successor());
        cluster
            .balancer
            .set_backends(cluster.gateways.iter().map(|gateway| gateway.addr));
    }
    tokio::time::sleep(SECOND / 2).await;
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.expect("no call fails") > 3);
    }
    assert_eq!(cluster.children(), 6, "one child for each session");
}

#[tokio::test(flavor = "multi_thread")]
async fn t_38_draining_node_finishes_its_calls_and_forwards_the_others() {
    let Some(mut cluster) = Cluster::start("legacy").await else {
        return;
    };
    let session = cluster.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let (owner, [one, _]) = (cluster.owner(pid), cluster.others(pid));
    let idle = loop {
        let other = cluster.client().open_session(LATEST).await;
        if cluster.owner(u64::from(other.first_pid())) == owner {
            break other;
        }
    };
    let mut get = cluster.at(&idle, owner).listen().await;
    let slow = json!({ "ms": 2500, "steps": 5, "text": "whole" });
    let mut running = cluster.at(&session, one).start_tool("running", "slow", slow).await;
    running.next().await.unwrap();

    cluster.gateways[owner].signal(Signal::TERM);
    let draining = Client::new(cluster.gateways[owner].addr, "");
    let ready = async || draining.get("/readyz").await;
    for _ in 0..100 {
        if ready().await.status == StatusCode::SERVICE_UNAVAILABLE {
            break;
        }
    }
    assert_eq!(ready().await.text().await, "draining\n");
    assert_eq!(draining.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(get.next().await, None, "GET streams are closed");
    // Everything that still arrives here is served by another node.
    let moved = cluster.at(&idle, owner).child_pid().await;
    assert_ne!(moved, u64::from(idle.first_pid()), "an idle session was handed over");
    assert_ne!(cluster.owner(moved), owner);
    let opened = draining.open_session(LATEST).await;
    assert_ne!(cluster.owner(u64::from(opened.first_pid())), owner);

    let messages = running.messages().await;
    assert_eq!(tool_result(messages.last().unwrap())["text"], "whole", "{messages:?}");
    let gateway = &mut cluster.gateways[owner];
    let exit = tokio::task::block_in_place(|| gateway.wait_for_exit(12 * SECOND));
    assert_eq!(exit.and_then(|status| status.code()), Some(0));
    let at_once = Instant::now();
    assert_ne!(session.child_pid().await, pid);
    assert!(
        at_once.elapsed() < 3 * SECOND,
        "nobody waits for the lease: {:?}",
        at_once.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_node_exits_and_its_sessions_continue() {
    let Some(redis) = RedisServer::start() else { return };
    let with_id = || node("legacy", &redis).option("--node-id alpha");
    let mut first = with_id().start();
    let session = first.client().open_session(LATEST).await;
    let second = with_id().start();
    let started = Instant::now();
    let exit = tokio::task::block_in_place(|| first.wait_for_exit(5 * SECOND));
    assert_eq!(exit.and_then(|status| status.code()), Some(1), "{}", first.log());
    let expected = "error: a newer gateway uses the node id alpha, so this one ends";
    assert!(first.log().contains(expected), "{}", first.log());
    let session = session.at_address(second.addr);
    assert_ne!(session.child_pid().await, u64::from(session.first_pid()));
    assert!(started.elapsed() < 5 * SECOND, "nobody waits for the lease");
    assert!(wait_until(5 * SECOND, || first.children().is_empty()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_moves_the_sessions_of_a_changed_server() {
    let Some(redis) = RedisServer::start() else { return };
    let gateways: Vec<_> = (0..2)
        .map(|_| {
            let gateway = node("legacy", &redis).without_command().without("--name fake");
            write_config(&gateway, "legacy");
            gateway.option("--config rethread.toml").start()
        })
        .collect();
    let client = |server: &str| Client::new(gateways[0].addr, &format!("/servers/{server}"));
    let (kept, changed) = (
        client("kept").open_session(LATEST).await,
        client("changed").open_session(LATEST).await,
    );
    let pids = (kept.child_pid().await, changed.child_pid().await);
    let mut get = changed.listen().await;
    let slow = json!({ "ms": 1500, "steps": 5, "text": "whole" });
    let mut running = changed.start_tool("running", "slow", slow).await;
    running.next().await.unwrap();

    write_config(gateways[0].builder(), "legacy,start-delay=0.1");
    gateways[0].signal(Signal::HUP);
    assert_eq!(get.next().await, None, "a server that drains closes its GETs");
    // Meanwhile the other gateway serves new sessions of the server, also those that this one gets.
    let meanwhile = client("changed").open_session(LATEST).await;
    assert!(
        gateways[1]
            .children()
            .iter()
            .any(|child| child.pid == meanwhile.first_pid())
    );
    let messages = running.messages().await;
    assert_eq!(tool_result(messages.last().unwrap())["text"], "whole", "{messages:?}");
    gateways[0].wait_for_log("configuration reloaded").await;

    assert_eq!(kept.child_pid().await, pids.0, "another server is not touched");
    assert_ne!(changed.child_pid().await, pids.1);
    let at_other = changed.at_address(gateways[1].addr);
    assert_eq!(
        at_other.child_pid().await,
        changed.child_pid().await,
        "both gateways are members"
    );
    assert_eq!(meanwhile.child_pid().await, u64::from(meanwhile.first_pid()));
    // The lease is renewed: the session stays where it is.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(at_other.child_pid().await, changed.child_pid().await);
    assert_eq!(kept.at_address(gateways[1].addr).child_pid().await, pids.0);
}

/// Two servers. `behavior` is that of the second one.
fn write_config(gateway: &crate::gateway::GatewayBuilder, behavior: &str) {
    let server = |name: &str, behavior: &str| {
        let command: Value = crate::gateway::fake_child_command(behavior, gateway.marker()).into();
        format!("[servers.{name}]\ncommand = {command}\n")
    };
    let text = server("kept", "legacy") + &server("changed", behavior);
    std::fs::write(gateway.path("rethread.toml"), text).unwrap();
}
