//! Calls of an anonymous caller, and the same calls with a token that was accepted before: `cargo xtask instructions --bench
//! authenticated` counts them, `cargo bench --bench paired` measures their time. The goal: at most 1.15 times.

#[path = "../src/servers/accepted_token.rs"]
mod accepted_token;

pub use accepted_token::TokenKind;

use accepted_token::AcceptedToken;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use rethread::{Call, Context, Handler, McpService, Reply, Revisions, RpcError};
use std::hint::black_box;
use tokio::runtime::Runtime;
use tower_service::Service;

const BODY: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}"#;

struct Echo;

impl Handler for Echo {
    async fn handle(&self, _: Call, _: &Context) -> Result<Reply, RpcError> {
        Ok(Reply::raw(Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}]}"#)))
    }
}

/// A service, a runtime to poll it on, and the credentials of the caller.
pub struct Setup {
    runtime: Runtime,
    service: McpService,
    authorization: Option<HeaderValue>,
}

impl Setup {
    /// A request. Making it is the work of the HTTP server, so it is not measured.
    pub fn request(&self) -> Request<Full<Bytes>> {
        let request = Request::post("/mcp")
            .header("host", "127.0.0.1:8080")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "echo");
        let request = match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        };
        request.body(Full::new(Bytes::from_static(BODY.as_bytes()))).expect("a request")
    }

    /// One call. Returns the bytes of its response.
    pub fn send(&mut self, request: Request<Full<Bytes>>) -> usize {
        let service = &mut self.service;
        self.runtime.block_on(async {
            let Ok(response) = service.call(black_box(request)).await;
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.map_or(0, |body| body.to_bytes().len())
        })
    }
}

/// A service and its caller. `None`: an anonymous one, without an authenticator.
pub fn setup(token: Option<TokenKind>) -> Setup {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let builder = McpService::builder(Echo).revisions(Revisions::BOTH);
    let service = match token {
        Some(kind) => builder.authenticate(AcceptedToken::new(kind)).build(),
        None => builder.build(),
    };
    let header = |kind: TokenKind| HeaderValue::try_from(format!("Bearer {}", kind.token())).expect("visible ASCII");
    let authorization = token.map(header);
    let mut setup = Setup { runtime, service, authorization };
    for _ in 0..3 {
        let request = setup.request();
        assert!(setup.send(request) > 0); // tables and pools have their size
    }
    setup
}
