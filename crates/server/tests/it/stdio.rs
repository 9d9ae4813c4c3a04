//! JSON-RPC lines on a pair of byte streams, for both eras (GW-01).

use crate::support::{ScriptedHandler, V2025_11_25, result_text};
use rethread::catalog::{Catalog, NoArgs, Tool};
use rethread::{CallEnded, Context, Limits, ListKind, McpService};
use rethread_testkit::client::stateless;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

struct StdioClient {
    input: WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl StdioClient {
    fn open(service: &McpService) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let service = service.clone();
        tokio::spawn(async move {
            let (input, output) = tokio::io::split(theirs);
            service.serve_lines(BufReader::new(input), output).await.unwrap();
        });
        let (output, input) = tokio::io::split(ours);
        StdioClient {
            input,
            output: BufReader::new(output).lines(),
        }
    }

    async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    async fn send_text(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    async fn initialize(&mut self) {
        let params = json!({ "protocolVersion": V2025_11_25, "capabilities": { "roots": {} }, "clientInfo": { "name": "x", "version": "1" } });
        self.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
            .await;
        assert_eq!(self.next().await["result"]["protocolVersion"], V2025_11_25);
        self.send_text("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\r")
            .await; // CRLF is accepted
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(5), self.output.next_line());
        let line = line.await.expect("a line").unwrap().expect("a line");
        serde_json::from_str(&line).unwrap()
    }
}

fn modern(id: Value, method: &str, params: Value) -> Value {
    stateless(&id, method, params, json!({ "progressToken": "m" })).1
}

#[tokio::test]
async fn gw_01_session_and_stateless_requests_share_stdio() {
    let handler = ScriptedHandler::new();
    let (service, _) = handler.serve();
    let mut client = StdioClient::open(&service);
    client.initialize().await;

    // A call of the legacy era: progress, a question, the result.
    let script = handler.script("a");
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "a", "_meta": { "progressToken": "p" } } });
    client.send(&call).await;
    script.progress(1).await;
    assert_eq!(client.next().await["params"]["progressToken"], "p");
    let (answered, ()) = tokio::join!(script.ask("roots", json!({})), async {
        let question = client.next().await;
        client
            .send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } }))
            .await;
    });
    assert_eq!(answered, Ok(json!({ "roots": [] })));
    script.finish("session").await;
    assert_eq!(result_text(&client.next().await), "session");

    // Stateless requests on the same streams.
    client.send(&modern(json!("d"), "server/discover", json!({}))).await;
    assert_eq!(client.next().await["result"]["resultType"], "complete");
    let script = handler.script("b");
    client
        .send(&modern(json!(2), "tools/call", json!({ "name": "b" })))
        .await;
    script.progress(1).await;
    assert_eq!(client.next().await["params"]["progressToken"], "m");
    script.finish("stateless").await;
    let answer = client.next().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["resultType"]),
        (&json!(2), &json!("complete"))
    );

    let filter = json!({ "notifications": { "toolsListChanged": true } });
    client.send(&modern(json!("sub"), "subscriptions/listen", filter)).await;
    assert_eq!(
        client.next().await["method"],
        "notifications/subscriptions/acknowledged"
    );
    service.notifier().list_changed(ListKind::Tools);
    let both = [client.next().await, client.next().await];
    assert!(
        both.iter().all(|m| m["method"] == "notifications/tools/list_changed"),
        "the session hears it too"
    );

    client.send_text("garbage").await;
    assert_eq!(client.next().await["error"]["code"], -32700);
    client.send(&modern(json!(9), "ping", json!({}))).await;
    assert_eq!(client.next().await["error"]["code"], -32601);
}

/// A gateway sends a message without a call to the call that runs , so the response must not overtake it.
#[tokio::test]
async fn gw_01_response_follows_the_messages_that_the_handler_pushed_before_it() {
    let push = |_: NoArgs, cx: Context| async move {
        for n in 1..=5 {
            cx.session().unwrap().push("notifications/message", json!({ "n": n }))?;
        }
        Ok::<_, CallEnded>("pushed")
    };
    let catalog = Catalog::new("pushing", "1").tool(Tool::new("push"), push);
    let service = McpService::builder(catalog).build();
    let mut client = StdioClient::open(&service);
    client.initialize().await;
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "push" } }))
        .await;
    for n in 1..=5 {
        assert_eq!(client.next().await["params"]["n"], n);
    }
    assert_eq!(result_text(&client.next().await), "pushed");
}

/// D13: a response that is larger than the buffer of the stream is delivered, also behind other messages and other responses.
#[tokio::test]
async fn d13_large_responses_wait_for_a_slow_reader() {
    const BYTES: usize = 3 << 19;
    let large = |_: NoArgs, cx: Context| async move {
        cx.notify("notifications/before", json!({})).await?;
        Ok::<_, CallEnded>("x".repeat(BYTES))
    };
    let service = McpService::builder(Catalog::new("large", "1").tool(Tool::new("large"), large)).build();
    let mut client = StdioClient::open(&service);
    client.initialize().await;
    for id in 1..=8 {
        client
            .send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "large" } }))
            .await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < 8 {
        let message = client.next().await;
        if let Some(id) = message["id"].as_u64() {
            assert_eq!(result_text(&message).len(), BYTES);
            assert!(answered.insert(id), "one response for each request");
        }
    }
}

#[tokio::test]
async fn gw_01_cancellation_and_end_of_input_stop_calls() {
    let handler = ScriptedHandler::new();
    let (service, _) = handler.serve();
    let mut client = StdioClient::open(&service);
    let script = handler.script("a");
    client
        .send(&modern(json!(1), "tools/call", json!({ "name": "a" })))
        .await;
    script.progress(1).await;
    client.next().await;
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }))
        .await;
    script.wait_for_end().await;
    let script = handler.script("b");
    client
        .send(&modern(json!(2), "tools/call", json!({ "name": "b" })))
        .await;
    script.progress(1).await;
    drop(client);
    script.wait_for_end().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(
        (
            service.stats().sessions,
            service.stats().running_calls,
            service.stats().connections
        ),
        (0, 0, 0)
    );
}

/// T-38: stdio refuses the same requests as HTTP. A running call may finish.
#[tokio::test]
async fn t_38_stateless_request_on_stdio_is_refused_during_shutdown() {
    let handler = ScriptedHandler::new();
    let (service, _) = handler.serve();
    let mut client = StdioClient::open(&service);
    let params =
        json!({ "protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
        .await;
    client.next().await;
    // A running call keeps the connection open.
    let script = handler.script("a");
    let call = json!({ "name": "a", "_meta": { "progressToken": 1 } });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call }))
        .await;
    script.progress(1).await;
    client.next().await;
    let draining = tokio::spawn({
        let service = service.clone();
        async move { service.shutdown(Duration::from_secs(30)).await }
    });
    tokio::task::yield_now().await;
    for (id, method, params) in [
        (2, "tools/call", json!({ "name": "echo" })),
        (3, "tools/call", json!({ "name": "echo", "inputResponses": {} })),
        (4, "server/discover", json!({})),
        (5, "subscriptions/listen", json!({ "notifications": {} })),
    ] {
        client.send(&modern(json!(id), method, params)).await;
        let refused = client.next().await;
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(id), &json!(-32600)),
            "{method}: {refused}"
        );
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("shutting down"), "{message}");
    }
    script.finish("finished").await;
    assert_eq!(result_text(&client.next().await), "finished");
    drop(client);
    tokio::time::timeout(Duration::from_secs(5), draining)
        .await
        .expect("the drain ends with the last call")
        .unwrap();
}

/// VER-05: stdio and HTTP check in the same order.
#[tokio::test]
async fn ver_05_unknown_method_on_stdio_is_refused_before_its_log_level() {
    let (service, _) = ScriptedHandler::new().serve();
    let mut client = StdioClient::open(&service);
    let level = "io.modelcontextprotocol/logLevel";
    for (method, code) in [("ping", -32601), ("no/such", -32601), ("tools/list", -32602)] {
        client
            .send(&stateless(&json!(1), method, json!({}), json!({ level: "loud" })).1)
            .await;
        assert_eq!(client.next().await["error"]["code"], code, "{method}");
    }
}

/// D13: a handler waits for a client that does not read its lines. A limit of zero counts as one.
#[tokio::test(start_paused = true)]
async fn d13_queued_lines_are_bounded() {
    const MANY: u64 = 20_000;
    let mut emitted = Vec::new();
    for queued_lines in [0, 256] {
        let handler = ScriptedHandler::new();
        let limits = Limits::default().with(|limits| limits.queued_lines = queued_lines);
        let (service, _) = handler.serve_with(|b| b.limits(limits));
        let mut client = StdioClient::open(&service);
        let script = handler.script("a");
        client
            .send(&modern(json!(1), "tools/call", json!({ "name": "a" })))
            .await;
        let mut count = 0;
        let emit = async {
            while count < MANY {
                script.progress(count + 1).await;
                count += 1;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), emit).await;
        assert!(count < MANY, "a limit of {queued_lines} lines");
        emitted.push(count);
    }
    assert!((250..260).contains(&(emitted[1] - emitted[0])), "{emitted:?}");
}
