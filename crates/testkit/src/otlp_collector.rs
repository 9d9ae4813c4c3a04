//! A collector of traces: an HTTP server that decodes the protobuf messages of OTLP.
//!
//! The decoder is written from the field numbers of the specification, independently of any encoder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A span that was received. Ids are hex digits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceivedSpan {
    /// The trace.
    pub trace_id: String,
    /// The span.
    pub span_id: String,
    /// Empty for the root of a trace.
    pub parent_id: String,
    /// Its name.
    pub name: String,
    /// 2 for a server, 3 for a client.
    pub kind: u64,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// Nanoseconds since 1970.
    pub end: u64,
    /// Attributes as text.
    pub attributes: BTreeMap<String, String>,
    /// Span ids of linked spans.
    pub links: Vec<String>,
    /// Whether the status is an error.
    pub is_error: bool,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

/// A running collector. It stops when dropped.
pub struct OtlpCollector {
    url: String,
    received: Arc<Mutex<Vec<ReceivedSpan>>>,
    requests: Arc<Mutex<Vec<String>>>,
    server: AbortHandle,
}

impl Drop for OtlpCollector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl OtlpCollector {
    /// Starts a collector on a free port.
    pub async fn start() -> Self {
        Self::start_with(false).await
    }

    /// Starts a collector that reads requests and never answers.
    pub async fn start_stalled() -> Self {
        Self::start_with(true).await
    }

    async fn start_with(is_stalled: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!(
            "http://{}",
            listener.local_addr().expect("a bound socket has an address")
        );
        let (received, requests) = (Arc::default(), Arc::default());
        let (spans, heads) = (Arc::clone(&received), Arc::clone(&requests));
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (spans, heads) = (Arc::clone(&spans), Arc::clone(&heads));
                tokio::spawn(async move {
                    let _ = answer(socket, &spans, &heads, is_stalled).await; // the client may have gone
                });
            }
        });
        OtlpCollector {
            url,
            received,
            requests,
            server: server.abort_handle(),
        }
    }

    /// The base URL, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The heads of all requests so far, in lower case.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no test panics here").clone()
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.received.lock().expect("no test panics here").clone()
    }

    /// Waits until `count` spans fit, for 20 s at most. Returns those that fit.
    pub async fn wait_for(&self, count: usize, fits: impl Fn(&ReceivedSpan) -> bool) -> Vec<ReceivedSpan> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut spans = self.spans();
            spans.retain(&fits);
            if spans.len() >= count || Instant::now() > deadline {
                return spans;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn answer(
    socket: TcpStream,
    spans: &Mutex<Vec<ReceivedSpan>>,
    heads: &Mutex<Vec<String>>,
    is_stalled: bool,
) -> std::io::Result<()> {
    let mut socket = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)];
    socket.read_exact(&mut body).await?;
    heads.lock().expect("no test panics here").push(head);
    if is_stalled {
        return std::future::pending().await;
    }
    let decoded = decode(&body);
    let status = if decoded.is_some() { "200 OK" } else { "400 Bad Request" };
    spans
        .lock()
        .expect("no test panics here")
        .extend(decoded.unwrap_or_default());
    let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    socket.get_mut().write_all(response.as_bytes()).await
}

/// The spans of an `ExportTraceServiceRequest`. `None` if it is malformed.
pub fn decode(request: &[u8]) -> Option<Vec<ReceivedSpan>> {
    let mut spans = Vec::new();
    for (field, value) in fields(request)? {
        let (1, Value::Bytes(resource_spans)) = (field, value) else {
            return None;
        };
        let parts = fields(resource_spans)?;
        let mut resource = BTreeMap::new();
        for (field, value) in &parts {
            if let (1, Value::Bytes(message)) = (field, value) {
                for (field, value) in fields(message)? {
                    if let (1, Value::Bytes(attribute)) = (field, value) {
                        resource.extend([key_value(attribute)?]);
                    }
                }
            }
        }
        for (field, value) in parts {
            if let (2, Value::Bytes(scope_spans)) = (field, value) {
                for (field, value) in fields(scope_spans)? {
                    if let (2, Value::Bytes(message)) = (field, value) {
                        let mut span = decode_span(message)?;
                        span.resource.clone_from(&resource);
                        spans.push(span);
                    }
                }
            }
        }
    }
    Some(spans)
}

fn decode_span(message: &[u8]) -> Option<ReceivedSpan> {
    let mut span = ReceivedSpan::default();
    for (field, value) in fields(message)? {
        match (field, value) {
            (1, Value::Bytes(id)) if id.len() == 16 => span.trace_id = hex(id),
            (2, Value::Bytes(id)) if id.len() == 8 => span.span_id = hex(id),
            (4, Value::Bytes(id)) if id.len() == 8 => span.parent_id = hex(id),
            (5, Value::Bytes(name)) => span.name = text(name)?,
            (6, Value::Number(kind)) => span.kind = kind,
            (7, Value::Fixed(time)) => span.start = time,
            (8, Value::Fixed(time)) => span.end = time,
            (9, Value::Bytes(attribute)) => span.attributes.extend([key_value(attribute)?]),
            (13, Value::Bytes(link)) => {
                for (field, value) in fields(link)? {
                    if let (2, Value::Bytes(id)) = (field, value) {
                        span.links.push(hex(id));
                    }
                }
            }
            (15, Value::Bytes(status)) => {
                let codes = fields(status)?;
                span.is_error = codes
                    .iter()
                    .any(|(field, value)| *field == 3 && *value == Value::Number(2));
            }
            _ => return None,
        }
    }
    (!span.trace_id.is_empty() && !span.span_id.is_empty()).then_some(span)
}

fn key_value(message: &[u8]) -> Option<(String, String)> {
    let (mut key, mut found) = (None, None);
    for (field, value) in fields(message)? {
        match (field, value) {
            (1, Value::Bytes(name)) => key = text(name),
            (2, Value::Bytes(any)) => {
                for (field, value) in fields(any)? {
                    found = match (field, value) {
                        (1, Value::Bytes(value)) => text(value),
                        (3, Value::Number(number)) => Some((number as i64).to_string()),
                        _ => return None,
                    };
                }
            }
            _ => return None,
        }
    }
    key.zip(found)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => {
                let (bytes, rest) = message.split_first_chunk::<8>()?;
                message = rest;
                Value::Fixed(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        found.push((tag >> 3, value));
    }
    Some(found)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
