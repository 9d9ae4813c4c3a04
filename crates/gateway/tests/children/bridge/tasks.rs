//! Tools that run only as tasks of 2025-11-25, for clients of 2026-07-28 (requirements 4.1).

use super::caller::{Caller, accept, assert_asked};
use super::{bridge_with, received, wait_for_received};
use crate::client::tool_result;
use serde_json::{Value, json};

#[tokio::test]
async fn line_4_1_required_task_is_one_long_call() {
    let gateway = bridge_with("legacy,task-tools").start();
    let caller = Caller::new(&gateway, "ada");
    let arguments = json!({ "steps": 3, "asks": true, "text": "Which seat?" });
    let mut messages = caller
        .start(7, "long", arguments.clone(), json!({}))
        .await
        .messages()
        .await;
    let asked = messages.pop().unwrap();
    assert_asked(&asked);
    let progress: Vec<_> = messages
        .iter()
        .map(|message| (&message["params"]["progressToken"], &message["params"]["progress"]))
        .collect();
    let token = json!(7);
    assert_eq!(
        progress,
        [(&token, &json!(1)), (&token, &json!(2)), (&token, &json!(3))],
        "the progress of the task is that of the call"
    );
    let reply = caller.retry(8, "long", arguments, &asked, accept("12A")).await;
    let answered = reply.response().await;
    assert_eq!(answered["result"]["resultType"], "complete", "{answered}");
    assert_eq!(
        tool_result(&answered),
        json!({ "answer": accept("12A"), "runs": 1 }),
        "it ran once"
    );
    let meta = &answered["result"]["_meta"];
    assert!(meta.get("io.modelcontextprotocol/related-task").is_none(), "{meta}");
    assert_eq!(received(&gateway, "tasks/result"), [json!({ "taskId": "t1" })]);
    assert_eq!(received(&gateway, "tasks/cancel"), [] as [Value; 0]);
    // No other tool gets `task`, not even from the client.
    let echoed = caller
        .start(9, "echo", json!({}), json!({ "task": {} }))
        .await
        .response()
        .await;
    assert_eq!(tool_result(&echoed)["params"], json!(["_meta", "arguments", "name"]));
    let calls = received(&gateway, "tools/call");
    let tasks: Vec<_> = calls.iter().map(|params| params.get("task")).collect();
    assert_eq!(tasks, [Some(&json!({})), None]);
}

/// CAN-05: the client of a task leaves.
#[tokio::test]
async fn line_4_1_required_task_is_cancelled_by_its_own_request() {
    let gateway = bridge_with("legacy,task-tools")
        .option("--lease-children 1 --lease-wait 20s")
        .start();
    let caller = Caller::new(&gateway, "ada");
    let mut reply = caller.start(1, "long", json!({ "steps": 600 }), json!({})).await;
    assert_eq!(reply.next().await.unwrap()["params"]["progress"], 1);
    drop(reply);
    wait_for_received(&gateway, "tasks/cancel").await;
    assert_eq!(received(&gateway, "tasks/cancel"), [json!({ "taskId": "t1" })]);
    // The process serves the next call.
    let reply = caller.call(2, "long", json!({ "steps": 1 })).await;
    assert_eq!(tool_result(&reply)["runs"], 2, "{reply}");
}
