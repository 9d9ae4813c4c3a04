//! Calls that outlast a session timeout or a shutdown.

use crate::client::{Session, post, read_priming_event, read_stream_head, rest, within};
use crate::fixture::{Endpoint, ServerControl, rethread_with, rmcp_with};
use rethread::{Revisions, Timing};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::json;
use std::time::Duration;

/// The call is silent for longer than the idle timeout of its session.
#[tokio::test]
async fn running_call_prevents_session_expiry() {
    const SESSION_IDLE: Duration = Duration::from_secs(5);
    let run = async |endpoint: Endpoint, control: &ServerControl| {
        let session = Session::open(endpoint.addr).await;
        let mut response = session
            .start_call(2, "work", &json!({ "steps": 1, "gated": true }))
            .await;
        read_stream_head(&mut response).await;
        read_priming_event(&mut response).await;
        tokio::time::sleep(SESSION_IDLE * 3).await;
        control.gate.add_permits(1);
        let events = rest(&mut response).await;
        events.last().and_then(|event| event.text().map(str::to_owned))
    };
    let (control, rethread_control) = (ServerControl::new(), ServerControl::new());
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(SESSION_IDLE);
    let endpoint = rmcp_with(&control, StreamableHttpServerConfig::default(), manager).await;
    let timing = Timing::default().with(|timing| timing.session_idle = SESSION_IDLE);
    let (rethread_endpoint, _) = rethread_with(&rethread_control, |builder| builder.timing(timing)).await;
    let (result, rethread_result) = tokio::join!(run(endpoint, &control), run(rethread_endpoint, &rethread_control));
    assert_eq!(result, None, "rmcp: the stream ends without a result");
    assert_eq!(
        rethread_result.as_deref(),
        Some("1 steps"),
        "rethread: a running call counts as use"
    );
}

#[tokio::test]
async fn shutdown_lets_calls_finish() {
    let work = json!({ "steps": 1, "gated": true });
    let control = ServerControl::new();
    let config = StreamableHttpServerConfig::default();
    let stop = config.cancellation_token.clone();
    let endpoint = rmcp_with(&control, config, LocalSessionManager::default()).await;
    let mut response = Session::open(endpoint.addr).await.start_call(2, "work", &work).await;
    read_stream_head(&mut response).await;
    read_priming_event(&mut response).await;
    stop.cancel();
    assert_eq!(rest(&mut response).await, [], "rmcp: the stream ends without a result");

    let control = ServerControl::new();
    let (endpoint, service) = rethread_with(&control, |builder| builder).await;
    let mut response = Session::open(endpoint.addr).await.start_call(2, "work", &work).await;
    read_stream_head(&mut response).await;
    read_priming_event(&mut response).await;
    let shutdown = tokio::spawn(async move { service.shutdown(Duration::from_secs(60)).await });
    within(wait_until_refusing(&endpoint)).await;
    control.gate.add_permits(1);
    let events = rest(&mut response).await;
    let result = events.last().and_then(|event| event.text());
    assert_eq!(result, Some("1 steps"), "rethread: the call finishes");
    within(shutdown).await.unwrap();
}

/// Both, if configured: a request without a revision gets an error.
#[tokio::test]
async fn requests_without_a_revision_can_be_refused() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let control = ServerControl::new();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_stateless_protocol_metadata_required(true);
    let rmcp = rmcp_with(&control, config, LocalSessionManager::default()).await;
    let (rethread, _) = rethread_with(&control, |builder| builder.revisions(Revisions::MODERN)).await;
    for endpoint in [rmcp, rethread] {
        let response = post(endpoint.addr, &[], list).await;
        assert_eq!(response.status, 400, "{}", response.body);
        assert!(response.json()["error"]["code"].is_number(), "{}", response.body);
    }
}

/// Waits until the endpoint refuses new sessions.
async fn wait_until_refusing(endpoint: &Endpoint) {
    while post(endpoint.addr, &[], &crate::client::initialize()).await.status != 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
