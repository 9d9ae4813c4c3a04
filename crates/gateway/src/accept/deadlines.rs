//! How long a connection may be silent.
//!
//! A request head must be whole within [`HEAD_TIMEOUT`]; between requests a connection may be idle for
//! [`IDLE_TIMEOUT`]. A response may take any time, since the service bounds bodies and calls; but a peer that takes no byte of
//! it for [`WRITE_TIMEOUT`] is gone, or reads too slowly to be served.

use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// From the first byte of a head, or from the start of the connection, to the end of the head.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// From the end of a response to the first byte of the next head. More than the 60 s for which nginx keeps an idle
/// connection, so that the proxy is the one that closes.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a peer may take no byte of a response.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection does: its kind in the lowest two bits, and a count that changes with every step.
///
/// Everything that changes it runs in the connection's own task, so plain loads and stores are enough.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU32);

/// Waits for a head, or has read part of one. The first phase of every connection.
const HEAD: u32 = 0;
/// A request is being served.
const BUSY: u32 = 1;
/// Between two requests.
const IDLE: u32 = 2;
/// A request is being served, and the socket takes no more bytes of the response.
const STALLED: u32 = 3;

impl Phase {
    fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn step(&self, kind: u32) {
        let count = (self.now() >> 2).wrapping_add(1);
        self.0.store(count << 2 | kind, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        kind(self.now()) == IDLE
    }

    /// A request has come. It is served until the guard is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.step(BUSY);
        Busy(Arc::clone(self))
    }
}

fn kind(phase: u32) -> u32 {
    phase & 0b11
}

fn limit(phase: u32) -> Option<Duration> {
    match kind(phase) {
        HEAD => Some(HEAD_TIMEOUT),
        IDLE => Some(IDLE_TIMEOUT),
        STALLED => Some(WRITE_TIMEOUT),
        _ => None,
    }
}

/// Runs a connection until it ends or misses a deadline: `None`.
///
/// The timer is moved only when it fires or a deadline comes earlier. A request on a kept connection costs one look at
/// the clock.
pub(super) async fn enforce<C: Future>(connection: C, phase: &Phase) -> Option<C::Output> {
    let mut connection = pin!(connection);
    let mut seen = phase.now();
    let mut deadline = limit(seen).map(|limit| Instant::now() + limit);
    let mut timer = pin!(sleep_until(Instant::now() + HEAD_TIMEOUT));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        let now = phase.now();
        if now != seen {
            seen = now;
            deadline = limit(now).map(|limit| Instant::now() + limit);
        }
        let Some(deadline) = deadline else {
            return Poll::Pending;
        };
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(None);
            }
            timer.as_mut().reset(deadline);
        }
    })
    .await
}

/// A request is being served while this lives.
#[derive(Debug)]
pub(super) struct Busy(Arc<Phase>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.step(IDLE);
    }
}

/// A response body whose connection is busy until the body has ended.
#[derive(Debug)]
pub(super) struct BusyBody<B> {
    body: B,
    _busy: Busy,
}

impl<B> BusyBody<B> {
    pub(super) fn new(body: B, busy: Busy) -> Self {
        BusyBody { body, _busy: busy }
    }
}

impl<B: Body + Unpin> Body for BusyBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that tells the phase when bytes move on an idle connection.
#[derive(Debug)]
pub(super) struct WatchedIo<S> {
    socket: S,
    phase: Arc<Phase>,
}

impl<S> WatchedIo<S> {
    pub(super) fn new(socket: S, phase: Arc<Phase>) -> Self {
        WatchedIo { socket, phase }
    }

    /// Bytes of a response went out, or the socket is full. An idle connection that sends the end of its last response begins to
    /// be idle anew.
    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        match (written, kind(self.phase.now())) {
            (Poll::Ready(Ok(1..)), IDLE) => self.phase.step(IDLE),
            (Poll::Ready(Ok(1..)), STALLED) => self.phase.step(BUSY),
            (Poll::Pending, BUSY) => self.phase.step(STALLED),
            _ => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if buf.filled().len() > before && self.phase.is_idle() {
            self.phase.step(HEAD);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.wrote(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const SECOND: Duration = Duration::from_secs(1);

    /// Seconds until a connection is closed that goes through these phases, each after the pause in front of it.
    async fn lives(steps: &[(u64, u32)]) -> u64 {
        let (phase, began) = (Phase::default(), Instant::now());
        let connection = async {
            for (pause, kind) in steps {
                tokio::time::sleep(Duration::from_secs(*pause)).await;
                phase.step(*kind);
            }
            std::future::pending::<()>().await;
        };
        let ended = timeout(1000 * SECOND, enforce(connection, &phase)).await;
        assert!(matches!(ended, Ok(None)), "{ended:?}");
        began.elapsed().as_secs()
    }

    /// SEC-06: a silent connection and half a head end after 15 seconds, an idle one after 75.
    #[tokio::test(start_paused = true)]
    async fn sec_06_connection_without_a_request_is_closed_in_time() {
        assert_eq!(lives(&[]).await, 15);
        assert_eq!(lives(&[(5, BUSY), (100, IDLE)]).await, 5 + 100 + 75);
        assert_eq!(lives(&[(5, BUSY), (1, IDLE), (60, HEAD)]).await, 5 + 1 + 60 + 15);
        let two_requests = [(1, BUSY), (1, IDLE), (70, BUSY), (1, IDLE)];
        assert_eq!(lives(&two_requests).await, 1 + 1 + 70 + 1 + 75);
        assert_eq!(lives(&[(1, BUSY), (1, IDLE), (50, IDLE)]).await, 1 + 1 + 50 + 75);
    }

    /// SSE-04: a stream may be open for days.
    #[tokio::test(start_paused = true)]
    async fn sec_06_busy_connection_has_no_deadline() {
        let phase = Arc::new(Phase::default());
        let busy = phase.busy();
        let connection = async { tokio::time::sleep(100_000 * SECOND).await };
        assert_eq!(enforce(connection, &phase).await, Some(()));
        drop(busy);
        assert!(phase.is_idle());
    }

    /// SSE-14: a peer that takes nothing of a response is closed; one that takes a little now and then is served.
    #[tokio::test(start_paused = true)]
    async fn sse_14_peer_that_takes_no_byte_of_a_response_is_closed() {
        for reads in [false, true] {
            let phase = Arc::new(Phase::default());
            let (mut client, server) = tokio::io::duplex(64);
            let mut io = WatchedIo::new(server, Arc::clone(&phase));
            let _busy = phase.busy();
            let reading = tokio::spawn(async move {
                loop {
                    let pause = if reads { 20 * SECOND } else { 10_000 * SECOND };
                    tokio::time::sleep(pause).await;
                    let _ = tokio::io::AsyncReadExt::read_u8(&mut client).await;
                }
            });
            let began = Instant::now();
            let sending = async { while tokio::io::AsyncWriteExt::write_all(&mut io, &[0; 16]).await.is_ok() {} };
            let ended = timeout(600 * SECOND, enforce(sending, &phase)).await;
            assert_eq!(ended.is_err(), reads, "{ended:?}");
            assert_eq!(began.elapsed().as_secs(), if reads { 600 } else { 30 });
            reading.abort();
        }
    }

    /// A client that sends a byte every few seconds does not get more time.
    #[tokio::test(start_paused = true)]
    async fn sec_06_slow_head_gets_no_more_time() {
        let phase = Arc::new(Phase::default());
        let (mut client, server) = tokio::io::duplex(64);
        let mut io = WatchedIo::new(server, Arc::clone(&phase));
        drop(phase.busy());
        let sending = tokio::spawn(async move {
            tokio::time::sleep(10 * SECOND).await;
            while tokio::io::AsyncWriteExt::write_all(&mut client, b"x").await.is_ok() {
                tokio::time::sleep(4 * SECOND).await;
            }
        });
        let began = Instant::now();
        let reading = async { while tokio::io::AsyncReadExt::read_u8(&mut io).await.is_ok() {} };
        assert_eq!(enforce(reading, &phase).await, None);
        assert_eq!(began.elapsed().as_secs(), 10 + 15);
        sending.abort();
    }
}
