//! A server behind nginx.

use crate::gateway::{Gateway, PROGRAM};
use crate::nginx::{Nginx, program};
use crate::stream::{Curl, Event};
use serde_json::json;
use std::path::PathBuf;

struct Behind {
    nginx: Nginx,
    program: PathBuf,
    curl: Curl,
    _gateway: Gateway,
}

impl Behind {
    /// `None` where there is no nginx.
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
            way: vec!["--unix-socket".to_owned(), nginx.socket().display().to_string()],
            url: "http://mcp.example.com/mcp".to_owned(),
        };
        Some(Behind {
            nginx,
            program,
            curl,
            _gateway: gateway,
        })
    }
}

/// Each event once, in order, from `first` on, and the result of the countdown last.
fn assert_all(events: &[Event], first: usize) {
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    let expected: Vec<String> = (first..first + events.len()).map(|n| format!("1-{n}")).collect();
    assert_eq!(ids, expected);
    let last = &events.last().unwrap().data;
    assert_eq!(last["id"], 1, "{last}");
    assert!(last["result"].is_object(), "{last}");
}

/// The call waits for the answer to a question. If nginx held the question back, both would wait for ever.
fn assert_unbuffered(behind: &Behind) {
    let session = behind.curl.session();
    let mut call = behind.curl.call(&session, "ask_name", json!({}));
    let question = call.event().unwrap();
    assert_eq!(question.data["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": question.data["id"], "result": {
        "action": "accept", "content": { "name": "Ada" } } });
    let answered = behind.curl.status(&["-H", &session, "-d", &answer.to_string()]);
    assert_eq!(answered, "202");
    let result = call.event().unwrap();
    assert_eq!(result.data["result"]["content"][0]["text"], "Hello, Ada!");
}

#[test]
fn events_are_not_buffered() {
    let Some(behind) = Behind::start() else { return };
    assert_unbuffered(&behind);
}

/// A gateway that has a public URL has a proxy before it, and asks it not to hold events back: an nginx that nobody configured
/// does as it is told.
#[test]
fn sse_03_events_are_not_buffered_even_by_default() {
    let Some(behind) = Behind::with(Nginx::bare) else {
        return;
    };
    assert_unbuffered(&behind);
}

/// On 2026-07-28 the same. Nothing follows the acknowledgement, so a buffer would never be full.
#[test]
fn sse_03_stateless_events_are_not_buffered_even_by_default() {
    let Some(behind) = Behind::with(Nginx::bare) else {
        return;
    };
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} });
    let listen = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": { "toolsListChanged": true }, "_meta": meta } });
    let (version, method) = ("mcp-protocol-version: 2026-07-28", "mcp-method: subscriptions/listen");
    let mut changes = behind
        .curl
        .open(&["-H", version, "-H", method, "-d", &listen.to_string()]);
    let first = changes.event().unwrap();
    assert_eq!(first.data["method"], "notifications/subscriptions/acknowledged");
}

#[test]
fn a_client_that_vanishes_resumes() {
    let Some(behind) = Behind::start() else { return };
    let session = behind.curl.session();
    let mut call = behind.curl.call(&session, "countdown", json!({ "seconds": 3 }));
    call.until("1-2");
    drop(call);
    assert_all(&behind.curl.resume(&session, "1-2").rest(), 3);
}

#[test]
fn a_client_resumes_when_nginx_was_killed() {
    let Some(mut behind) = Behind::start() else { return };
    let session = behind.curl.session();
    let mut call = behind.curl.call(&session, "countdown", json!({ "seconds": 3 }));
    let mut seen = call.until("1-2");
    behind.nginx.kill();
    seen.extend(call.rest()); // what was under way
    behind.nginx.run(&behind.program);
    let last = seen.last().unwrap().id.clone();
    seen.extend(behind.curl.resume(&session, &last).rest());
    assert_all(&seen, 1);
}

#[test]
fn names_and_sizes_are_checked_through_nginx() {
    let Some(behind) = Behind::start() else { return };
    let curl = |url: &str| Curl {
        way: behind.curl.way.clone(),
        url: url.to_owned(),
    };
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let stranger = curl("http://evil.example/mcp");
    assert_eq!(stranger.status(&["-d", &ping]), "403");
    assert_eq!(behind.curl.status(&["-d", &ping]), "400", "no session, but let in");
    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), vec![b' '; (4 << 20) + 1]).unwrap();
    let large = format!("@{}", large.path().display());
    assert_eq!(behind.curl.status(&["--data-binary", &large]), "413");
    // The transport of 2024-11-05 begins with an event that says where to POST.
    let mut old = curl("http://mcp.example.com/sse").open(&[]);
    assert_eq!(old.line().as_deref(), Some("event: endpoint"));
}
