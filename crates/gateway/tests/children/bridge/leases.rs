//! Leases: their bounds, `asks`, and the messages that no client gets (GW-13, GW-18).

use super::caller::{Caller, accept, assert_asked};
use super::{SOON, bridge_from_file, bridge_with, received};
use crate::auth::{ADA, BOB, write_tokens};
use crate::client::{Client, tool_result};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, wait_until};
use crate::monitoring::{monitor, scrape};
use serde_json::{Value, json};
use std::time::Duration;

/// A caller of the server in a file.
fn of_file(gateway: &Gateway) -> Caller {
    let mut caller = Caller::new(gateway, "ada");
    caller.client = Client::new(gateway.addr, "/servers/bridge");
    caller
}

/// GW-13: `asks = false` says that calls never ask. They share a process.
#[tokio::test]
async fn gw_13_calls_of_a_server_that_never_asks_share_a_process() {
    let gateway = bridge_from_file("legacy", "asks = false\nlease_children = 1\nlease_wait = '1s'").start();
    let caller = of_file(&gateway);
    let mut slow = caller.start(1, "slow", json!({ "steps": 30 }), json!({})).await;
    slow.next().await.expect("progress");
    let quick = caller.call(2, "echo", json!({})).await;
    let quick = tool_result(&quick)["pid"].clone();
    let slow = slow.messages().await.pop().unwrap();
    assert_eq!(tool_result(&slow)["pid"], quick);
}

/// GW-13: `asks` names the tools that ask. Only they hold a process.
#[tokio::test]
async fn gw_13_only_calls_of_named_tools_hold_a_process() {
    let lines = "asks = ['ask', 'round*']\nlease_children = 1\nlease_wait = '1s'";
    let gateway = bridge_from_file("legacy", lines).start();
    let caller = of_file(&gateway);
    let mut slow = caller.start(1, "slow", json!({ "steps": 30 }), json!({})).await;
    slow.next().await.expect("progress");
    tool_result(&caller.call(2, "echo", json!({})).await);
    let busy = caller.call(3, "rounds", json!({})).await;
    assert_eq!(busy["error"]["data"]["reason"], "busy", "the process is in use: {busy}");
    slow.messages().await;
    let asked = caller.call(4, "ask", json!({})).await;
    assert_asked(&asked);
    let busy = caller.call(5, "echo", json!({})).await;
    assert_eq!(
        busy["error"]["data"]["reason"], "busy",
        "a parked call is alone: {busy}"
    );
    let reply = caller.retry(6, "ask", json!({}), &asked, accept("1A")).await;
    tool_result(&reply.response().await);
    tool_result(&caller.call(7, "echo", json!({})).await);
}

/// 4.1, `subscriptions/listen`: a URI is subscribed at every process of the lease before it is acknowledged, also at one that is
/// starting and still subscribes to earlier URIs.
#[tokio::test]
async fn line_4_1_uri_is_subscribed_at_a_process_that_starts_meanwhile() {
    let gateway = bridge_from_file("legacy", "asks = ['ask']").start();
    let caller = of_file(&gateway);
    let (_early, _) = caller.listen(1, json!({ "resourceSubscriptions": ["slow:1"] })).await;
    let mut slow = caller.start(2, "slow", json!({ "steps": 30 }), json!({})).await;
    slow.next().await.expect("progress");
    let asking = async { assert_asked(&caller.call(3, "ask", json!({})).await) };
    let listening = async {
        let is_starting = || received(&gateway, "resources/subscribe").len() == 2;
        assert!(wait_until(SOON, is_starting).await, "no second process");
        let (late, honoured) = caller.listen(4, json!({ "resourceSubscriptions": ["a:1"] })).await;
        assert_eq!(honoured, json!({ "resourceSubscriptions": ["a:1"] }));
        let mut subscribed = received(&gateway, "resources/subscribe");
        let added = subscribed.split_off(2);
        assert_eq!(added, [json!({ "uri": "a:1" }), json!({ "uri": "a:1" })], "at both");
        late
    };
    let ((), _late) = tokio::join!(asking, listening);
}

/// A gateway that knows Ada and Bob.
fn start_with_tokens(lines: &str) -> Gateway {
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    let mut command = fake_child_command("legacy", builder.marker());
    command[3] = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/children/bridge_child.py").to_owned();
    let command = serde_json::to_string(&command).unwrap();
    let text =
        format!("memory = true\n[auth]\ntokens = 'tokens.toml'\n[servers.bridge]\ncommand = {command}\n{lines}\n");
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    write_tokens(&builder, &[("ada", &[ADA], ""), ("bob", &[BOB], "")]);
    builder.start()
}

fn with_token(gateway: &Gateway, name: &'static str, token: &str) -> Caller {
    let mut caller = Caller::new(gateway, name);
    caller.client = Client::new(gateway.addr, "/servers/bridge").with_token(token);
    caller
}

/// GW-06, GW-18: principals share no process, also with `share = true`.
#[tokio::test]
async fn gw_18_principals_share_no_lease() {
    let gateway = start_with_tokens("share = true");
    let pid = async |caller: &Caller| tool_result(&caller.call(1, "echo", json!({})).await)["pid"].clone();
    let (ada, bob) = (with_token(&gateway, "same", ADA), with_token(&gateway, "same", BOB));
    let first = pid(&ada).await;
    assert_eq!(pid(&ada).await, first);
    assert_ne!(pid(&bob).await, first);
}

/// GW-18: one principal that varies its client info does not lock out another.
#[tokio::test]
async fn gw_18_leases_of_one_principal_leave_room_for_others() {
    let gateway = start_with_tokens("max_children = 4\nlease_wait = '1s'\nstart_timeout = '10s'");
    let names = ["a", "b", "c", "d", "e"];
    let mut parked = 0;
    for name in names {
        let reply = with_token(&gateway, name, ADA).call(1, "ask", json!({})).await;
        match reply["result"]["resultType"] == "input_required" {
            true => parked += 1,
            false => assert_eq!(reply["error"]["data"]["reason"], "busy", "{reply}"),
        }
    }
    assert_eq!(parked, 2, "half of `max_children`");
    assert_asked(&with_token(&gateway, "a", BOB).call(2, "ask", json!({})).await);
}

/// The value of `rethread_bridge_dropped_total` for `what`.
pub(super) async fn dropped(monitor: &Client, way: &str, what: &str) -> f64 {
    let labels = [("way", way), ("what", what)];
    scrape(monitor).await.sum("rethread_bridge_dropped_total", &labels)
}

/// 4.1, logging: a message of no call goes to the gateway's log, and is counted.
#[tokio::test]
async fn line_4_1_log_message_of_no_call_goes_to_the_log_of_the_gateway() {
    let gateway = bridge_with("legacy").option("--metrics 127.0.0.1:0").start();
    let monitor = monitor(&gateway).await;
    let caller = Caller::new(&gateway, "ada").with_capabilities(json!({}));
    let mut slow = caller.start(1, "slow", json!({ "steps": 20 }), json!({})).await;
    slow.next().await.expect("progress");
    // Both calls share a process, so nothing shows whose message it is.
    let meta = json!({ "io.modelcontextprotocol/logLevel": "debug" });
    let params = json!({ "name": "log", "arguments": { "text": "of whom?" } });
    let messages = caller.send(2, "tools/call", params, meta).await.messages().await;
    assert_eq!(messages.len(), 1, "no log message: {messages:?}");
    assert!(
        slow.messages()
            .await
            .iter()
            .all(|m| m["method"] != "notifications/message")
    );
    gateway.wait_for_log("of whom?").await;
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("of whom?")).unwrap();
    assert!(line.contains("child log message") && line.contains("pid="), "{line}");
    assert_eq!(dropped(&monitor, "up", "log").await, 2.0);
}

/// Refused questions are counted: one of no call, and one that the client did not declare.
#[tokio::test]
async fn line_4_1_refused_questions_are_counted() {
    let gateway = bridge_with("legacy,asks-for-roots")
        .option("--metrics 127.0.0.1:0")
        .start();
    let monitor = monitor(&gateway).await;
    let caller = Caller::new(&gateway, "ada").with_capabilities(json!({ "sampling": {} }));
    tool_result(&caller.call(1, "echo", json!({})).await);
    assert!(wait_for_dropped(&monitor, "question", 1.0).await);
    tool_result(&caller.call(2, "ask", json!({ "kinds": ["form"] })).await);
    assert!(wait_for_dropped(&monitor, "question", 2.0).await);
}

async fn wait_for_dropped(monitor: &Client, what: &str, count: f64) -> bool {
    let end = std::time::Instant::now() + SOON;
    while std::time::Instant::now() < end {
        if dropped(monitor, "up", what).await == count {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

/// 4.2: the notification of a session for which a stateless server has no use is counted, and so is lost content.
#[tokio::test]
async fn line_4_2_losses_are_counted() {
    let gateway = bridge_with("modern").option("--metrics 127.0.0.1:0").start();
    let monitor = monitor(&gateway).await;
    let session = super::open_session(&gateway.client(), "2025-03-26").await;
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    session.post(&changed).await;
    let reply: Value = session.call_tool(1, "links", json!({})).await;
    assert_eq!(reply["result"]["content"][0]["type"], "text", "{reply}");
    assert_eq!(dropped(&monitor, "down", "content").await, 1.0);
    assert_eq!(dropped(&monitor, "down", "notification").await, 1.0);
    assert!(wait_until(SOON, || !gateway.children().is_empty()).await);
}
