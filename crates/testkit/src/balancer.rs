//! A load balancer without session affinity: each request goes to the next backend.
//!
//! It streams bodies in both directions. It skips a backend that refuses the connection, like a health check. It never
//! repeats a request that has reached a backend.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The response header that names the address of the backend.
pub const BACKEND: &str = "x-backend";

/// A running balancer. It stops when it is dropped.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    backends: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
}

impl Balancer {
    /// Starts a balancer on a free port.
    pub async fn start(backends: impl IntoIterator<Item = SocketAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            backends: Mutex::new(backends.into_iter().collect()),
            next: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Balancer {
            address,
            shared,
            accepting,
        })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the backends for later requests.
    pub fn set_backends(&self, backends: impl IntoIterator<Item = SocketAddr>) {
        let mut current = self.shared.backends.lock().unwrap_or_else(PoisonError::into_inner);
        *current = backends.into_iter().collect();
    }

    /// The number of requests so far.
    pub fn requests(&self) -> usize {
        self.shared.next.load(Ordering::Relaxed)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { shared.forward(request).await }
            });
            // Fails only if one of the two sides has closed its connection.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

impl Shared {
    /// Forwards a request to the next backend that accepts a connection.
    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !backends.is_empty() {
            let first = turn % backends.len();
            backends.rotate_left(first);
        }
        for backend in backends {
            if let Ok(socket) = TcpStream::connect(backend).await {
                let _ = socket.set_nodelay(true); // optional: only latency depends on it
                let mut response = send(socket, request).await?;
                let address = HeaderValue::from_str(&backend.to_string()).expect("an address is visible ASCII");
                response.headers_mut().insert(BACKEND, address);
                return Ok(response);
            }
        }
        let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        Ok(response)
    }
}

async fn send(socket: TcpStream, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection); // ends with the response, or when the client drops it
    let response = sender.send_request(request).await?;
    Ok(response.map(BodyExt::boxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn backend(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = socket.read(&mut request).await;
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n{name}");
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    async fn get(balancer: &Balancer) -> String {
        let mut socket = TcpStream::connect(balancer.address()).await.unwrap();
        let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn requests_go_to_the_backends_in_turn_and_skip_dead_ones() {
        let dead = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let balancer = Balancer::start([backend("a").await, dead, backend("b").await])
            .await
            .unwrap();
        let mut seen = String::new();
        for _ in 0..6 {
            let answer = get(&balancer).await;
            assert!(answer.contains("x-backend: 127.0.0.1:"), "{answer}");
            seen.push(answer.chars().last().unwrap());
        }
        assert_eq!(seen, "abbabb");
        balancer.set_backends([dead]);
        assert!(get(&balancer).await.starts_with("HTTP/1.1 502"));
    }
}
