//! The accept loop: one task for each connection, bounded in time and in number.
//!
//! Knows nothing of MCP. A listener of another kind needs its own [`serve`]; `deadlines` and `peers` serve any socket.

mod deadlines;
mod peers;

pub(crate) use peers::Peers;

use bytes::Bytes;
use deadlines::{BusyBody, Phase, WatchedIo};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use peers::Entry;
use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The pause after a failed `accept`. Without one, a process that is out of file descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections with `answer` until `stop` resolves. Then idle connections are closed, and the others get `grace`
/// to finish their responses.
pub(crate) async fn serve<A, F, B>(
    listener: TcpListener,
    peers: Arc<Peers>,
    answer: A,
    stop: impl Future<Output = ()>,
    grace: Duration,
) where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
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
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = socket.set_nodelay(true); // a delayed event is better than none
        match peers.enter(address.ip()) {
            Some(entry) => {
                tokio::spawn(connection(socket, entry, answer.clone(), connections.watcher()));
            }
            None => peers.refuse(socket),
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(grace, connections.shutdown()).await;
}

async fn connection<A, F, B>(socket: TcpStream, entry: Entry, answer: A, watcher: Watcher)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let phase = Arc::new(Phase::default());
    let io = TokioIo::new(WatchedIo::new(socket, Arc::clone(&phase)));
    let requests = Arc::clone(&phase);
    let service = service_fn(move |request| {
        let busy = requests.busy();
        let answering = answer(request);
        async move {
            let response = answering.await;
            Ok::<_, Infallible>(response.map(|body| BusyBody::new(body, busy)))
        }
    });
    // The deadlines are ours: hyper's one would set a timer for every request, and has no second value for idle time.
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(io, service);
    match deadlines::enforce(watcher.watch(connection), &phase).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection ended early"),
        None => tracing::debug!("connection closed: the peer missed a deadline"),
    }
    drop(entry);
}
