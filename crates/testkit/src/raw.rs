//! A raw HTTP/1.1 client that can break the protocol: it sends any bytes in any pieces, stops reading at any point, and
//! resets connections. A regular client cannot do this.
//!
//! ```no_run
//! # async fn example(addr: std::net::SocketAddr) -> std::io::Result<()> {
//! use rethread_testkit::raw::{RawConnection, request};
//!
//! let post = request("POST", "/mcp", &[("content-type", "application/json")], b"{}");
//! let mut half = RawConnection::open(addr).await?;
//! half.send(&post[..post.len() - 1]).await?; // the last byte is missing
//! let (status, _headers) = half.read_head().await?; // the reaction of the server
//! half.reset()?; // closes with RST
//! # let _ = status; Ok(())
//! # }
//! ```

mod chunked;

pub(crate) use chunked::Dechunker;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use rethread_proto::sse::{Block, Decoder};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

/// A longer response head is an error.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_BLOCK_BYTES: usize = 64 << 20;
const READ_BYTES: usize = 16 << 10;

/// The bytes of a request. Adds `host` and `content-length` unless `headers` contains them. They may be wrong.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let mut line = |name: &str, value: &str| bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    if !given("host") {
        line("host", "localhost");
    }
    for (name, value) in headers {
        line(name, value);
    }
    let unsized_body = body.is_empty() && matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS");
    if !given("content-length") && !given("transfer-encoding") && !unsized_body {
        line("content-length", &body.len().to_string());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// A TCP connection with a read buffer.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    body: Framing,
    decoder: Decoder,
    blocks: VecDeque<Block>,
    ended: bool,
}

/// How the end of a body is determined.
#[derive(Debug)]
enum Framing {
    Length(usize),
    Chunked(Dechunker),
    UntilClosed,
}

impl RawConnection {
    /// Connects to `addr`.
    pub async fn open(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self::from_stream(TcpStream::connect(addr).await?))
    }

    /// Connects with a receive buffer of about `bytes`. If the client does not read, the server soon blocks.
    pub async fn open_narrow(addr: SocketAddr, bytes: u32) -> io::Result<Self> {
        let socket = if addr.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_recv_buffer_size(bytes)?;
        Ok(Self::from_stream(socket.connect(addr).await?))
    }

    /// Uses an existing connection.
    pub fn from_stream(stream: TcpStream) -> Self {
        RawConnection {
            stream,
            buffer: Vec::new(),
            body: Framing::Length(0),
            decoder: Decoder::new(MAX_BLOCK_BYTES),
            blocks: VecDeque::new(),
            ended: false,
        }
    }

    /// Sends raw bytes. To stall, send only a part of a request.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends bytes in pieces of `size` with a pause between them.
    pub async fn send_slowly(&mut self, bytes: &[u8], size: usize, pause: Duration) -> io::Result<()> {
        for (n, piece) in bytes.chunks(size.max(1)).enumerate() {
            if n > 0 {
                tokio::time::sleep(pause).await;
            }
            self.send(piece).await?;
        }
        Ok(())
    }

    /// Closes the sending half of the connection.
    pub async fn shutdown_write(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Closes with RST instead of FIN. The peer loses unread bytes.
    pub fn reset(self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Reads the status and headers of the next response. Skips interim (1xx) responses.
    pub async fn read_head(&mut self) -> io::Result<(StatusCode, HeaderMap)> {
        loop {
            let end = loop {
                if let Some(end) = head_end(&self.buffer) {
                    break end;
                }
                if self.buffer.len() > MAX_HEAD_BYTES {
                    return Err(invalid("the head of the response is too long"));
                }
                if self.fill().await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            let head: Vec<u8> = self.buffer.drain(..end).collect();
            let (status, headers) = parse_head(&head)?;
            if !status.is_informational() {
                self.start_body(status, &headers)?;
                return Ok((status, headers));
            }
        }
    }

    /// Reads the rest of the body.
    pub async fn read_body_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while self.read_body(&mut body).await? {}
        Ok(body)
    }

    /// The next block of an SSE body. `None` after `limit` or at the end of the body; see [`ended`](Self::ended).
    pub async fn next_block(&mut self, limit: Duration) -> Option<Block> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(block) = self.blocks.pop_front() {
                return Some(block);
            }
            let mut part = Vec::new();
            // `read_body` is cancel-safe, so the timeout loses no bytes.
            let more = timeout_at(deadline, self.read_body(&mut part)).await.ok()?;
            let blocks = &mut self.blocks;
            self.decoder
                .feed(&part, |block| blocks.push_back(block))
                .expect("an SSE block within 64 MiB");
            if !more.unwrap_or(false) && self.blocks.is_empty() {
                self.ended = true;
                return None;
            }
        }
    }

    /// Whether the body has ended or the connection broke.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Discards input until the peer closes the connection. False if it stays open for `limit`.
    pub async fn hung_up_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            self.buffer.clear();
            match timeout_at(deadline, self.fill()).await {
                Err(_) => return false,
                Ok(Ok(0) | Err(_)) => return true,
                Ok(Ok(_)) => {}
            }
        }
    }

    /// The underlying socket.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    fn start_body(&mut self, status: StatusCode, headers: &HeaderMap) -> io::Result<()> {
        self.ended = false;
        self.decoder = Decoder::new(MAX_BLOCK_BYTES);
        self.body = if is_chunked(headers) {
            Framing::Chunked(Dechunker::default())
        } else if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            Framing::Length(0)
        } else if let Some(length) = headers.get(header::CONTENT_LENGTH) {
            let length = length.to_str().ok().and_then(|text| text.parse().ok());
            Framing::Length(length.ok_or_else(|| invalid("invalid content-length"))?)
        } else {
            Framing::UntilClosed
        };
        Ok(())
    }

    /// Moves buffered body bytes to `out`, after a read if the buffer is empty. False at the end of the body.
    async fn read_body(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        match &self.body {
            Framing::Length(0) => return Ok(false),
            Framing::Chunked(chunks) if chunks.is_done() => return Ok(false),
            _ => {}
        }
        if self.buffer.is_empty() && self.fill().await? == 0 {
            return match self.body {
                Framing::UntilClosed => Ok(false),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let used = match &mut self.body {
            Framing::UntilClosed => {
                out.extend_from_slice(&self.buffer);
                self.buffer.len()
            }
            Framing::Length(left) => {
                let used = self.buffer.len().min(*left);
                out.extend_from_slice(&self.buffer[..used]);
                *left -= used;
                used
            }
            Framing::Chunked(chunks) => chunks.feed(&self.buffer, |data| out.extend_from_slice(data))?,
        };
        self.buffer.drain(..used);
        Ok(true)
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.buffer).await
    }
}

/// Sends one request on a new connection and reads the response.
pub async fn exchange(addr: SocketAddr, request: &[u8]) -> io::Result<(StatusCode, HeaderMap, Vec<u8>)> {
    let mut connection = RawConnection::open(addr).await?;
    connection.send(request).await?;
    let (status, headers) = connection.read_head().await?;
    let body = connection.read_body_to_end().await?;
    Ok((status, headers, body))
}

/// The length of the head including its blank line.
pub(crate) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Parses the head of a response.
pub(crate) fn parse_head(head: &[u8]) -> io::Result<(StatusCode, HeaderMap)> {
    let text = std::str::from_utf8(head).map_err(|_| invalid("the response head is not UTF-8"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| invalid("missing status line"))?;
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("header without a colon"))?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("invalid header name"))?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| invalid("invalid header value"))?;
        headers.append(name, value);
    }
    Ok((status, headers))
}

/// Whether a body has chunked encoding.
pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::TRANSFER_ENCODING)
        .and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.to_ascii_lowercase().ends_with("chunked"))
}

pub(crate) fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_adds_content_length_unless_given() {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let post = text(request("POST", "/mcp", &[("accept", "*/*")], b"{}"));
        assert_eq!(
            post,
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-length: 2\r\n\r\n{}"
        );
        let wrong = text(request("POST", "/", &[("Content-Length", "9")], b"{}"));
        assert!(wrong.contains("Content-Length: 9") && !wrong.contains("content-length"));
        assert!(!text(request("GET", "/", &[], b"")).contains("content-length"));
    }
}
