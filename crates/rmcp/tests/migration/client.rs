//! A client of 2025-11-25 over plain sockets, which reads as much as it likes, when it likes.

use http::{HeaderMap, StatusCode};
use rethread_testkit::raw::{RawConnection, exchange, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// Nothing takes this long, not even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait for what should not come.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// A client that does not read has this much room for what comes.
const NARROW: u32 = 4 << 10;

const POSTED: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

/// An event that says something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Event {
    /// The step that progress is about.
    pub(crate) fn step(&self) -> Option<u64> {
        let progress = self.data["params"]["progress"].as_f64()?;
        Some(progress as u64)
    }

    /// What a log message says.
    pub(crate) fn logged(&self) -> Option<&str> {
        self.data["params"]["data"].as_str()
    }

    /// The text of a tool's result.
    pub(crate) fn text(&self) -> Option<&str> {
        self.data["result"]["content"][0]["text"].as_str()
    }
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn kind(&self) -> &str {
        let kind = self.headers.get("content-type").and_then(|kind| kind.to_str().ok());
        kind.unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON: {}", self.body))
    }
}

/// Sends a request of its own, outside of any session.
pub(crate) async fn send(addr: SocketAddr, method: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let bytes = request(method, "/mcp", headers, body.as_bytes());
    let (status, headers, body) = within(exchange(addr, &bytes)).await.expect("an answer");
    let body = String::from_utf8(body).expect("text");
    Answer { status, headers, body }
}

/// POSTs outside of any session.
pub(crate) async fn post(addr: SocketAddr, headers: &[(&str, &str)], body: &str) -> Answer {
    send(addr, "POST", &[&POSTED, headers].concat(), body).await
}

/// `initialize`.
pub(crate) fn hello() -> String {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()
}

/// A call of a tool, with its own id as progress token.
pub(crate) fn call(id: usize, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// A session.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) addr: SocketAddr,
    id: String,
    caller: String,
    /// The whole answer to `initialize`.
    pub(crate) hello: String,
}

impl Session {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        Self::open_as(addr, "ada").await
    }

    pub(crate) async fn open_as(addr: SocketAddr, caller: &str) -> Self {
        let answer = post(addr, &[("x-caller", caller)], &hello()).await;
        assert_eq!(answer.status, 200, "initialize succeeds: {}", answer.body);
        let id = answer.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let session = Session {
            addr,
            id: id.expect("a session id").to_owned(),
            caller: caller.to_owned(),
            hello: answer.body,
        };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let accepted = session.send("POST", &POSTED, initialized).await;
        assert_eq!(accepted.status, 202, "initialized is accepted");
        // What comes first may be worked on first: the server has heard of it when it has answered something else.
        session.answer(1, "echo", &json!({ "text": "ready" })).await;
        session
    }

    /// The same session at another address, or in another's hands.
    pub(crate) fn at(&self, addr: SocketAddr, caller: &str) -> Self {
        Session {
            addr,
            caller: caller.to_owned(),
            ..self.clone()
        }
    }

    /// One request in this session, and the whole answer.
    pub(crate) async fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        send(self.addr, method, &[headers, &self.headers()].concat(), body).await
    }

    /// Calls a tool, and reads the whole answer, whatever form it has.
    pub(crate) async fn answer(&self, id: usize, tool: &str, arguments: &Value) -> Answer {
        self.send("POST", &POSTED, &call(id, tool, arguments)).await
    }

    /// Calls a tool, and leaves the answer on the connection.
    pub(crate) async fn call(&self, id: usize, tool: &str, arguments: &Value) -> RawConnection {
        let connection = RawConnection::open(self.addr).await.expect("the server is there");
        self.call_on(connection, id, tool, arguments).await
    }

    /// The same over a connection that holds next to nothing of what is not read.
    pub(crate) async fn call_narrow(&self, id: usize, tool: &str, arguments: &Value) -> RawConnection {
        let connection = RawConnection::open_narrow(self.addr, NARROW).await;
        self.call_on(connection.expect("the server is there"), id, tool, arguments)
            .await
    }

    async fn call_on(&self, mut connection: RawConnection, id: usize, tool: &str, arguments: &Value) -> RawConnection {
        let headers = [&POSTED[..], &self.headers()].concat();
        let bytes = request("POST", "/mcp", &headers, call(id, tool, arguments).as_bytes());
        connection.send(&bytes).await.expect("the server takes it");
        connection
    }

    /// Opens a stream of its own, or behind a cursor.
    pub(crate) async fn get(&self, cursor: Option<&str>) -> RawConnection {
        let mut connection = RawConnection::open(self.addr).await.expect("the server is there");
        let mut headers = vec![("accept", "text/event-stream")];
        headers.extend(self.headers());
        headers.extend(cursor.map(|cursor| ("last-event-id", cursor)));
        let bytes = request("GET", "/mcp", &headers, b"");
        connection.send(&bytes).await.expect("the server takes it");
        opened(&mut connection).await;
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

/// Reads the head of an answer that must be a stream.
pub(crate) async fn opened(connection: &mut RawConnection) {
    let (status, headers) = within(connection.read_head()).await.expect("an answer");
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok());
    assert_eq!((status.as_u16(), kind), (200, Some("text/event-stream")), "a stream");
}

/// The id of the event that says nothing, with which a stream begins.
pub(crate) async fn primed(connection: &mut RawConnection) -> String {
    let block = connection.next_block(PATIENCE).await.expect("a priming event");
    assert_eq!(block.data.as_deref(), Some(""), "it says nothing");
    block.id.expect("it has an id")
}

/// The next event that says something. `None` at the end of the stream.
pub(crate) async fn next(connection: &mut RawConnection) -> Option<Event> {
    let event = next_within(connection, PATIENCE).await;
    assert!(event.is_some() || connection.ended(), "silence for {PATIENCE:?}");
    event
}

/// The next event that says something, if it comes in time.
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

/// All events that say something, to the end of the stream.
pub(crate) async fn rest(connection: &mut RawConnection) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = next(connection).await {
        events.push(event);
    }
    events
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.expect("it does not take this long")
}
