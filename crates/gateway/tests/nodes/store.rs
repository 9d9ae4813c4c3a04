//! The store itself: `check`, and gateways that cannot use it.

use crate::client::{Client, LATEST};
use crate::cluster::{SECOND, node};
use crate::gateway::{Gateway, gateway_with};
use http::StatusCode;
use rethread_testkit::prometheus::Scrape;
use rethread_testkit::redis_server::{RedisServer, free_port};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Instant;

#[tokio::test]
async fn check_shows_what_the_store_promises() {
    let Some(redis) = RedisServer::start() else { return };
    redis.config("requirepass", "hush");
    let address = redis.address();
    let check = |url: &str| node("legacy", &redis).store_url(url).run_check();
    let (code, stdout, stderr) = check(&format!("redis://:hush@{address}"));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let expected = "an acknowledged event survives a crash of the server; a power cut may lose the last second";
    assert!(stdout.contains(expected), "{stdout}");
    assert!(
        stdout.contains(&format!("redis://{address} ")) && !stdout.contains("hush"),
        "{stdout}"
    );
    for url in [format!("redis://{address}"), format!("redis://:hushed@{address}")] {
        let (code, _, stderr) = check(&url);
        assert_eq!(code, Some(4), "{stderr}");
        assert!(stderr.contains(&format!("cannot use the store redis://{address}: ")) && !stderr.contains("hush"));
    }
}

#[tokio::test]
async fn store_that_evicts_is_refused() {
    let Some(redis) = RedisServer::start_with(&[("maxmemory-policy", "allkeys-lru")]) else {
        return;
    };
    let (code, _, stderr) = node("legacy", &redis).run_check();
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("set maxmemory-policy noeviction"), "{stderr}");
    let (code, stderr) = node("legacy", &redis).run_to_exit();
    assert_eq!(code, Some(4), "{stderr}");
    redis.config("maxmemory-policy", "noeviction");
    redis.config("appendonly", "no");
    let (code, _, stderr) = node("legacy", &redis).run_check();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("warning: persistence of the store is off"), "{stderr}");
}

#[test]
fn gateway_without_its_store_does_not_start() {
    let url = format!("--store redis://:hush@127.0.0.1:{} --name fake", free_port());
    let gateway = gateway_with("legacy").without("--memory").option(&url);
    let started = Instant::now();
    let (code, stderr) = gateway.run_to_exit();
    assert_eq!(code, Some(4), "{stderr}");
    assert!(
        stderr.contains("the store cannot be reached") && !stderr.contains("hush"),
        "{stderr}"
    );
    assert!(started.elapsed() < 10 * SECOND, "it took {:?}", started.elapsed());
}

#[tokio::test]
async fn secret_file_is_shared_or_the_nodes_do_not_understand_each_other() {
    let Some(redis) = RedisServer::start() else { return };
    let with_secret = |secret: &str| {
        let gateway = node("legacy", &redis);
        std::fs::write(gateway.path("secret"), secret).unwrap();
        gateway.option("--secret-file secret")
    };
    let (code, stderr) = with_secret("short").run_to_exit();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("fewer than 16 bytes") && !stderr.contains("short\n"),
        "{stderr}"
    );
    let (one, two) = (
        with_secret("a secret of twenty-nine bytes").start(),
        with_secret("a secret of twenty-nine bytes\n").start(),
    );
    let session = one.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    assert_eq!(session.at_address(two.addr).child_pid().await, pid);
}

#[tokio::test]
async fn sessions_wait_for_a_store_that_is_gone() {
    let Some(mut redis) = RedisServer::start() else { return };
    // The requests below wait for the store first, and must end within the lease.
    let options = "--lease 20 --metrics 127.0.0.1:0 --admin 127.0.0.1:0";
    let gateway = node("legacy", &redis).without("--lease 3").option(options).start();
    let session = gateway.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    assert_eq!(health(&gateway).await, ("ready\n".to_owned(), 1.0, json!("ready")));
    redis.stop();
    assert_eq!(session.child_pid().await, pid, "its owner goes on within the lease");
    let refused = gateway.client().initialize(LATEST).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(session.child_pid().await, pid, "wake-ups do not arrive by now");
    // The renewal of the lease reports it.
    let degraded = ("ready\ndegraded: store\n".to_owned(), 0.0, json!("degraded"));
    wait_for_health(&gateway, &degraded).await;
    redis.run();
    let deadline = Instant::now() + 10 * SECOND;
    while gateway.client().initialize(LATEST).await.status != StatusCode::OK {
        assert!(Instant::now() < deadline, "no new session\n{}", gateway.log());
    }
    assert_eq!(session.child_pid().await, pid, "the session is the same");
    wait_for_health(&gateway, &("ready\n".to_owned(), 1.0, json!("ready"))).await;
}

/// OPS-02: waits until health, metrics and snapshot agree. The node stays ready all the time.
async fn wait_for_health(gateway: &Gateway, expected: &(String, f64, Value)) {
    let deadline = Instant::now() + 30 * SECOND;
    loop {
        let now = health(gateway).await;
        if now == *expected {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{now:?} instead of {expected:?}\n{}",
            gateway.log()
        );
        tokio::time::sleep(SECOND / 5).await;
    }
}

/// The body of `/readyz`, the metric `rethread_store_up`, and the state in the snapshot.
async fn health(gateway: &Gateway) -> (String, f64, Value) {
    let log = gateway.log();
    let address = |phrase: &str| -> SocketAddr {
        let line = log.lines().find(|line| line.contains(phrase)).unwrap();
        let words = line.split(|c: char| c.is_whitespace() || c == '"' || c == '=' || c == '/');
        words.filter_map(|word| word.parse().ok()).next().unwrap()
    };
    let monitor = Client::new(address("metrics and health"), "");
    let ready = monitor.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::OK);
    let scrape = Scrape::parse(&monitor.get("/metrics").await.text().await).unwrap();
    let token = std::fs::read_to_string(gateway.builder().path(".local/state/rethread/admin.token")).unwrap();
    let operator = Client::new(address("admin listener ready"), "").with_token(token.trim());
    let snapshot = operator.get("/api/v1/snapshot").await.text().await;
    let snapshot: Value = serde_json::from_str(&snapshot).unwrap();
    let up = scrape.value("rethread_store_up", &[("server", "fake")]).unwrap();
    (ready.text().await, up, snapshot["state"].clone())
}
