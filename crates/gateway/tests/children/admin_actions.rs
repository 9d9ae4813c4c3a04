//! The actions of the admin listener (OPS-11).

use crate::admin::{LIMIT, Operator};
use crate::client::LATEST;
use crate::gateway::{gateway_with, wait_until};
use crate::monitoring::wait_for_audit;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

/// OPS-11: read-only by default.
#[tokio::test]
async fn ops_11_actions_are_refused_unless_they_are_turned_on() {
    let operator = Operator::start_with(gateway_with("legacy").option("--audit audit.jsonl"), false);
    let session = operator.gateway.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let tag = operator.snapshot("").await["sessions"][0]["tag"]
        .as_str()
        .unwrap()
        .to_owned();
    for path in [
        format!("/api/v1/sessions/{tag}/end"),
        format!("/api/v1/children/{pid}/kill"),
        "/api/v1/drain".into(),
        "/api/v1/reload".into(),
    ] {
        assert_eq!(operator.act(&path).await, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(session.child_pid().await, pid, "nothing has happened");
    let attempts = wait_for_audit(&operator.gateway, 4, |line| line["event"] == "operator").await;
    let recorded: Vec<_> = attempts
        .iter()
        .map(|line| (line["action"].clone(), line["outcome"].clone()))
        .collect();
    let actions = ["session.end", "child.kill", "drain", "reload"];
    assert_eq!(recorded, actions.map(|action| (json!(action), json!("refused"))));
}

/// OPS-11: each action, and only on objects of this gateway.
#[tokio::test]
async fn ops_11_operator_ends_sessions_and_own_children_only() {
    let operator = Operator::start("legacy", true);
    let session = operator.gateway.client().open_session(LATEST).await;
    let pid = session.child_pid().await;
    let own_pid = std::process::id();
    for path in [
        format!("/api/v1/children/{own_pid}/kill"),
        "/api/v1/children/1/kill".into(),
        "/api/v1/sessions/0000000000000000/end".into(),
    ] {
        assert_eq!(operator.act(&path).await, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(
        operator.act(&format!("/api/v1/children/{pid}/kill")).await,
        StatusCode::OK
    );
    let end = std::time::Instant::now() + LIMIT;
    while operator.snapshot("").await["servers"][0]["children"]["crashes"] != 1 {
        assert!(std::time::Instant::now() < end, "{}", operator.gateway.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let next = session.child_pid().await;
    assert_ne!(next, pid, "another child continues the session");
    let snapshot = operator.snapshot("").await;
    let tag = snapshot["sessions"][0]["tag"].as_str().unwrap();
    assert_eq!(
        operator.act(&format!("/api/v1/sessions/{tag}/end")).await,
        StatusCode::OK
    );
    assert_eq!(session.call(9, "ping", json!({})).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        operator.act(&format!("/api/v1/sessions/{tag}/end")).await,
        StatusCode::NOT_FOUND
    );
    let log = operator.gateway.log();
    assert!(
        log.contains("operator action") && log.contains("session.end") && log.contains("child.kill"),
        "{log}"
    );
}

/// OPS-11, OPS-14: each action is a line of the audit log, also one that found nothing.
#[tokio::test]
async fn ops_11_actions_are_audited() {
    let operator = Operator::start_with(gateway_with("legacy").option("--audit audit.jsonl"), true);
    let _session = operator.gateway.client().open_session(LATEST).await;
    let tag = operator.snapshot("").await["sessions"][0]["tag"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        operator.act(&format!("/api/v1/sessions/{tag}/end")).await,
        StatusCode::OK
    );
    assert_eq!(operator.act("/api/v1/children/1/kill").await, StatusCode::NOT_FOUND);
    let file = operator.gateway.builder().path("audit.jsonl");
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &Value| line["event"] == "operator").collect()
    };
    assert!(wait_until(LIMIT, || lines().len() == 2).await, "{:?}", lines());
    let found = lines();
    let expected = [("session.end", tag.as_str(), "ok"), ("child.kill", "1", "not_found")];
    for (line, (action, target, outcome)) in found.iter().zip(expected) {
        assert_eq!(
            (&line["action"], &line["target"], &line["outcome"]),
            (&json!(action), &json!(target), &json!(outcome))
        );
        assert_eq!(line["peer"], "127.0.0.1");
    }
    assert!(found.iter().all(|line| !line.to_string().contains(&operator.token)));
}

#[tokio::test]
async fn ops_11_operator_reloads_and_drains() {
    let mut operator = Operator::start("legacy", true);
    assert_eq!(operator.act("/api/v1/reload").await, StatusCode::ACCEPTED);
    operator.gateway.wait_for_log("configuration reloaded").await;
    assert_eq!(operator.act("/api/v1/drain").await, StatusCode::ACCEPTED);
    let exited = operator.gateway.wait_for_exit(LIMIT);
    assert!(
        exited.is_some_and(|status| status.success()),
        "{}",
        operator.gateway.log()
    );
}
