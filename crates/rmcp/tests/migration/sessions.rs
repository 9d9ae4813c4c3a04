//! Ownership, number and lifetime of sessions.

use crate::client::{Session, initialize, next, post, read_stream_head, rest, within};
use crate::fixture::{ServerControl, rethread, rethread_with, rmcp, rmcp_with};
use rethread::Limits;
use rethread_store_embedded::EmbeddedStore;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bob knows the id of Ada's session.
#[tokio::test]
async fn session_belongs_to_its_principal() {
    let text = json!({ "text": "hello" });
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open_as(endpoint.addr, "ada").await;
    let response = session.at(endpoint.addr, "bob").call(2, "echo", &text).await;
    assert_eq!(response.status, 200, "rmcp: the id is sufficient");

    let endpoint = rethread(&control).await;
    let session = Session::open_as(endpoint.addr, "ada").await;
    let response = session.at(endpoint.addr, "bob").call(2, "echo", &text).await;
    assert_eq!(response.status, 404, "rethread: Bob gets 404");
    assert_eq!(
        session.call(3, "echo", &text).await.status,
        200,
        "rethread: Ada can continue"
    );
}

/// The server restarts while the client is disconnected.
#[tokio::test]
async fn sessions_and_streams_survive_a_restart() {
    let text = json!({ "text": "hello" });
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    let session = Session::open(endpoint.addr).await;
    drop(endpoint);
    let endpoint = rmcp(&control).await;
    let response = session.at(endpoint.addr, "ada").call(2, "echo", &text).await;
    assert_eq!(
        response.status, 404,
        "rmcp with its own session manager: the session is lost"
    );

    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let (endpoint, service) = rethread_with(&control, |builder| builder.store(store)).await;
    let session = Session::open(endpoint.addr).await;
    let mut response = session.start_call(2, "work", &json!({ "steps": 3 })).await;
    read_stream_head(&mut response).await;
    let cursor = next(&mut response).await.expect("progress").id;
    assert_eq!(rest(&mut response).await.len(), 3);
    service.shutdown(Duration::from_secs(10)).await;
    drop((endpoint, service));

    let store = reopen_store(directory.path()).await;
    let (endpoint, _) = rethread_with(&control, |builder| builder.store(store)).await;
    let session = session.at(endpoint.addr, "ada");
    assert_eq!(
        session.call(3, "echo", &text).await.status,
        200,
        "rethread: the session is restored"
    );
    let events = rest(&mut session.get(Some(&cursor)).await).await;
    assert_eq!(events.len(), 3, "rethread: its streams are restored");
    assert_eq!(events[2].text(), Some("3 steps"));
}

#[tokio::test]
async fn sessions_are_bounded() {
    let control = ServerControl::new();
    let endpoint = rmcp(&control).await;
    for _ in 0..50 {
        assert_eq!(
            post(endpoint.addr, &[], &initialize()).await.status,
            200,
            "rmcp: no limit exists"
        );
    }

    let limits = Limits::default().with(|limits| limits.sessions = 2);
    let (endpoint, _) = rethread_with(&control, |builder| builder.limits(limits)).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(endpoint.addr, &[], &initialize()).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 503], "rethread");
}

/// A web page of a foreign origin calls the server.
#[tokio::test]
async fn foreign_origins_are_refused() {
    let page = [("origin", "https://evil.example")];
    let control = ServerControl::new();
    let response = post(rmcp(&control).await.addr, &page, &initialize()).await;
    assert_eq!(response.status, 200, "rmcp: checks origins only with an allow list");
    let response = post(rethread(&control).await.addr, &page, &initialize()).await;
    assert_eq!(response.status, 403, "rethread: by default");
}

/// Both: `Host` must be a loopback name by default.
#[tokio::test]
async fn foreign_hosts_are_refused() {
    let host = [("host", "mcp.example")];
    let control = ServerControl::new();
    for endpoint in [rmcp(&control).await, rethread(&control).await] {
        assert_eq!(post(endpoint.addr, &host, &initialize()).await.status, 403);
    }
}

/// Both: the default limit is 4 MiB.
#[tokio::test]
async fn request_bodies_are_bounded() {
    let (config, limits) = (StreamableHttpServerConfig::default(), Limits::default());
    assert_eq!(config.max_request_body_bytes, 4 << 20, "rmcp");
    assert_eq!(limits.body_bytes, 4 << 20, "rethread");
    // A small limit: the server has then read the whole body before it answers.
    let limits = limits.with(|limits| limits.body_bytes = 1_000);
    let control = ServerControl::new();
    let config = config.with_max_request_body_bytes(1_000);
    let rmcp = rmcp_with(&control, config, LocalSessionManager::default()).await;
    let (rethread, _) = rethread_with(&control, |builder| builder.limits(limits)).await;
    let large = format!("{{\"padding\":\"{}\"}}", "x".repeat(1_000));
    for endpoint in [rmcp, rethread] {
        assert_eq!(post(endpoint.addr, &[], &initialize()).await.status, 200);
        assert_eq!(post(endpoint.addr, &[], &large).await.status, 413);
    }
}

/// Both: a deleted session returns 404. Only the status of DELETE differs.
#[tokio::test]
async fn deleted_session_returns_404() {
    let control = ServerControl::new();
    for (endpoint, status) in [(rmcp(&control).await, 202), (rethread(&control).await, 204)] {
        let session = Session::open(endpoint.addr).await;
        assert_eq!(session.send("DELETE", &[], "").await.status, status);
        let response = session.call(2, "echo", &json!({ "text": "hello" })).await;
        assert_eq!(response.status, 404);
    }
}

/// Both: server state belongs to one session.
#[tokio::test]
async fn each_session_has_its_own_server() {
    let control = ServerControl::new();
    for endpoint in [rmcp(&control).await, rethread(&control).await] {
        let (one, other) = (Session::open(endpoint.addr).await, Session::open(endpoint.addr).await);
        for (session, id, count) in [(&one, 2, "\"1\""), (&one, 3, "\"2\""), (&other, 2, "\"1\"")] {
            let response = session.call(id, "count", &json!({})).await;
            assert!(response.body.contains(count), "{}", response.body);
        }
    }
}

#[tokio::test]
async fn factory_creates_one_extra_server() {
    let (control, rethread_control) = (ServerControl::new(), ServerControl::new());
    let (endpoint, rethread_endpoint) = (rmcp(&control).await, rethread(&rethread_control).await);
    for addr in [endpoint.addr, rethread_endpoint.addr] {
        Session::open(addr).await;
        Session::open(addr).await;
    }
    assert_eq!(control.created.load(Ordering::Relaxed), 2, "rmcp");
    assert_eq!(
        rethread_control.created.load(Ordering::Relaxed),
        3,
        "rethread: the extra server handles no calls"
    );
}

/// Retries until every user of the store has closed it.
async fn reopen_store(path: &Path) -> EmbeddedStore {
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
