//! An MCP client for any `tower::Service`, without a socket, or for a server at an address. Dropping [`Events`] closes the
//! connection.

mod http;

use ::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
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
use tower::{BoxError, Service, ServiceExt};

type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
type InnerService = BoxCloneSyncService<Request<Full<Bytes>>, Response<ResponseBody>, Infallible>;
type RequestHook = Arc<dyn Fn(&mut Request<Full<Bytes>>) + Send + Sync>;

/// How long to wait for a message. With tokio's paused time the wait takes no real time.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one endpoint.
#[derive(Clone)]
pub struct Client {
    service: InnerService,
    request_hook: RequestHook,
}

impl Client {
    /// Creates a client of `service`.
    pub fn new<S, B>(service: S) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service.map_response(|response: Response<B>| {
            response.map(|body| http_body_util::BodyExt::boxed_unsync(body.map_err(Into::into)))
        });
        Client {
            service: BoxCloneSyncService::new(service),
            request_hook: Arc::new(|_| ()),
        }
    }

    /// The same client with a hook that modifies every request, for example to add an extension or a header. Earlier hooks
    /// run first.
    #[must_use]
    pub fn with_request_hook(&self, hook: impl Fn(&mut Request<Full<Bytes>>) + Send + Sync + 'static) -> Self {
        let earlier = Arc::clone(&self.request_hook);
        Client {
            service: self.service.clone(),
            request_hook: Arc::new(move |request| {
                earlier(request);
                hook(request);
            }),
        }
    }

    /// Sends a request unchanged, except for the hook.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Reply {
        (self.request_hook)(&mut request);
        let Ok(response) = self.service.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// Sends a request with the usual headers of an MCP client. `headers` override them.
    pub async fn request(&self, method: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost:8080")
            .header("accept", "application/json, text/event-stream");
        if method == "POST" {
            request = request.header("content-type", "application/json");
        }
        let mut request = request.body(Full::new(body.into())).expect("a valid request");
        for (name, value) in headers {
            let name: ::http::HeaderName = name.parse().expect("a valid header name");
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

    /// POSTs a request of 2026-07-28 with the required headers and `_meta`.
    ///
    /// `meta` is merged into `_meta`. By default the client declares every capability.
    pub async fn stateless(&self, id: impl Into<Value>, method: &str, params: Value, meta: Value) -> Reply {
        let (headers, body) = stateless(&id.into(), method, params, meta);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.request("POST", &headers, body.to_string()).await
    }

    /// Opens a session with every client capability and sends `initialized`.
    pub async fn open(&self, version: &str) -> Session {
        let capabilities = json!({
            "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": { "listChanged": true },
        });
        self.open_with(version, capabilities).await
    }

    /// Opens a session with the given client capabilities and sends `initialized`.
    pub async fn open_with(&self, version: &str, capabilities: Value) -> Session {
        let session = self.initialize(version, capabilities).await;
        let reply = session.notify("notifications/initialized", json!({})).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "initialized");
        session
    }

    /// Opens a session without sending `initialized`.
    pub async fn initialize(&self, version: &str, capabilities: Value) -> Session {
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "testkit", "version": "1" },
        });
        let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let reply = self.post(&request).await;
        assert_eq!(reply.status, StatusCode::OK, "initialize");
        let id = reply.header("mcp-session-id").expect("a session id");
        let result = reply.json().await;
        Session {
            client: self.clone(),
            id,
            version: result["result"]["protocolVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            initialize_response: result,
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
    // Members of the params override the usual ones.
    if let (Some(all), Some(Value::Object(own))) = (all.as_object_mut(), params.get_mut("_meta").map(Value::take)) {
        all.extend(own);
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
    /// The client of this session.
    pub client: Client,
    /// The session id.
    pub id: String,
    /// The negotiated revision.
    pub version: String,
    /// The response to `initialize`.
    pub initialize_response: Value,
}

impl Session {
    /// The same session with another client, for example of another principal.
    #[must_use]
    pub fn with_client(&self, client: &Client) -> Self {
        Session {
            client: client.clone(),
            ..self.clone()
        }
    }

    /// POSTs a body in this session.
    pub async fn post(&self, body: &Value) -> Reply {
        self.raw("POST", &[], body.to_string()).await
    }

    /// Sends any request in this session.
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

    /// Calls a tool. The progress token is the request id.
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

    /// POSTs the answer to a question of the server.
    pub async fn answer(&self, id: &Value, result: Value) -> Reply {
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await
    }

    /// GETs a push stream, or resumes after `last_event_id`.
    pub async fn get(&self, last_event_id: Option<&str>) -> Reply {
        let resume = last_event_id.map(|id| ("last-event-id", id));
        let headers: Vec<_> = [("accept", "text/event-stream")].into_iter().chain(resume).collect();
        self.raw("GET", &headers, "").await
    }

    /// Resumes a stream and asserts success.
    pub async fn resume(&self, last_event_id: &str) -> Events {
        let reply = self.get(Some(last_event_id)).await;
        assert_eq!(reply.status, StatusCode::OK, "resume after {last_event_id}");
        reply.events()
    }

    /// DELETEs the session.
    pub async fn delete(&self) -> Reply {
        self.raw("DELETE", &[], "").await
    }
}

/// A response of the endpoint.
#[non_exhaustive]
pub struct Reply {
    /// The HTTP status.
    pub status: StatusCode,
    /// The HTTP headers.
    pub headers: HeaderMap,
    body: ResponseBody,
}

impl Reply {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// Whether the response is an SSE stream.
    pub fn is_stream(&self) -> bool {
        self.header("content-type").as_deref() == Some("text/event-stream")
    }

    /// The whole body. Panics if the connection breaks.
    pub async fn bytes(self) -> Bytes {
        self.try_bytes().await.expect("a complete body")
    }

    /// The whole body, or an error if the connection breaks.
    pub async fn try_bytes(self) -> Result<Bytes, BoxError> {
        Ok(self.body.collect().await?.to_bytes())
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
            "{:?} {:?} is not an SSE stream",
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

    /// The last JSON-RPC message of the response, JSON or a stream.
    pub async fn answer(self) -> Value {
        if self.is_stream() {
            let messages = self.events().rest().await;
            messages
                .into_iter()
                .next_back()
                .expect("a stream ends with a response")
                .data
        } else {
            self.json().await
        }
    }
}

/// A JSON-RPC message from an SSE event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReceivedMessage {
    /// The event id, if present.
    pub id: Option<String>,
    /// The message.
    pub data: Value,
}

impl ReceivedMessage {
    /// A message from an event with this id.
    pub const fn new(id: Option<String>, data: Value) -> Self {
        ReceivedMessage { id, data }
    }
}

/// An open SSE response.
pub struct Events {
    body: ResponseBody,
    decoder: Decoder,
    ready: VecDeque<Block>,
    last_id: Option<String>,
}

impl Events {
    /// A response that has ended.
    pub fn ended() -> Self {
        Events {
            body: http_body_util::Empty::new().map_err(Into::into).boxed_unsync(),
            decoder: Decoder::new(0),
            ready: VecDeque::new(),
            last_id: None,
        }
    }

    /// The next SSE block of any kind. `None` at the end of the response, and when the connection breaks.
    pub async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(block) = self.ready.pop_front() {
                if let Some(id) = &block.id {
                    self.last_id = Some(id.clone());
                }
                return Some(block);
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                let ready = &mut self.ready;
                self.decoder
                    .feed(&data, |block| ready.push_back(block))
                    .expect("events are within the decoder limit");
            }
        }
    }

    /// The next message. Skips comments, priming events and retry hints.
    pub async fn message(&mut self) -> Option<ReceivedMessage> {
        let message = tokio::time::timeout(MESSAGE_TIMEOUT, self.any_message());
        message.await.expect("a message within the timeout")
    }

    async fn any_message(&mut self) -> Option<ReceivedMessage> {
        loop {
            let block = self.block().await?;
            if let Some(data) = block.data.filter(|data| !data.is_empty()) {
                let data =
                    serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e}: event data is not JSON: {data}"));
                return Some(ReceivedMessage { id: block.id, data });
            }
        }
    }

    /// The next message. Panics at the end of the response.
    pub async fn next(&mut self) -> ReceivedMessage {
        self.message().await.expect("another message")
    }

    /// All messages up to the end of the response.
    pub async fn rest(&mut self) -> Vec<ReceivedMessage> {
        let mut all = Vec::new();
        while let Some(message) = self.message().await {
            all.push(message);
        }
        all
    }

    /// The last event id. A client resumes after it.
    pub fn cursor(&self) -> &str {
        self.last_id.as_deref().expect("an event with an id")
    }

    /// Whether no message arrives for `pause`.
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
