//! MCP requests: opening a session, and requests whose id is patched in place.

use crate::load::conn::Conn;
use crate::load::expect::ID_DIGITS;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
/// Request ids. All have the same number of digits.
const REQUEST_IDS: std::ops::Range<u32> = 100_001..1_000_000;

/// Protocol revision and session mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Sessions, 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
    /// 2025-11-25 without sessions.
    Sessionless,
}

/// Address and protocol of a server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    pub(crate) dialect: Dialect,
    /// Whether responses are canned: bare hyper.
    pub(crate) canned: bool,
    /// The token of the caller.
    pub(crate) token: Option<String>,
}

/// A session, or none for servers without sessions.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: Option<String>,
}

impl Target {
    /// Opens a session.
    pub(crate) async fn open(&self, conn: &mut Conn) -> Result<Session> {
        if self.canned {
            // A fair comparison needs requests of the same length.
            let id = (self.dialect == Dialect::Legacy).then(|| "n-R393UFTc7XCBzS7n14ygD2".to_owned());
            return Ok(Session { id });
        }
        if self.dialect != Dialect::Legacy {
            return Ok(Session { id: None });
        }
        let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": { "name": "rethread-bench", "version": "1" },
        }});
        conn.send(&self.post(&Session { id: None }, "", &initialize.to_string()))
            .await?;
        let head = conn.head().await?;
        let answer = if head.is_stream {
            let mut answer = Vec::new();
            while let Some(event) = conn.event().await? {
                answer = event.data.to_vec();
            }
            answer
        } else {
            conn.whole(&head).await?.to_vec()
        };
        let shown = || String::from_utf8_lossy(&answer).into_owned();
        ensure!(head.status == 200, "initialize: {}: {}", head.status, shown());
        let message: Value = serde_json::from_slice(&answer).with_context(shown)?;
        ensure!(
            message["result"]["protocolVersion"] == LEGACY,
            "initialize: {}",
            shown()
        );
        let session = Session { id: head.session };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        conn.send(&self.post(&session, "", &ready.to_string())).await?;
        let head = conn.head().await?;
        ensure!(head.status == 202, "initialized: {}", head.status);
        conn.whole(&head).await?;
        Ok(session)
    }

    /// A tool call with a placeholder id.
    pub(crate) fn call(&self, session: &Session, tool: &str, arguments: &Value, progress: bool) -> Request {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if progress {
            params["_meta"] = json!({ "progressToken": "p" });
        }
        self.request(session, "tools/call", params)
    }

    /// A request with a placeholder id.
    pub(crate) fn request(&self, session: &Session, method: &str, mut params: Value) -> Request {
        let mut extra = String::new();
        if self.dialect == Dialect::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "rethread-bench", "version": "1" });
            extra = format!("mcp-method: {method}\r\n");
            if let Some(name) = params["name"].as_str() {
                extra += &format!("mcp-name: {name}\r\n");
            }
        }
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{:0ID_DIGITS$},"method":"{method}","params":{params}}}"#,
            0
        );
        let bytes = self.post(session, &extra, &body);
        let id_at = bytes.len() - body.len() + r#"{"jsonrpc":"2.0","id":"#.len();
        Request {
            bytes,
            id_at,
            id: REQUEST_IDS.start,
        }
    }

    /// A GET request that opens or resumes a stream.
    pub(crate) fn get(&self, session: &Session, after: Option<&str>) -> Vec<u8> {
        let mut head = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n",
            self.path, self.address
        );
        head += &session_headers(session);
        if let Some(after) = after {
            head += &format!("last-event-id: {after}\r\n");
        }
        (head + "\r\n").into_bytes()
    }

    fn post(&self, session: &Session, extra: &str, body: &str) -> Vec<u8> {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n",
            self.path, self.address
        );
        if let Some(token) = &self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        if self.dialect == Dialect::Modern {
            head += &format!("mcp-protocol-version: {MODERN}\r\n");
        } else {
            head += &session_headers(session);
        }
        format!("{head}{extra}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

fn session_headers(session: &Session) -> String {
    let mut headers = format!("mcp-protocol-version: {LEGACY}\r\n");
    if let Some(id) = &session.id {
        headers += &format!("mcp-session-id: {id}\r\n");
    }
    headers
}

/// A reusable request that gets a new id each time.
pub(crate) struct Request {
    bytes: Vec<u8>,
    id_at: usize,
    id: u32,
}

impl Request {
    /// The bytes and the id of the next request.
    pub(crate) fn next(&mut self) -> (&[u8], u32) {
        self.id = if self.id + 1 < REQUEST_IDS.end {
            self.id + 1
        } else {
            REQUEST_IDS.start
        };
        let mut digits = itoa::Buffer::new();
        self.bytes[self.id_at..self.id_at + ID_DIGITS].copy_from_slice(digits.format(self.id).as_bytes());
        (&self.bytes, self.id)
    }
}
