//! A session over plain sockets. Tests decide when it reads.

use crate::server::ServerProcess;
use rethread_testkit::raw::{RawConnection, exchange, request};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Longer than any step takes on a busy machine.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Receive buffer of a client that does not read.
const SMALL_RECEIVE_BUFFER_BYTES: u32 = 4 << 10;

/// A session of 2025-11-25.
pub(super) struct Session {
    addr: SocketAddr,
    id: String,
}

/// An event with an id.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) data: String,
}

impl Session {
    pub(super) async fn open(server: &ServerProcess) -> Self {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#
            .to_owned()
            + r#""capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
        let hello = request("POST", "/mcp", &POST_HEADERS, hello.as_bytes());
        let answer = within(exchange(server.addr(), &hello)).await;
        let (status, headers, _) = answer.expect("the server is there");
        assert_eq!(status, 200, "initialize");
        let id = headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let session = Session {
            addr: server.addr(),
            id: id.expect("a session id").to_owned(),
        };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let bytes = session.request("POST", &POST_HEADERS, initialized);
        let accepted = within(exchange(session.addr, &bytes)).await;
        assert_eq!(accepted.expect("the server is there").0, 202, "initialized is accepted");
        session
    }

    /// Calls a tool and leaves the response on the connection. The progress token is the request id.
    pub(super) async fn call(&self, id: usize, tool: &str, arguments: &str) -> RawConnection {
        let connection = RawConnection::open(self.addr).await;
        self.call_on(connection.expect("the server is there"), id, tool, arguments)
            .await
    }

    /// Like `call`, with a small receive buffer.
    pub(super) async fn call_with_small_buffer(&self, id: usize, tool: &str, arguments: &str) -> RawConnection {
        let connection = RawConnection::open_narrow(self.addr, SMALL_RECEIVE_BUFFER_BYTES).await;
        self.call_on(connection.expect("the server is there"), id, tool, arguments)
            .await
    }

    async fn call_on(&self, mut connection: RawConnection, id: usize, tool: &str, arguments: &str) -> RawConnection {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let bytes = self.request("POST", &POST_HEADERS, &body);
        connection.send(&bytes).await.expect("the server takes it");
        connection
    }

    /// Calls a tool and reads the whole response, JSON or a stream.
    pub(super) async fn answer(&self, id: usize, tool: &str, arguments: &str) -> String {
        let mut connection = self.call(id, tool, arguments).await;
        let (status, _) = within(connection.read_head()).await.expect("an answer");
        assert_eq!(status, 200, "{tool} is called");
        let body = within(connection.read_body_to_end()).await.expect("the whole answer");
        String::from_utf8(body).expect("text")
    }

    /// Opens a new GET stream, or resumes after a cursor.
    pub(super) async fn get(&self, cursor: Option<&str>) -> RawConnection {
        let connection = RawConnection::open(self.addr).await;
        self.get_on(connection.expect("the server is there"), cursor).await
    }

    /// Opens a GET stream with a small receive buffer.
    pub(super) async fn get_with_small_buffer(&self) -> RawConnection {
        let connection = RawConnection::open_narrow(self.addr, SMALL_RECEIVE_BUFFER_BYTES).await;
        self.get_on(connection.expect("the server is there"), None).await
    }

    async fn get_on(&self, mut connection: RawConnection, cursor: Option<&str>) -> RawConnection {
        let cursor = cursor.map(|cursor| ("last-event-id", cursor));
        let headers: Vec<_> = [("accept", "text/event-stream")].into_iter().chain(cursor).collect();
        let bytes = self.request("GET", &headers, "");
        connection.send(&bytes).await.expect("the server takes it");
        read_stream_head(&mut connection).await;
        connection
    }

    fn request(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        let session = [
            ("mcp-session-id", self.id.as_str()),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        request(method, "/mcp", &[headers, &session].concat(), body.as_bytes())
    }
}

const POST_HEADERS: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

/// Reads a response head and asserts that it starts a stream.
pub(super) async fn read_stream_head(connection: &mut RawConnection) {
    let (status, headers) = within(connection.read_head()).await.expect("an answer");
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok());
    assert_eq!((status.as_u16(), kind), (200, Some("text/event-stream")), "a stream");
}

/// The next event with an id, including the priming event. `None` at the end of the stream.
pub(super) async fn next(connection: &mut RawConnection) -> Option<Event> {
    let deadline = Instant::now() + STEP_TIMEOUT; // for all blocks together: keep-alives do not extend it
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(block) = connection.next_block(left).await else {
            assert!(connection.ended(), "no event for {STEP_TIMEOUT:?}");
            return None;
        };
        if let (Some(id), Some(data)) = (block.id, block.data) {
            return Some(Event { id, data });
        }
    }
}

/// All events with data up to the end of the stream.
pub(super) async fn rest(connection: &mut RawConnection) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = next(connection).await {
        if !event.data.is_empty() {
            events.push(event);
        }
    }
    events
}

pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(STEP_TIMEOUT, work).await.expect("within the step timeout")
}
