//! Secrets of callers and operators, and every output in which they must not be.

use crate::answer_table::{call_in_every_way, claims, open_both, server, start};
use crate::client::{Client, LATEST};
use crate::gateway::GatewayBuilder;
use rethread_testkit::issuer::{Issuer, SigningKey};
use serde_json::json;
use std::net::SocketAddr;

/// OPS-15, SEC-07, AUTH-22: no output has a token, a session id, a state or an argument, also when requests fail: the log at `-vv`,
/// the metrics, the audit log, the snapshot, the tape, the answers to others, and the environment of the child.
#[tokio::test]
async fn auth_22_no_output_has_a_secret() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let outputs = "-vv --metrics 127.0.0.1:0 --admin 127.0.0.1:0 --audit audit.jsonl --tape tapes";
    let gateway = start(GatewayBuilder::new().option(outputs), &issuer, "");
    let client = server(&gateway);
    let good = key.token(&claims(&issuer, json!({})));
    let bad = SigningKey::es256("a").token(&claims(&issuer, json!({})));
    let expired = key.token(&claims(&issuer, json!({ "exp": 1 })));
    let ada = client.with_token(&good);
    let (session, messages, _sse) = open_both(&ada).await;
    for token in [&good, &bad, &expired] {
        for (_, reply) in call_in_every_way(&client.with_token(token), &session, &messages).await {
            drop(reply);
        }
    }
    let mut refusals = String::new();
    for token in [&bad, &expired] {
        for (_, reply) in call_in_every_way(&client.with_token(token), &session, &messages).await {
            refusals.push_str(&format!("{:?}", reply.headers));
            refusals.push_str(&reply.text().await);
        }
    }
    let other = ada.open_session(LATEST).await;
    let asked = ada
        .stateless(
            json!(5),
            "tools/call",
            json!({ "name": "ask", "arguments": { "text": "argument-secret" } }),
            &[],
        )
        .await
        .response()
        .await;
    let state = asked["result"]["requestState"]
        .as_str()
        .expect("the child asks")
        .to_owned();
    let retry = json!({ "name": "ask", "arguments": { "text": "argument-secret" }, "requestState": format!("{state}x"),
        "inputResponses": { "q1": {} } });
    ada.stateless(json!(6), "tools/call", retry, &[]).await.response().await;
    client
        .send(
            "POST",
            &format!("/mcp?access_token={good}"),
            &[("content-type", "application/json")],
            b"{}",
        )
        .await;
    let dump = other.call_tool(1, "dump", json!({})).await.to_string();
    let child = other.child_pid().await;
    let environment = std::fs::read(format!("/proc/{child}/environ")).unwrap();
    let sse_id = messages.rsplit('=').next().unwrap();
    let log = gateway.log();
    assert!(
        log.contains("DEBUG") || log.contains("TRACE"),
        "the log is detailed: {log}"
    );
    let address = |phrase: &str| -> SocketAddr {
        let line = log.lines().find(|line| line.contains(phrase)).unwrap();
        let words = line.split(|c: char| c.is_whitespace() || c == '"' || c == '=' || c == '/');
        words.filter_map(|word| word.parse().ok()).next().unwrap()
    };
    let metrics = Client::new(address("metrics and health"), "").get("/metrics").await;
    let admin_token = std::fs::read_to_string(gateway.builder().path(".local/state/rethread/admin.token")).unwrap();
    let operator = Client::new(address("admin listener ready"), "").with_token(admin_token.trim());
    let snapshot = operator.get("/api/v1/snapshot").await.text().await;
    assert!(snapshot.contains("\"sessions\":[{"), "{snapshot}");
    let file = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let tapes = std::fs::read_dir(gateway.builder().path("tapes")).unwrap();
    let tapes: String = tapes.map(|entry| file(entry.unwrap().path())).collect();
    let audit = file(gateway.builder().path("audit.jsonl"));
    assert!(!tapes.is_empty() && !audit.is_empty());
    let outputs = [
        ("log", log),
        ("child's knowledge", dump),
        (
            "child's environment",
            String::from_utf8_lossy(&environment).into_owned(),
        ),
        ("refusals", refusals),
        ("metrics", metrics.text().await),
        ("snapshot", snapshot),
        ("tape", tapes),
        ("audit log", audit),
    ];
    let signature = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    for (name, secret) in [
        ("token", signature(&good)),
        ("bad token", signature(&bad)),
        ("expired token", signature(&expired)),
        ("payload", good.split('.').nth(1).unwrap().to_owned()),
        ("session", session.clone()),
        ("other session", other.id.clone()),
        ("sse session", sse_id.to_owned()),
        ("state", state.clone()),
        ("argument", "argument-secret".to_owned()),
        ("admin token", admin_token.trim().to_owned()),
    ] {
        for (place, text) in &outputs {
            assert!(!text.contains(&secret), "{name} is in the {place}:\n{text}");
        }
    }
}
