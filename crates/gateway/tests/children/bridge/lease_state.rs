//! The state of a server with sessions, for clients of 2026-07-28: lists, memory, exits (requirements 4.1).

use super::caller::{Caller, SUBSCRIPTION};
use super::{SOON, bridge_with, received, within};
use crate::client::tool_result;
use crate::gateway::kill;
use rustix::process::Signal;
use serde_json::{Value, json};

/// 4.1, cache hints: nothing is valid for longer than its request, and nothing may be shared between clients.
#[tokio::test]
async fn line_4_1_results_are_private_and_not_kept() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("resources/read", json!({ "uri": "a:1" })),
    ] {
        let reply = caller.send(1, method, params, json!({})).await.response().await;
        let result = &reply["result"];
        assert_eq!(
            (&result["ttlMs"], &result["cacheScope"]),
            (&json!(0), &json!("private")),
            "{method}: {reply}"
        );
    }
}

/// 4.1, session-dependent lists: one client changes its list, and others keep theirs.
#[tokio::test]
async fn line_4_1_lists_are_those_of_the_lease() {
    let gateway = bridge_with("legacy").start();
    let (ada, bob) = (Caller::new(&gateway, "ada"), Caller::new(&gateway, "bob"));
    let names = async |caller: &Caller| -> Vec<String> {
        let listed = caller
            .send(1, "tools/list", json!({}), json!({}))
            .await
            .response()
            .await;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!((names(&ada).await, names(&bob).await), (first_tools(), first_tools()));
    let (mut changes, _) = ada.listen(2, json!({ "toolsListChanged": true })).await;
    tool_result(&ada.call(3, "add-tool", json!({ "name": "extra" })).await);
    assert_eq!(
        changes.next().await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    let with_extra = [first_tools(), vec!["extra".to_owned()]].concat();
    assert_eq!((names(&ada).await, names(&bob).await), (with_extra, first_tools()));
}

fn first_tools() -> Vec<String> {
    vec!["echo".to_owned(), "region".to_owned()]
}

/// 4.1, tools relying on process memory between calls: calls of a client find the memory of its process, as long as it lives.
#[tokio::test]
async fn line_4_1_memory_of_the_process_lasts_until_the_lease_is_idle() {
    let gateway = bridge_with("legacy").option("--lease-idle 3s").start();
    let (ada, bob) = (Caller::new(&gateway, "ada"), Caller::new(&gateway, "bob"));
    let runs = async |caller: &Caller| tool_result(&caller.call(1, "runs", json!({})).await);
    for expected in 1..=3 {
        assert_eq!(runs(&ada).await, expected);
    }
    assert_eq!(runs(&bob).await, 1, "another client has its own process");
    gateway.wait_for_children(0, SOON).await;
    assert_eq!(runs(&ada).await, 1, "a new process knows nothing");
}

/// 4.1, child restart under listen: changes may be lost, so every listen of the lease ends with its result (SUB-06). A new one
/// subscribes at the next process.
#[tokio::test]
async fn line_4_1_exit_of_the_child_ends_every_listen_of_the_lease() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] });
    let (one, _) = caller.listen(1, filter.clone()).await;
    let (two, _) = caller.listen(2, json!({ "toolsListChanged": true })).await;
    let other = Caller::new(&gateway, "bob");
    let (mut of_other, _) = other.listen(3, json!({ "toolsListChanged": true })).await;
    let pid = tool_result(&caller.call(4, "echo", json!({})).await)["pid"].clone();
    kill(u32::try_from(pid.as_u64().unwrap()).unwrap(), Signal::KILL);
    for (id, stream) in [(1, one), (2, two)] {
        let messages = within(stream.messages()).await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        let (last, result) = (&messages[0]["id"], &messages[0]["result"]);
        assert_eq!(
            (last, &result["resultType"]),
            (&json!(id), &json!("complete")),
            "{messages:?}"
        );
        assert_eq!(result["_meta"][SUBSCRIPTION], id);
    }
    let (mut again, honoured) = caller.listen(5, filter.clone()).await;
    assert_eq!(honoured, filter);
    let subscribed = received(&gateway, "resources/subscribe");
    assert_eq!(
        subscribed,
        [json!({ "uri": "a:1" }), json!({ "uri": "a:1" })],
        "once for each process"
    );
    let change = async |caller: &Caller, method: &str| {
        let arguments = json!({ "methods": [method], "uri": "a:1" });
        tool_result(&caller.call(6, "change", arguments).await)
    };
    let next = change(&caller, "notifications/resources/updated").await;
    assert_ne!(next["pid"], pid);
    let updated: Value = again.next().await.unwrap();
    assert_eq!(updated["params"]["uri"], "a:1", "{updated}");
    change(&other, "notifications/tools/list_changed").await;
    let changed = of_other.next().await.unwrap();
    assert_eq!(
        changed["method"], "notifications/tools/list_changed",
        "other leases go on: {changed}"
    );
}
