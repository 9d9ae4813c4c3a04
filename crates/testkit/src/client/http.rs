//! The client over TCP: one connection per request.

use super::Client;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;

impl Client {
    /// A client of a server at `address`. Each request uses a new connection.
    ///
    /// A connection that fails before the response is an empty response with status 502. A connection that breaks later
    /// ends the body.
    pub fn connect(address: SocketAddr) -> Self {
        Client::new(tower::service_fn(move |request| async move {
            let response = exchange(address, request).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|_| {
                let mut response = Response::new(TcpBody(None));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }))
        }))
    }
}

type TransportError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Response<TcpBody>, TransportError> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection); // ends with the response, or when the body is dropped
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| TcpBody(Some(body))))
}

/// A body that ends when its connection breaks.
struct TcpBody(Option<Incoming>);

impl Body for TcpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(body) = &mut self.0 else {
            return Poll::Ready(None);
        };
        match ready!(Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(Err(_)) | None => {
                self.0 = None;
                Poll::Ready(None)
            }
        }
    }
}
