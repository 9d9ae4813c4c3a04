//! What an operator meets: health paths, the log of machines, refusals, file permissions.

use crate::client::LATEST;
use crate::gateway::{Plan, plan, until};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// T-38: the state of a moment, which nobody may keep or change.
#[tokio::test]
async fn t_38_health_paths_take_get_and_head_and_are_not_stored() {
    let gateway = plan("legacy").start();
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

/// SEC-01, SEC-02: the text names what is refused and the option of this program.
#[tokio::test]
async fn sec_01_refusal_names_the_value_and_the_option_of_the_gateway() {
    let gateway = plan("legacy").start();
    let table = [
        ("origin", "https://evil.example", "--allow-origin"),
        ("host", "evil.example:8080", "--allow-host"),
    ];
    for (name, value, option) in table {
        let body = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        let reply = gateway.client().post(&[(name, value)], &body).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN);
        let answer = reply.answer().await;
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains(value) && text.contains(option), "{text}");
        assert!(
            !text.contains("`allow_host`;") && !text.contains("with `allow_"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn json_log_has_only_json_lines_and_says_when_it_is_ready() {
    let plan = plan("legacy,noisy").option("--log-format json --start-timeout 30s");
    let (mut gateway, _) = plan.spawn();
    let ready = until(30 * SECOND, || gateway.log().contains("\"message\":\"ready\"")).await;
    assert!(ready, "{}", gateway.log());
    gateway.signal(Signal::TERM);
    assert!(gateway.ended_within(15 * SECOND).is_some());
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
    let (code, text) = plan("none")
        .option("--log-format json")
        .command(&["no-such-program-here"])
        .fails();
    assert_eq!(code, Some(2));
    let line: Value = serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("not one line of JSON: {text}"));
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("not on PATH"), "{line}");
    assert!(line["hint"].as_str().unwrap().contains("install it"), "{line}");
}

#[test]
fn json_log_reports_wrong_usage_as_json() {
    let (code, text) = plan("none").option("--log-format json --port 9000").fails();
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

/// SEC-06: session ids and payloads are for the owner's eyes. A looser directory of before is warned of.
#[tokio::test]
async fn sec_06_data_directory_is_private_and_a_looser_one_is_warned_of() {
    let gateway = plan("legacy").option("--name a").durable().start();
    gateway.client().open(LATEST).await;
    let (data, folder) = (gateway.plan().path("data"), gateway.plan().path("data/a"));
    for dir in [&data, &folder, &folder.join("db"), &folder.join("events")] {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
    assert_eq!(mode(&folder.join("rethread.json")), 0o600);
    assert!(!gateway.log().contains("chmod"), "{}", gateway.log());
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = gateway.restarted();
    gateway.says(&format!("chmod 700 {}", folder.display())).await;
    assert_eq!(mode(&folder), 0o755, "it is the operator's to change");
}

/// The exit codes of `check` are those of `serve`.
#[tokio::test]
async fn check_ends_with_the_code_of_serve() {
    let gateway = plan("legacy").option("--name a").durable().start();
    let data = gateway.plan().path("data").display().to_string();
    let busy = gateway.addr.to_string();
    let same_port = format!("--listen {busy} --memory");
    let same_data = format!("--name a --data {data}");
    for (options, code, words) in [
        (same_port, 3, "cannot listen on"),
        (same_data, 4, "is in use by another process"),
    ] {
        for command in ["check", "serve"] {
            let plan = Plan::new().option(&options).command(&["python3", "-c", ""]);
            let (ended, text) = plan.runs(command);
            assert_eq!(ended, Some(code), "{command} {options}: {text}");
            assert!(text.contains(words) && text.contains("try:"), "{text}");
        }
    }
}
