//! A service on a socket with hyper alone: accept, serve, stop on a signal.

use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tower::Service;

/// How long connections may take to close once nothing runs on them.
const LINGER: Duration = Duration::from_secs(1);

/// Serves `service` until `stop`. Then `drain` lets running calls end while requests are still answered, and the connections
/// are closed.
pub(crate) async fn until<S, B>(
    stop: impl Future<Output = ()>,
    listener: TcpListener,
    service: S,
    drain: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connections = GracefulShutdown::new();
    let mut stopped = pin!(async {
        stop.await;
        drain.await;
    });
    loop {
        let socket = tokio::select! {
            socket = accept(&listener) => socket,
            () = &mut stopped => break,
        };
        // Each connection has its own clone, which is always ready.
        let service = RefCell::new(service.clone());
        let service = service_fn(move |request| service.borrow_mut().call(request));
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(socket), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended early");
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(LINGER, connections.shutdown()).await;
}

/// The next connection. Responses are small and written at once, so Nagle's algorithm would only delay them.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let _ = socket.set_nodelay(true);
                return socket;
            }
            Err(error) => {
                // For example out of file descriptors. Without the pause the loop would spin.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// An empty 404.
pub(crate) fn not_found() -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Resolves on SIGTERM or SIGINT. They are caught from now on, not from the first poll on.
#[cfg(unix)]
pub(crate) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

/// Resolves on Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
