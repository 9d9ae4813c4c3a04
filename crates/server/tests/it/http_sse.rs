//! The transport of 2024-11-05 beside the single endpoint (LEG-01 to LEG-05).

use crate::support::{ScriptedHandler, V2025_11_25, result_text};
use rethread::{
    Call, Context, Handler, InitializeReply, McpService, OpenError, Reply, RpcError, SessionId, SessionStart,
};
use rethread_testkit::client::{Client, Events};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

pub(crate) struct HttpSseClient {
    client: Client,
    pub(crate) events: Events,
    path: String,
}

impl HttpSseClient {
    pub(crate) async fn open(client: &Client) -> Self {
        let reply = client.request("GET", &[("accept", "text/event-stream")], "").await;
        let mut events = reply.events();
        let first = events.block().await.unwrap();
        assert_eq!((first.event.as_deref(), first.id), (Some("endpoint"), None), "LEG-01");
        HttpSseClient {
            client: client.clone(),
            path: first.data.unwrap(),
            events,
        }
    }

    /// The future borrows nothing, so a POST may outlive the connection.
    pub(crate) fn post(&self, body: Value) -> impl Future<Output = u16> + Send + use<> {
        self.post_text(body.to_string())
    }

    /// The path for messages.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn post_text(&self, body: String) -> impl Future<Output = u16> + Send + use<> {
        let path = self.path.clone();
        let at_path = self
            .client
            .with_request_hook(move |request| *request.uri_mut() = path.parse().unwrap());
        async move { at_path.request("POST", &[], body).await.status.as_u16() }
    }

    pub(crate) async fn handshake(&mut self, version: &str) -> Value {
        assert_eq!(self.post(initialize(0, version)).await, 202);
        let answer = self.next().await;
        assert_eq!(
            self.post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
                .await,
            202
        );
        answer["result"].clone()
    }

    pub(crate) async fn next(&mut self) -> Value {
        loop {
            let block = self.events.block().await.expect("another event");
            if let Some(data) = block.data {
                assert_eq!((block.event.as_deref(), block.id), (Some("message"), None), "LEG-02");
                return serde_json::from_str(&data).unwrap();
            }
        }
    }
}

fn initialize(id: u64, version: &str) -> Value {
    let params = json!({ "protocolVersion": version, "capabilities": { "sampling": {}, "elicitation": {}, "roots": {} },
        "clientInfo": { "name": "client_2024", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params })
}

/// LEG-01, LEG-02, LEG-04: any legacy revision may be negotiated; the framing stays the same.
#[tokio::test]
async fn leg_02_all_messages_arrive_on_one_stream() {
    for version in ["2024-11-05", V2025_11_25] {
        let handler = ScriptedHandler::new();
        let (service, _) = handler.serve();
        let client = Client::new(service.http_sse("/behind/a/prefix/messages"));
        let mut client_2024 = HttpSseClient::open(&client).await;
        assert!(
            client_2024.path.starts_with("/behind/a/prefix/messages?sessionId="),
            "{}",
            client_2024.path
        );
        assert_eq!(client_2024.handshake(version).await["protocolVersion"], version);
        let script = handler.script("a");
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "a", "_meta": { "progressToken": "p" } } });
        assert_eq!(client_2024.post(call).await, 202);
        script.progress(1).await;
        assert_eq!(client_2024.next().await["params"]["progress"], 1);
        let (answered, ()) = tokio::join!(script.ask("sample", json!({ "messages": [], "maxTokens": 1 })), async {
            let question = client_2024.next().await;
            assert_eq!(question["method"], "sampling/createMessage");
            let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "ok": 1 } });
            assert_eq!(client_2024.post(answer).await, 202);
        });
        assert_eq!(answered, Ok(json!({ "ok": 1 })));
        script.push(5).await;
        script.finish("client_2024").await;
        let both = [client_2024.next().await, client_2024.next().await];
        assert!(both.iter().any(|m| m["id"] == 1 && result_text(m) == "client_2024"));
        assert!(both.iter().any(|m| m["params"]["data"] == 5), "pushes come on it too");
        assert_eq!(
            client_2024
                .post(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }))
                .await,
            202
        );
        assert_eq!(
            client_2024.next().await,
            json!({ "jsonrpc": "2.0", "id": 2, "result": {} })
        );
    }
}

/// LEG-03, LEG-05.
#[tokio::test]
async fn leg_03_invalid_post_is_refused_and_disconnect_ends_the_session() {
    let handler = ScriptedHandler::new();
    let (service, single) = handler.serve();
    let client = Client::new(service.http_sse("/messages"));
    let mut client_2024 = HttpSseClient::open(&client).await;
    client_2024.handshake("2024-11-05").await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let at_path = |path: &str| HttpSseClient {
        client: client.clone(),
        events: Events::ended(),
        path: path.to_owned(),
    };
    assert_eq!(at_path("/messages").post(ping.clone()).await, 400, "missing");
    assert_eq!(
        at_path("/messages?sessionId=nobody").post(ping.clone()).await,
        404,
        "unknown"
    );
    assert_eq!(client_2024.post(json!([ping])).await, 400, "LEG-05");
    let id = client_2024.path.rsplit('=').next().unwrap().to_owned();
    let elsewhere = single
        .request("POST", &[("mcp-session-id", &id)], ping.to_string())
        .await;
    assert_eq!(elsewhere.status, 404, "LEG-04: not on the other endpoint");
    let modern = single.open(V2025_11_25).await;
    assert_eq!(
        at_path(&format!("/messages?sessionId={}", modern.id))
            .post(ping.clone())
            .await,
        404
    );
    let evil = client.request("GET", &[("origin", "http://evil.example")], "").await;
    assert_eq!(evil.status, 403, "SEC-01");

    let script = handler.script("a");
    client_2024
        .post(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "a" } }))
        .await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(service.stats().running_calls, 1);
    let path = client_2024.path.clone();
    drop(client_2024);
    script.wait_for_end().await;
    assert_eq!(service.stats().sessions, 1, "the other one");
    assert_eq!(at_path(&path).post(ping).await, 404);
}

/// A handler that opens sessions only when the test permits.
#[derive(Clone)]
struct SlowOpenHandler(Arc<OpenControl>);

struct OpenControl {
    started: AtomicUsize,
    opened: AtomicUsize,
    closed: AtomicUsize,
    /// Number of opens to refuse before one succeeds.
    refusals: AtomicUsize,
    permits: Semaphore,
}

impl SlowOpenHandler {
    fn serve() -> (Self, McpService, Client) {
        let opener = SlowOpenHandler(Arc::new(OpenControl {
            started: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            permits: Semaphore::new(0),
        }));
        let service = McpService::builder(opener.clone()).build();
        let client = Client::new(service.http_sse("/messages"));
        (opener, service, client)
    }

    /// Number of successful opens and of closed sessions.
    fn counts(&self) -> (usize, usize) {
        (
            self.0.opened.load(Ordering::SeqCst),
            self.0.closed.load(Ordering::SeqCst),
        )
    }

    async fn has_started(&self) {
        for _ in 0..500 {
            if self.0.started.load(Ordering::SeqCst) > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("the handler got no `initialize`");
    }
}

impl Handler for SlowOpenHandler {
    async fn open(&self, _: &SessionStart) -> Result<InitializeReply, OpenError> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        self.0.permits.acquire().await.unwrap().forget();
        let one_less = |left: usize| left.checked_sub(1);
        let refused = self
            .0
            .refusals
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        if refused.is_ok() {
            return Err(RpcError::internal("not now").into());
        }
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        Ok(InitializeReply::standard())
    }

    fn on_session_closed(&self, _: &SessionId) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }

    async fn handle(&self, _: Call, _: &Context) -> Result<Reply, RpcError> {
        Ok(Reply::empty())
    }
}

/// LEG-03: the handler gets one close notification, in either order of `initialize` and disconnect.
#[tokio::test]
async fn leg_03_connection_closed_during_initialize_closes_the_session_in_the_handler() {
    let (opener, service, client) = SlowOpenHandler::serve();
    let client_2024 = HttpSseClient::open(&client).await;
    let posted = tokio::spawn(client_2024.post(initialize(0, "2024-11-05")));
    opener.has_started().await;
    drop(client_2024);
    opener.0.permits.add_permits(1);
    assert_eq!(posted.await.unwrap(), 202);
    assert_eq!(opener.counts(), (1, 1), "opened and closed");
    assert_eq!(service.stats().sessions, 0);

    opener.0.permits.add_permits(1);
    let mut client_2024 = HttpSseClient::open(&client).await;
    client_2024.handshake("2024-11-05").await;
    assert_eq!(opener.counts(), (2, 1), "the second session is open");
    drop(client_2024);
    assert_eq!(opener.counts(), (2, 2));
}

/// LEG-04: one of two overlapping `initialize` requests opens the session.
#[tokio::test]
async fn leg_04_overlapping_initialize_gets_an_error_and_the_session_works() {
    let (opener, service, client) = SlowOpenHandler::serve();
    let mut client_2024 = HttpSseClient::open(&client).await;
    let first = tokio::spawn(client_2024.post(initialize(1, "2024-11-05")));
    opener.has_started().await;
    let second = tokio::spawn(client_2024.post(initialize(2, "2024-11-05")));
    tokio::time::sleep(Duration::from_millis(20)).await;
    opener.0.permits.add_permits(2);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (202, 202));
    let mut answers = [client_2024.next().await, client_2024.next().await];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"]["protocolVersion"], "2024-11-05", "{answers:?}");
    assert_eq!(answers[1]["error"]["code"], -32600, "{answers:?}");
    assert_eq!(opener.counts(), (1, 0), "the handler got no close");
    let call = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    assert_eq!(client_2024.post(call).await, 202);
    assert_eq!(
        client_2024.next().await,
        json!({ "jsonrpc": "2.0", "id": 3, "result": {} })
    );
    assert_eq!(service.stats().sessions, 1);
    drop(client_2024);
    assert_eq!(opener.counts(), (1, 1));
}

/// LEG-04: a refused `initialize` leaves the session unchanged, so the next may succeed.
#[tokio::test]
async fn leg_04_refused_initialize_can_be_repeated() {
    let (opener, _, client) = SlowOpenHandler::serve();
    let mut client_2024 = HttpSseClient::open(&client).await;
    opener.0.permits.add_permits(2);
    opener.0.refusals.store(1, Ordering::SeqCst);
    client_2024.post(initialize(1, "2024-11-05")).await;
    assert_eq!(client_2024.next().await["error"]["message"], "not now");
    assert_eq!(
        client_2024.handshake("2024-11-05").await["protocolVersion"],
        "2024-11-05"
    );
    client_2024.post(initialize(2, "2024-11-05")).await;
    assert_eq!(client_2024.next().await["error"]["code"], -32600, "initialized already");
    drop(client_2024);
    assert_eq!(opener.counts(), (1, 1));
}

/// LEG-02: a POST that is cut while its request is served gets an error on the stream: the client would wait for ever.
#[tokio::test]
async fn leg_02_request_of_a_cut_post_gets_an_error_on_the_stream() {
    let (opener, _, client) = SlowOpenHandler::serve();
    let mut client_2024 = HttpSseClient::open(&client).await;
    let post = tokio::spawn(client_2024.post(initialize(7, "2024-11-05")));
    opener.has_started().await;
    post.abort();
    let answer = client_2024.next().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32603)));
    opener.0.permits.add_permits(1);
    assert_eq!(
        client_2024.handshake("2024-11-05").await["protocolVersion"],
        "2024-11-05"
    );
}
