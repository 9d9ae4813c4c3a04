//! The page for browsers, and the exact bytes that other requests get.

use crate::gateway::gateway_with;
use http::StatusCode;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

const CHROMIUM: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

/// The bytes of a response without its date.
fn exchange(addr: SocketAddr, head: &str) -> String {
    let mut socket = TcpStream::connect(addr).unwrap();
    let request = format!("{}\r\nconnection: close\r\n\r\n", head.replace('\n', "\r\n"));
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    let lines = response.split("\r\n").filter(|line| !line.starts_with("date: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn browser_gets_a_page_at_the_root_and_at_the_endpoint() {
    let gateway = gateway_with("legacy").option("--name it").start();
    let addr = gateway.addr;
    for path in ["/", "/mcp"] {
        let page = exchange(
            addr,
            &format!(
                "GET {path} HTTP/1.1\nhost: localhost:{}\naccept: {CHROMIUM}",
                addr.port()
            ),
        );
        let (head, body) = page.split_once("\n\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\ncontent-type: text/html; charset=utf-8\n"),
            "{head}"
        );
        for expected in [
            "content-security-policy: default-src 'none'; style-src 'sha256-",
            "x-content-type-options: nosniff\n",
            "cache-control: no-store\n",
        ] {
            assert!(head.contains(expected), "{head}");
        }
        let url = format!("<h3>it</h3><code>http://localhost:{}/mcp</code>", addr.port());
        assert!(body.contains(&url), "{body}");
        assert!(
            !body.contains("<script") && !body.contains("child.py"),
            "no scripts, no command: {body}"
        );
    }
}

/// The expected bytes were recorded from a gateway without the page.
#[tokio::test]
async fn other_requests_get_the_same_bytes_as_without_the_page() {
    let gateway = gateway_with("legacy").start();
    let not_found = "HTTP/1.1 404 Not Found\ncontent-type: text/plain; charset=utf-8\nconnection: close\n\
                     content-length: 29\n\nnothing here; MCP is at /mcp\n";
    let no_session = "HTTP/1.1 400 Bad Request\ncontent-type: application/json\nconnection: close\n\
                      content-length: 159\n\n{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"missing session: send the \
                      `Mcp-Session-Id` that the answer to `initialize` carried, or `initialize` first\"}}";
    let not_acceptable = "HTTP/1.1 406 Not Acceptable\ncontent-type: application/json\nconnection: close\n\
                          content-length: 107\n\n{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"not acceptable: \
                          `Accept` must admit text/event-stream\"}}";
    let bad_host = "HTTP/1.1 403 Forbidden\ncontent-type: application/json\nconnection: close\n\
                    content-length: 219\n\n{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,\"message\":\"host `evil.example` is \
                    not allowed; add it with --allow-host or --public-url (`allow_hosts` or `public_url` in the file) if clients \
                    reach this server under that name\"}}";
    let no_method = "HTTP/1.1 405 Method Not Allowed\ncontent-type: application/json\nallow: GET, POST, DELETE\n\
                     connection: close\ncontent-length: 111\n\n";
    let table = [
        ("GET / HTTP/1.1\nhost: localhost", not_found),
        ("GET / HTTP/1.1\nhost: localhost\naccept: */*", not_found),
        ("GET / HTTP/1.1\nhost: evil.example\naccept: text/html", not_found),
        (
            "GET / HTTP/1.1\nhost: localhost\nhost: localhost\naccept: text/html",
            not_found,
        ),
        ("GET /mcp HTTP/1.1\nhost: localhost", no_session),
        ("GET /mcp HTTP/1.1\nhost: localhost\naccept: */*", no_session),
        (
            "GET /mcp HTTP/1.1\nhost: localhost\naccept: text/event-stream",
            no_session,
        ),
        (
            "GET /mcp HTTP/1.1\nhost: localhost\naccept: text/html, text/event-stream",
            no_session,
        ),
        (
            "GET /mcp HTTP/1.1\nhost: localhost\naccept: application/json",
            not_acceptable,
        ),
        (
            "GET /mcp HTTP/1.1\nhost: localhost\naccept: text/html\nmcp-session-id: x",
            not_acceptable,
        ),
        ("GET /mcp HTTP/1.1\nhost: evil.example\naccept: text/html", bad_host),
        ("HEAD /mcp HTTP/1.1\nhost: localhost\naccept: text/html", no_method),
    ];
    for (request, expected) in table {
        assert_eq!(exchange(gateway.addr, request), expected, "{request}");
    }
    let reply = gateway
        .client()
        .send("GET", "/nowhere", &[("accept", CHROMIUM)], b"")
        .await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND);
}
