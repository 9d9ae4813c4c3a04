//! Metrics, the audit log and the log lines of a gateway, and what must never be in them.

use crate::client::{Client, LATEST};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, gateway_with, wait_until};
use rethread_testkit::prometheus::Scrape;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

/// A gateway with a listener for monitors and an audit log.
fn monitored(behavior: &str) -> GatewayBuilder {
    gateway_with(behavior).option("--metrics 127.0.0.1:0 --audit audit.jsonl")
}

pub(crate) async fn monitor(gateway: &Gateway) -> Client {
    gateway.wait_for_log("metrics and health").await;
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("metrics and health")).unwrap();
    let address = line.split("address=").nth(1).unwrap();
    let address: SocketAddr = address.split_whitespace().next().unwrap().parse().unwrap();
    Client::new(address, "")
}

pub(crate) async fn scrape(monitor: &Client) -> Scrape {
    let reply = monitor.send("GET", "/metrics", &[], b"").await;
    assert_eq!(reply.status.as_u16(), 200);
    assert_eq!(
        reply.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = reply.text().await;
    Scrape::parse(&text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

fn audit_lines(gateway: &Gateway) -> Vec<Value> {
    let text = std::fs::read_to_string(gateway.builder().path("audit.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) async fn wait_for_audit(gateway: &Gateway, count: usize, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    let matching = || audit_lines(gateway).into_iter().filter(&fits).collect::<Vec<_>>();
    let found = wait_until(WAIT, || matching().len() >= count).await;
    assert!(found, "{:?}", audit_lines(gateway));
    let matching = matching();
    assert_eq!(matching.len(), count, "{matching:?}");
    matching
}

/// OPS-01: this listener has three paths.
#[tokio::test]
async fn ops_01_monitor_has_health_and_metrics_and_nothing_else() {
    let gateway = monitored("legacy").start();
    let monitor = monitor(&gateway).await;
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("HEAD", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("POST", "/healthz", 405),
        ("POST", "/metrics", 405),
        ("GET", "/", 404),
        ("GET", "/mcp", 404),
        ("GET", "/metrics/", 404),
        ("GET", "//metrics", 404),
        ("GET", "/api/v1/snapshot", 404),
    ] {
        let reply = monitor.send(method, path, &[], b"").await;
        assert_eq!(reply.status.as_u16(), status, "{method} {path}");
        if status != 404 {
            assert_eq!(reply.headers["cache-control"], "no-store", "{method} {path}");
        }
        let allow = reply.headers.get("allow").map(|allow| allow.to_str().unwrap());
        assert_eq!(allow, (status == 405).then_some("GET, HEAD"), "{method} {path}");
    }
    assert_eq!(
        gateway.client().get("/metrics").await.status.as_u16(),
        404,
        "the port of clients"
    );
}

/// GW-27: neither requests of a session nor those of 2026-07-28 count.
#[tokio::test]
async fn gw_27_metric_counts_requests_that_do_not_name_their_session() {
    let gateway = monitored("legacy").start();
    let monitor = monitor(&gateway).await;
    let session = gateway.client().open_session(LATEST).await;
    session.call_tool(1, "echo", json!({ "text": "x" })).await;
    let modern = gateway.client().call_tool(2, "echo", json!({ "text": "x" })).await;
    assert!(modern["result"].is_object(), "{modern}");
    let count = async || scrape(&monitor).await.sum("rethread_sessionless_requests_total", &[]);
    assert_eq!(count().await, 0.0);
    let list = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let reply = gateway.client().post(&[("mcp-protocol-version", LATEST)], &list).await;
    assert_eq!(reply.status.as_u16(), 200);
    assert_eq!(count().await, 1.0);
}

/// OPS-05: two servers of one process have values of their own, and every member of a closed set is there from the start.
#[tokio::test]
async fn ops_05_two_servers_have_their_own_values() {
    let builder = GatewayBuilder::new().option("--metrics 127.0.0.1:0 --memory --config servers.toml");
    let mut file = String::new();
    for server in ["one", "two"] {
        let command = fake_child_command("legacy", builder.marker());
        file.push_str(&format!("[servers.{server}]\ncommand = {}\n", json!(command)));
    }
    std::fs::write(builder.path("servers.toml"), file).unwrap();
    let gateway = builder.start();
    let monitor = monitor(&gateway).await;
    let start = scrape(&monitor).await;
    for server in ["one", "two"] {
        let zero = |name: &str, labels: &[(&str, &str)]| {
            let labels: Vec<_> = [("server", server)].iter().chain(labels).copied().collect();
            assert_eq!(start.value(name, &labels), Some(0.0), "{name} {labels:?}");
        };
        zero("rethread_sessions_opened_total", &[]);
        zero("rethread_sessions_closed_total", &[("reason", "idle")]);
        let ended = [("mcp_protocol_version", LATEST), ("error_type", "other")];
        zero("mcp_server_session_duration_seconds_count", &ended);
        zero("rethread_resumes_total", &[("gap", "yes")]);
        zero("rethread_children_exits_total", &[("how", "crashed")]);
        zero("rethread_children_hibernated_total", &[("cause", "max_children")]);
        zero("rethread_connections_open", &[("kind", "listen")]);
        zero("rethread_sessions_active", &[]);
        zero("rethread_calls_parked", &[]);
        assert_eq!(start.value("rethread_store_up", &[("server", server)]), Some(1.0));
    }
    assert_eq!(
        start.value("rethread_refusals_total", &[("reason", "origin")]),
        Some(0.0)
    );
    assert_eq!(start.value("rethread_audit_dropped_total", &[]), Some(0.0));
    assert_eq!(start.sum("rethread_build_info", &[]), 1.0);

    let one = Client::new(gateway.addr, "/servers/one").open_session(LATEST).await;
    let _again = Client::new(gateway.addr, "/servers/one").open_session(LATEST).await;
    let two = Client::new(gateway.addr, "/servers/two").open_session(LATEST).await;
    for id in 1..=3 {
        one.call_tool(id, "echo", json!({ "text": "x" })).await;
    }
    two.call_tool(1, "echo", json!({ "text": "x" })).await;
    let end = scrape(&monitor).await;
    for (server, sessions, calls) in [("one", 2.0, 3.0), ("two", 1.0, 1.0)] {
        let of = |name: &str| end.value(name, &[("server", server)]);
        assert_eq!(of("rethread_sessions_active"), Some(sessions), "{server}");
        assert_eq!(of("rethread_sessions_opened_total"), Some(sessions), "{server}");
        assert_eq!(of("rethread_children_running"), Some(sessions), "{server}");
        assert!(
            of("rethread_children_starts_total") > Some(sessions),
            "the probe is one more"
        );
        let labels = [
            ("server", server),
            ("mcp_method_name", "tools/call"),
            ("error_type", ""),
        ];
        assert_eq!(
            end.sum("mcp_server_operation_duration_seconds_count", &labels),
            calls,
            "{server}"
        );
    }
    assert_eq!(one.delete().await.as_u16(), 204);
    let deleted = scrape(&monitor).await;
    let closed = |server| {
        deleted.value(
            "rethread_sessions_closed_total",
            &[("server", server), ("reason", "deleted")],
        )
    };
    assert_eq!((closed("one"), closed("two")), (Some(1.0), Some(0.0)));
    assert_eq!(
        deleted.value("rethread_sessions_active", &[("server", "one")]),
        Some(1.0)
    );
}

/// OPS-06: nothing that a client writes becomes a label. 1,000 methods, tools, paths and session ids, 50 real sessions, and a
/// strict parser reads the metrics while they come.
#[tokio::test]
async fn ops_06_odd_requests_do_not_add_series() {
    const ODD: usize = 1000;
    const CLIENTS: usize = 4;
    let gateway = monitored("dual").test_timeout(Duration::from_secs(300)).start();
    let monitor = monitor(&gateway).await;
    let session = gateway.client().open_session(LATEST).await;
    let burst = async |names: std::ops::Range<usize>| {
        let each = |client: usize| {
            let (session, gateway, names) = (&session, &gateway, names.clone());
            async move {
                for n in names.filter(|n| n % CLIENTS == client) {
                    let odd = format!("odd-{n}");
                    session
                        .call(format!("id-{odd}"), &format!("method/{odd}"), json!({}))
                        .await;
                    session.call_tool(format!("tool-{odd}"), &odd, json!({})).await;
                    gateway.client().get(&format!("/{odd}")).await;
                    let headers = [("mcp-session-id", odd.as_str()), ("accept", "text/event-stream")];
                    gateway.client().send("GET", "/mcp", &headers, b"").await;
                    let version = [("mcp-protocol-version", odd.as_str())];
                    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
                    gateway.client().post(&version, &ping).await;
                    if n % 20 == 0 {
                        let opened = gateway.client().open_session(LATEST).await;
                        assert_eq!(opened.delete().await.as_u16(), 204);
                    }
                }
            }
        };
        tokio::join!(each(0), each(1), each(2), each(3));
    };
    burst(0..CLIENTS).await;
    let before = scrape(&monitor).await;
    let mut counts = Vec::new();
    let scrapes = async {
        loop {
            counts.push(scrape(&monitor).await.len());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = burst(CLIENTS..ODD + CLIENTS) => {}
        () = scrapes => {}
    }
    assert!(counts.len() > 1, "it was read under load");
    let after = scrape(&monitor).await;
    assert_eq!(before.len(), after.len(), "the number of series has grown: {counts:?}");
    assert!(
        after
            .samples
            .iter()
            .all(|s| s.labels.values().all(|value| !value.contains("odd")))
    );
    assert!(after.len() < 1000, "{}", after.len());
}

/// OPS-14: one line for each call, session and refusal, without parameters.
#[tokio::test]
async fn ops_14_audit_log_has_each_session_call_and_refusal() {
    let gateway = monitored("dual").start();
    let client = gateway.client();
    let session = client.open_session(LATEST).await;
    session
        .call_tool(1, "echo", json!({ "text": "planted-argument" }))
        .await;
    session.call(2, "no/such/method", json!({})).await.response().await;
    client.call_tool(3, "echo", json!({ "text": "planted-argument" })).await;
    let body = json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": { "name": "echo" } });
    let refused = client
        .post(
            &[("mcp-session-id", "unknown"), ("mcp-protocol-version", LATEST)],
            &body,
        )
        .await;
    assert_eq!(refused.status.as_u16(), 404);
    assert_eq!(session.delete().await.as_u16(), 204);

    let opened = &wait_for_audit(&gateway, 1, |line| line["event"] == "session.opened").await[0];
    assert_eq!(
        (&opened["server"], &opened["revision"]),
        (&json!("child"), &json!(LATEST))
    );
    assert_eq!(opened["peer"], "127.0.0.1");
    let tag = opened["session"].as_str().unwrap().to_owned();
    assert!(tag.len() == 16 && tag.bytes().all(|c| c.is_ascii_hexdigit()), "{tag}");
    let calls = wait_for_audit(&gateway, 2, |line| line["event"] == "call" && line["outcome"] == "ok").await;
    let of_session = calls.iter().find(|line| line["session"] == json!(tag)).unwrap();
    assert_eq!(
        (&of_session["method"], &of_session["tool"]),
        (&json!("tools/call"), &json!("echo"))
    );
    assert!(of_session["duration_ms"].as_f64().unwrap() > 0.0);
    assert!(
        calls
            .iter()
            .any(|line| line["revision"] == "2026-07-28" && line.get("session").is_none())
    );
    let failed = &wait_for_audit(&gateway, 1, |line| line["outcome"] == "error").await[0];
    assert_eq!(
        (&failed["method"], &failed["reason"]),
        (&json!("no/such/method"), &json!("-32601"))
    );
    let refused = &wait_for_audit(&gateway, 1, |line| line["outcome"] == "refused").await[0];
    assert_eq!(
        (&refused["event"], &refused["reason"]),
        (&json!("call"), &json!("unknown_session"))
    );
    assert_eq!(
        (&refused["method"], &refused["tool"]),
        (&json!("tools/call"), &json!("echo"))
    );
    let ended = &wait_for_audit(&gateway, 1, |line| line["event"] == "session.ended").await[0];
    assert_eq!((&ended["session"], &ended["reason"]), (&json!(tag), &json!("deleted")));
    let path = gateway.builder().path("audit.jsonl");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        !std::fs::read_to_string(&path).unwrap().contains("planted"),
        "parameters are off"
    );

    std::fs::rename(&path, gateway.builder().path("audit.jsonl.1")).unwrap();
    gateway.signal(Signal::HUP);
    wait_for_audit(&gateway, 1, |line| line["event"] == "config.reloaded").await;
}

#[tokio::test]
async fn ops_14_audit_log_has_parameters_if_asked() {
    let builder = gateway_with("legacy").option("--config rethread.toml");
    std::fs::write(
        builder.path("rethread.toml"),
        "audit = { file = \"audit.jsonl\", params = true }\n",
    )
    .unwrap();
    let gateway = builder.start();
    let session = gateway.client().open_session(LATEST).await;
    session.call_tool(1, "echo", json!({ "text": "hello" })).await;
    let call = &wait_for_audit(&gateway, 1, |line| line["event"] == "call").await[0];
    assert_eq!(call["params"]["arguments"]["text"], "hello", "{call}");
}

/// OPS-15, SEC-07: secrets that clients plant are in no log, metric or audit line.
#[tokio::test]
async fn ops_15_planted_secrets_appear_nowhere() {
    const SECRET: &str = "planted-secret-4711";
    let gateway = monitored("dual").option("-vv").start();
    let monitor = monitor(&gateway).await;
    let client = gateway.client();
    let session = client.open_session(LATEST).await;
    session.call_tool(1, "echo", json!({ "text": SECRET })).await;
    client.call_tool(2, "echo", json!({ "text": SECRET })).await;
    let authorization = format!("Bearer {SECRET}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("cookie", SECRET),
        ("x-api-key", SECRET),
    ];
    session.raw("POST", &headers, format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{SECRET}"}}}}}}"#).as_bytes()).await.text().await;
    session
        .raw(
            "POST",
            &headers,
            format!(r#"{{"jsonrpc":"2.0","id":4,"method":{{"{SECRET}":"#).as_bytes(),
        )
        .await;
    session.raw("GET", &[("last-event-id", SECRET)], b"").await;
    client.send("GET", "/mcp", &[("mcp-session-id", SECRET)], b"").await;
    gateway.wait_for_log("call ended").await;
    assert_eq!(session.delete().await.as_u16(), 204);
    wait_for_audit(&gateway, 1, |line| line["event"] == "session.ended").await;
    let metrics = monitor.send("GET", "/metrics", &[], b"").await.text().await;
    let audit = std::fs::read_to_string(gateway.builder().path("audit.jsonl")).unwrap();
    for (place, text) in [("log", gateway.log()), ("metrics", metrics), ("audit", audit)] {
        assert!(!text.contains(SECRET), "the {place} has the secret\n{text}");
        assert!(!text.contains(&session.id), "the {place} has the session id\n{text}");
    }
}

/// The lines of one session have the same tag: opened, child, call, stderr of the child, ended.
#[tokio::test]
async fn ops_15_log_lines_of_a_session_have_its_tag() {
    let gateway = gateway_with("legacy,noisy-stdout").start();
    let session = gateway.client().open_session(LATEST).await;
    session.call_tool(1, "echo", json!({ "text": "x" })).await;
    session.start_tool(2, "crash", json!({})).await.messages().await;
    // The probe has exited, too. Its line has no session.
    let has_exited = |line: &str| line.contains("child exited") && line.contains("session=");
    assert!(wait_until(WAIT, || gateway.log().lines().any(has_exited)).await);
    assert_eq!(session.delete().await.as_u16(), 204);
    gateway.wait_for_log("session ended").await;
    let log = gateway.log();
    let tag = {
        let line = log.lines().find(|line| line.contains("session opened")).unwrap();
        assert!(
            line.contains("revision=\"2025-11-25\"") && line.contains("client="),
            "{line}"
        );
        line.split("session=").nth(1).unwrap()[..16].to_owned()
    };
    for phrase in [
        "child started",
        "child stderr",
        "child exited",
        "call ended",
        "session ended",
    ] {
        let line = log
            .lines()
            .find(|line| line.contains(phrase) && line.contains(&format!("session={tag}")));
        let line = line.unwrap_or_else(|| panic!("no `{phrase}` of {tag} in\n{log}"));
        if phrase.starts_with("child") {
            assert!(line.contains("pid=") && line.contains("server=\"child\""), "{line}");
            assert!(!line.contains('\u{1b}'), "{line}");
        }
    }
    let call = log
        .lines()
        .find(|line| line.contains("call ended") && line.contains("tool=\"echo\""))
        .unwrap();
    assert!(
        call.contains("outcome=\"ok\"") && call.contains("duration_ms="),
        "{call}"
    );
}

/// OPS-02: a monitor sees the drain until the running call has ended.
#[tokio::test]
async fn ops_02_monitor_sees_the_drain() {
    let mut gateway = monitored("legacy").option("--drain 20s").start();
    let monitor = monitor(&gateway).await;
    let session = gateway.client().open_session(LATEST).await;
    let call = tokio::spawn(async move { session.call_tool(1, "slow", json!({ "ms": 2000 })).await });
    let deadline = std::time::Instant::now() + WAIT;
    while scrape(&monitor)
        .await
        .value("rethread_calls_running", &[("server", "child")])
        != Some(1.0)
    {
        assert!(std::time::Instant::now() < deadline, "the call does not run");
    }
    gateway.signal(Signal::TERM);
    gateway.wait_for_log("draining").await;
    let ready = monitor.send("GET", "/readyz", &[], b"").await;
    assert_eq!(
        (ready.status.as_u16(), ready.text().await.as_str()),
        (503, "draining\n")
    );
    assert_eq!(monitor.send("GET", "/healthz", &[], b"").await.status.as_u16(), 200);
    call.await.unwrap();
    assert!(gateway.wait_for_exit(WAIT).is_some_and(|status| status.success()));
}
