//! A TCP proxy that breaks SSE responses on purpose, at random points, and nothing else.
//!
//! It reads just enough HTTP/1.1 to be fair. Plain JSON exchanges pass untouched: nobody can resume them. An SSE
//! response is cut only after the blank line that ends the first event with an id: before that the official clients
//! have no cursor and give the call up. Every connection carries one exchange (`connection: close` both ways), so that
//! no cut hits a second request on a connection whose SSE response is over.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use rethread_testkit::proxy::{BreakingProxy, CutPlan};
//!
//! let proxy = BreakingProxy::start(server, CutPlan { seed: 7, ..CutPlan::default() }).await?;
//! println!("give this to the client: {}/mcp", proxy.url());
//! // ... the conversation ...
//! assert!(proxy.cuts() > 0);
//! proxy.stop().await;
//! # Ok(())
//! # }
//! ```

mod cutter;
#[cfg(test)]
mod tests;

pub use cutter::SplitMix64;

use crate::raw::{MAX_HEAD, bad, head_end, is_chunked, parse_head};
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

/// The most that is read before it is written on: a slow reader is felt by the sender, as without a proxy.
const READ: usize = 16 << 10;
/// A reset destroys what is still on its way. The client must have the first id by then, or its call is lost.
const BEFORE_RESET: Duration = Duration::from_millis(10);

/// When and how SSE responses are cut. The same seed cuts the same connections (in the order in which they come) at the
/// same places.
#[derive(Clone, Debug)]
pub struct CutPlan {
    /// How likely one SSE response is cut: 0 is never, 1 is always.
    pub chance: f64,
    /// The fewest bytes that pass after the first event with an id.
    pub min_bytes: usize,
    /// The most bytes that pass after it.
    pub max_bytes: usize,
    /// The longest time that passes after it: the response is cut by bytes or by time, whichever comes first, so that
    /// idle streams are cut too.
    pub max_idle: Duration,
    /// How the client learns of it.
    pub style: CutStyle,
    /// Where the randomness comes from.
    pub seed: u64,
    /// After so many cuts everything passes: a test that must end.
    pub max_cuts: Option<usize>,
}

/// How a connection is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutStyle {
    /// Closed in good order, though in the middle of a body.
    Fin,
    /// Reset.
    Rst,
    /// Sometimes the one, sometimes the other.
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

/// A proxy on a port of its own, in front of one server. Dropping it breaks every connection.
#[derive(Debug)]
pub struct BreakingProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    plan: CutPlan,
    cuts: AtomicUsize,
    connections: AtomicUsize,
    paused: watch::Sender<bool>,
}

impl BreakingProxy {
    /// Listens on a free port of 127.0.0.1, in front of `upstream`.
    pub async fn start(upstream: SocketAddr, plan: CutPlan) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            plan,
            cuts: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            paused: watch::Sender::new(false),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(BreakingProxy { addr, shared, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many responses were cut.
    pub fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Stops forwarding in both directions without closing anything: to either side, the other is a peer that has
    /// vanished. New connections are accepted and left alone.
    pub fn pause(&self) {
        self.shared.paused.send_replace(true);
    }

    /// Goes on where it was paused; nothing was lost.
    pub fn resume(&self) {
        self.shared.paused.send_replace(false);
    }

    /// Breaks every connection and stops listening.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await; // aborted: that is what was asked for
    }
}

impl Drop for BreakingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                    connections.spawn(serve(client, number, Arc::clone(&shared)));
                }
                // Out of descriptors, most likely: the next one may fare better.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, number: usize, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    // An error means that one of the two sides is gone; dropping the other tells it so.
    if let Ok(Some(CutStyle::Rst)) = exchange(&mut client, number, &shared).await {
        sleep(BEFORE_RESET).await;
        let _ = client.set_zero_linger();
    }
}

/// Carries one request and its response. Returns how to break the connection if it is to be broken.
async fn exchange(client: &mut TcpStream, number: usize, shared: &Shared) -> io::Result<Option<CutStyle>> {
    shared.flowing().await;
    let mut upstream = TcpStream::connect(shared.upstream).await?;
    upstream.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_upstream, mut to_upstream) = upstream.split();

    let (head, rest) = read_head(&mut from_client).await?;
    shared.flowing().await;
    to_upstream.write_all(&one_exchange_only(&head)).await?;
    to_upstream.write_all(&rest).await?;

    let up = async {
        let mut buffer = vec![0; READ];
        loop {
            let read = from_client.read(&mut buffer).await?;
            shared.flowing().await;
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
        // The client has said all it had to say, or has hung up: the server decides what follows.
        sent = &mut up => { sent?; down.await }
    }
}

async fn respond(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    number: usize,
    shared: &Shared,
) -> io::Result<Option<CutStyle>> {
    let mut rest = Vec::new();
    let headers = loop {
        let (head, after) = read_head_with(from, rest).await?;
        let (status, headers) = parse_head(&head)?;
        shared.flowing().await;
        rest = after;
        if !status.is_informational() {
            to.write_all(&one_exchange_only(&head)).await?;
            break headers;
        }
        to.write_all(&head).await?;
    };
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut cutter = kind
        .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/event-stream"))
        .then(|| Cutter::new(&shared.plan, number, is_chunked(&headers)));
    let mut buffer = rest;
    loop {
        shared.flowing().await;
        let (pass, cut) = match &mut cutter {
            Some(cutter) => cutter.look(&buffer),
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
        buffer.reserve(READ);
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

impl Shared {
    /// Waits while the proxy is paused.
    async fn flowing(&self) {
        let mut paused = self.paused.subscribe();
        // The sender lives as long as `self`.
        let _ = paused.wait_for(|paused| !paused).await;
    }

    /// Counts a cut, unless there were enough.
    fn may_cut(&self) -> bool {
        let most = self.plan.max_cuts.unwrap_or(usize::MAX);
        let one_more = |cuts: usize| (cuts < most).then_some(cuts + 1);
        self.cuts
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more)
            .is_ok()
    }
}

async fn read_head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, Vec<u8>)> {
    read_head_with(from, Vec::new()).await
}

/// A head, and what came with it. `bytes` were read before.
async fn read_head_with(from: &mut (impl AsyncRead + Unpin), mut bytes: Vec<u8>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    loop {
        if let Some(end) = head_end(&bytes) {
            let rest = bytes.split_off(end);
            return Ok((bytes, rest));
        }
        if bytes.len() > MAX_HEAD {
            return Err(bad("a head that is too long"));
        }
        bytes.reserve(READ);
        if from.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The head with its words about keeping the connection replaced by `connection: close`.
fn one_exchange_only(head: &[u8]) -> Vec<u8> {
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
