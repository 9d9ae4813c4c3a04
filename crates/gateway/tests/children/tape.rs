//! The tape of `rethread serve --tape`, and what must never be in it.

use crate::client::LATEST;
use crate::gateway::{Gateway, gateway_with, wait_until};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

fn tape_text(gateway: &Gateway) -> String {
    let files = std::fs::read_dir(gateway.builder().path("tapes")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    paths.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn tape_entries(gateway: &Gateway) -> Vec<Value> {
    let text = tape_text(gateway);
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// OPS-15: a tape has shapes, cursors and cuts, and no secret.
#[tokio::test]
async fn ops_15_tape_has_shapes_cursors_and_cuts_but_no_secret() {
    const SECRET: &str = "planted-secret-4711";
    let gateway = gateway_with("legacy").option("--tape tapes").start();
    let client = gateway.client().with_token(SECRET);
    let session = client.open_session(LATEST).await;
    session.call_tool(1, "echo", json!({ "text": SECRET })).await;
    let params = json!({ "name": "slow", "arguments": { "ms": 600, "steps": 6, "text": SECRET }, "_meta": { "progressToken": 1 } });
    let mut call = session.call(2, "tools/call", params).await;
    assert!(call.is_stream());
    call.next().await;
    let cursor = call.cursor();
    drop(call);
    let has = |at: &str, key: &str, value: Value| {
        tape_entries(&gateway)
            .iter()
            .any(|entry| entry["at"] == at && entry[key] == value)
    };
    assert!(
        wait_until(WAIT, || has("end", "how", json!("cut"))).await,
        "{}",
        tape_text(&gateway)
    );
    session.resume(&cursor).await.messages().await;
    assert!(
        wait_until(WAIT, || has("request", "cursor", json!(cursor))).await,
        "{}",
        tape_text(&gateway)
    );
    let is_call = |entry: &Value| entry["at"] == "received" && entry["message"]["method"] == "tools/call";
    let entries = tape_entries(&gateway);
    let sent = entries.iter().find(|entry| is_call(entry)).unwrap();
    assert_eq!(sent["message"]["params"]["arguments"], "object of 1", "{sent}");
    assert!(
        entries
            .iter()
            .any(|entry| entry["at"] == "event" && entry["id"].is_string())
    );
    let text = tape_text(&gateway);
    assert!(!text.contains(SECRET) && !text.contains(&session.id), "{text}");
    let file = std::fs::read_dir(gateway.builder().path("tapes"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let program = env!("CARGO_BIN_EXE_rethread");
    let printed = std::process::Command::new(program)
        .arg("tape")
        .arg(&file)
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(
        printed.contains("== cut after") && printed.contains(&format!("after {cursor}")),
        "{printed}"
    );
}
