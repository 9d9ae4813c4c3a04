//! Deadlines of a connection (SEC-06).
//!
//! A request head must be complete within [`HEAD_TIMEOUT`]. Between requests a connection may be idle for
//! [`IDLE_TIMEOUT`]. A response may take any time, because the service bounds bodies and calls. A peer that takes no byte of
//! a response for [`WRITE_TIMEOUT`] is closed.

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
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// From the end of a response to the first byte of the next head. nginx closes idle connections after 60 s, and the proxy
/// should close first.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a peer may take no byte of a response.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The phase of a connection in the lowest two bits, and above it a count that changes with every step.
///
/// Only the connection's own task changes it, so relaxed loads and stores are enough.
#[derive(Debug, Default)]
pub(super) struct ConnectionPhase(AtomicU32);

/// Waits for a request head, or has read part of one. The first phase of every connection.
const HEAD: u32 = 0;
/// Serves a request.
const BUSY: u32 = 1;
/// Between two requests.
const IDLE: u32 = 2;
/// A request is being served, and the socket takes no more bytes of the response.
const STALLED: u32 = 3;

impl ConnectionPhase {
    fn current(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn step(&self, kind: u32) {
        let count = (self.current() >> 2).wrapping_add(1);
        self.0.store(count << 2 | kind, Ordering::Relaxed);
    }

    /// Whether no request has begun since the connection was opened.
    pub(super) fn has_no_request(&self) -> bool {
        self.current() == HEAD // the first step changes the count
    }

    fn is_idle(&self) -> bool {
        kind(self.current()) == IDLE
    }

    /// Marks the connection as busy until the guard is dropped.
    pub(super) fn start_request(self: &Arc<Self>) -> BusyGuard {
        self.step(BUSY);
        BusyGuard(Arc::clone(self))
    }
}

fn kind(phase: u32) -> u32 {
    phase & 0b11
}

fn time_limit(phase: u32) -> Option<Duration> {
    match kind(phase) {
        HEAD => Some(HEAD_TIMEOUT),
        IDLE => Some(IDLE_TIMEOUT),
        STALLED => Some(WRITE_TIMEOUT),
        _ => None,
    }
}

/// Runs a connection until it ends. `None` if it misses a deadline.
///
/// The timer moves only when it fires or a deadline comes earlier. A request on a kept connection reads the clock once.
pub(super) async fn enforce<C: Future>(connection: C, phase: &ConnectionPhase) -> Option<C::Output> {
    let mut connection = pin!(connection);
    let mut seen = phase.current();
    let mut deadline = time_limit(seen).map(|limit| Instant::now() + limit);
    let mut timer = pin!(sleep_until(Instant::now() + HEAD_TIMEOUT));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        let current = phase.current();
        if current != seen {
            seen = current;
            deadline = time_limit(current).map(|limit| Instant::now() + limit);
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

/// Keeps a connection busy until dropped.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<ConnectionPhase>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.step(IDLE);
    }
}

/// A response body that keeps its connection busy.
#[derive(Debug)]
pub(super) struct BusyBody<B> {
    body: B,
    _busy: BusyGuard,
}

impl<B> BusyBody<B> {
    pub(super) fn new(body: B, busy: BusyGuard) -> Self {
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

/// A socket that updates the phase when bytes move on an idle connection.
#[derive(Debug)]
pub(super) struct PhaseTrackingIo<S> {
    socket: S,
    phase: Arc<ConnectionPhase>,
}

impl<S> PhaseTrackingIo<S> {
    pub(super) fn new(socket: S, phase: Arc<ConnectionPhase>) -> Self {
        PhaseTrackingIo { socket, phase }
    }

    /// Tracks writes. A full socket stalls the response. A write on an idle connection restarts the idle time: hyper writes the
    /// end of a response after the body was dropped.
    fn record_write(&self, written: &Poll<io::Result<usize>>) {
        match (written, kind(self.phase.current())) {
            (Poll::Ready(Ok(1..)), IDLE) => self.phase.step(IDLE),
            (Poll::Ready(Ok(1..)), STALLED) => self.phase.step(BUSY),
            (Poll::Pending, BUSY) => self.phase.step(STALLED),
            _ => {}
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PhaseTrackingIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if buf.filled().len() > before && self.phase.is_idle() {
            self.phase.step(HEAD);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PhaseTrackingIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.record_write(&written);
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
        self.record_write(&written);
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

    /// Seconds until a connection closes. Each phase in `steps` follows after its pause in seconds.
    async fn seconds_until_closed(steps: &[(u64, u32)]) -> u64 {
        let (phase, began) = (ConnectionPhase::default(), Instant::now());
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

    /// SEC-06: a silent connection and a partial head end after 15 seconds, an idle connection after 75.
    #[tokio::test(start_paused = true)]
    async fn sec_06_connection_without_a_request_closes_at_its_deadline() {
        assert_eq!(seconds_until_closed(&[]).await, 15);
        assert_eq!(seconds_until_closed(&[(5, BUSY), (100, IDLE)]).await, 5 + 100 + 75);
        assert_eq!(
            seconds_until_closed(&[(5, BUSY), (1, IDLE), (60, HEAD)]).await,
            5 + 1 + 60 + 15
        );
        let two_requests = [(1, BUSY), (1, IDLE), (70, BUSY), (1, IDLE)];
        assert_eq!(seconds_until_closed(&two_requests).await, 1 + 1 + 70 + 1 + 75);
        assert_eq!(
            seconds_until_closed(&[(1, BUSY), (1, IDLE), (50, IDLE)]).await,
            1 + 1 + 50 + 75
        );
    }

    /// SSE-04: a stream may be open for days.
    #[tokio::test(start_paused = true)]
    async fn sec_06_busy_connection_has_no_deadline() {
        let phase = Arc::new(ConnectionPhase::default());
        let busy = phase.start_request();
        let connection = async { tokio::time::sleep(100_000 * SECOND).await };
        assert_eq!(enforce(connection, &phase).await, Some(()));
        drop(busy);
        assert!(phase.is_idle());
    }

    /// SSE-14: a peer that takes nothing of a response is closed; one that takes a little now and then is served.
    #[tokio::test(start_paused = true)]
    async fn sse_14_peer_that_takes_no_byte_of_a_response_is_closed() {
        for reads in [false, true] {
            let phase = Arc::new(ConnectionPhase::default());
            let (mut client, server) = tokio::io::duplex(64);
            let mut io = PhaseTrackingIo::new(server, Arc::clone(&phase));
            let _busy = phase.start_request();
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

    /// A client that sends a byte every few seconds gets no more time.
    #[tokio::test(start_paused = true)]
    async fn sec_06_slow_head_keeps_its_first_deadline() {
        let phase = Arc::new(ConnectionPhase::default());
        let (mut client, server) = tokio::io::duplex(64);
        let mut io = PhaseTrackingIo::new(server, Arc::clone(&phase));
        drop(phase.start_request());
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
