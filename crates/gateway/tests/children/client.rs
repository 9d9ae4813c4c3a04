//! An MCP client that opens a connection for each request.

use http::{HeaderMap, StatusCode};
use rethread_testkit::raw::{RawConnection, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a response or an event may take.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const LATEST: &str = "2025-11-25";
const BOTH: &str = "application/json, text/event-stream";

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) addr: SocketAddr,
    prefix: String,
    /// The values of `Authorization` headers.
    authorization: Vec<String>,
    /// Appended to the query of every request.
    query: Option<String>,
}

/// A response with an unread body.
pub(crate) struct HttpReply {
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
    pub(crate) initialize_response: Value,
}

impl Client {
    pub(crate) fn new(addr: SocketAddr, prefix: &str) -> Self {
        Client {
            addr,
            prefix: prefix.to_owned(),
            authorization: Vec::new(),
            query: None,
        }
    }

    /// The same client with a bearer token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        self.with_authorization(&[&format!("Bearer {token}")])
    }

    /// The same client with these `Authorization` headers.
    pub(crate) fn with_authorization(&self, values: &[&str]) -> Self {
        Client {
            authorization: values.iter().map(|value| (*value).to_owned()).collect(),
            ..self.clone()
        }
    }

    /// The same client with a further parameter in the query.
    pub(crate) fn with_query(&self, parameter: &str) -> Self {
        Client {
            query: Some(parameter.to_owned()),
            ..self.clone()
        }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
        let mut path = format!("{}{path}", self.prefix);
        if let Some(parameter) = &self.query {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(parameter);
        }
        let mut headers = headers.to_vec();
        headers.extend(self.authorization.iter().map(|value| ("authorization", value.as_str())));
        let headers = &headers;
        let sending = async {
            let mut connection = RawConnection::open(self.addr).await?;
            connection.send(&request(method, &path, headers, body)).await?;
            let (status, headers) = connection.read_head().await?;
            Ok::<_, std::io::Error>(HttpReply {
                status,
                headers,
                connection,
                last_id: None,
            })
        };
        let sent = tokio::time::timeout(RESPONSE_TIMEOUT, sending).await;
        sent.expect("a response begins in time").expect("a response comes")
    }

    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: &Value) -> HttpReply {
        let mut all = vec![("content-type", "application/json"), ("accept", BOTH)];
        all.extend_from_slice(headers);
        self.send("POST", "/mcp", &all, body.to_string().as_bytes()).await
    }

    /// Sends `initialize`.
    pub(crate) async fn initialize(&self, version: &str) -> HttpReply {
        let capabilities = json!({ "sampling": {}, "roots": { "listChanged": true } });
        self.initialize_with(version, capabilities).await
    }

    async fn initialize_with(&self, version: &str, capabilities: Value) -> HttpReply {
        let params = json!({ "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1", "own": "words" } });
        let request = json!({ "jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params });
        self.post(&[], &request).await
    }

    /// Opens a session.
    pub(crate) async fn open_session(&self, version: &str) -> Session {
        let reply = self.initialize(version).await;
        self.opened(reply).await
    }

    /// Opens a session of a client with these capabilities.
    pub(crate) async fn open_session_with(&self, version: &str, capabilities: Value) -> Session {
        let reply = self.initialize_with(version, capabilities).await;
        self.opened(reply).await
    }

    async fn opened(&self, reply: HttpReply) -> Session {
        assert_eq!(reply.status, StatusCode::OK);
        let id = reply
            .headers
            .get("mcp-session-id")
            .map(|id| id.to_str().unwrap().to_owned());
        let initialize_response = reply.response().await;
        let version = &initialize_response["result"]["protocolVersion"];
        let session = Session {
            client: self.clone(),
            id: id.unwrap_or_else(|| panic!("no session: {initialize_response}")),
            version: version.as_str().unwrap().to_owned(),
            initialize_response,
        };
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&note).await.status, StatusCode::ACCEPTED);
        session
    }

    /// A request of 2026-07-28, with `more` headers.
    pub(crate) async fn stateless(&self, id: Value, method: &str, params: Value, more: &[(&str, &str)]) -> HttpReply {
        let (headers, body) = rethread_testkit::client::stateless(&id, method, params, json!({}));
        let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend_from_slice(more);
        self.post(&all, &body).await
    }

    /// Calls a tool of a stateless server, and returns the response.
    pub(crate) async fn call_tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.stateless(id.into(), "tools/call", params, &[])
            .await
            .response()
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpReply {
        self.send("GET", path, &[], b"").await
    }

    /// Opens the stream of an HTTP+SSE session. Returns it with the path for messages.
    pub(crate) async fn open_sse(&self) -> (HttpReply, String) {
        let accept = [("accept", "text/event-stream")];
        let mut stream = self.send("GET", "/sse", &accept, b"").await;
        let Some(Value::String(path)) = stream.next().await else {
            panic!("the first event names an endpoint")
        };
        (stream, path)
    }

    /// Sends a message of an HTTP+SSE session.
    pub(crate) async fn post_sse(&self, path: &str, body: Value) {
        let headers = [("content-type", "application/json")];
        let reply = self.send("POST", path, &headers, body.to_string().as_bytes()).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED);
    }
}

impl Session {
    /// The same session at a restarted gateway.
    pub(crate) fn at_address(&self, addr: SocketAddr) -> Session {
        let mut session = self.clone();
        session.client.addr = addr;
        session
    }

    /// The same session with another client.
    pub(crate) fn with_client(&self, client: &Client) -> Session {
        Session {
            client: client.clone(),
            ..self.clone()
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The negotiated version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The pid of the first child, from its result of `initialize`.
    pub(crate) fn first_pid(&self) -> u32 {
        let words = self.initialize_response["result"]["instructions"].as_str().unwrap();
        words.strip_prefix("pid ").unwrap().parse().unwrap()
    }

    pub(crate) async fn raw(&self, method: &str, more: &[(&str, &str)], body: &[u8]) -> HttpReply {
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

    pub(crate) async fn post(&self, body: &Value) -> HttpReply {
        self.raw("POST", &[], body.to_string().as_bytes()).await
    }

    pub(crate) async fn call(&self, id: impl Into<Value>, method: &str, params: Value) -> HttpReply {
        let body = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.post(&body).await
    }

    /// Starts a tool call with progress.
    pub(crate) async fn start_tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> HttpReply {
        let params = json!({ "name": name, "arguments": arguments, "_meta": { "progressToken": "mine" } });
        self.call(id, "tools/call", params).await
    }

    /// Calls a tool, and returns the response.
    pub(crate) async fn call_tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.call(id, "tools/call", params).await.response().await
    }

    /// The pid of the current child.
    pub(crate) async fn child_pid(&self) -> u64 {
        tool_result(&self.call_tool("pid", "echo", json!({})).await)["pid"]
            .as_u64()
            .unwrap()
    }

    pub(crate) async fn resume(&self, cursor: &str) -> HttpReply {
        self.raw("GET", &[("last-event-id", cursor)], b"").await
    }

    pub(crate) async fn listen(&self) -> HttpReply {
        self.raw("GET", &[], b"").await
    }

    pub(crate) async fn delete(&self) -> StatusCode {
        self.raw("DELETE", &[], b"").await.status
    }
}

impl HttpReply {
    pub(crate) fn is_stream(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
    }

    /// The next message of a stream; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        assert!(self.is_stream(), "{} {:?} is a stream", self.status, self.headers);
        loop {
            let block = self.connection.next_block(RESPONSE_TIMEOUT).await;
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

    /// The name and the data of the next event of a stream that has names.
    pub(crate) async fn next_named(&mut self) -> Option<(String, Value)> {
        loop {
            let block = self.connection.next_block(RESPONSE_TIMEOUT).await?;
            if let Some((name, data)) = block.event.zip(block.data) {
                return Some((name, serde_json::from_str(&data).unwrap()));
            }
        }
    }

    /// The id of the last event, if it had one.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The id of the last event.
    pub(crate) fn cursor(&self) -> String {
        self.last_id.clone().expect("an event had an id")
    }

    /// All messages until the end.
    pub(crate) async fn messages(mut self) -> Vec<Value> {
        if !self.is_stream() {
            return vec![self.response().await];
        }
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    /// The whole body as text.
    pub(crate) async fn text(mut self) -> String {
        let body = tokio::time::timeout(RESPONSE_TIMEOUT, self.connection.read_body_to_end()).await;
        String::from_utf8(body.expect("a body ends in time").unwrap()).unwrap()
    }

    /// The JSON body, or the last message of a stream.
    pub(crate) async fn response(self) -> Value {
        if self.is_stream() {
            return Box::pin(self.messages())
                .await
                .pop()
                .expect("a stream ends with a response");
        }
        let (status, text) = (self.status, self.text().await);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}: not JSON: {text}"))
    }
}

/// The result of a tool of the fake child.
pub(crate) fn tool_result(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no text in {answer}"));
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
