//! Whole calls through the service, without sockets: from the HTTP request to the last byte of the response.

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use rethread::{Body, Call, Context, Handler, McpService, Reply, RpcError, Revisions};
use std::hint::black_box;
use tokio::runtime::Runtime;
use tower_service::Service;

const OPEN: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

struct Bench;

impl Handler for Bench {
    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        #[derive(serde::Deserialize)]
        struct Params {
            name: String,
        }
        let emissions = match call.params::<Params>()?.name.as_str() {
            "progress" => 1,
            "burst" => 1_000,
            _ => 0,
        };
        for n in 1..=emissions {
            cx.progress(f64::from(n), None).await?;
        }
        Ok(Reply::raw(Bytes::from_static(br#"{"content":[{"type":"text","text":"hello"}]}"#)))
    }
}

/// A service, a runtime to poll it on, and the request to measure.
struct Setup {
    runtime: Runtime,
    service: McpService,
    session: Option<String>,
    body: String,
    name: &'static str,
}

impl Setup {
    fn request(&self, body: &str) -> Request<Full<Bytes>> {
        let request = Request::post("/mcp")
            .header("host", "127.0.0.1:8080")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let request = match &self.session {
            Some(session) => request
                .header("mcp-protocol-version", "2025-11-25")
                .header("mcp-session-id", session.as_str()),
            None if body == OPEN => request,
            None => request
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", self.name),
        };
        request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).expect("a request")
    }

    fn send(&mut self, request: Request<Full<Bytes>>) -> (Response<()>, usize) {
        let Setup { runtime, service, .. } = self;
        runtime.block_on(async {
            let Ok(response) = service.call(request).await;
            let (head, mut body): (_, Body) = response.into_parts();
            let mut bytes = 0;
            while let Some(Ok(frame)) = body.frame().await {
                bytes += frame.into_data().map_or(0, |data| data.len());
            }
            (Response::from_parts(head, ()), bytes)
        })
    }
}

fn setup(name: &'static str, version: &str) -> Setup {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let service = McpService::builder(Bench).revisions(Revisions::BOTH).build();
    let meta = match version {
        "2026-07-28" => {
            r#","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}"#
        }
        _ => "",
    };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}","arguments":{{"message":"hello"}},"_meta":{{"progressToken":"p"{meta}}}}}}}"#
    );
    let mut setup = Setup { runtime, service, session: None, body, name };
    if version == "2025-11-25" {
        let (opened, _) = setup.send(setup.request(OPEN));
        let session = opened.headers()["mcp-session-id"].to_str().expect("a session id");
        setup.session = Some(session.to_owned());
        setup.send(setup.request(READY));
    }
    for _ in 0..3 {
        let (response, bytes) = setup.send(setup.request(&setup.body)); // tables and pools have their size
        assert!(response.status() == 200 && bytes > 0, "{response:?}");
    }
    setup
}

#[library_benchmark]
#[bench::json(setup("echo", "2025-11-25"))]
#[bench::stream(setup("progress", "2025-11-25"))]
#[bench::burst_1000(setup("burst", "2025-11-25"))]
#[bench::stateless_json(setup("echo", "2026-07-28"))]
#[bench::stateless_stream(setup("progress", "2026-07-28"))]
#[bench::stateless_burst_1000(setup("burst", "2026-07-28"))]
fn call(mut setup: Setup) -> (usize, Setup) {
    let request = setup.request(&setup.body);
    let (_, bytes) = setup.send(black_box(request));
    (black_box(bytes), setup)
}

library_benchmark_group!(name = calls, benchmarks = call);
main!(library_benchmark_groups = calls);
