//! The client of the story: HTTP requests over loopback, one connection each.

use crate::http_client::{self, ClientError, SocketGuard};
use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use rethread_proto::gate::head::header::{LAST_EVENT_ID, MCP_PROTOCOL_VERSION, MCP_SESSION_ID};
use rethread_proto::sse::{Block, Decoder};
use rethread_proto::version::Version;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// How long the gateway may take for a response or for the next event. Beyond: the demo fails.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest event that the client accepts.
const MAX_EVENT_BYTES: usize = 64 << 10;

/// A session with the gateway.
pub(super) struct DemoClient {
    address: SocketAddr,
    pub(super) session: String,
    last_request_id: u64,
}

/// An event of a stream.
#[derive(Clone, Debug)]
pub(super) struct StreamEvent {
    pub(super) id: String,
    /// `None` for the event that only opens the stream.
    pub(super) message: Option<Value>,
}

/// One connection that reads a stream. Dropping it closes the socket.
pub(super) struct EventConnection {
    body: Incoming,
    decoder: Decoder,
    blocks: VecDeque<Block>,
    _socket: SocketGuard,
}

impl DemoClient {
    /// Opens a session.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, ClientError> {
        let mut client = DemoClient {
            address,
            session: String::new(),
            last_request_id: 0,
        };
        let params = json!({
            "protocolVersion": Version::V2025_11_25.as_str(),
            "capabilities": {},
            "clientInfo": { "name": "rethread-demo-client", "version": env!("CARGO_PKG_VERSION") },
        });
        let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let (response, _socket) = client.send(Method::POST, &[], initialize.to_string()).await?;
        let session = response
            .headers()
            .get(&MCP_SESSION_ID)
            .ok_or("the gateway opened no session")?;
        client.session = session.to_str()?.to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        client.send(Method::POST, &[], initialized.to_string()).await?;
        Ok(client)
    }

    /// Starts a countdown. Returns its stream and the id of the request.
    pub(super) async fn countdown(&mut self, seconds: u64) -> Result<(EventConnection, u64), ClientError> {
        self.last_request_id += 1;
        let id = self.last_request_id;
        let params = json!({
            "name": "countdown",
            "arguments": { "seconds": seconds },
            "_meta": { "progressToken": id },
        });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let sent = self.send(Method::POST, &[], call.to_string()).await?;
        Ok((EventConnection::new(sent), id))
    }

    /// Reads a stream from the event after `cursor`.
    pub(super) async fn resume(&self, cursor: &str) -> Result<EventConnection, ClientError> {
        let sent = self
            .send(Method::GET, &[(&LAST_EVENT_ID, cursor)], String::new())
            .await?;
        Ok(EventConnection::new(sent))
    }

    /// Sends a request on a new connection. Any status but success is an error.
    async fn send(
        &self,
        method: Method,
        headers: &[(&HeaderName, &str)],
        body: String,
    ) -> Result<(Response<Incoming>, SocketGuard), ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header(header::HOST, self.address.to_string())
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header(header::CONTENT_TYPE, "application/json");
        if !self.session.is_empty() {
            request = request
                .header(&MCP_SESSION_ID, &self.session)
                .header(&MCP_PROTOCOL_VERSION, Version::V2025_11_25.as_str());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::<Bytes>::from(body))?;
        let sent = http_client::send(self.address, request);
        let (response, guard) = timeout(RESPONSE_TIMEOUT, sent).await??;
        match response.status() {
            StatusCode::OK | StatusCode::ACCEPTED => Ok((response, guard)),
            status => Err(format!("the gateway answered {status}").into()),
        }
    }
}

impl EventConnection {
    fn new((response, socket): (Response<Incoming>, SocketGuard)) -> Self {
        EventConnection {
            body: response.into_body(),
            decoder: Decoder::new(MAX_EVENT_BYTES),
            blocks: VecDeque::new(),
            _socket: socket,
        }
    }

    /// The next event. `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        timeout(RESPONSE_TIMEOUT, self.read()).await?
    }

    async fn read(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        loop {
            while let Some(block) = self.blocks.pop_front() {
                // A block without an id sets `retry` or keeps the connection alive.
                let Some(id) = block.id else { continue };
                let data = block.data.filter(|data| !data.is_empty());
                let message = data.map(|data| serde_json::from_str(&data)).transpose()?;
                return Ok(Some(StreamEvent { id, message }));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(chunk) = frame?.into_data() {
                self.decoder.feed(&chunk, |block| self.blocks.push_back(block))?;
            }
        }
    }
}
