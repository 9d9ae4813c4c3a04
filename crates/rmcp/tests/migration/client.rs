//! A client of 2025-11-25 over plain sockets. Tests decide when it reads.

use http::{HeaderMap, StatusCode};
use rethread_testkit::raw::{RawConnection, exchange, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Long enough for any step on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for an event that must not arrive.
pub(crate) const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// Receive buffer of a client that does not read.
const SMALL_RECEIVE_BUFFER_BYTES: u32 = 4 << 10;

const POST_HEADERS: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

/// An event with data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Event {
    /// The value of a progress notification.
    pub(crate) fn step(&self) -> Option<u64> {
        let progress = self.data["params"]["progress"].as_f64()?;
        Some(progress as u64)
    }

    /// The data of a log message.
    pub(crate) fn logged(&self) -> Option<&str> {
        self.data["params"]["data"].as_str()
    }

    /// The text of a tool result.
    pub(crate) fn text(&self) -> Option<&str> {
        self.data["result"]["content"][0]["text"].as_str()
    }
}

/// A complete HTTP response.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn content_type(&self) -> &str {
        let value = self.headers.get("content-type").and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON: {}", self.body))
    }
}

/// Sends one request outside of any session.
pub(crate) async fn send(addr: SocketAddr, method: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let bytes = request(method, "/mcp", headers, body.as_bytes());
    let (status, headers, body) = within(exchange(addr, &bytes)).await.expect("a response");
    let body = String::from_utf8(body).expect("text");
    Response { status, headers, body }
}

/// POSTs outside of any session.
pub(crate) async fn post(addr: SocketAddr, headers: &[(&str, &str)], body: &str) -> Response {
    send(addr, "POST", &[&POST_HEADERS, headers].concat(), body).await
}

/// The body of an `initialize` request.
pub(crate) fn initialize() -> String {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()
}

/// The body of a tool call. Its progress token is its id.
pub(crate) fn call_body(id: usize, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) addr: SocketAddr,
    id: String,
    caller: String,
    /// The body of the response to `initialize`.
    pub(crate) initialize_response: String,
}

impl Session {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        Self::open_as(addr, "ada").await
    }

    pub(crate) async fn open_as(addr: SocketAddr, caller: &str) -> Self {
        let response = post(addr, &[("x-caller", caller)], &initialize()).await;
        assert_eq!(response.status, 200, "initialize: {}", response.body);
        let id = response.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let session = Session {
            addr,
            id: id.expect("a session id").to_owned(),
            caller: caller.to_owned(),
            initialize_response: response.body,
        };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let accepted = session.send("POST", &POST_HEADERS, initialized).await;
        assert_eq!(accepted.status, 202, "initialized");
        // rmcp handles `initialized` in a task. It has run once a later call returns.
        session.call(1, "echo", &json!({ "text": "ready" })).await;
        session
    }

    /// The same session at another address or for another caller.
    pub(crate) fn at(&self, addr: SocketAddr, caller: &str) -> Self {
        Session {
            addr,
            caller: caller.to_owned(),
            ..self.clone()
        }
    }

    /// Sends one request in this session and reads the response.
    pub(crate) async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Response {
        send(self.addr, method, &[headers, &self.headers()].concat(), body).await
    }

    /// Calls a tool and reads the response, JSON or a stream.
    pub(crate) async fn call(&self, id: usize, tool: &str, arguments: &Value) -> Response {
        self.send("POST", &POST_HEADERS, &call_body(id, tool, arguments)).await
    }

    /// Calls a tool and leaves the response unread on the connection.
    pub(crate) async fn start_call(&self, id: usize, tool: &str, arguments: &Value) -> RawConnection {
        let connection = RawConnection::open(self.addr).await.expect("a connection");
        self.send_call(connection, id, tool, arguments).await
    }

    /// Like `start_call`, with a small receive buffer.
    pub(crate) async fn start_call_with_small_buffer(&self, id: usize, tool: &str, arguments: &Value) -> RawConnection {
        let connection = RawConnection::open_narrow(self.addr, SMALL_RECEIVE_BUFFER_BYTES).await;
        self.send_call(connection.expect("a connection"), id, tool, arguments)
            .await
    }

    async fn send_call(
        &self,
        mut connection: RawConnection,
        id: usize,
        tool: &str,
        arguments: &Value,
    ) -> RawConnection {
        let headers = [&POST_HEADERS[..], &self.headers()].concat();
        let bytes = request("POST", "/mcp", &headers, call_body(id, tool, arguments).as_bytes());
        connection.send(&bytes).await.expect("the request is sent");
        connection
    }

    /// Opens a new GET stream, or resumes after a cursor.
    pub(crate) async fn get(&self, cursor: Option<&str>) -> RawConnection {
        let mut connection = RawConnection::open(self.addr).await.expect("a connection");
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(self.headers());
        headers.extend(cursor.map(|cursor| ("last-event-id", cursor)));
        let bytes = request("GET", "/mcp", &headers, b"");
        connection.send(&bytes).await.expect("the request is sent");
        read_stream_head(&mut connection).await;
        connection
    }

    fn headers(&self) -> [(&str, &str); 3] {
        [
            ("mcp-session-id", &self.id),
            ("mcp-protocol-version", "2025-11-25"),
            ("x-caller", &self.caller),
        ]
    }
}

/// Reads a response head and asserts that it starts a stream.
pub(crate) async fn read_stream_head(connection: &mut RawConnection) {
    let (status, headers) = within(connection.read_head()).await.expect("a response");
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    assert_eq!(
        (status.as_u16(), content_type),
        (200, Some("text/event-stream")),
        "a stream"
    );
}

/// Reads the first event, which has no data, and returns its id.
pub(crate) async fn read_priming_event(connection: &mut RawConnection) -> String {
    let block = connection.next_block(TEST_TIMEOUT).await.expect("a priming event");
    assert_eq!(block.data.as_deref(), Some(""), "a priming event has no data");
    block.id.expect("a priming event has an id")
}

/// The next event with data. `None` at the end of the stream.
pub(crate) async fn next(connection: &mut RawConnection) -> Option<Event> {
    let event = next_within(connection, TEST_TIMEOUT).await;
    assert!(event.is_some() || connection.ended(), "no event for {TEST_TIMEOUT:?}");
    event
}

/// The next event with data, if it arrives within the limit.
pub(crate) async fn next_within(connection: &mut RawConnection, limit: Duration) -> Option<Event> {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let block = connection.next_block(left).await?;
        if let Some(data) = block.data.filter(|data| !data.is_empty()) {
            return Some(Event {
                id: block.id.unwrap_or_default(),
                data: serde_json::from_str(&data).expect("JSON"),
            });
        }
    }
}

/// All events with data up to the end of the stream.
pub(crate) async fn rest(connection: &mut RawConnection) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = next(connection).await {
        events.push(event);
    }
    events
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(TEST_TIMEOUT, work).await;
    done.expect("done within the test timeout")
}
