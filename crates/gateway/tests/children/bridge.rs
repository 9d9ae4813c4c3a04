//! Clients of one era in front of servers of the other (requirements 4).

#[path = "bridge/caller.rs"]
mod caller;
#[path = "bridge/down.rs"]
mod down;
#[path = "bridge/down_calls.rs"]
mod down_calls;
#[path = "bridge/down_listen.rs"]
mod down_listen;
#[path = "bridge/lease_state.rs"]
mod lease_state;
#[path = "bridge/leases.rs"]
mod leases;
#[path = "bridge/questions.rs"]
mod questions;
#[path = "bridge/tasks.rs"]
mod tasks;
#[path = "bridge/untranslated.rs"]
mod untranslated;
#[path = "bridge/up.rs"]
mod up;

use crate::client::{Client, HttpReply, RESPONSE_TIMEOUT, Session};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, gateway_with, wait_until};
use serde_json::{Value, json};
use std::time::Duration;

/// The revisions with sessions.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// How long a condition may take on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A gateway in front of `bridge_child.py`.
fn bridge_with(behavior: &str) -> GatewayBuilder {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/children/bridge_child.py");
    let builder = gateway_with(behavior);
    builder.script(script).record_messages()
}

/// The same with a file, and more lines for the server `bridge`.
fn bridge_from_file(behavior: &str, lines: &str) -> GatewayBuilder {
    let builder = GatewayBuilder::new().option("--config rethread.toml --memory");
    let mut command = fake_child_command(behavior, builder.marker());
    command[3] = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/children/bridge_child.py").to_owned();
    let record = builder.path("record");
    let file = format!("[servers.bridge]\ncommand = {command:?}\nenv.RECORD = {record:?}\n{lines}\n");
    std::fs::write(builder.path("rethread.toml"), file).unwrap();
    builder
}

/// A session of a client that answers every kind of question.
async fn open_session(client: &Client, version: &str) -> Session {
    let capabilities =
        json!({ "sampling": {}, "roots": { "listChanged": true }, "elicitation": { "form": {}, "url": {} } });
    client.open_session_with(version, capabilities).await
}

/// The next question on a stream, and its method.
async fn next_question(stream: &mut HttpReply) -> Value {
    loop {
        let message = stream.next().await.expect("a question comes");
        if message.get("id").is_some() && message.get("method").is_some() {
            return message;
        }
    }
}

/// Answers a question of the server.
async fn answer(session: &Session, question: &Value, result: Value) {
    let reply = session
        .post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }))
        .await;
    assert_eq!(reply.status, http::StatusCode::ACCEPTED);
}

/// The params of the messages of `method` that the server has received.
fn received(gateway: &Gateway, method: &str) -> Vec<Value> {
    let messages = gateway.recorded_messages().into_iter();
    let of_method = messages.filter(|message| message["method"] == method);
    of_method.map(|message| message["params"].clone()).collect()
}

/// Waits until the server has received a message of `method`.
async fn wait_for_received(gateway: &Gateway, method: &str) {
    let is_received = || !received(gateway, method).is_empty();
    assert!(wait_until(SOON, is_received).await, "no {method}");
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(RESPONSE_TIMEOUT, future).await.expect("in time")
}
