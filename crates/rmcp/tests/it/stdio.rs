//! The same servers over stdio: both eras on one pair of byte streams.

use crate::fixture::ServerControl;
use rethread::McpService;
use rethread_testkit::client::stateless;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};

struct StdioClient {
    input: tokio::io::WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
}

impl StdioClient {
    async fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(30), self.output.next_line());
        serde_json::from_str(&line.await.expect("a line within 30 seconds").unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn server_works_over_stdio() {
    let control = Arc::new(ServerControl::default());
    let service = McpService::builder(control.handler()).build();
    let (ours, theirs) = duplex(1 << 16);
    let serving = tokio::spawn(async move {
        let (read, write) = split(theirs);
        service.serve_lines(BufReader::new(read), write).await
    });
    let (read, input) = split(ours);
    let mut client = StdioClient {
        input,
        output: BufReader::new(read).lines(),
    };
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
        .await;
    assert_eq!(client.next().await["result"]["serverInfo"]["name"], "fixture");
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    control.wait_for("initialize c parts false").await;
    control.wait_for("initialized 2025-11-25").await;
    let work = json!({ "name": "work", "arguments": { "tag": "l" } });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": work }))
        .await;
    for step in 1..=3 {
        assert_eq!(
            client.next().await["params"]["data"],
            json!({ "tag": "l", "step": step })
        );
    }
    client.next().await; // the debug message
    assert_eq!(client.next().await["result"]["content"][0]["text"], "l");

    let (_, request) = stateless(
        &json!(2),
        "tools/call",
        json!({ "name": "version", "arguments": {} }),
        json!({}),
    );
    client.send(&request).await;
    assert_eq!(client.next().await["result"]["content"][0]["text"], "2026-07-28");
    let (_, request) = stateless(&json!(3), "server/discover", json!({}), json!({}));
    client.send(&request).await;
    assert_eq!(client.next().await["result"]["instructions"], "test instructions");
    drop(client);
    tokio::time::timeout(Duration::from_secs(30), serving)
        .await
        .expect("the service ends with its input")
        .unwrap()
        .unwrap();
}
