//! Traces of calls through the gateway, with a collector.

use crate::client::LATEST;
use crate::gateway::{GatewayBuilder, gateway_with};
use rethread_testkit::otlp_collector::{OtlpCollector, ReceivedSpan};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn traced(behavior: &str, collector: &OtlpCollector) -> GatewayBuilder {
    gateway_with(behavior)
        .record_messages()
        .var("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
}

/// The `_meta` of the last `tools/call` that a child has received.
fn last_meta(messages: &[Value]) -> Value {
    let call = messages.iter().rev().find(|message| message["method"] == "tools/call");
    call.unwrap()["params"]["_meta"].clone()
}

fn of_kind(spans: &[ReceivedSpan], kind: u64) -> &ReceivedSpan {
    spans
        .iter()
        .find(|span| span.kind == kind)
        .unwrap_or_else(|| panic!("no span of kind {kind} in {spans:?}"))
}

fn check_pair(spans: &[ReceivedSpan], meta: &Value) {
    let (server, child) = (of_kind(spans, 2), of_kind(spans, 3));
    assert_eq!(
        (server.trace_id.as_str(), server.parent_id.as_str()),
        (TRACE, "b7ad6b7169203331")
    );
    assert_eq!((child.trace_id.as_str(), &child.parent_id), (TRACE, &server.span_id));
    assert_eq!(meta["traceparent"], format!("00-{TRACE}-{}-01", child.span_id));
    assert_eq!(
        (&meta["tracestate"], &meta["baggage"]),
        (&json!("vendor=1"), &json!("user=2"))
    );
    assert!(server.start <= server.end && server.start > 0);
    assert_eq!(server.attributes["mcp.method.name"], "tools/call");
    assert_eq!(server.resource["service.name"], "rethread");
    let text = format!("{spans:?}");
    assert!(!text.contains("planted"), "a span has an argument: {text}");
}

/// OPS-19, OPS-20: both eras, from the client through the gateway to the child.
#[tokio::test]
async fn ops_20_context_of_the_client_reaches_the_child_with_a_new_parent() {
    let collector = OtlpCollector::start().await;
    let gateway = traced("dual", &collector).start();
    let meta = json!({ "traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=2" });
    let session = gateway.client().open_session(LATEST).await;
    session.call(1, "tools/list", json!({})).await.response().await;
    let params = json!({ "name": "echo", "arguments": { "text": "planted" }, "_meta": meta });
    session.call(2, "tools/call", params).await.response().await;
    let spans = collector.wait_for(2, |span| span.trace_id == TRACE).await;
    check_pair(&spans, &last_meta(&gateway.recorded_messages()));
    let server = of_kind(&spans, 2);
    assert_eq!(server.name, "tools/call echo");
    assert_eq!(server.attributes["mcp.protocol.version"], LATEST);
    assert_eq!(server.attributes["mcp.session.id"].len(), 16);
    assert_eq!(server.attributes["jsonrpc.request.id"], "2");
    assert!(!format!("{spans:?}").contains(&session.id));

    let mut modern = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    modern
        .as_object_mut()
        .unwrap()
        .extend(meta.as_object().unwrap().clone());
    let params = json!({ "name": "echo", "arguments": { "text": "planted" }, "_meta": modern });
    let linked = "00-11111111111111111111111111111111-2222222222222222-01";
    let headers = [("traceparent", linked)];
    let reply = gateway
        .client()
        .stateless(json!(3), "tools/call", params, &headers)
        .await;
    assert_eq!(reply.status.as_u16(), 200);
    let is_modern =
        |span: &ReceivedSpan| span.trace_id == TRACE && span.attributes["mcp.protocol.version"] == "2026-07-28";
    let spans = collector.wait_for(2, is_modern).await;
    check_pair(&spans, &last_meta(&gateway.recorded_messages()));
    assert_eq!(of_kind(&spans, 2).links, ["2222222222222222"]);
    assert!(!of_kind(&spans, 2).attributes.contains_key("mcp.session.id"));
}

/// OPS-19: errors are marked, a client cannot choose the name of a span, and a trace that is not sampled is not recorded.
#[tokio::test]
async fn ops_19_spans_follow_the_conventions() {
    let collector = OtlpCollector::start().await;
    let gateway = traced("legacy", &collector).start();
    let session = gateway.client().open_session(LATEST).await;
    let unsampled = PARENT.replace("-01", "-00");
    let params = json!({ "name": "echo", "arguments": {}, "_meta": { "traceparent": unsampled } });
    session.call(1, "tools/call", params).await.response().await;
    assert_eq!(last_meta(&gateway.recorded_messages())["traceparent"], unsampled);
    let malformed = json!({ "name": "planted-tool", "_meta": { "traceparent": "00-zz" } });
    session.call(2, "tools/call", malformed).await.response().await;
    session.call(3, "no/such/method", json!({})).await.response().await;
    let spans = collector.wait_for(4, |_| true).await;
    assert_eq!(spans.len(), 4, "{spans:?}");
    let server = spans
        .iter()
        .find(|span| span.kind == 2 && span.name == "tools/call")
        .unwrap();
    assert_eq!(server.parent_id, "", "a malformed context is ignored");
    let failed = spans
        .iter()
        .find(|span| span.kind == 2 && span.name == "other")
        .expect("a method that no revision has");
    assert_eq!(failed.attributes["mcp.method.name"], "other");
    assert!(failed.is_error);
    assert_eq!(failed.attributes["error.type"], "-32601");
    assert_eq!(failed.attributes["rpc.response.status_code"], "-32601");
    assert!(!format!("{spans:?}").contains("planted"));
    let requests = collector.requests();
    assert!(
        requests.iter().all(|head| head.starts_with("post /v1/traces ")),
        "{requests:?}"
    );
    assert!(
        requests
            .iter()
            .all(|head| head.contains("content-type: application/x-protobuf")),
        "{requests:?}"
    );
}

/// OPS-19: a resume is a span of its own, linked to the call whose stream is read again, also after the call has ended.
#[tokio::test]
async fn ops_19_resume_is_a_new_span_that_is_linked_to_the_call() {
    let collector = OtlpCollector::start().await;
    let gateway = traced("legacy", &collector).start();
    let session = gateway.client().open_session(LATEST).await;
    let meta = |parent: &str| json!({ "progressToken": 1, "traceparent": parent });
    let slow = |parent: &str| json!({ "name": "slow", "arguments": { "ms": 400, "steps": 4 }, "_meta": meta(parent) });
    let mut call = session.call("a", "tools/call", slow(PARENT)).await;
    call.next().await.expect("it has begun");
    let cursor = call.cursor();
    drop(call);
    let headers = [
        ("last-event-id", &*cursor),
        ("traceparent", "00-11111111111111111111111111111111-2222222222222222-01"),
    ];
    let rest = session.raw("GET", &headers, b"").await.messages().await;
    assert!(rest.last().unwrap()["result"].is_object(), "{rest:?}");
    session.resume(&cursor).await.messages().await;
    let spans = collector.wait_for(4, |_| true).await;
    let server = spans
        .iter()
        .find(|span| span.kind == 2 && span.trace_id == TRACE)
        .unwrap();
    let resumes: Vec<_> = spans.iter().filter(|span| span.name == "resume").collect();
    let [running, ended] = resumes[..] else {
        panic!("{spans:?}")
    };
    assert_eq!(running.links, [server.span_id.as_str(), "2222222222222222"]);
    assert_eq!(ended.links, [server.span_id.as_str()]);
    for resume in [running, ended] {
        assert_eq!((resume.kind, resume.parent_id.as_str()), (2, ""));
        assert!(resume.trace_id != TRACE && resume.start <= resume.end, "{resume:?}");
        assert_eq!(resume.attributes["rethread.resume.gap"], "no");
        assert_eq!(resume.attributes["mcp.session.id"], server.attributes["mcp.session.id"]);
    }

    // A client that does not want its call recorded does not want the resume recorded.
    let unsampled = PARENT.replace("-01", "-00");
    let mut call = session.call("b", "tools/call", slow(&unsampled)).await;
    call.next().await.expect("it has begun");
    let cursor = call.cursor();
    drop(call);
    session.resume(&cursor).await.messages().await;
    session.call_tool("c", "echo", json!({})).await;
    let spans = collector.wait_for(6, |_| true).await;
    assert_eq!(
        spans.iter().filter(|span| span.name == "resume").count(),
        2,
        "{spans:?}"
    );
}

/// OPS-19: a collector that does not answer delays no call.
#[tokio::test]
async fn ops_19_stalled_collector_delays_no_call() {
    let collector = OtlpCollector::start_stalled().await;
    let gateway = traced("legacy", &collector).start();
    let session = gateway.client().open_session(LATEST).await;
    let started = Instant::now();
    for id in 0..200 {
        session.call_tool(id, "echo", json!({ "text": "x" })).await;
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// OPS-20: without a collector the context passes unchanged.
#[tokio::test]
async fn ops_20_context_passes_unchanged_without_tracing() {
    let gateway = gateway_with("legacy").record_messages().start();
    let session = gateway.client().open_session(LATEST).await;
    let meta = json!({ "traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=2" });
    session
        .call(1, "tools/call", json!({ "name": "echo", "_meta": meta }))
        .await
        .response()
        .await;
    assert_eq!(last_meta(&gateway.recorded_messages()), meta);
}

/// OPS-19: a prompt is named if the server has listed it, as a tool is. The code of an error is text.
#[tokio::test]
async fn ops_19_span_names_a_listed_prompt_only() {
    let collector = OtlpCollector::start().await;
    let gateway = traced("legacy,prompts", &collector).start();
    let session = gateway.client().open_session(LATEST).await;
    session.call(1, "prompts/list", json!({})).await.response().await;
    for (id, name) in [("listed", "greet"), ("odd", "planted")] {
        session
            .call(id, "prompts/get", json!({ "name": name }))
            .await
            .response()
            .await;
    }
    session
        .call("unknown", "no/such/method", json!({}))
        .await
        .response()
        .await;
    let id = |span: &ReceivedSpan| span.attributes.get("jsonrpc.request.id").cloned().unwrap_or_default();
    let spans = collector
        .wait_for(3, |span| ["listed", "odd", "unknown"].contains(&id(span).as_str()))
        .await;
    let of = |wanted: &str| spans.iter().find(|span| id(span) == wanted).unwrap();
    let listed = of("listed");
    assert_eq!(
        (listed.name.as_str(), listed.attributes["gen_ai.prompt.name"].as_str()),
        ("prompts/get greet", "greet")
    );
    assert!(!listed.attributes.contains_key("gen_ai.operation.name"));
    let odd = of("odd");
    assert_eq!(
        (odd.name.as_str(), odd.attributes.contains_key("gen_ai.prompt.name")),
        ("prompts/get", false)
    );
    assert_eq!(of("unknown").attributes["rpc.response.status_code"], "-32601");
}
