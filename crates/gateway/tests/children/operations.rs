//! Operation: health paths, JSON log, refusals, file permissions, exit codes.

use crate::client::LATEST;
use crate::gateway::{GatewayBuilder, gateway_with, wait_until};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// T-38: caches must not store health, and no other method applies.
#[tokio::test]
async fn t_38_health_paths_take_get_and_head_and_are_not_cached() {
    let gateway = gateway_with("legacy").start();
    let client = gateway.client();
    for path in ["/healthz", "/readyz"] {
        for (method, status) in [
            ("GET", 200),
            ("HEAD", 200),
            ("POST", 405),
            ("DELETE", 405),
            ("OPTIONS", 405),
        ] {
            let reply = client.send(method, path, &[], b"").await;
            assert_eq!(reply.status.as_u16(), status, "{method} {path}");
            assert_eq!(reply.headers["cache-control"], "no-store", "{method} {path}");
            let allow = reply.headers.get("allow").map(|allow| allow.to_str().unwrap());
            assert_eq!(allow, (status == 405).then_some("GET, HEAD"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn ops_03_paths_match_exactly() {
    let gateway = gateway_with("legacy").start();
    let client = gateway.client();
    for path in [
        "/",
        "//mcp",
        "/mcp/",
        "/mcp/x",
        "/mcpx",
        "/%2e/mcp",
        "/./mcp",
        "/%6dcp",
        "/MCP",
        "/healthz/",
        "//healthz",
    ] {
        assert_eq!(client.get(path).await.status.as_u16(), 404, "{path}");
    }
}

/// SEC-01, SEC-02: the text names the refused value and the option that allows it.
#[tokio::test]
async fn sec_01_refusal_names_the_value_and_the_option() {
    let gateway = gateway_with("legacy").start();
    let table = [
        ("origin", "https://evil.example", "--allow-origin"),
        ("host", "evil.example:8080", "--allow-host"),
    ];
    for (name, value, option) in table {
        let body = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        let reply = gateway.client().post(&[(name, value)], &body).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN);
        let answer = reply.response().await;
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains(value) && text.contains(option), "{text}");
        assert!(
            !text.contains("`allow_host`;") && !text.contains("with `allow_"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn json_log_has_only_json_lines_and_a_ready_event() {
    let builder = gateway_with("legacy,noisy-stdout").option("--log-format json --start-timeout 30s");
    let (mut gateway, _) = builder.spawn();
    let ready = wait_until(30 * SECOND, || gateway.log().contains("\"message\":\"ready\"")).await;
    assert!(ready, "{}", gateway.log());
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit(15 * SECOND).is_some());
    let log = gateway.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    let ready = lines.iter().find(|line| line["message"] == "ready").unwrap();
    assert!(
        ready["url"].as_str().unwrap().starts_with("http://127.0.0.1:"),
        "{ready}"
    );
    assert!(ready["timestamp"].is_string() && ready["level"] == "INFO", "{ready}");
}

#[test]
fn json_log_reports_a_failed_start_as_json() {
    let (code, text) = gateway_with("none")
        .option("--log-format json")
        .command(&["no-such-program-here"])
        .run_to_exit();
    assert_eq!(code, Some(2));
    let line: Value = serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("not one line of JSON: {text}"));
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("not on PATH"), "{line}");
    assert!(line["hint"].as_str().unwrap().contains("install it"), "{line}");
}

#[test]
fn json_log_reports_a_usage_error_as_json() {
    let (code, text) = gateway_with("none")
        .option("--log-format json --port 9000")
        .run_to_exit();
    assert_eq!(code, Some(2));
    let line: Value = serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("not one line of JSON: {text}"));
    assert!(
        line["message"].as_str().unwrap().contains("--listen 127.0.0.1:9000"),
        "{line}"
    );
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// SEC-06: only the owner can read session ids and payloads. The log warns of an existing directory with loose permissions.
#[tokio::test]
async fn sec_06_data_directory_is_private_and_loose_permissions_are_reported() {
    let gateway = gateway_with("legacy").option("--name a").with_data_dir().start();
    gateway.client().open_session(LATEST).await;
    let (data, folder) = (gateway.builder().path("data"), gateway.builder().path("data/a"));
    for dir in [&data, &folder, &folder.join("log")] {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    assert_eq!(mode(&folder.join("rethread.json")), 0o600);
    assert!(!gateway.log().contains("chmod"), "{}", gateway.log());
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = gateway.kill_and_restart();
    gateway.wait_for_log(&format!("chmod 700 {}", folder.display())).await;
    assert_eq!(mode(&folder), 0o755, "the gateway does not change permissions");
}

#[tokio::test]
async fn check_exits_with_the_code_of_serve() {
    let gateway = gateway_with("legacy").option("--name a").with_data_dir().start();
    let data = gateway.builder().path("data").display().to_string();
    let busy = gateway.addr.to_string();
    let same_port = format!("--listen {busy} --memory");
    let same_data = format!("--name a --data {data}");
    for (options, code, words) in [
        (same_port, 3, "cannot listen on"),
        (same_data, 4, "is in use by another process"),
    ] {
        for command in ["check", "serve"] {
            let builder = GatewayBuilder::new().option(&options).command(&["python3", "-c", ""]);
            let (ended, text) = builder.run_subcommand(command);
            assert_eq!(ended, Some(code), "{command} {options}: {text}");
            assert!(text.contains(words) && text.contains("try:"), "{text}");
        }
    }
}
