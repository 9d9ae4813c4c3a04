//! An endpoint on a real socket, and clients of it.

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rethread::{Builder, McpService, Principal};
use rethread_rmcp::RmcpHandler;
use rethread_testkit::client::{Client, MODERN, Reply, Session};
use rmcp::ServerHandler;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Every revision that has sessions.
pub(crate) const SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Every revision.
pub(crate) const ALL: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];
/// The newest revision with sessions: streams have ids here, and can be resumed.
pub(crate) const D: &str = "2025-11-25";

/// An endpoint that listens.
pub(crate) struct Endpoint<S> {
    pub(crate) service: McpService<RmcpHandler<S>>,
    pub(crate) client: Client,
    task: JoinHandle<()>,
}

impl<S> Drop for Endpoint<S> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn serve<S: ServerHandler>(handler: RmcpHandler<S>) -> Endpoint<S> {
    serve_with(handler, |builder| builder).await
}

pub(crate) async fn serve_with<S: ServerHandler>(
    handler: RmcpHandler<S>,
    configure: impl FnOnce(Builder<RmcpHandler<S>>) -> Builder<RmcpHandler<S>>,
) -> Endpoint<S> {
    let service = configure(McpService::builder(handler)).build();
    let app = axum::Router::new().route_service("/mcp", service.clone());
    let app = app.layer(axum::Extension(Layered("left by a layer")));
    let app = app.layer(tower::util::MapRequestLayer::new(known));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Endpoint {
        service,
        client: client(addr),
        task,
    }
}

/// What another layer leaves in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layered(pub(crate) &'static str);

/// An auth layer, as far as a test needs one.
fn known<B>(mut request: Request<B>) -> Request<B> {
    if let Some(name) = request.headers().get("x-caller") {
        let name = name.to_str().unwrap().to_owned();
        request
            .extensions_mut()
            .insert(Principal::new("https://issuer.example", name));
    }
    request
}

/// A client that opens a connection for each request.
fn client(addr: SocketAddr) -> Client {
    Client::new(tower::service_fn(move |request: Request<Full<Bytes>>| async move {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        Ok::<Response<UntilCut>, Infallible>(response.map(UntilCut))
    }))
}

/// A body that ends where its connection breaks.
struct UntilCut(Incoming);

impl Body for UntilCut {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = std::task::ready!(Pin::new(&mut self.0).poll_frame(cx));
        Poll::Ready(frame.and_then(Result::ok).map(Ok))
    }
}

/// A client of one revision, whatever its era.
pub(crate) enum Caller {
    Session(Session),
    Stateless(Client),
}

impl Caller {
    pub(crate) async fn new(client: &Client, version: &str) -> Self {
        if version == MODERN {
            return Caller::Stateless(client.clone());
        }
        let session = client.open(version).await;
        assert_eq!(session.version, version);
        Caller::Session(session)
    }

    /// Calls any method.
    pub(crate) async fn call(&self, id: i64, method: &str, params: Value) -> Reply {
        self.call_with(id, method, params, json!({})).await
    }

    /// Calls any method with `meta` in its `_meta`.
    pub(crate) async fn call_with(&self, id: i64, method: &str, mut params: Value, meta: Value) -> Reply {
        match self {
            Caller::Session(session) => {
                if meta != json!({}) {
                    params["_meta"] = meta;
                }
                session.call(id, method, params).await
            }
            Caller::Stateless(client) => client.stateless(id, method, params, meta).await,
        }
    }

    /// Calls a tool, with a progress token and the wish for every log message.
    pub(crate) async fn tool(&self, id: i64, name: &str, arguments: Value) -> Reply {
        let params = json!({ "name": name, "arguments": arguments });
        let meta = json!({ "progressToken": format!("t{id}"), "io.modelcontextprotocol/logLevel": "debug" });
        self.call_with(id, "tools/call", params, meta).await
    }
}

/// The text of a tool's answer.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}

/// Waits until something is true.
pub(crate) async fn eventually(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    waited.expect("it happens within 30 seconds");
}
