//! `[limits]`: bounds of each caller.

use crate::client::{Client, LATEST};
use crate::gateway::{GatewayBuilder, fake_child_command, wait_until};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// OPS-16: `[limits]` applies to each caller alone, and SIGHUP changes it.
#[tokio::test]
async fn ops_16_limits_table_bounds_each_caller_and_is_reloaded() {
    const GREEDY: &str = "rt_greedy-0123456789-0123456789-012345";
    const MODEST: &str = "rt_modest-0123456789-0123456789-012345";
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    let command = serde_json::to_string(&fake_child_command("dual", builder.marker())).unwrap();
    let write_limits = |builder: &GatewayBuilder, limits: &str| {
        let text = format!(
            "memory = true\ndrain = '1s'\n[auth]\ntokens = 'tokens.toml'\n[limits]\n{limits}\n[servers.only]\ncommand = {command}\n"
        );
        std::fs::write(builder.path("rethread.toml"), text).unwrap();
    };
    write_limits(&builder, "calls_per_principal = 1\nsessions_per_principal = 1");
    let digest = |token: &str| {
        let digest = Sha256::digest(token.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let tokens = [("greedy", GREEDY), ("modest", MODEST)]
        .map(|(name, token)| format!("[tokens.{name}]\nsha256 = ['{}']\nscopes = []\n", digest(token)));
    std::fs::write(builder.path("tokens.toml"), tokens.concat()).unwrap();
    let gateway = builder.start();
    let client = Client::new(gateway.addr, "/servers/only");
    let (greedy, modest) = (client.with_token(GREEDY), client.with_token(MODEST));
    let session = greedy.open_session(LATEST).await;
    let refused = greedy.initialize(LATEST).await;
    assert_eq!(
        (refused.status, &refused.headers["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
    let slow = session.start_tool(1, "slow", json!({ "ms": 8000, "steps": 80 })).await;
    assert!(slow.is_stream());
    let stateless = async |client: &Client| {
        let params = json!({ "name": "echo", "arguments": {} });
        client.stateless(json!(2), "tools/call", params, &[]).await.status
    };
    assert_eq!(
        stateless(&greedy).await,
        StatusCode::TOO_MANY_REQUESTS,
        "the eras share the limit"
    );
    assert_eq!(stateless(&modest).await, StatusCode::OK, "another caller");
    drop(slow);

    write_limits(gateway.builder(), "rate = '3/1h'");
    gateway.signal(Signal::HUP);
    assert!(
        wait_until(Duration::from_secs(40), || gateway
            .log()
            .contains("configuration reloaded"))
        .await
    );
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(stateless(&greedy).await.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(stateless(&modest).await, StatusCode::OK);
}
