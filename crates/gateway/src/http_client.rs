//! One HTTP request on a connection of its own, to a gateway on this machine.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

pub(crate) type ClientError = Box<dyn Error + Send + Sync>;

/// Closes the connection when dropped.
pub(crate) struct SocketGuard(AbortHandle);

impl Drop for SocketGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request. The body of the response ends with the guard. The caller bounds the time.
pub(crate) async fn send(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, SocketGuard), ClientError> {
    let socket = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let guard = SocketGuard(tokio::spawn(connection).abort_handle());
    let response = sender.send_request(request).await?;
    Ok((response, guard))
}
