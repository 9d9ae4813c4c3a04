//! A gateway behind nginx.

use crate::curl::{Curl, Event};
use crate::gateway::{Gateway, PROGRAM};
use crate::nginx::{Nginx, program};
use serde_json::json;
use std::path::PathBuf;

struct ProxiedGateway {
    nginx: Nginx,
    program: PathBuf,
    curl: Curl,
    _gateway: Gateway,
}

impl ProxiedGateway {
    /// `None` without nginx.
    fn start() -> Option<Self> {
        Self::with(Nginx::start)
    }

    fn with(start: fn(&PathBuf, &str) -> Nginx) -> Option<Self> {
        let program = program()?;
        let args = [
            "serve",
            "--memory",
            "--listen=127.0.0.1:0",
            "--public-url=http://mcp.example.com",
            "--",
            PROGRAM,
            "demo-server",
        ];
        let gateway = Gateway::start(&args.map(str::to_owned));
        let nginx = start(&program, &gateway.address);
        let curl = Curl {
            curl_options: vec!["--unix-socket".to_owned(), nginx.socket().display().to_string()],
            url: "http://mcp.example.com/mcp".to_owned(),
        };
        Some(ProxiedGateway {
            nginx,
            program,
            curl,
            _gateway: gateway,
        })
    }
}

/// Asserts that each event comes once, in order, from `first` on, and that the last one is the result.
fn assert_all(events: &[Event], first: usize) {
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    let expected: Vec<String> = (first..first + events.len()).map(|n| format!("1-{n}")).collect();
    assert_eq!(ids, expected);
    let last = &events.last().unwrap().data;
    assert_eq!(last["id"], 1, "{last}");
    assert!(last["result"].is_object(), "{last}");
}

/// The call waits for the answer to a question. If nginx buffered the question, both sides would wait for ever.
fn assert_unbuffered(proxied: &ProxiedGateway) {
    let session = proxied.curl.session();
    let mut call = proxied.curl.call(&session, "ask_name", json!({}));
    let question = call.next_event().unwrap();
    assert_eq!(question.data["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": question.data["id"], "result": {
        "action": "accept", "content": { "name": "Ada" } } });
    let answered = proxied.curl.status(&["-H", &session, "-d", &answer.to_string()]);
    assert_eq!(answered, "202");
    let result = call.next_event().unwrap();
    assert_eq!(result.data["result"]["content"][0]["text"], "Hello, Ada!");
}

#[test]
fn nginx_with_the_documented_file_does_not_buffer_events() {
    let Some(proxied) = ProxiedGateway::start() else { return };
    assert_unbuffered(&proxied);
}

/// A gateway with a public URL is behind a proxy, and asks it with a header not to buffer events.
#[test]
fn sse_03_nginx_with_defaults_does_not_buffer_events() {
    let Some(proxied) = ProxiedGateway::with(Nginx::with_defaults) else {
        return;
    };
    assert_unbuffered(&proxied);
}

/// Nothing follows the acknowledgement, so a buffer would never be flushed.
#[test]
fn sse_03_nginx_with_defaults_does_not_buffer_stateless_events() {
    let Some(proxied) = ProxiedGateway::with(Nginx::with_defaults) else {
        return;
    };
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} });
    let listen = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": { "toolsListChanged": true }, "_meta": meta } });
    let (version, method) = ("mcp-protocol-version: 2026-07-28", "mcp-method: subscriptions/listen");
    let mut changes = proxied
        .curl
        .open(&["-H", version, "-H", method, "-d", &listen.to_string()]);
    let first = changes.next_event().unwrap();
    assert_eq!(first.data["method"], "notifications/subscriptions/acknowledged");
}

#[test]
fn client_resumes_after_its_connection_broke() {
    let Some(proxied) = ProxiedGateway::start() else { return };
    let session = proxied.curl.session();
    let mut call = proxied.curl.call(&session, "countdown", json!({ "seconds": 3 }));
    call.events_until("1-2");
    drop(call);
    assert_all(&proxied.curl.resume(&session, "1-2").remaining_events(), 3);
}

#[test]
fn client_resumes_after_nginx_was_killed() {
    let Some(mut proxied) = ProxiedGateway::start() else {
        return;
    };
    let session = proxied.curl.session();
    let mut call = proxied.curl.call(&session, "countdown", json!({ "seconds": 3 }));
    let mut seen = call.events_until("1-2");
    proxied.nginx.kill();
    seen.extend(call.remaining_events()); // events in transit
    proxied.nginx.run(&proxied.program);
    let last = seen.last().unwrap().id.clone();
    seen.extend(proxied.curl.resume(&session, &last).remaining_events());
    assert_all(&seen, 1);
}

#[test]
fn gateway_behind_nginx_checks_hosts_and_sizes() {
    let Some(proxied) = ProxiedGateway::start() else { return };
    let curl = |url: &str| Curl {
        curl_options: proxied.curl.curl_options.clone(),
        url: url.to_owned(),
    };
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let stranger = curl("http://evil.example/mcp");
    assert_eq!(stranger.status(&["-d", &ping]), "403");
    assert_eq!(
        proxied.curl.status(&["-d", &ping]),
        "200",
        "served without a session (GW-27)"
    );
    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), vec![b' '; (4 << 20) + 1]).unwrap();
    let large = format!("@{}", large.path().display());
    assert_eq!(proxied.curl.status(&["--data-binary", &large]), "413");
    // The transport of 2024-11-05 begins with the `endpoint` event.
    let mut old = curl("http://mcp.example.com/sse").open(&[]);
    assert_eq!(old.next_line().as_deref(), Some("event: endpoint"));
}
