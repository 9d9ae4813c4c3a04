//! Whose a session is, how many there are, and how long they last.

use crate::client::{Session, hello, next, opened, post, rest, within};
use crate::desk::{Backstage, rethread, rethread_with, rmcp, rmcp_with};
use rethread::Limits;
use rethread_store_embedded::EmbeddedStore;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bob has learnt the id of Ada's session.
#[tokio::test]
async fn a_session_belongs_to_its_principal() {
    let text = json!({ "text": "hello" });
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open_as(endpoint.addr, "ada").await;
    let answer = session.at(endpoint.addr, "bob").answer(2, "echo", &text).await;
    assert_eq!(answer.status, 200, "rmcp: whoever knows the id is in");

    let endpoint = rethread(&backstage).await;
    let session = Session::open_as(endpoint.addr, "ada").await;
    let answer = session.at(endpoint.addr, "bob").answer(2, "echo", &text).await;
    assert_eq!(answer.status, 404, "rethread: for Bob there is no such session");
    assert_eq!(session.answer(3, "echo", &text).await.status, 200, "and Ada's goes on");
}

/// The server is replaced while a client is away.
#[tokio::test]
async fn sessions_and_streams_outlive_a_restart() {
    let text = json!({ "text": "hello" });
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    let session = Session::open(endpoint.addr).await;
    drop(endpoint);
    let endpoint = rmcp(&backstage).await;
    let answer = session.at(endpoint.addr, "ada").answer(2, "echo", &text).await;
    assert_eq!(answer.status, 404, "rmcp, with what comes with it: the session is gone");

    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let (endpoint, service) = rethread_with(&backstage, |builder| builder.store(store)).await;
    let session = Session::open(endpoint.addr).await;
    let mut answer = session.call(2, "work", &json!({ "steps": 3 })).await;
    opened(&mut answer).await;
    let cursor = next(&mut answer).await.expect("progress").id;
    assert_eq!(rest(&mut answer).await.len(), 3);
    service.shutdown(Duration::from_secs(10)).await;
    drop((endpoint, service));

    let store = reopened(directory.path()).await;
    let (endpoint, _) = rethread_with(&backstage, |builder| builder.store(store)).await;
    let session = session.at(endpoint.addr, "ada");
    assert_eq!(
        session.answer(3, "echo", &text).await.status,
        200,
        "rethread: the session goes on"
    );
    let events = rest(&mut session.get(Some(&cursor)).await).await;
    assert_eq!(events.len(), 3, "rethread: and so do its streams");
    assert_eq!(events[2].text(), Some("3 steps"));
}

#[tokio::test]
async fn sessions_are_bounded() {
    let backstage = Backstage::new();
    let endpoint = rmcp(&backstage).await;
    for _ in 0..50 {
        assert_eq!(
            post(endpoint.addr, &[], &hello()).await.status,
            200,
            "rmcp: there is no bound to set"
        );
    }

    let limits = Limits {
        sessions: 2,
        ..Limits::default()
    };
    let (endpoint, _) = rethread_with(&backstage, |builder| builder.limits(limits)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(endpoint.addr, &[], &hello()).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 503], "rethread");
}

/// A page at a foreign origin, in the browser of somebody who can reach the server.
#[tokio::test]
async fn foreign_origins_are_refused() {
    let page = [("origin", "https://evil.example")];
    let backstage = Backstage::new();
    let answer = post(rmcp(&backstage).await.addr, &page, &hello()).await;
    assert_eq!(answer.status, 200, "rmcp: origins are checked when a list is given");
    let answer = post(rethread(&backstage).await.addr, &page, &hello()).await;
    assert_eq!(answer.status, 403, "rethread: as it comes");
}

/// The same on both: a name that is not the machine's own must be allowed first.
#[tokio::test]
async fn foreign_hosts_are_refused() {
    let host = [("host", "mcp.example")];
    let backstage = Backstage::new();
    for endpoint in [rmcp(&backstage).await, rethread(&backstage).await] {
        assert_eq!(post(endpoint.addr, &host, &hello()).await.status, 403);
    }
}

/// The same on both: four megabytes, unless set otherwise.
#[tokio::test]
async fn bodies_are_bounded() {
    let (config, limits) = (StreamableHttpServerConfig::default(), Limits::default());
    assert_eq!(config.max_request_body_bytes, 4 << 20, "rmcp");
    assert_eq!(limits.body_bytes, 4 << 20, "rethread");
    // Less than that, so that what is refused has been read: else the answer may be lost with the connection.
    let limits = Limits {
        body_bytes: 1_000,
        ..limits
    };
    let backstage = Backstage::new();
    let config = config.with_max_request_body_bytes(1_000);
    let rmcp = rmcp_with(&backstage, config, LocalSessionManager::default()).await;
    let (ours, _) = rethread_with(&backstage, |builder| builder.limits(limits)).await;
    let large = format!("{{\"padding\":\"{}\"}}", "x".repeat(1_000));
    for endpoint in [rmcp, ours] {
        assert_eq!(post(endpoint.addr, &[], &hello()).await.status, 200);
        assert_eq!(post(endpoint.addr, &[], &large).await.status, 413);
    }
}

/// The same on both: a session that was deleted is not there. (The status of DELETE differs.)
#[tokio::test]
async fn a_deleted_session_is_gone() {
    let backstage = Backstage::new();
    for (endpoint, status) in [(rmcp(&backstage).await, 202), (rethread(&backstage).await, 204)] {
        let session = Session::open(endpoint.addr).await;
        assert_eq!(session.send("DELETE", &[], "").await.status, status);
        let answer = session.answer(2, "echo", &json!({ "text": "hello" })).await;
        assert_eq!(answer.status, 404);
    }
}

/// The same on both: what a server keeps in itself belongs to a session.
#[tokio::test]
async fn each_session_has_a_server_of_its_own() {
    let backstage = Backstage::new();
    for endpoint in [rmcp(&backstage).await, rethread(&backstage).await] {
        let (one, other) = (Session::open(endpoint.addr).await, Session::open(endpoint.addr).await);
        for (session, id, count) in [(&one, 2, "\"1\""), (&one, 3, "\"2\""), (&other, 2, "\"1\"")] {
            let answer = session.answer(id, "count", &json!({})).await;
            assert!(answer.body.contains(count), "{}", answer.body);
        }
    }
}

/// How often the factory is called.
#[tokio::test]
async fn one_more_server_is_made() {
    let (backstage, ours) = (Backstage::new(), Backstage::new());
    let (endpoint, our_endpoint) = (rmcp(&backstage).await, rethread(&ours).await);
    for addr in [endpoint.addr, our_endpoint.addr] {
        Session::open(addr).await;
        Session::open(addr).await;
    }
    assert_eq!(backstage.made.load(Ordering::Relaxed), 2, "rmcp");
    assert_eq!(ours.made.load(Ordering::Relaxed), 3, "rethread: one serves nobody");
}

/// The store, as soon as its directory is free.
async fn reopened(path: &Path) -> EmbeddedStore {
    within(async {
        loop {
            match EmbeddedStore::open(path) {
                Ok(store) => return store,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await
}
