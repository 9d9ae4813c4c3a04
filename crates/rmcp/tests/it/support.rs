//! An endpoint on a real socket, and its clients.

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

/// Every revision with sessions.
pub(crate) const LEGACY_REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Every revision.
pub(crate) const ALL_REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN];
/// The newest revision with sessions. Its call streams have event ids and can be resumed.
pub(crate) const V2025_11_25: &str = "2025-11-25";

/// A listening endpoint. Dropping it stops the server.
pub(crate) struct Endpoint {
    pub(crate) service: McpService,
    pub(crate) client: Client,
    task: JoinHandle<()>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn serve<S: ServerHandler>(handler: RmcpHandler<S>) -> Endpoint {
    serve_with(handler, |builder| builder).await
}

pub(crate) async fn serve_with<S: ServerHandler>(
    handler: RmcpHandler<S>,
    configure: impl FnOnce(Builder<RmcpHandler<S>>) -> Builder<RmcpHandler<S>>,
) -> Endpoint {
    let service = configure(McpService::builder(handler)).build();
    let app = axum::Router::new().route_service("/mcp", service.clone());
    let app = app.layer(axum::Extension(LayerMarker("from a layer")));
    let app = app.layer(tower::util::MapRequestLayer::new(authenticate));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Endpoint {
        service,
        client: client(addr),
        task,
    }
}

/// An extension that another layer adds to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerMarker(pub(crate) &'static str);

/// A minimal auth layer: the header `x-caller` names the principal.
fn authenticate<B>(mut request: Request<B>) -> Request<B> {
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
        Ok::<Response<TruncatableBody>, Infallible>(response.map(TruncatableBody))
    }))
}

/// A body that ends when its connection breaks.
struct TruncatableBody(Incoming);

impl Body for TruncatableBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = std::task::ready!(Pin::new(&mut self.0).poll_frame(cx));
        Poll::Ready(frame.and_then(Result::ok).map(Ok))
    }
}

/// A client of one revision, with or without a session.
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

    /// Calls a tool with a progress token and log level `debug`.
    pub(crate) async fn tool(&self, id: i64, name: &str, arguments: Value) -> Reply {
        let params = json!({ "name": name, "arguments": arguments });
        let meta = json!({ "progressToken": format!("t{id}"), "io.modelcontextprotocol/logLevel": "debug" });
        self.call_with(id, "tools/call", params, meta).await
    }
}

/// The text of a tool result.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}

/// HDR-04: the argument `region` is "eu", so only that value of its header is accepted.
pub(crate) async fn assert_region_header_is_checked(client: &Client, params: &Value) {
    for (header, status) in [("eu", 200), ("us", 400), ("eu", 200)] {
        let client = client.with_request_hook(move |request| {
            request
                .headers_mut()
                .insert("mcp-param-region", header.parse().unwrap());
        });
        let reply = client.stateless(1, "tools/call", params.clone(), json!({})).await;
        assert_eq!(reply.status, status, "{header}");
        let answer = reply.json().await;
        assert_eq!(answer["error"]["code"] == -32_020, status == 400, "{answer}");
    }
}

/// Polls until the condition holds.
pub(crate) async fn eventually(condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), poll).await;
    outcome.expect("condition within 30 seconds");
}
