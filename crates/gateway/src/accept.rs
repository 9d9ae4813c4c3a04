//! The accept loop: one task for each connection, bounded in time and in number.
//!
//! Independent of MCP. Another kind of listener needs its own [`serve`]; `deadlines` and `peer_limiter` fit any socket.

mod deadlines;
mod peer_limiter;

pub(crate) use deadlines::{HEAD_TIMEOUT, IDLE_TIMEOUT};
pub(crate) use peer_limiter::PeerLimiter;

use crate::auth::PeerAddress;
use bytes::Bytes;
use deadlines::{BusyBody, ConnectionPhase, PhaseTrackingIo};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use peer_limiter::PeerPermit;
use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The pause after a failed `accept`. Without it a process without free file descriptors would spin.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves connections with `handler` until `stop` resolves. Then closes idle connections, and gives the others `grace`
/// to finish their responses.
pub(crate) async fn serve<H, F, B>(
    listener: TcpListener,
    peers: Arc<PeerLimiter>,
    handler: H,
    stop: impl Future<Output = ()>,
    grace: Duration,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connections = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let _ = socket.set_nodelay(true); // without it events are only delayed
        match peers.acquire(address.ip()) {
            Some(permit) => {
                let peer = PeerAddress(address.ip());
                tokio::spawn(serve_connection(
                    (socket, peer),
                    permit,
                    handler.clone(),
                    connections.watcher(),
                ));
            }
            None => peers.refuse(socket),
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(grace, connections.shutdown()).await;
}

async fn serve_connection<H, F, B>(
    (socket, peer): (TcpStream, PeerAddress),
    permit: PeerPermit,
    handler: H,
    watcher: Watcher,
) where
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
    match deadlines::enforce(watcher.watch(connection), &phase).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection failed"),
        None => tracing::debug!("connection closed at its deadline"),
    }
    drop(permit);
}
