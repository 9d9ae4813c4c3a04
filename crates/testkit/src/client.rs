//! An MCP client for any `tower::Service`, without a socket. Dropping [`Events`] is cutting the connection.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use rethread_proto::sse::{Block, Decoder};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

type Answer = UnsyncBoxBody<Bytes, Infallible>;
type Inner = BoxCloneSyncService<Request<Full<Bytes>>, Response<Answer>, Infallible>;
type Prepare = Arc<dyn Fn(&mut Request<Full<Bytes>>) + Send + Sync>;

/// How long a test waits for what must come. With tokio's paused time this costs nothing.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one endpoint.
#[derive(Clone)]
pub struct Client {
    service: Inner,
    prepare: Prepare,
}

impl Client {
    /// A client of `service`.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let service = service.map_response(|response: Response<B>| response.map(http_body_util::BodyExt::boxed_unsync));
        Client {
            service: BoxCloneSyncService::new(service),
            prepare: Arc::new(|_| ()),
        }
    }

    /// The same client, but every request passes through `prepare` first: to add an extension or a header.
    #[must_use]
    pub fn prepared(&self, prepare: impl Fn(&mut Request<Full<Bytes>>) + Send + Sync + 'static) -> Self {
        Client {
            service: self.service.clone(),
            prepare: Arc::new(prepare),
        }
    }

    /// Sends a request as it is.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Reply {
        (self.prepare)(&mut request);
        let Ok(response) = self.service.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Sends a request with the headers every MCP client sends, and `headers` over them.
    pub async fn request(&self, method: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost:8080")
            .header("accept", "application/json, text/event-stream");
        if method == "POST" {
            request = request.header("content-type", "application/json");
        }
        let mut request = request
            .body(Full::new(body.into()))
            .expect("a request from plain parts is valid");
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().expect("a valid header name");
            request
                .headers_mut()
                .insert(name, value.parse().expect("a valid header value"));
        }
        self.send(request).await
    }

    /// POSTs a JSON body outside of any session.
    pub async fn post(&self, body: &Value) -> Reply {
        self.request("POST", &[], body.to_string()).await
    }

    /// POSTs a request of 2026-07-28, with the headers and the `_meta` that it needs. `meta` is merged into the latter;
    /// its `clientCapabilities` are all there are unless it says otherwise.
    pub async fn stateless(&self, id: impl Into<Value>, method: &str, params: Value, meta: Value) -> Reply {
        let (headers, body) = stateless(&id.into(), method, params, meta);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.request("POST", &headers, body.to_string()).await
    }

    /// Opens a session with every client capability, and says that it is initialized.
    pub async fn open(&self, version: &str) -> Session {
        let capabilities = json!({
            "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": { "listChanged": true },
        });
        self.open_with(version, capabilities).await
    }

    /// Opens a session with the given client capabilities, and says that it is initialized.
    pub async fn open_with(&self, version: &str, capabilities: Value) -> Session {
        let session = self.initialize(version, capabilities).await;
        let reply = session.notify("notifications/initialized", json!({})).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "initialized is accepted");
        session
    }

    /// Opens a session without saying that it is initialized.
    pub async fn initialize(&self, version: &str, capabilities: Value) -> Session {
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "testkit", "version": "1" },
        });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let reply = self.post(&hello).await;
        assert_eq!(reply.status, StatusCode::OK, "initialize succeeds");
        let id = reply
            .header("mcp-session-id")
            .expect("initialize answers with a session id");
        let result = reply.json().await;
        Session {
            client: self.clone(),
            id,
            version: result["result"]["protocolVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            hello: result,
        }
    }
}

/// The headers and the body of a request of 2026-07-28.
pub fn stateless(id: &Value, method: &str, mut params: Value, meta: Value) -> (Vec<(&'static str, String)>, Value) {
    let mut all = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {
            "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {},
        },
    });
    if let (Some(all), Value::Object(meta)) = (all.as_object_mut(), meta) {
        all.extend(meta);
    }
    let mut headers = vec![
        ("mcp-protocol-version", MODERN.to_owned()),
        ("mcp-method", method.to_owned()),
    ];
    if let Some(name) = params.get("name").or_else(|| params.get("uri")).and_then(Value::as_str) {
        headers.push(("mcp-name", name.to_owned()));
    }
    params["_meta"] = all;
    (
        headers,
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }),
    )
}

/// The stateless revision.
pub const MODERN: &str = "2026-07-28";

/// A session with an endpoint.
#[derive(Clone)]
pub struct Session {
    /// The client it belongs to.
    pub client: Client,
    /// Its id.
    pub id: String,
    /// The negotiated revision.
    pub version: String,
    /// The whole answer to `initialize`.
    pub hello: Value,
}

impl Session {
    /// The same session, used by another client: another connection, another principal.
    #[must_use]
    pub fn through(&self, client: &Client) -> Self {
        Session {
            client: client.clone(),
            ..self.clone()
        }
    }

    /// POSTs a body in this session.
    pub async fn post(&self, body: &Value) -> Reply {
        self.raw("POST", &[], body.to_string()).await
    }

    /// Sends anything in this session.
    pub async fn raw(&self, method: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let mut all = vec![("mcp-session-id", self.id.as_str())];
        if self.version.as_str() >= "2025-06-18" {
            all.push(("mcp-protocol-version", self.version.as_str()));
        }
        all.extend_from_slice(headers);
        self.client.request(method, &all, body).await
    }

    /// POSTs a request.
    pub async fn call(&self, id: impl Into<Value>, method: &str, params: Value) -> Reply {
        let body = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.post(&body).await
    }

    /// Calls a tool with a progress token equal to the request's id.
    pub async fn tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Reply {
        let id = id.into();
        let params = json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": id } });
        self.call(id, "tools/call", params).await
    }

    /// POSTs a notification.
    pub async fn notify(&self, method: &str, params: Value) -> Reply {
        self.post(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await
    }

    /// Answers a question of the server.
    pub async fn answer(&self, id: &Value, result: Value) -> Reply {
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await
    }

    /// GETs a push stream, or resumes the stream of `last_event_id`.
    pub async fn get(&self, last_event_id: Option<&str>) -> Reply {
        let resume = last_event_id.map(|id| ("last-event-id", id));
        let headers: Vec<_> = [("accept", "text/event-stream")].into_iter().chain(resume).collect();
        self.raw("GET", &headers, "").await
    }

    /// Resumes a stream that must be there.
    pub async fn resume(&self, last_event_id: &str) -> Events {
        let reply = self.get(Some(last_event_id)).await;
        assert_eq!(reply.status, StatusCode::OK, "{last_event_id} can be resumed");
        reply.events()
    }

    /// DELETEs the session.
    pub async fn delete(&self) -> Reply {
        self.raw("DELETE", &[], "").await
    }
}

/// An answer of the endpoint.
pub struct Reply {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Answer,
}

impl Reply {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// Whether the answer is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.header("content-type").as_deref() == Some("text/event-stream")
    }

    /// The whole body.
    pub async fn bytes(self) -> Bytes {
        let Ok(body) = self.body.collect().await;
        body.to_bytes()
    }

    /// The body as JSON.
    pub async fn json(self) -> Value {
        let bytes = self.bytes().await;
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|e| panic!("{e}: the body is not JSON: {}", String::from_utf8_lossy(&bytes)))
    }

    /// The body as a stream of events.
    pub fn events(self) -> Events {
        assert!(
            self.is_stream(),
            "{:?} {:?} is no stream of events",
            self.status,
            self.headers
        );
        Events {
            body: self.body,
            decoder: Decoder::new(16 << 20),
            ready: VecDeque::new(),
            last_id: None,
        }
    }

    /// The JSON-RPC message that ends this answer, whatever its form.
    pub async fn answer(self) -> Value {
        if self.is_stream() {
            let messages = self.events().rest().await;
            messages
                .into_iter()
                .next_back()
                .expect("a stream ends with the answer")
                .data
        } else {
            self.json().await
        }
    }
}

/// A JSON-RPC message that came as an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The event's id, if it had one.
    pub id: Option<String>,
    /// The message.
    pub data: Value,
}

/// A connection that delivers events.
pub struct Events {
    body: Answer,
    decoder: Decoder,
    ready: VecDeque<Block>,
    last_id: Option<String>,
}

impl Events {
    /// A connection that has ended.
    pub fn none() -> Self {
        Events {
            body: http_body_util::Empty::new().boxed_unsync(),
            decoder: Decoder::new(0),
            ready: VecDeque::new(),
            last_id: None,
        }
    }

    /// The next block, whatever it is; `None` at the end of the connection.
    pub async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                if let Some(id) = &block.id {
                    self.last_id = Some(id.clone());
                }
                return Some(block);
            }
            let Ok(frame) = self.body.frame().await?;
            if let Ok(data) = frame.into_data() {
                let ready = &mut self.ready;
                self.decoder
                    .feed(&data, |block| ready.push_back(block))
                    .expect("events are shorter than the test's limit");
            }
        }
    }

    /// The next message: comments, priming events and retry hints are passed over.
    pub async fn message(&mut self) -> Option<Received> {
        let waiting = tokio::time::timeout(PATIENCE, self.any_message());
        waiting.await.expect("a message comes before patience ends")
    }

    async fn any_message(&mut self) -> Option<Received> {
        loop {
            let block = self.block().await?;
            if let Some(data) = block.data.filter(|data| !data.is_empty()) {
                let data =
                    serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e}: event data is not JSON: {data}"));
                return Some(Received { id: block.id, data });
            }
        }
    }

    /// The next message, which must come.
    pub async fn next(&mut self) -> Received {
        self.message().await.expect("another message comes")
    }

    /// All messages until the end of the connection.
    pub async fn rest(&mut self) -> Vec<Received> {
        let mut all = Vec::new();
        while let Some(message) = self.message().await {
            all.push(message);
        }
        all
    }

    /// The id of the last event that had one: what a client resumes from.
    pub fn cursor(&self) -> &str {
        self.last_id.as_deref().expect("an event with an id came")
    }

    /// Whether nothing comes for `pause`.
    pub async fn is_silent_for(&mut self, pause: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + pause;
        loop {
            match tokio::time::timeout_at(deadline, self.block()).await {
                Err(_) => return true,
                Ok(Some(block)) if block.data.as_deref().unwrap_or_default().is_empty() => {} // not a message
                Ok(_) => return false,
            }
        }
    }
}
