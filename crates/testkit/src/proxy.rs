//! A TCP proxy that cuts SSE responses at random points. It passes everything else.
//!
//! JSON responses pass unchanged, because a client cannot resume them. An SSE response is cut only after the first event
//! with an id: without a cursor the official clients abandon the call. Every connection carries one exchange
//! (`connection: close` both ways), so a cut never hits a second request.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use rethread_testkit::proxy::{BreakingProxy, CutPlan};
//!
//! let mut plan = CutPlan::default();
//! plan.seed = 7;
//! let proxy = BreakingProxy::start(server, plan).await?;
//! println!("URL for the client: {}/mcp", proxy.url());
//! // ... run the test ...
//! assert!(proxy.cuts() > 0);
//! proxy.stop().await;
//! # Ok(())
//! # }
//! ```

mod cutter;
#[cfg(test)]
mod tests;

pub use cutter::SplitMix64;

use crate::raw::{MAX_HEAD_BYTES, head_end, invalid, is_chunked, parse_head};
use cutter::Cutter;
use http::header;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes per read. The proxy buffers no more, so a slow reader slows the sender as without a proxy.
const READ_BYTES: usize = 16 << 10;
/// Wait before a reset. A reset destroys bytes in flight, and the client needs the first event id.
const RESET_DELAY: Duration = Duration::from_millis(10);
/// Pause after a failed `accept`, which is probably out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// When and how SSE responses are cut.
///
/// The same seed cuts the same connections, in the order of their arrival, at the same positions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CutPlan {
    /// Probability of a cut per SSE response, from 0 to 1.
    pub chance: f64,
    /// Minimum bytes that pass after the first event with an id.
    pub min_bytes: usize,
    /// Maximum bytes that pass after it.
    pub max_bytes: usize,
    /// Maximum time after it. Bytes or time cut the response, whichever limit comes first. Idle streams are thus cut too.
    pub max_idle: Duration,
    /// How the connection is closed.
    pub style: CutStyle,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Maximum number of cuts. After that everything passes, so that a test can end.
    pub max_cuts: Option<usize>,
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutStyle {
    /// Closed with FIN in the middle of a body.
    Fin,
    /// Closed with RST.
    Rst,
    /// FIN or RST at random.
    Mixed,
}

impl Default for CutPlan {
    fn default() -> Self {
        CutPlan {
            chance: 1.0,
            min_bytes: 0,
            max_bytes: 512,
            max_idle: Duration::from_millis(300),
            style: CutStyle::Mixed,
            seed: 1,
            max_cuts: None,
        }
    }
}

/// A proxy in front of one server. Dropping it closes every connection.
#[derive(Debug)]
pub struct BreakingProxy {
    addr: SocketAddr,
    shared: Arc<ProxyState>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct ProxyState {
    upstream: SocketAddr,
    plan: CutPlan,
    cuts: AtomicUsize,
    connections: AtomicUsize,
    paused: watch::Sender<bool>,
}

impl BreakingProxy {
    /// Starts a proxy of `upstream` on a free port of 127.0.0.1.
    pub async fn start(upstream: SocketAddr, plan: CutPlan) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(ProxyState {
            upstream,
            plan,
            cuts: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            paused: watch::Sender::new(false),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(BreakingProxy { addr, shared, task })
    }

    /// The address of the proxy.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of the proxy without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Number of cut responses.
    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Number of accepted connections.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Stops forwarding in both directions without closing connections, as if the other side had vanished.
    ///
    /// New connections are accepted but not served.
    pub fn pause(&self) {
        self.shared.paused.send_replace(true);
    }

    /// Continues after [`pause`](Self::pause). No bytes are lost.
    pub fn resume(&self) {
        self.shared.paused.send_replace(false);
    }

    /// Closes every connection and stops listening.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await; // always an abort error
    }
}

impl Drop for BreakingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<ProxyState>) {
    // Dropping this set closes every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                    connections.spawn(serve(client, number, Arc::clone(&shared)));
                }
                Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, number: usize, shared: Arc<ProxyState>) {
    let _ = client.set_nodelay(true);
    // After an error on one side, dropping the streams closes the other.
    if let Ok(Some(CutStyle::Rst)) = exchange(&mut client, number, &shared).await {
        sleep(RESET_DELAY).await;
        let _ = client.set_zero_linger();
    }
}

/// Forwards one request and its response. Returns how to cut the connection, if at all.
async fn exchange(client: &mut TcpStream, number: usize, shared: &ProxyState) -> io::Result<Option<CutStyle>> {
    shared.wait_while_paused().await;
    let mut upstream = TcpStream::connect(shared.upstream).await?;
    upstream.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_upstream, mut to_upstream) = upstream.split();

    let (head, rest) = read_head(&mut from_client).await?;
    shared.wait_while_paused().await;
    to_upstream.write_all(&close_after_exchange(&head)).await?;
    to_upstream.write_all(&rest).await?;

    let up = async {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = from_client.read(&mut buffer).await?;
            shared.wait_while_paused().await;
            if read == 0 {
                return to_upstream.shutdown().await;
            }
            to_upstream.write_all(&buffer[..read]).await?;
        }
    };
    let down = respond(&mut from_upstream, &mut to_client, number, shared);
    let (mut up, mut down) = (pin!(up), pin!(down));
    tokio::select! {
        outcome = &mut down => outcome,
        // The client has finished sending or disconnected. The server decides how the exchange ends.
        sent = &mut up => { sent?; down.await }
    }
}

async fn respond(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    number: usize,
    shared: &ProxyState,
) -> io::Result<Option<CutStyle>> {
    let mut rest = Vec::new();
    let headers = loop {
        let (head, after) = continue_head(from, rest).await?;
        let (status, headers) = parse_head(&head)?;
        shared.wait_while_paused().await;
        rest = after;
        if !status.is_informational() {
            to.write_all(&close_after_exchange(&head)).await?;
            break headers;
        }
        to.write_all(&head).await?;
    };
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut cutter = content_type
        .is_some_and(|value| value.to_ascii_lowercase().starts_with("text/event-stream"))
        .then(|| Cutter::new(&shared.plan, number, is_chunked(&headers)));
    let mut buffer = rest;
    loop {
        shared.wait_while_paused().await;
        let (pass, cut) = match &mut cutter {
            Some(cutter) => cutter.inspect(&buffer),
            None => (buffer.len(), false),
        };
        to.write_all(&buffer[..pass]).await?;
        to.flush().await?;
        if cut && let Some(cutter) = &mut cutter {
            if shared.may_cut() {
                return Ok(Some(cutter.style));
            }
            cutter.disarm();
            to.write_all(&buffer[pass..]).await?;
        }
        buffer.clear();
        buffer.reserve(READ_BYTES);
        let deadline = cutter.as_ref().and_then(Cutter::deadline);
        let read = tokio::select! {
            read = from.read_buf(&mut buffer) => read?,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => continue,
        };
        if read == 0 {
            to.shutdown().await?;
            return Ok(None);
        }
    }
}

impl ProxyState {
    async fn wait_while_paused(&self) {
        let mut paused = self.paused.subscribe();
        // An error is impossible: `self` owns the sender.
        let _ = paused.wait_for(|paused| !paused).await;
    }

    /// Counts a cut, unless the maximum is reached.
    fn may_cut(&self) -> bool {
        let max = self.plan.max_cuts.unwrap_or(usize::MAX);
        let increment = |cuts: usize| (cuts < max).then_some(cuts + 1);
        self.cuts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment)
            .is_ok()
    }
}

async fn read_head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, Vec<u8>)> {
    continue_head(from, Vec::new()).await
}

/// Reads a head and the bytes after it. `bytes` were read before.
async fn continue_head(from: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    loop {
        if let Some(end) = head_end(&bytes) {
            let rest = bytes.split_off(end);
            return Ok((bytes, rest));
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Err(invalid("the head is too long"));
        }
        bytes.reserve(READ_BYTES);
        if from.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Replaces the `connection` and `keep-alive` headers by `connection: close`.
fn close_after_exchange(head: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + 32);
    for line in head[..head.len() - 2].split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or(line);
        if !name.eq_ignore_ascii_case(b"connection") && !name.eq_ignore_ascii_case(b"keep-alive") {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(b"connection: close\r\n\r\n");
    out
}
