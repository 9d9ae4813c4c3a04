//! Checks the sizes of values that are allocated for every call. The allocator of glibc keeps freed blocks of up to 1,032 bytes
//! at hand and serves larger ones from slow paths.

use crate::call::active_call::ActiveCall;
use crate::call::call_scope::{CallScope, StatelessScope};
use crate::call::exchange::Exchange;
use crate::call::request_extensions::RequestExtensions;
use crate::call::request_meta::{ClientMeta, RequestMeta};
use crate::{Call, Context, Handler, McpService, Reply, RpcError};
use bytes::Bytes;
use http_body_util::Full;
use rethread_proto::jsonrpc::{Limits, Message, Payload, Request, parse};
use rethread_proto::stream::Framing;
use rethread_proto::{Principal, Version};
use std::sync::Arc;
use tower_service::Service;

const CACHED_BLOCK_BYTES: usize = 1032;

struct Echo;

impl Handler for Echo {
    async fn handle(&self, call: Call, cx: &Context) -> Result<Reply, RpcError> {
        cx.progress(1.0, None).await?;
        Ok(Reply::raw(call.raw_params().raw().clone()))
    }
}

fn request() -> Request {
    let text = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#);
    match parse(&text, &Limits::default()) {
        Ok(Payload::One(Message::Request(request))) => request,
        other => unreachable!("a request, not {other:?}"),
    }
}

#[tokio::test]
async fn d8_values_of_every_call_fit_into_cached_blocks() {
    let mut service = McpService::builder(Echo).build();
    let http = http::Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = service.call(http);
    let inner = &service.inner;
    let scope = StatelessScope {
        method: request().method,
        params: request().params,
        principal: Principal::anonymous(),
        round: 0,
        is_sessionless: false,
        tables: inner.stateless_tables(),
    };
    let meta = RequestMeta::new(request().id, None, Framing::Numbered, ClientMeta::default());
    let exchange = Exchange::stateless(&inner.node, Version::V2026_07_28, scope, meta);
    assert!(matches!(exchange.scope, CallScope::Stateless(_)));
    let running = ActiveCall::new(exchange, 0, request().method, RequestExtensions::default());
    let handler = Arc::clone(&inner.handler).run(Call::new(request(), None), running);
    let sizes = [
        ("the future of a request", size_of_val(&*response)),
        ("the future of a handler", size_of_val(&*handler)),
        ("an exchange", size_of::<Exchange>()),
        ("a call", size_of::<ActiveCall>()),
        ("a stream", size_of::<crate::stream::Stream>()),
    ];
    println!("{sizes:?}");
    for (name, size) in sizes {
        assert!(size + 16 <= CACHED_BLOCK_BYTES, "{name} has {size} bytes");
    }
}
