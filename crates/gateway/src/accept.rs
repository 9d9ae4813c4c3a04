//! The accept loop: one task for each connection, bounded in time and in number.
//!
//! Independent of MCP: any listener of the gateway is a [`Listener`] with its own handler.
//!
//! ```ignore
//! let listener = Listener::new(socket, Arc::clone(&gateway.tls), PeerLimiter::new(64, Vec::new()));
//! accept::serve(listener, handler, stop, cut).await;
//! ```
//!
//! [`ListenerTls`] may be shared with other listeners; without a certificate connections are plain. The handshake is part of the
//! connection's own task, so it delays no other connection.

mod deadlines;
mod peer_limiter;

pub(crate) use deadlines::{HEAD_TIMEOUT, IDLE_TIMEOUT};
pub(crate) use peer_limiter::PeerLimiter;

use crate::auth::PeerAddress;
use crate::task;
use crate::tls::{AcceptedSocket, ListenerTls};
use bytes::Bytes;
use deadlines::{BusyBody, ConnectionPhase, PhaseTrackingIo};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The pause after a failed `accept`. Without it a process without free file descriptors would spin.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long a connection may take from its first packet until the system has accepted it: a round trip in a data centre.
const HANDSHAKE_TIME: Duration = Duration::from_millis(20);
/// How long a new connection may take to send its first request while the gateway stops. Beyond: it counts as idle.
pub(crate) const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(1);

/// A bound socket with its certificate and its bound of connections per peer.
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Arc<ListenerTls>,
    peers: Arc<PeerLimiter>,
}

impl Listener {
    pub(crate) fn new(socket: TcpListener, tls: Arc<ListenerTls>, peers: Arc<PeerLimiter>) -> Self {
        Listener { socket, tls, peers }
    }
}

/// Serves connections with `handler` until `stop` resolves. Then closes idle connections, and lets the others finish their
/// responses until `cut` resolves.
pub(crate) async fn serve<H, F, B>(
    listener: Listener,
    handler: H,
    stop: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Listener {
        socket: listener,
        tls,
        peers,
    } = listener;
    let closing = watch::Sender::new(false);
    let serve_socket = |socket: TcpStream, address: SocketAddr| {
        let _ = socket.set_nodelay(true); // without it events are only delayed
        match peers.acquire(address.ip()) {
            Some(permit) => {
                let peer = PeerAddress(address.ip());
                let (handler, closing, tls) = (handler.clone(), closing.subscribe(), Arc::clone(&tls));
                task::spawn(async move {
                    if let Some(socket) = handshake(socket, &tls, closing.clone()).await {
                        serve_connection((socket, peer), handler, closing).await;
                    }
                    drop(permit);
                });
            }
            None if tls.is_on() => drop(socket), // a client that waits for a handshake cannot read the response
            None => peers.refuse(socket),
        }
    };
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((socket, address)) => serve_socket(socket, address),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    ignore_new_connections(&listener);
    let handshakes_end = Instant::now() + HANDSHAKE_TIME;
    while let Ok(Ok((socket, address))) = timeout_at(handshakes_end, listener.accept()).await {
        serve_socket(socket, address);
    }
    for (socket, address) in close_listener(listener) {
        serve_socket(socket, address);
    }
    closing.send_replace(true);
    tokio::select! {
        () = closing.closed() => {} // no connection is left
        () = cut => {}
    }
}

/// Makes the system ignore the first packet of each new connection. Its client sends it again after a second, and the closed port
/// refuses it then. Without this, a connection could be made between the last `accept` and the end of the listener.
#[cfg(target_os = "linux")]
fn ignore_new_connections(listener: &TcpListener) {
    use socket2::{SockFilter, SockRef};
    // Classic BPF instructions on the TCP header.
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_ANY_BIT: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const FLAGS: u32 = 13;
    const SYN: u32 = 2;
    let filter = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(JUMP_IF_ANY_BIT, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),        // nothing of the packet is kept
        SockFilter::new(RETURN, 0, 0, u32::MAX), // all of it
    ];
    if let Err(error) = SockRef::from(listener).attach_filter(&filter) {
        tracing::debug!(%error, "new connections may be reset");
    }
}

#[cfg(not(target_os = "linux"))]
fn ignore_new_connections(_: &TcpListener) {}

/// Closes the listener. The system has accepted the returned connections already, and would reset them with the listener.
fn close_listener(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    // Asks the system and not the reactor, which may not know the last ones yet.
    let Ok(listener) = listener.into_std() else {
        return Vec::new();
    };
    let mut waiting = Vec::new();
    while let Ok((socket, address)) = listener.accept() {
        let socket = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket));
        waiting.extend(socket.ok().map(|socket| (socket, address)));
    }
    waiting
}

/// Runs a connection. While the gateway stops, an idle connection is closed at once, and a busy one after its response. The first
/// request of a new connection may be on its way, and is served.
async fn close_gracefully<I, S, B>(
    connection: http1::Connection<I, S>,
    phase: &ConnectionPhase,
    mut closing: watch::Receiver<bool>,
) -> hyper::Result<()>
where
    I: Read + Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (mut connection, opened) = (pin!(connection), Instant::now());
    tokio::select! {
        ended = connection.as_mut() => return ended,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    let first_request = poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if phase.has_no_request() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    });
    if let Ok(Some(ended)) = timeout_at(opened + FIRST_REQUEST_GRACE, first_request).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// `None` if the handshake failed. While the gateway stops, it has the time of a first request.
async fn handshake(socket: TcpStream, tls: &ListenerTls, mut closing: watch::Receiver<bool>) -> Option<AcceptedSocket> {
    let opened = Instant::now();
    let closed = async {
        let _ = closing.wait_for(|closing| *closing).await;
        tokio::time::sleep_until(opened + FIRST_REQUEST_GRACE).await;
    };
    let accepted = tokio::select! {
        accepted = tls.accept(socket) => accepted,
        () = closed => return None,
    };
    // Any client can cause it, and its text may quote the client.
    accepted
        .inspect_err(|error| tracing::debug!(kind = %error.kind(), "handshake failed"))
        .ok()
}

async fn serve_connection<S, H, F, B>((socket, peer): (S, PeerAddress), handler: H, closing: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let phase = Arc::new(ConnectionPhase::default());
    let io = TokioIo::new(PhaseTrackingIo::new(socket, Arc::clone(&phase)));
    let request_phase = Arc::clone(&phase);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let busy = request_phase.start_request();
        let response = handler(request);
        async move { Ok::<_, Infallible>(response.await.map(|body| BusyBody::new(body, busy))) }
    });
    // hyper's own timeout sets a timer for every request, and has no separate value for idle time.
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(io, service);
    let connection = close_gracefully(connection, &phase, closing);
    match deadlines::enforce(connection, &phase).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection failed"),
        None => tracing::debug!("connection closed at its deadline"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use std::future::{pending, ready};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    const CLOSING_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    async fn answer(_: Request<Incoming>) -> Response<Full<Bytes>> {
        Response::new(Full::from("served"))
    }

    fn plain(listener: TcpListener) -> Listener {
        Listener::new(listener, ListenerTls::plain(), PeerLimiter::new(100, Vec::new()))
    }

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// T-38: the system accepts connections before the gateway does, and their requests may come later.
    #[tokio::test]
    async fn t_38_connections_of_a_closing_listener_are_served() {
        for _ in 0..4 {
            let (listener, address) = listen().await;
            let mut clients = Vec::new();
            for _ in 0..8 {
                clients.push(TcpStream::connect(address).await.unwrap());
            }
            let serving = serve(plain(listener), answer, ready(()), pending());
            let serving = tokio::spawn(serving);
            tokio::time::sleep(2 * HANDSHAKE_TIME).await; // the listener is closed
            for client in &mut clients {
                client.write_all(REQUEST).await.unwrap();
                let mut response = String::new();
                client.read_to_string(&mut response).await.unwrap();
                assert!(response.ends_with("served"), "{response}");
            }
            serving.await.unwrap();
        }
    }

    /// T-38: every connection that was made is served, also one that is made while the listener is closed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn t_38_no_connection_is_reset_while_the_listener_is_closed() {
        for _ in 0..4 {
            let (listener, address) = listen().await;
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let stopped = async move { drop(stopped.await) };
            let serving = tokio::spawn(serve(plain(listener), answer, stopped, pending()));
            let clients: Vec<_> = (0..8)
                .map(|_| {
                    tokio::spawn(async move {
                        let mut served = 0;
                        while let Ok(mut client) = TcpStream::connect(address).await {
                            client.write_all(CLOSING_REQUEST).await.unwrap();
                            let mut response = String::new();
                            client.read_to_string(&mut response).await.unwrap();
                            assert!(response.ends_with("served"), "{response}");
                            served += 1;
                        }
                        served
                    })
                })
                .collect();
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(stop);
            serving.await.unwrap();
            for client in clients {
                assert!(client.await.unwrap() > 0);
            }
        }
    }

    /// T-38: a connection without a request, and one between two requests, do not delay the exit.
    #[tokio::test]
    async fn t_38_idle_connections_are_closed() {
        let (listener, address) = listen().await;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let serving = serve(plain(listener), answer, stopped, pending());
        let serving = tokio::spawn(serving);
        let silent = TcpStream::connect(address).await.unwrap();
        let mut kept = TcpStream::connect(address).await.unwrap();
        kept.write_all(REQUEST).await.unwrap();
        let mut response = [0; 4096];
        assert!(kept.read(&mut response).await.unwrap() > 0);
        drop(stop);
        let rest = kept.read_to_end(&mut Vec::new()).await;
        assert!(rest.is_ok(), "{rest:?}");
        serving.await.unwrap();
        drop(silent);
    }
}
