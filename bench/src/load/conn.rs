//! A keep-alive connection with minimal parsing of heads, bodies and events.

use crate::load::sse::{self, Event};
use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const BUFFER_BYTES: usize = 64 << 10;

/// How the body of a response is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
}

/// The relevant parts of a response head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    pub(crate) is_stream: bool,
    pub(crate) session: Option<String>,
}

/// A connection with its read buffer.
pub(crate) struct Conn {
    io: TcpStream,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Decoded text of an event stream. `used` bytes were returned.
    text: Vec<u8>,
    used: usize,
    ended: bool,
    /// Bytes read since the counter was reset.
    pub(crate) received: u64,
}

impl Conn {
    pub(crate) async fn open(to: SocketAddr) -> Result<Conn> {
        Conn::open_from(None, to).await
    }

    /// Opens a connection with a small buffer, for thousands of streams.
    ///
    /// A source address has about 28,000 ports, and a used port is blocked for a minute. Connections are therefore spread
    /// over several loopback addresses, which differ per server.
    pub(crate) async fn open_nth(nth: usize, to: SocketAddr) -> Result<Conn> {
        let last = u8::try_from(2 + nth / 4096).context("too many connections")?;
        let own = (to.port() % 251) as u8;
        let mut conn = Conn::open_from(Some(Ipv4Addr::new(127, 0, own, last)), to).await?;
        conn.buffer = vec![0; 1024];
        Ok(conn)
    }

    async fn open_from(from: Option<Ipv4Addr>, to: SocketAddr) -> Result<Conn> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = from {
            socket.bind((from, 0).into())?;
        }
        let io = socket
            .connect(to)
            .await
            .with_context(|| format!("cannot connect to {to}"))?;
        io.set_nodelay(true)?;
        Ok(Conn {
            io,
            buffer: vec![0; BUFFER_BYTES],
            from: 0,
            to: 0,
            text: Vec::new(),
            used: 0,
            ended: false,
            received: 0,
        })
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.io.write_all(request).await.context("cannot send the request")
    }

    /// Reads the head of the next response.
    pub(crate) async fn head(&mut self) -> Result<Head> {
        let mut searched = 0;
        loop {
            let ready = &self.buffer[self.from..self.to];
            if let Some(at) = memmem::find(&ready[searched..], b"\r\n\r\n") {
                let end = searched + at;
                let head = read_head(&ready[..end + 2])?;
                self.from += end + 4;
                self.text.clear();
                self.used = 0;
                self.ended = false;
                return Ok(head);
            }
            searched = ready.len().saturating_sub(3);
            self.fill().await?;
        }
    }

    /// Reads a response head and asserts that it starts a stream.
    pub(crate) async fn expect_stream(&mut self) -> Result<()> {
        let head = self.head().await?;
        if head.status != 200 || !head.is_stream {
            let body = String::from_utf8_lossy(self.whole(&head).await?).into_owned();
            bail!("not a stream: {} {body}", head.status);
        }
        Ok(())
    }

    /// Reads a body of known length.
    pub(crate) async fn body(&mut self, length: usize) -> Result<&[u8]> {
        while self.to - self.from < length {
            self.fill().await?;
        }
        self.from += length;
        Ok(&self.buffer[self.from - length..self.from])
    }

    /// Reads a complete body.
    pub(crate) async fn whole(&mut self, head: &Head) -> Result<&[u8]> {
        match head.framing {
            Framing::Length(length) => self.body(length).await,
            Framing::Chunked => {
                while self.chunk().await? {}
                Ok(&self.text)
            }
        }
    }

    /// The next event of a stream. `None` at its end.
    pub(crate) async fn event(&mut self) -> Result<Option<Event<'_>>> {
        loop {
            match sse::block(&self.text[self.used..])? {
                Some(block) => {
                    let start = self.used;
                    self.used += block.length;
                    if block.is_event() {
                        return Ok(Some(block.of(&self.text[start..])));
                    }
                }
                None if self.ended => {
                    ensure!(self.used == self.text.len(), "the stream ends inside an event");
                    return Ok(None);
                }
                None => {
                    self.text.drain(..self.used);
                    self.used = 0;
                    self.chunk().await?;
                }
            }
        }
    }

    /// Appends the next chunk to `text`. `false` at the end of the body.
    async fn chunk(&mut self) -> Result<bool> {
        let line = loop {
            match memchr::memchr(b'\n', &self.buffer[self.from..self.to]) {
                Some(at) => break at,
                None => self.fill().await?,
            }
        };
        let size = std::str::from_utf8(&self.buffer[self.from..self.from + line])?;
        let size =
            usize::from_str_radix(size.trim_end(), 16).with_context(|| format!("invalid chunk size: {size:?}"))?;
        self.from += line + 1;
        let mut missing = size;
        while missing > 0 {
            if self.from == self.to {
                self.fill().await?;
            }
            let some = missing.min(self.to - self.from);
            self.text.extend_from_slice(&self.buffer[self.from..self.from + some]);
            self.from += some;
            missing -= some;
        }
        let end = self.body(2).await?;
        ensure!(end == b"\r\n", "invalid end of a chunk");
        self.ended = size == 0;
        Ok(size > 0)
    }

    async fn fill(&mut self) -> Result<()> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        if self.to == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let read = self.io.read(&mut self.buffer[self.to..]).await?;
        if read == 0 {
            bail!("the connection closed during a response");
        }
        self.to += read;
        self.received += read as u64;
        Ok(())
    }
}

fn read_head(head: &[u8]) -> Result<Head> {
    let mut lines = head.split(|&byte| byte == b'\n');
    let status = lines.next().unwrap_or_default();
    let status = status.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    let status = status
        .and_then(|digits| digits.parse().ok())
        .context("invalid status line")?;
    let mut read = Head {
        status,
        framing: Framing::Length(0),
        is_stream: false,
        session: None,
    };
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value)?.parse().context("invalid content-length")?;
            read.framing = Framing::Length(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            ensure!(value.eq_ignore_ascii_case(b"chunked"), "unknown transfer encoding");
            read.framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case(b"content-type") {
            read.is_stream = value.starts_with(b"text/event-stream");
        } else if name.eq_ignore_ascii_case(b"mcp-session-id") {
            read.session = Some(String::from_utf8(value.to_vec())?);
        }
    }
    Ok(read)
}
