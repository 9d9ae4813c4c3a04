//! A raw HTTP/1.1 client for misbehaving on purpose: it sends any bytes, in any pieces, reads as little as it likes,
//! and hangs up as rudely as it likes. A well-behaved client cannot do these things.
//!
//! ```no_run
//! # async fn example(addr: std::net::SocketAddr) -> std::io::Result<()> {
//! use rethread_testkit::raw::{RawConnection, request};
//!
//! let post = request("POST", "/mcp", &[("content-type", "application/json")], b"{}");
//! let mut half = RawConnection::open(addr).await?;
//! half.send(&post[..post.len() - 1]).await?; // the last byte never comes
//! let (status, _headers) = half.read_head().await?; // what does the server do about it?
//! half.reset()?; // hangs up with RST
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

/// A head longer than this is no head.
pub(crate) const MAX_HEAD: usize = 64 << 10;
const MAX_BLOCK: usize = 64 << 20;
const READ: usize = 16 << 10;

/// The bytes of a request. `host` and `content-length` are added unless they are given; a `content-length` that lies is
/// the caller's right.
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

/// One TCP connection, and what was read from it but not yet taken.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    body: Framing,
    decoder: Decoder,
    blocks: VecDeque<Block>,
    ended: bool,
}

/// How the end of a body is found.
#[derive(Debug)]
enum Framing {
    Length(usize),
    Chunked(Dechunker),
    UntilClosed,
}

impl RawConnection {
    /// Connects.
    pub async fn open(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(TcpStream::connect(addr).await?))
    }

    /// Connects with a receive buffer of about `bytes`: a client that then does not read is felt by the server at once,
    /// not after the megabytes that the system would hold for it.
    pub async fn open_narrow(addr: SocketAddr, bytes: u32) -> io::Result<Self> {
        let socket = if addr.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_recv_buffer_size(bytes)?;
        Ok(Self::over(socket.connect(addr).await?))
    }

    /// Speaks over a connection that exists.
    pub fn over(stream: TcpStream) -> Self {
        RawConnection {
            stream,
            buffer: Vec::new(),
            body: Framing::Length(0),
            decoder: Decoder::new(MAX_BLOCK),
            blocks: VecDeque::new(),
            ended: false,
        }
    }

    /// Sends bytes as they are. Send a part of a request and do nothing more to stall.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends bytes in pieces of `size`, with a pause before each but the first.
    pub async fn send_slowly(&mut self, bytes: &[u8], size: usize, pause: Duration) -> io::Result<()> {
        for (n, piece) in bytes.chunks(size.max(1)).enumerate() {
            if n > 0 {
                tokio::time::sleep(pause).await;
            }
            self.send(piece).await?;
        }
        Ok(())
    }

    /// Says that nothing more will be sent, and goes on listening.
    pub async fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Hangs up with RST instead of FIN: the peer loses what it has not read yet.
    pub fn reset(self) -> io::Result<()> {
        self.stream.set_zero_linger()
    }

    /// Reads the status line and the headers of the next response; interim (1xx) responses are passed over.
    pub async fn read_head(&mut self) -> io::Result<(StatusCode, HeaderMap)> {
        loop {
            let end = loop {
                if let Some(end) = head_end(&self.buffer) {
                    break end;
                }
                if self.buffer.len() > MAX_HEAD {
                    return Err(bad("the head of the response is too long"));
                }
                if self.fill().await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            let head: Vec<u8> = self.buffer.drain(..end).collect();
            let (status, headers) = parse_head(&head)?;
            if !status.is_informational() {
                self.begin_body(status, &headers)?;
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

    /// The next block of an SSE body. `None` if none came within `limit` or the body is over; [`ended`](Self::ended)
    /// tells which.
    pub async fn next_block(&mut self, limit: Duration) -> Option<Block> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(block) = self.blocks.pop_front() {
                return Some(block);
            }
            let mut part = Vec::new();
            // Dropping the read at the deadline loses nothing: bytes move only once they are there.
            let more = timeout_at(deadline, self.read_body(&mut part)).await.ok()?;
            let blocks = &mut self.blocks;
            self.decoder
                .feed(&part, |block| blocks.push_back(block))
                .expect("an SSE block of the server under test is not larger than 64 MiB");
            if !more.unwrap_or(false) && self.blocks.is_empty() {
                self.ended = true;
                return None;
            }
        }
    }

    /// Whether the body was read to its end, or the connection broke.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Waits until the peer hangs up, throwing away what it says. False if it has not within `limit`.
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

    /// The socket, for what this type cannot do.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    fn begin_body(&mut self, status: StatusCode, headers: &HeaderMap) -> io::Result<()> {
        self.ended = false;
        self.decoder = Decoder::new(MAX_BLOCK);
        self.body = if is_chunked(headers) {
            Framing::Chunked(Dechunker::default())
        } else if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            Framing::Length(0)
        } else if let Some(length) = headers.get(header::CONTENT_LENGTH) {
            let length = length.to_str().ok().and_then(|text| text.parse().ok());
            Framing::Length(length.ok_or_else(|| bad("a content-length that is no number"))?)
        } else {
            Framing::UntilClosed
        };
        Ok(())
    }

    /// Moves what is there of the body into `out`, after a read if nothing is. False at the end.
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
        self.buffer.reserve(READ);
        self.stream.read_buf(&mut self.buffer).await
    }
}

/// One request on a connection of its own, and the whole answer.
pub async fn exchange(addr: SocketAddr, request: &[u8]) -> io::Result<(StatusCode, HeaderMap, Vec<u8>)> {
    let mut connection = RawConnection::open(addr).await?;
    connection.send(request).await?;
    let (status, headers) = connection.read_head().await?;
    let body = connection.read_body_to_end().await?;
    Ok((status, headers, body))
}

/// Where the head ends: after its blank line.
pub(crate) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads the head of a response.
pub(crate) fn parse_head(head: &[u8]) -> io::Result<(StatusCode, HeaderMap)> {
    let text = std::str::from_utf8(head).map_err(|_| bad("a head that is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| bad("no status line"))?;
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("a bad header name"))?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| bad("a bad header value"))?;
        headers.append(name, value);
    }
    Ok((status, headers))
}

/// Whether a body comes in chunks.
pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::TRANSFER_ENCODING)
        .and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.to_ascii_lowercase().ends_with("chunked"))
}

pub(crate) fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_how_long_its_body_is_unless_told_otherwise() {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let post = text(request("POST", "/mcp", &[("accept", "*/*")], b"{}"));
        assert_eq!(
            post,
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-length: 2\r\n\r\n{}"
        );
        let lie = text(request("POST", "/", &[("Content-Length", "9")], b"{}"));
        assert!(lie.contains("Content-Length: 9") && !lie.contains("content-length"));
        assert!(!text(request("GET", "/", &[], b"")).contains("content-length"));
    }
}
