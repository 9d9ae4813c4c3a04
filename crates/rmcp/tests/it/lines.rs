//! The same servers on stdio: both eras on one pair of byte streams, and no HTTP.

use crate::stage::Script;
use rethread::McpService;
use rethread_testkit::client::stateless;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};

struct Lines {
    input: tokio::io::WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
}

impl Lines {
    async fn say(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(30), self.output.next_line());
        serde_json::from_str(&line.await.expect("a line comes").unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn the_same_server_speaks_on_lines() {
    let script = Arc::new(Script::default());
    let service = McpService::builder(script.handler()).build();
    let (ours, theirs) = duplex(1 << 16);
    let serving = tokio::spawn(async move {
        let (read, write) = split(theirs);
        service.serve_lines(BufReader::new(read), write).await
    });
    let (read, input) = split(ours);
    let mut lines = Lines {
        input,
        output: BufReader::new(read).lines(),
    };
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    lines
        .say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }))
        .await;
    assert_eq!(lines.next().await["result"]["serverInfo"]["name"], "stage");
    lines
        .say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    script.until("initialize c head false").await;
    script.until("initialized 2025-11-25").await;
    let work = json!({ "name": "work", "arguments": { "tag": "l" } });
    lines
        .say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": work }))
        .await;
    for step in 1..=3 {
        assert_eq!(
            lines.next().await["params"]["data"],
            json!({ "tag": "l", "step": step })
        );
    }
    lines.next().await; // the whisper
    assert_eq!(lines.next().await["result"]["content"][0]["text"], "l");

    let (_, request) = stateless(
        &json!(2),
        "tools/call",
        json!({ "name": "version", "arguments": {} }),
        json!({}),
    );
    lines.say(&request).await;
    assert_eq!(lines.next().await["result"]["content"][0]["text"], "2026-07-28");
    let (_, request) = stateless(&json!(3), "server/discover", json!({}), json!({}));
    lines.say(&request).await;
    assert_eq!(lines.next().await["result"]["instructions"], "break a leg");
    drop(lines);
    tokio::time::timeout(Duration::from_secs(30), serving)
        .await
        .expect("it ends with its input")
        .unwrap()
        .unwrap();
}
