//! How servers begin, live and begin again.

use crate::stage::Script;
use crate::support::{ALL, Caller, D, SESSIONS, eventually, serve, serve_with, text};
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

/// VER-01: the server's own welcome reaches the client, with the revision that was agreed on.
#[tokio::test]
async fn ver_01_the_server_welcomes_in_its_own_words() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in SESSIONS {
        let session = endpoint.client.open(version).await;
        let welcome = &session.hello["result"];
        assert_eq!(welcome["protocolVersion"], version);
        assert_eq!(welcome["serverInfo"], json!({ "name": "stage", "version": "1.2.3" }));
        assert_eq!(welcome["instructions"], "break a leg");
        assert_eq!(
            welcome["capabilities"]["resources"],
            json!({ "subscribe": true, "listChanged": true })
        );
        script.until(&format!("initialized {version}")).await;
    }
    let unknown = endpoint.client.initialize("2099-01-01", json!({})).await;
    assert_eq!(unknown.version, D);
    let found = endpoint
        .client
        .stateless(1, "server/discover", json!({}), json!({}))
        .await;
    let found = found.json().await["result"].take();
    let versions: Vec<_> = found["supportedVersions"].as_array().unwrap().iter().collect();
    assert!(ALL.iter().all(|version| versions.contains(&&json!(version))), "{found}");
    assert_eq!(found["instructions"], "break a leg");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "stage");
}

/// VER-01, VER-07: a server that speaks less is not made to speak more.
#[tokio::test]
async fn ver_01_the_servers_own_revisions_bind() {
    let script = Arc::new(Script::default());
    *script.versions.lock().unwrap() = Some(vec![ProtocolVersion::V_2025_03_26, ProtocolVersion::V_2025_06_18]);
    let endpoint = serve(script.handler()).await;
    for (asked, agreed) in [
        (SESSIONS[1], SESSIONS[1]),
        (SESSIONS[3], SESSIONS[2]),
        ("2099-01-01", SESSIONS[2]),
    ] {
        let session = endpoint.client.open_with(asked, json!({})).await;
        assert_eq!(session.version, agreed, "asked for {asked}");
        let seen = session.tool(1, "version", json!({})).await.answer().await;
        assert_eq!(text(&seen), agreed);
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

/// What a server keeps in itself lives with the session; without sessions, with the request.
#[tokio::test]
async fn state_lives_as_long_as_the_session() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
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

/// RES-01, RES-05: what a call says after its connection broke waits for the client's return, the answer too.
#[tokio::test]
async fn res_05_a_call_is_resumed_after_it_completed() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    let session = endpoint.client.open(D).await;
    let mut events = session
        .tool(1, "chat", json!({ "tag": "r", "times": 3 }))
        .await
        .events();
    script.open("r");
    assert_eq!(events.next().await.data["params"]["data"]["n"], 0);
    let cursor = events.cursor().to_owned();
    drop(events);
    script.open("r");
    script.open("r");
    eventually(|| endpoint.service.running_calls() == 0).await;
    let rest = session.resume(&cursor).await.rest().await;
    let said: Vec<_> = rest.iter().map(|m| m.data["params"]["data"]["n"].clone()).collect();
    assert_eq!(said, [json!(1), json!(2), Value::Null]);
    assert_eq!(text(&rest[2].data), "r");
}

/// RST-01, RST-02: after a restart a session that comes back has a new server, which is told what the one before knew.
#[tokio::test]
async fn rst_01_after_a_restart_a_new_server_takes_the_session_up() {
    let directory = tempfile::tempdir().unwrap();
    let script = Arc::new(Script::default());
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let endpoint = serve_with(script.handler(), |builder| builder.store(store)).await;
    let session = endpoint.client.open(D).await;
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

    let next = Arc::new(Script::default());
    let store = reopen(directory.path()).await;
    let endpoint = serve_with(next.handler(), |builder| builder.store(store)).await;
    let session = session.through(&endpoint.client);
    let rest = session.resume(&cursor).await.rest().await;
    assert_eq!(
        text(&rest.last().unwrap().data),
        "before",
        "what was said before is still there"
    );
    next.until("initialize testkit head true").await;
    next.until(&format!("initialized {D}")).await;
    next.until("level Warning").await;
    next.until("subscribe mem://a").await;
    assert_eq!(
        text(&session.tool(5, "count", json!({})).await.answer().await),
        "1",
        "a new server"
    );
    assert_eq!(
        text(&session.tool(6, "count", json!({})).await.answer().await),
        "2",
        "for the whole session"
    );
    let messages = session
        .tool(7, "work", json!({ "tag": "after" }))
        .await
        .events()
        .rest()
        .await;
    assert!(
        messages.iter().all(|m| m.data["method"] != "notifications/message"),
        "the level still holds"
    );
    assert_eq!(
        next.made.load(Ordering::Relaxed),
        2,
        "one for the session, and one to ask who it is"
    );
}

/// Tells whether it knew its client before it was called.
#[derive(Default)]
struct Keeper(OnceLock<rmcp::Peer<rmcp::RoleServer>>);

impl ServerHandler for Keeper {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn on_initialized(&self, context: NotificationContext<rmcp::RoleServer>) {
        let _ = self.0.set(context.peer); // it hears it once
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<rmcp::RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let known = self.0.get().is_some().to_string();
        Ok(CallToolResult::success(vec![ContentBlock::text(known)]).into())
    }
}

/// RST-02: the client said long ago that it is ready. A new server hears it before its first call.
#[tokio::test]
async fn rst_02_a_new_server_hears_that_the_client_is_ready_before_it_is_called() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path()).unwrap();
    let endpoint = serve_with(RmcpHandler::new(Keeper::default), |builder| builder.store(store)).await;
    let session = endpoint.client.open(D).await;
    assert_eq!(text(&session.tool(1, "known", json!({})).await.answer().await), "true");
    endpoint.service.shutdown(std::time::Duration::from_secs(10)).await;
    drop(endpoint);

    let store = reopen(directory.path()).await;
    let endpoint = serve_with(RmcpHandler::new(Keeper::default), |builder| builder.store(store)).await;
    let session = session.through(&endpoint.client);
    assert_eq!(text(&session.tool(2, "known", json!({})).await.answer().await), "true");
}

/// The store is free again once everything that used it is gone.
async fn reopen(path: &std::path::Path) -> EmbeddedStore {
    let waiting = async {
        loop {
            match EmbeddedStore::open(path) {
                Ok(store) => return store,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    };
    let opened = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await;
    opened.expect("the store can be opened again")
}

struct Plain;

impl ServerHandler for Plain {}

struct Panicking;

impl ServerHandler for Panicking {
    async fn initialize(
        &self,
        _: rmcp::model::InitializeRequestParams,
        _: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::InitializeResult, rmcp::ErrorData> {
        panic!("on purpose")
    }
}

/// Both shapes of factory work as they are written, and one that fails says why.
#[tokio::test]
async fn factories_come_in_the_shapes_that_rmcp_users_write() {
    let always = serve(RmcpHandler::new(|| Plain)).await;
    assert_eq!(always.client.open(D).await.version, D);
    let maybe = serve(RmcpHandler::new(|| Ok(Plain))).await;
    assert_eq!(maybe.client.open(D).await.version, D);
    let shared = Arc::new(Plain);
    let shared = serve(RmcpHandler::new(move || Arc::clone(&shared))).await;
    assert_eq!(shared.client.open(D).await.version, D);
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": D, "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } });
    let never = serve(RmcpHandler::new(|| {
        io::Result::<Plain>::Err(io::Error::other("out of stock"))
    }))
    .await;
    let refused = never.client.post(&hello).await.json().await;
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("out of stock"),
        "{refused}"
    );
    let panicking = serve(RmcpHandler::new(|| Panicking)).await;
    let refused = panicking.client.post(&hello).await.json().await;
    assert_eq!(refused["error"]["code"], -32_603, "{refused}");
    assert_eq!(panicking.service.sessions(), 0);
}
