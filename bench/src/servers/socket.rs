//! Serves a service with hyper over HTTP/1.1 without Nagle's algorithm, the same for all servers.

use anyhow::Result;
use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::RefCell;
use std::convert::Infallible;
use std::error::Error;
use tokio::net::TcpSocket;
use tower::Service;

/// Serves for ever. Prints its address to stdout.
pub(super) async fn serve<S, B>(service: S) -> Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    let listener = socket.listen(16 << 10)?; // thousands of clients connect at once
    println!("ready {}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let service = RefCell::new(service.clone());
        let service = service_fn(move |request| service.borrow_mut().call(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(socket), service);
        tokio::spawn(async move {
            let _ = connection.await; // a disconnect is not a failure
        });
    }
}
