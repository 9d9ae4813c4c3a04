//! Calls that run when something else would end.

use crate::client::{Session, opened, post, primed, rest, within};
use crate::desk::{Backstage, Endpoint, rethread_with, rmcp_with};
use rethread::{Revisions, Timing};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::json;
use std::time::Duration;

/// Sessions end when nobody uses them for a while. A call takes longer, and says nothing.
#[tokio::test]
async fn a_running_call_keeps_its_session() {
    const IDLE: Duration = Duration::from_secs(5);
    let seen = async |endpoint: Endpoint, backstage: &Backstage| {
        let session = Session::open(endpoint.addr).await;
        let mut answer = session.call(2, "work", &json!({ "steps": 1, "gated": true })).await;
        opened(&mut answer).await;
        primed(&mut answer).await;
        tokio::time::sleep(IDLE * 3).await;
        backstage.gate.add_permits(1);
        let events = rest(&mut answer).await;
        events.last().and_then(|event| event.text().map(str::to_owned))
    };
    let (backstage, ours) = (Backstage::new(), Backstage::new());
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(IDLE);
    let endpoint = rmcp_with(&backstage, StreamableHttpServerConfig::default(), manager).await;
    let timing = Timing {
        session_idle: IDLE,
        ..Timing::default()
    };
    let (our_endpoint, _) = rethread_with(&ours, |builder| builder.timing(timing)).await;
    let (result, our_result) = tokio::join!(seen(endpoint, &backstage), seen(our_endpoint, &ours));
    assert_eq!(result, None, "rmcp: the stream ends without a result");
    assert_eq!(
        our_result.as_deref(),
        Some("1 steps"),
        "rethread: a running call is use"
    );
}

#[tokio::test]
async fn a_shutdown_lets_calls_finish() {
    let work = json!({ "steps": 1, "gated": true });
    let backstage = Backstage::new();
    let config = StreamableHttpServerConfig::default();
    let stop = config.cancellation_token.clone();
    let endpoint = rmcp_with(&backstage, config, LocalSessionManager::default()).await;
    let mut answer = Session::open(endpoint.addr).await.call(2, "work", &work).await;
    opened(&mut answer).await;
    primed(&mut answer).await;
    stop.cancel();
    assert_eq!(rest(&mut answer).await, [], "rmcp: the stream ends without a result");

    let backstage = Backstage::new();
    let (endpoint, service) = rethread_with(&backstage, |builder| builder).await;
    let mut answer = Session::open(endpoint.addr).await.call(2, "work", &work).await;
    opened(&mut answer).await;
    primed(&mut answer).await;
    let stopping = tokio::spawn(async move { service.shutdown(Duration::from_secs(60)).await });
    within(refused(&endpoint)).await;
    backstage.gate.add_permits(1);
    let events = rest(&mut answer).await;
    let result = events.last().and_then(|event| event.text());
    assert_eq!(result, Some("1 steps"), "rethread: the call finishes");
    within(stopping).await.unwrap();
}

/// The same on both, if set so: who does not say which revision it speaks is told to.
#[tokio::test]
async fn requests_without_a_revision_can_be_refused() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let backstage = Backstage::new();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_stateless_protocol_metadata_required(true);
    let rmcp = rmcp_with(&backstage, config, LocalSessionManager::default()).await;
    let (ours, _) = rethread_with(&backstage, |builder| builder.revisions(Revisions::MODERN)).await;
    for endpoint in [rmcp, ours] {
        let answer = post(endpoint.addr, &[], list).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.json()["error"]["code"].is_number(), "{}", answer.body);
    }
}

/// Waits until the endpoint takes nothing new.
async fn refused(endpoint: &Endpoint) {
    while post(endpoint.addr, &[], &crate::client::hello()).await.status != 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
