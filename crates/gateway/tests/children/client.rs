//! An MCP client that sends each request on a connection of its own.

use http::{HeaderMap, StatusCode};
use rethread_testkit::raw::{RawConnection, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// The longest that anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const LATEST: &str = "2025-11-25";
const BOTH: &str = "application/json, text/event-stream";

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) addr: SocketAddr,
    prefix: String,
}

/// An answer whose body is yet to be read.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    connection: RawConnection,
    last_id: Option<String>,
}

/// A session.
#[derive(Clone)]
pub(crate) struct Session {
    client: Client,
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) hello: Value,
}

impl Client {
    pub(crate) fn new(addr: SocketAddr, prefix: &str) -> Self {
        Client {
            addr,
            prefix: prefix.to_owned(),
        }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let path = format!("{}{path}", self.prefix);
        let sending = async {
            let mut connection = RawConnection::open(self.addr).await?;
            connection.send(&request(method, &path, headers, body)).await?;
            let (status, headers) = connection.read_head().await?;
            Ok::<_, std::io::Error>(Reply {
                status,
                headers,
                connection,
                last_id: None,
            })
        };
        let sent = tokio::time::timeout(PATIENCE, sending).await;
        sent.expect("an answer begins in time").expect("an answer comes")
    }

    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: &Value) -> Reply {
        let mut all = vec![("content-type", "application/json"), ("accept", BOTH)];
        all.extend_from_slice(headers);
        self.send("POST", "/mcp", &all, body.to_string().as_bytes()).await
    }

    /// Sends `initialize`; says what came of it.
    pub(crate) async fn initialize(&self, version: &str) -> Reply {
        let capabilities = json!({ "sampling": {}, "roots": { "listChanged": true } });
        let params = json!({ "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1", "own": "words" } });
        let hello = json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params });
        self.post(&[], &hello).await
    }

    /// Opens a session.
    pub(crate) async fn open(&self, version: &str) -> Session {
        let reply = self.initialize(version).await;
        assert_eq!(reply.status, StatusCode::OK);
        let id = reply
            .headers
            .get("mcp-session-id")
            .map(|id| id.to_str().unwrap().to_owned());
        let hello = reply.answer().await;
        let session = Session {
            client: self.clone(),
            id: id.unwrap_or_else(|| panic!("no session: {hello}")),
            version: hello["result"]["protocolVersion"].as_str().unwrap().to_owned(),
            hello,
        };
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&note).await.status, StatusCode::ACCEPTED);
        session
    }

    /// A request of 2026-07-28, with `more` headers.
    pub(crate) async fn stateless(&self, id: Value, method: &str, params: Value, more: &[(&str, &str)]) -> Reply {
        let (headers, body) = rethread_testkit::client::stateless(&id, method, params, json!({}));
        let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend_from_slice(more);
        self.post(&all, &body).await
    }

    /// Calls a tool of a stateless server, and returns its answer.
    pub(crate) async fn tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.stateless(id.into(), "tools/call", params, &[])
            .await
            .answer()
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").await
    }
}

impl Session {
    /// The same session at a gateway that was started again.
    pub(crate) fn at(&self, addr: SocketAddr) -> Session {
        let mut session = self.clone();
        session.client.addr = addr;
        session
    }

    /// The child's pid, as its answer to `initialize` tells it.
    pub(crate) fn first_pid(&self) -> u32 {
        let words = self.hello["result"]["instructions"].as_str().unwrap();
        words.strip_prefix("pid ").unwrap().parse().unwrap()
    }

    pub(crate) async fn raw(&self, method: &str, more: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut headers = vec![("mcp-session-id", self.id.as_str()), ("accept", BOTH)];
        if self.version.as_str() >= "2025-06-18" {
            headers.push(("mcp-protocol-version", self.version.as_str()));
        }
        if method == "POST" {
            headers.push(("content-type", "application/json"));
        }
        headers.extend_from_slice(more);
        self.client.send(method, "/mcp", &headers, body).await
    }

    pub(crate) async fn post(&self, body: &Value) -> Reply {
        self.raw("POST", &[], body.to_string().as_bytes()).await
    }

    pub(crate) async fn call(&self, id: impl Into<Value>, method: &str, params: Value) -> Reply {
        let body = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.post(&body).await
    }

    /// Calls a tool with progress, and leaves the answer to be read.
    pub(crate) async fn begin(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Reply {
        let params = json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": "mine" } });
        self.call(id, "tools/call", params).await
    }

    /// Calls a tool, and returns its answer.
    pub(crate) async fn tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.call(id, "tools/call", params).await.answer().await
    }

    /// The pid of the child that answers now.
    pub(crate) async fn pid(&self) -> u64 {
        said(&self.tool("pid", "echo", json!({})).await)["pid"]
            .as_u64()
            .unwrap()
    }

    pub(crate) async fn resume(&self, cursor: &str) -> Reply {
        self.raw("GET", &[("last-event-id", cursor)], b"").await
    }

    pub(crate) async fn listen(&self) -> Reply {
        self.raw("GET", &[], b"").await
    }

    pub(crate) async fn delete(&self) -> StatusCode {
        self.raw("DELETE", &[], b"").await.status
    }
}

impl Reply {
    pub(crate) fn is_stream(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
    }

    /// The next message of a stream; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        assert!(self.is_stream(), "{} {:?} is a stream", self.status, self.headers);
        loop {
            let block = self.connection.next_block(PATIENCE).await;
            let Some(block) = block else {
                assert!(self.connection.ended(), "a message comes in time");
                return None;
            };
            if block.id.is_some() {
                self.last_id = block.id;
            }
            if let Some(data) = block.data.filter(|data| !data.is_empty()) {
                return Some(serde_json::from_str(&data).unwrap_or(Value::String(data)));
            }
        }
    }

    /// The id of the last event: what a client resumes from.
    pub(crate) fn cursor(&self) -> String {
        self.last_id.clone().expect("an event had an id")
    }

    /// Every message until the end.
    pub(crate) async fn messages(mut self) -> Vec<Value> {
        if !self.is_stream() {
            return vec![self.answer().await];
        }
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    /// The whole body as text.
    pub(crate) async fn text(mut self) -> String {
        let body = tokio::time::timeout(PATIENCE, self.connection.read_body_to_end()).await;
        String::from_utf8(body.expect("a body ends in time").unwrap()).unwrap()
    }

    /// The last message, whatever the form of the answer.
    pub(crate) async fn answer(self) -> Value {
        if self.is_stream() {
            return Box::pin(self.messages())
                .await
                .pop()
                .expect("a stream ends with an answer");
        }
        let (status, text) = (self.status, self.text().await);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: not JSON: {text}"))
    }
}

/// What a tool of the fake child said.
pub(crate) fn said(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no text in {answer}"));
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
