//! Creation, lifetime and restoration of servers.

use crate::fixture::ServerControl;
use crate::support::{ALL_REVISIONS, Caller, LEGACY_REVISIONS, V2025_11_25, eventually, serve, serve_with, text};
use rethread_rmcp::RmcpHandler;
use rethread_store_embedded::EmbeddedStore;
use rethread_testkit::client::MODERN;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProtocolVersion, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// VER-01: the client gets the server's own result with the negotiated revision.
#[tokio::test]
async fn ver_01_initialize_result_comes_from_the_server() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in LEGACY_REVISIONS {
        let session = endpoint.client.open(version).await;
        let result = &session.initialize_response["result"];
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"], json!({ "name": "fixture", "version": "1.2.3" }));
        assert_eq!(result["instructions"], "test instructions");
        assert_eq!(
            result["capabilities"]["resources"],
            json!({ "subscribe": true, "listChanged": true })
        );
        control.wait_for(&format!("initialized {version}")).await;
    }
    let unknown = endpoint.client.initialize("2099-01-01", json!({})).await;
    assert_eq!(unknown.version, V2025_11_25);
    let found = endpoint
        .client
        .stateless(1, "server/discover", json!({}), json!({}))
        .await;
    let found = found.json().await["result"].take();
    let versions: Vec<_> = found["supportedVersions"].as_array().unwrap().iter().collect();
    assert!(
        ALL_REVISIONS.iter().all(|version| versions.contains(&&json!(version))),
        "{found}"
    );
    assert_eq!(found["instructions"], "test instructions");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "fixture");
}

/// VER-01, VER-07: only revisions that the server supports are negotiated.
#[tokio::test]
async fn ver_01_server_revisions_limit_negotiation() {
    let control = Arc::new(ServerControl::default());
    *control.versions.lock().unwrap() = Some(vec![ProtocolVersion::V_2025_03_26, ProtocolVersion::V_2025_06_18]);
    let endpoint = serve(control.handler()).await;
    for (requested, negotiated) in [
        (LEGACY_REVISIONS[1], LEGACY_REVISIONS[1]),
        (LEGACY_REVISIONS[3], LEGACY_REVISIONS[2]),
        ("2099-01-01", LEGACY_REVISIONS[2]),
    ] {
        let session = endpoint.client.open_with(requested, json!({})).await;
        assert_eq!(session.version, negotiated, "requested {requested}");
        let seen = session.tool(1, "version", json!({})).await.answer().await;
        assert_eq!(text(&seen), negotiated);
    }
    let params = json!({ "name": "echo", "arguments": {} });
    let refused = endpoint
        .client
        .stateless(1, "tools/call", params, json!({}))
        .await
        .json()
        .await;
    assert_eq!(refused["error"]["code"], -32_022, "{refused}");
}

/// Without sessions, server state lives as long as the request.
#[tokio::test]
async fn server_state_lives_as_long_as_the_session() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    for version in ALL_REVISIONS {
        let (one, two) = (
            Caller::new(&endpoint.client, version).await,
            Caller::new(&endpoint.client, version).await,
        );
        for expected in ["1", "2", "3"] {
            let count = one.tool(1, "count", json!({})).await.answer().await;
            let expected = if version == MODERN { "1" } else { expected };
            assert_eq!(text(&count), expected, "{version}");
        }
        assert_eq!(
            text(&two.tool(1, "count", json!({})).await.answer().await),
            "1",
            "{version}"
        );
    }
}

/// RES-01, RES-05: events after a disconnect wait for the client, including the result.
#[tokio::test]
async fn res_05_completed_call_can_be_resumed() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    let session = endpoint.client.open(V2025_11_25).await;
    let mut events = session
        .tool(1, "log_at_gate", json!({ "tag": "r", "times": 3 }))
        .await
        .events();
    control.open_gate("r");
    assert_eq!(events.next().await.data["params"]["data"]["n"], 0);
    let cursor = events.cursor().to_owned();
    drop(events);
    control.open_gate("r");
    control.open_gate("r");
    eventually(|| endpoint.service.stats().running_calls == 0).await;
    let rest = session.resume(&cursor).await.rest().await;
    let values: Vec<_> = rest.iter().map(|m| m.data["params"]["data"]["n"].clone()).collect();
    assert_eq!(values, [json!(1), json!(2), Value::Null]);
    assert_eq!(text(&rest[2].data), "r");
}

/// RST-01, RST-02: the new server of a restored session gets the session's previous state.
#[tokio::test]
async fn rst_01_restored_session_gets_a_new_server() {
    let directory = tempfile::tempdir().unwrap();
    let control = Arc::new(ServerControl::default());
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let endpoint = serve_with(control.handler(), |builder| builder.store(store)).await;
    let session = endpoint.client.open(V2025_11_25).await;
    session
        .call(1, "resources/subscribe", json!({ "uri": "mem://a" }))
        .await
        .bytes()
        .await;
    session
        .call(2, "logging/setLevel", json!({ "level": "warning" }))
        .await
        .bytes()
        .await;
    assert_eq!(text(&session.tool(3, "count", json!({})).await.answer().await), "1");
    let mut events = session.tool(4, "work", json!({ "tag": "before" })).await.events();
    let first = events.next().await;
    assert_eq!(
        first.data["method"], "notifications/progress",
        "info is below the level"
    );
    let cursor = events.cursor().to_owned();
    events.rest().await;
    endpoint.service.shutdown(std::time::Duration::from_secs(10)).await;
    drop(endpoint);

    let next = Arc::new(ServerControl::default());
    let store = reopen(directory.path()).await;
    let endpoint = serve_with(next.handler(), |builder| builder.store(store)).await;
    let session = session.with_client(&endpoint.client);
    let rest = session.resume(&cursor).await.rest().await;
    assert_eq!(
        text(&rest.last().unwrap().data),
        "before",
        "events from before the restart"
    );
    next.wait_for("initialize testkit parts true").await;
    next.wait_for(&format!("initialized {V2025_11_25}")).await;
    next.wait_for("level Warning").await;
    next.wait_for("subscribe mem://a").await;
    assert_eq!(
        text(&session.tool(5, "count", json!({})).await.answer().await),
        "1",
        "a new server"
    );
    assert_eq!(
        text(&session.tool(6, "count", json!({})).await.answer().await),
        "2",
        "the same server for the rest of the session"
    );
    let messages = session
        .tool(7, "work", json!({ "tag": "after" }))
        .await
        .events()
        .rest()
        .await;
    assert!(
        messages.iter().all(|m| m.data["method"] != "notifications/message"),
        "the level is restored"
    );
    assert_eq!(
        next.created.load(Ordering::Relaxed),
        2,
        "one for the session, one for `get_info`"
    );
}

/// Its tool returns whether `on_initialized` ran first.
#[derive(Default)]
struct InitializedProbe(OnceLock<rmcp::Peer<rmcp::RoleServer>>);

impl ServerHandler for InitializedProbe {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn on_initialized(&self, context: NotificationContext<rmcp::RoleServer>) {
        let _ = self.0.set(context.peer); // called once
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<rmcp::RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let initialized = self.0.get().is_some().to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(initialized)]).into())
    }
}

/// RST-02: the client sent `initialized` before the restart. The new server gets it before its first call.
#[tokio::test]
async fn rst_02_restored_server_gets_initialized_before_its_first_call() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let endpoint = serve_with(RmcpHandler::new(InitializedProbe::default), |builder| {
        builder.store(store)
    })
    .await;
    let session = endpoint.client.open(V2025_11_25).await;
    assert_eq!(
        text(&session.tool(1, "initialized", json!({})).await.answer().await),
        "true"
    );
    endpoint.service.shutdown(std::time::Duration::from_secs(10)).await;
    drop(endpoint);

    let store = reopen(directory.path()).await;
    let endpoint = serve_with(RmcpHandler::new(InitializedProbe::default), |builder| {
        builder.store(store)
    })
    .await;
    let session = session.with_client(&endpoint.client);
    assert_eq!(
        text(&session.tool(2, "initialized", json!({})).await.answer().await),
        "true"
    );
}

/// Retries until every user of the store has closed it.
async fn reopen(path: &std::path::Path) -> EmbeddedStore {
    let poll = async {
        loop {
            match EmbeddedStore::open(path) {
                Ok(store) => return store,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    };
    let opened = tokio::time::timeout(std::time::Duration::from_secs(30), poll).await;
    opened.expect("the store opens within 30 seconds")
}

struct EmptyServer;

impl ServerHandler for EmptyServer {}

struct PanickingServer;

impl ServerHandler for PanickingServer {
    async fn initialize(
        &self,
        _: rmcp::model::InitializeRequestParams,
        _: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::InitializeResult, rmcp::ErrorData> {
        panic!("on purpose")
    }
}

/// A failing factory reports its error to the client.
#[tokio::test]
async fn factory_may_return_a_server_or_a_result() {
    let infallible = serve(RmcpHandler::new(|| EmptyServer)).await;
    assert_eq!(infallible.client.open(V2025_11_25).await.version, V2025_11_25);
    let fallible = serve(RmcpHandler::new(|| Ok(EmptyServer))).await;
    assert_eq!(fallible.client.open(V2025_11_25).await.version, V2025_11_25);
    let shared = Arc::new(EmptyServer);
    let shared = serve(RmcpHandler::new(move || Arc::clone(&shared))).await;
    assert_eq!(shared.client.open(V2025_11_25).await.version, V2025_11_25);
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
    let failing = serve(RmcpHandler::new(|| {
        io::Result::<EmptyServer>::Err(io::Error::other("out of stock"))
    }))
    .await;
    let refused = failing.client.post(&initialize).await.json().await;
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("out of stock"),
        "{refused}"
    );
    let panicking = serve(RmcpHandler::new(|| PanickingServer)).await;
    let refused = panicking.client.post(&initialize).await.json().await;
    assert_eq!(refused["error"]["code"], -32_603, "{refused}");
    assert_eq!(panicking.service.stats().sessions, 0);
}
