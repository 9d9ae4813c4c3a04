//! Invalid input gets a clear error and affects no other request, session or connection.

use crate::support::{ScriptedHandler, V2025_11_25, result_text};
use rethread::{Limits, McpService, Timing};
use rethread_testkit::client::{Client, Session};
use rethread_testkit::raw::{RawConnection, exchange, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

fn ping() -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string()
}

async fn post(session: &Session, headers: &[(&str, &str)], body: impl Into<bytes::Bytes>) -> (u16, Value) {
    let reply = session.raw("POST", headers, body).await;
    let status = reply.status.as_u16();
    let body = reply.bytes().await;
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// HTTP-04: error code and id, with its type, for every kind of malformed body.
#[tokio::test]
async fn http_04_malformed_body_gets_its_error_code() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{deep}}}}}"#);
    let table: [(&[u8], i64, Value); 14] = [
        (b"", -32700, Value::Null),
        (b"{", -32700, Value::Null),
        (b"initialize", -32700, Value::Null),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
            -32700,
            Value::Null,
        ),
        (b"{}", -32600, Value::Null),
        (b"null", -32600, Value::Null),
        (b"[]", -32600, Value::Null),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
            -32600,
            Value::Null,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
            -32600,
            Value::Null,
        ),
        (b"{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}", -32600, json!(7)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"7\"}", -32600, json!("7")),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":1}",
            -32600,
            json!(9007199254740993u64),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}",
            -32600,
            json!(1),
        ),
        (deep.as_bytes(), -32600, Value::Null),
    ];
    for (body, code, id) in table {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let (status, error) = post(&session, &[], body.to_vec()).await;
        assert_eq!(status, 400, "{shown}");
        assert_eq!(error["error"]["code"], code, "{shown}");
        assert_eq!(error.get("id").cloned().unwrap_or_default(), id, "{shown}");
        assert_eq!(
            error.as_object().unwrap().contains_key("id"),
            !id.is_null(),
            "never `null` (T-07): {shown}"
        );
    }
    assert_eq!(session.call(1, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn http_05_notifications_and_answers_get_202_and_an_empty_body() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    for method in ["notifications/initialized", "notifications/unheard_of"] {
        let reply = session.notify(method, json!({})).await;
        assert_eq!(reply.status, 202);
        assert!(reply.bytes().await.is_empty());
    }
}

#[tokio::test]
async fn http_01_other_methods_return_405_with_allow() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    for method in ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"] {
        let reply = session.raw(method, &[], "").await;
        assert_eq!(reply.status, 405, "{method}");
        assert_eq!(reply.header("allow").as_deref(), Some("GET, POST, DELETE"));
    }
}

/// HTTP-02, T-33.
#[tokio::test]
async fn http_02_accept_is_parsed_not_searched() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    for (accept, status) in [
        ("*/*", 200),
        ("application/json, text/event-stream", 200),
        ("text/event-stream, application/json", 200),
        ("application/*, text/*;q=0.1", 200),
        ("APPLICATION/JSON, Text/Event-Stream", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("application/json, text/event-stream;q=0", 406),
        ("*/*, text/event-stream;q=0", 406),
        ("text/html", 406),
    ] {
        assert_eq!(
            post(&session, &[("accept", accept)], ping()).await.0,
            status,
            "{accept}"
        );
    }
    for (accept, status) in [("application/json", 406), ("text/event-stream;q=0", 406), ("*/*", 200)] {
        assert_eq!(
            session.raw("GET", &[("accept", accept)], "").await.status,
            status,
            "GET {accept}"
        );
    }
    let without = client.with_request_hook(|request| {
        request.headers_mut().remove("accept");
    });
    assert_eq!(
        post(&session.with_client(&without), &[], ping()).await.0,
        200,
        "absent counts as */*"
    );
}

#[tokio::test]
async fn http_03_content_type_and_size_are_checked() {
    let (_, client) =
        ScriptedHandler::new().serve_with(|b| b.limits(Limits::default().with(|limits| limits.body_bytes = 1000)));
    let session = client.open(V2025_11_25).await;
    for (content_type, status) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("text/plain", 415),
        ("application/jsonp", 415),
        ("", 415),
    ] {
        let found = post(&session, &[("content-type", content_type)], ping()).await.0;
        assert_eq!(found, status, "{content_type}");
    }
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "x": "y".repeat(1000) } });
    let (status, error) = post(&session, &[], large.to_string()).await;
    assert_eq!((status, &error["error"]["code"]), (413, &json!(-32600)));
    assert!(
        error["error"]["message"].as_str().unwrap().contains("1000"),
        "the error names the limit"
    );
}

/// A request body that arrives in several frames.
struct FramedBody(std::collections::VecDeque<bytes::Bytes>);

impl http_body::Body for FramedBody {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        let frame = self.0.pop_front();
        std::task::Poll::Ready(frame.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// HTTP-03: the limit applies to the sum of all frames.
#[tokio::test]
async fn http_03_body_in_several_frames_counts_each_byte_once() {
    let limits = Limits::default().with(|limits| limits.body_bytes = 1000);
    let (mut service, client) = ScriptedHandler::new().serve_with(|b| b.limits(limits));
    let session = client.open(V2025_11_25).await;
    for (frames, status) in [
        (&[1000][..], 200),
        (&[999, 1], 200),
        (&[1, 999], 200),
        (&[500, 500], 200),
        (&[0, 400, 300, 0, 300], 200),
        (&[1001], 413),
        (&[1000, 1], 413),
        (&[600, 300, 101], 413),
    ] {
        let mut body = ping();
        body.push_str(&" ".repeat(frames.iter().sum::<usize>() - body.len()));
        let mut rest = bytes::Bytes::from(body);
        let body = FramedBody(frames.iter().map(|size| rest.split_to(*size)).collect());
        let request = http::Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("mcp-session-id", &session.id)
            .body(body)
            .unwrap();
        let Ok(response) = tower_service::Service::call(&mut service, request).await;
        assert_eq!(
            response.status(),
            status,
            "frames of {frames:?} bytes, at most 1000 in all"
        );
    }
}

/// SEC-01, SEC-02, T-34: checked before everything else.
#[tokio::test]
async fn sec_01_origin_and_host_are_checked_on_every_method() {
    let (_, client) =
        ScriptedHandler::new().serve_with(|b| b.allow_origin("https://app.example").allow_host("mcp.example"));
    let session = client.open(V2025_11_25).await;
    let rows: [(&[(&str, &str)], bool); 12] = [
        (&[("origin", "http://evil.example")], false),
        (&[("origin", "null")], false),
        (&[("origin", "garbage")], false),
        (&[("origin", "https://app.example.evil")], false),
        (&[("origin", "http://app.example")], false),
        (&[("host", "evil.example")], false),
        (
            &[("host", "evil.example:8080"), ("origin", "http://evil.example:8080")],
            false,
        ),
        (&[("origin", "https://app.example")], true),
        (&[("origin", "http://localhost:3000")], true),
        (&[("host", "127.0.0.1:9999")], true),
        (&[("host", "mcp.example:8443")], true),
        (&[("host", "mcp.example"), ("origin", "https://mcp.example")], true),
    ];
    for (headers, allowed) in rows {
        for (method, body) in [("POST", ping()), ("GET", String::new())] {
            let reply = session.raw(method, headers, body).await;
            assert_eq!(reply.status == 200, allowed, "{method} {headers:?}: {}", reply.status);
            if !allowed {
                assert_eq!(reply.status, 403);
                assert_eq!(reply.header("access-control-allow-origin"), None);
                assert!(reply.json().await.get("id").is_none());
            }
        }
        if !allowed {
            assert_eq!(session.raw("DELETE", headers, "").await.status, 403);
        }
    }
}

/// HTTP-14.
#[tokio::test]
async fn http_14_preflight_is_answered() {
    let (_, client) = ScriptedHandler::new().serve_with(|b| b.allow_origin("https://app.example"));
    let ask = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "content-type, mcp-param-region, x-other",
        ),
    ];
    let reply = client.request("OPTIONS", &ask, "").await;
    assert_eq!(reply.status, 204);
    assert_eq!(
        reply.header("access-control-allow-origin").as_deref(),
        Some("https://app.example")
    );
    let allowed = reply.header("access-control-allow-headers").unwrap();
    assert!(allowed.contains("Mcp-Session-Id") && allowed.contains("mcp-param-region") && !allowed.contains("x-other"));
    let evil = [("origin", "https://evil.example"), ask[1], ask[2]];
    assert_eq!(
        client
            .request("OPTIONS", &evil, "")
            .await
            .header("access-control-allow-origin"),
        None
    );
    let reply = client.request("POST", &[ask[0]], ping()).await;
    assert!(
        reply
            .header("access-control-expose-headers")
            .unwrap()
            .contains("Mcp-Session-Id"),
        "on refusals too"
    );
}

/// HDR-07: mirrored headers belong to 2026-07-28.
#[tokio::test]
async fn hdr_07_wrong_mcp_method_header_is_ignored_in_a_session() {
    let (_, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let headers = [("mcp-method", "something/else"), ("mcp-name", "nobody")];
    assert_eq!(post(&session, &headers, ping()).await.0, 200);
}

// ---- over TCP: faults that need a socket ----

async fn listen(service: McpService) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = axum::Router::new().route_service("/mcp", service);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    addr
}

fn with_session<'a>(session: &'a Session, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-session-id", session.id.as_str()),
    ];
    headers.extend_from_slice(more);
    headers
}

#[tokio::test]
async fn sec_06_hostile_connection_does_not_affect_others() {
    let handler = ScriptedHandler::new();
    let (service, client) =
        handler.serve_with(|b| b.timing(Timing::default().with(|timing| timing.body = Duration::from_millis(200))));
    let addr = listen(service.clone()).await;
    let session = client.open(V2025_11_25).await;
    let headers = with_session(&session, &[]);

    let huge = "x".repeat(40_000);
    let mut more = headers.clone();
    more.push(("x-padding", &huge));
    let (status, _, _) = exchange(addr, &request("POST", "/mcp", &more, ping().as_bytes()))
        .await
        .unwrap();
    assert_eq!(status, 431);

    let whole = request("POST", "/mcp", &headers, ping().as_bytes());
    let mut stalled = RawConnection::open(addr).await.unwrap();
    stalled.send(&whole[..whole.len() - 10]).await.unwrap(); // the last ten bytes are never sent
    let mut slow = RawConnection::open(addr).await.unwrap();
    slow.send_slowly(&whole, 64, Duration::from_millis(1)).await.unwrap();
    assert_eq!(slow.read_head().await.unwrap().0, 200, "slow is fine");
    assert_eq!(stalled.read_head().await.unwrap().0, 400, "never is not");

    for at in [1, 40, whole.len() - 1] {
        let mut cut = RawConnection::open(addr).await.unwrap();
        cut.send(&whole[..at]).await.unwrap();
        cut.reset().unwrap();
    }
    let mut garbage = RawConnection::open(addr).await.unwrap();
    garbage
        .send(b"\x16\x03\x01\x00 this is not HTTP\r\n\r\n")
        .await
        .unwrap();
    let (status, _, body) = exchange(addr, &whole).await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["result"], json!({}));
    assert_eq!(service.stats().running_calls, 0);
}

/// SSE-14 on a real socket: an unread socket fills up and blocks nothing else.
#[tokio::test]
async fn sse_14_peer_that_never_reads_delays_nobody() {
    let handler = ScriptedHandler::new();
    let (service, client) =
        handler.serve_with(|b| b.timing(Timing::default().with(|timing| timing.stall = Duration::from_millis(300))));
    let addr = listen(service.clone()).await;
    let session = client.open(V2025_11_25).await;
    let mut deaf = RawConnection::open_narrow(addr, 4096).await.unwrap();
    let get = request("GET", "/mcp", &with_session(&session, &[]), b"");
    deaf.send(&get).await.unwrap();
    while service.stats().connections == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let notifier = service.notifier();
    let start = std::time::Instant::now();
    for n in 0..2_000 {
        notifier.broadcast(
            "notifications/message",
            json!({ "level": "info", "data": "x".repeat(1000), "n": n }),
        );
        if n % 100 == 0 {
            let reply = session.tool(n, "echo", json!({ "message": "quick" })).await;
            assert_eq!(result_text(&reply.json().await), "quick");
            tokio::task::yield_now().await;
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    deaf.reset().unwrap();
}

/// CAN-02 on a real socket, with RST.
#[tokio::test]
async fn can_02_reset_connection_does_not_stop_the_call() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let addr = listen(service.clone()).await;
    let session: Session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "a", "_meta": { "progressToken": 1 } } });
    let mut socket = RawConnection::open(addr).await.unwrap();
    let post = request(
        "POST",
        "/mcp",
        &with_session(&session, &[]),
        body.to_string().as_bytes(),
    );
    socket.send(&post).await.unwrap();
    script.progress(1).await;
    assert_eq!(socket.read_head().await.unwrap().0, 200);
    let mut last = None;
    while last.as_deref() != Some("1-1") {
        last = socket.next_block(Duration::from_secs(5)).await.unwrap().id.or(last);
    }
    socket.reset().unwrap();
    script.progress(2).await;
    script.finish("survived").await;
    let rest = session.resume("1-1").await.rest().await;
    assert_eq!(result_text(&rest[1].data), "survived");
    let _ = Client::new(service);
}
