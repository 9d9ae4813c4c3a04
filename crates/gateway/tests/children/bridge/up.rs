//! Clients of 2026-07-28 in front of a server with sessions (requirements 4.1).

use super::caller::{Caller, SUBSCRIPTION, accept, all_capabilities, assert_asked};
use super::{SOON, bridge_with, received};
use crate::client::{LATEST, tool_result};
use crate::gateway::{kill, wait_until};
use http::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// GW-15, and 4.1: `server/discover`, per-request capabilities, requests and responses.
#[tokio::test]
async fn gw_15_modern_client_is_served_in_front_of_a_legacy_server() {
    let gateway = bridge_with("legacy,version=2025-06-18").start();
    assert_eq!(
        gateway.eras(),
        "2025-06-18 upstream, served as 2024-11-05 to 2026-07-28"
    );
    let caller = Caller::new(&gateway, "ada");
    let discovered = caller
        .send(1, "server/discover", json!({}), json!({}))
        .await
        .response()
        .await;
    let result = &discovered["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["capabilities"].get("tasks"), None);
    assert!(
        result["instructions"].as_str().unwrap().starts_with("pid "),
        "that of the lease: {result}"
    );
    assert_eq!(
        (&result["ttlMs"], &result["cacheScope"]),
        (&json!(0), &json!("private"))
    );
    let reply = caller.call(2, "echo", json!({ "text": "hi" })).await;
    assert_eq!(reply["result"]["resultType"], "complete");
    assert_eq!(
        reply["result"]["_meta"]["io.modelcontextprotocol/serverInfo"],
        json!({ "name": "bridge", "version": "1" })
    );
    let echo = tool_result(&reply);
    assert_eq!(
        (&echo["text"], &echo["params"]),
        (&json!("hi"), &json!(["_meta", "arguments", "name"]))
    );
    let meta = echo["meta"].as_object().unwrap();
    assert!(
        meta.keys().all(|key| !key.starts_with("io.modelcontextprotocol/")),
        "{meta:?}"
    );
    let tools = caller
        .send(3, "tools/list", json!({}), json!({}))
        .await
        .response()
        .await;
    assert_eq!(tools["result"]["tools"][0].get("execution"), None);
    let initialize = gateway
        .recorded_messages()
        .into_iter()
        .rfind(|m| m["method"] == "initialize")
        .unwrap();
    assert_eq!(
        initialize["params"]["clientInfo"],
        json!({ "name": "ada", "version": "1" })
    );
    assert_eq!(initialize["params"]["capabilities"], all_capabilities());
    let of_lease = gateway.methods_received(echo["pid"].as_u64().unwrap());
    assert_eq!(of_lease[..2], ["initialize", "notifications/initialized"]);
    let completed = caller
        .send(4, "completion/complete", json!({}), json!({}))
        .await
        .response()
        .await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["a", "b"]));
}

/// 4.1, error codes.
#[tokio::test]
async fn line_4_1_errors_of_the_server_are_mapped() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let missing = caller
        .send(1, "resources/read", json!({ "uri": "missing:a" }), json!({}))
        .await
        .response()
        .await;
    assert_eq!(missing["error"]["code"], -32602, "{missing}");
    let reserved = caller.call(2, "fail", json!({ "code": -32021 })).await;
    assert_eq!(reserved["error"]["code"], -32603);
    assert_eq!(reserved["error"]["data"]["upstream"]["code"], -32021, "{reserved}");
    let unknown = caller.start(3, "fail", json!({ "code": -32601 }), json!({})).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(unknown.response().await["error"]["code"], -32601);
}

/// GW-19: a legacy server has no state, and that of a modern server passes unchanged.
#[tokio::test]
async fn gw_19_own_and_foreign_request_state_are_told_apart() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let forged = json!({ "requestState": "forged" });
    let reply = caller.start(1, "echo", json!({}), forged).await.response().await;
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    let asked = caller.call(2, "ask", json!({})).await;
    let mut tampered = asked.clone();
    let state = asked["result"]["requestState"].as_str().unwrap();
    // A character in the middle: the last one may have bits that mean nothing.
    let (start, rest) = state.split_at(state.len() / 2);
    let other = if rest.starts_with('A') { "B" } else { "A" };
    tampered["result"]["requestState"] = json!(format!("{start}{other}{}", &rest[1..]));
    let reply = caller
        .retry(3, "ask", json!({}), &tampered, accept("x"))
        .await
        .response()
        .await;
    assert_eq!(reply["error"]["code"], -32602, "{reply}");

    let gateway = bridge_with("modern").start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask", json!({ "text": "t" })).await;
    assert_eq!(
        asked["result"]["requestState"], "state é \" t",
        "the state of the server itself"
    );
    let reply = caller
        .retry(2, "ask", json!({ "text": "t" }), &asked, accept("y"))
        .await
        .response()
        .await;
    assert_eq!(tool_result(&reply)["state"], "state é \" t", "{reply}");
}

/// GW-06: who shares a process.
#[tokio::test]
async fn gw_06_leases_depend_on_capabilities_and_client() {
    let gateway = bridge_with("legacy").start();
    let pid = async |caller: &Caller| tool_result(&caller.call(1, "echo", json!({})).await)["pid"].clone();
    let ada = pid(&Caller::new(&gateway, "ada")).await;
    assert_eq!(pid(&Caller::new(&gateway, "ada")).await, ada, "the same client");
    assert_ne!(pid(&Caller::new(&gateway, "bob")).await, ada, "another client");
    let other = Caller::new(&gateway, "ada").with_capabilities(json!({}));
    assert_ne!(pid(&other).await, ada, "other capabilities");
    let spelled =
        json!({ "roots": {}, "sampling": {}, "elicitation": { "url": {}, "form": {} }, "extensions": { "x": {} } });
    assert_eq!(
        pid(&Caller::new(&gateway, "ada").with_capabilities(spelled)).await,
        ada,
        "another spelling"
    );
}

/// GW-26: the process of a lease has the same line as that of a session.
#[tokio::test]
async fn gw_26_started_child_of_a_lease_is_logged() {
    let gateway = bridge_with("legacy").start();
    let answer = Caller::new(&gateway, "ada").call(1, "echo", json!({})).await;
    let pid = tool_result(&answer)["pid"].clone();
    gateway.wait_for_log("child started").await;
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("child started")).unwrap();
    assert!(
        line.contains("kind=\"lease\"") && line.contains(&format!("pid={pid}")),
        "{line}"
    );
}

/// GW-06: `share = false` gives every anonymous request its own process.
#[tokio::test]
async fn gw_06_anonymous_clients_share_only_if_the_operator_says_so() {
    let gateway = bridge_with("legacy").option("--share false").start();
    let caller = Caller::new(&gateway, "ada");
    let one = tool_result(&caller.call(1, "echo", json!({})).await)["pid"].clone();
    let two = tool_result(&caller.call(2, "echo", json!({})).await)["pid"].clone();
    assert_ne!(one, two);
    let asked = caller.call(3, "ask", json!({})).await;
    assert_asked(&asked);
    let reply = caller
        .retry(4, "ask", json!({}), &asked, accept("1A"))
        .await
        .response()
        .await;
    assert_eq!(tool_result(&reply)["answers"][0]["content"]["seat"], "1A", "{reply}");
    gateway.wait_for_children(0, SOON).await;
}

/// 4.1, `mcp/logLevel`: set at the child, filtered for the request.
#[tokio::test]
async fn line_4_1_log_level_of_the_request_is_set_and_filters() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let call = async |id: u64, level: Option<&str>| {
        let meta = level.map_or(json!({}), |level| json!({ "io.modelcontextprotocol/logLevel": level }));
        let params = json!({ "name": "log", "arguments": { "text": "careful" } });
        let messages = caller.send(id, "tools/call", params, meta).await.messages().await;
        let logs: Vec<_> = messages
            .iter()
            .filter(|m| m["method"] == "notifications/message")
            .collect();
        let data: Vec<_> = logs
            .iter()
            .map(|log| log["params"]["data"].as_str().unwrap().to_owned())
            .collect();
        (data, tool_result(messages.last().unwrap())["level"].clone())
    };
    assert_eq!(call(1, None).await, (vec![], Value::Null), "nobody asked");
    assert_eq!(
        call(2, Some("warning")).await,
        (vec!["careful".to_owned()], json!("warning"))
    );
    assert_eq!(
        call(3, Some("debug")).await,
        (vec!["quiet".to_owned(), "careful".to_owned()], json!("debug"))
    );
    assert_eq!(call(4, Some("error")).await.0, Vec::<String>::new());
    assert_eq!(call(5, None).await.0, Vec::<String>::new());
}

/// 4.1, progress: to its own call only.
#[tokio::test]
async fn line_4_1_progress_has_the_token_of_its_call() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada").with_capabilities(json!({}));
    let call = async |id: u64| {
        let text = format!("call {id}");
        let messages = caller
            .start(id, "slow", json!({ "steps": 3, "text": text }), json!({}))
            .await
            .messages()
            .await;
        let (last, progress) = messages.split_last().unwrap();
        assert_eq!(progress.len(), 3, "{messages:?}");
        for report in progress {
            assert_eq!(
                (&report["params"]["progressToken"], &report["params"]["message"]),
                (&json!(id), &json!(text))
            );
        }
        tool_result(last)["pid"].clone()
    };
    let (one, two) = tokio::join!(call(1), call(2));
    assert_eq!(one, two, "calls that cannot ask share a process");
}

/// 4.1, `subscriptions/listen`: one hub for all children of a lease.
#[tokio::test]
async fn line_4_1_changes_of_every_child_reach_every_listen_of_the_lease() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let filter =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:1", "refuse:x"] });
    let (mut one, honoured) = caller.listen(1, filter).await;
    assert_eq!(
        honoured,
        json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] })
    );
    let (mut two, _) = caller.listen(2, json!({ "resourceSubscriptions": ["a:1"] })).await;
    let asked = caller.call(3, "ask", json!({})).await; // holds the first child
    assert_asked(&asked);
    let changes =
        json!({ "methods": ["notifications/tools/list_changed", "notifications/resources/updated"], "uri": "a:1" });
    tool_result(&caller.call(4, "change", changes).await); // a second child, which was subscribed at its start
    let methods = [one.next().await.unwrap(), one.next().await.unwrap()].map(|m| m["method"].clone());
    assert_eq!(
        methods,
        ["notifications/tools/list_changed", "notifications/resources/updated"]
    );
    let updated = two.next().await.unwrap();
    assert_eq!(
        (&updated["params"]["uri"], &updated["params"]["_meta"][SUBSCRIPTION]),
        (&json!("a:1"), &json!(2))
    );
    let subscribes = received(&gateway, "resources/subscribe");
    let of_uri = subscribes.iter().filter(|params| params["uri"] == "a:1");
    assert_eq!(of_uri.count(), 2, "once for each child");
    drop((one, two));
    let unsubscribed = || received(&gateway, "resources/unsubscribe").len() == 2;
    assert!(wait_until(SOON, unsubscribed).await);
}

/// GW-09: the child of a lease exits: its call fails, and the next call starts another one.
#[tokio::test]
async fn gw_09_lease_starts_another_child_after_a_crash() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let crashed = caller.call(1, "crash", json!({})).await;
    assert_eq!(
        (&crashed["error"]["code"], &crashed["error"]["data"]["reason"]),
        (&json!(-32603), &json!("server_exited")),
        "{crashed}"
    );
    tool_result(&caller.call(2, "echo", json!({})).await);
}

/// GW-18: a lease ends after its last use; a parked call and a listen are use.
#[tokio::test]
async fn gw_18_idle_lease_ends_and_a_parked_call_is_use() {
    let gateway = bridge_with("legacy").option("--lease-idle 1s").start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask", json!({})).await;
    assert_asked(&asked);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let reply = caller
        .retry(2, "ask", json!({}), &asked, accept("5E"))
        .await
        .response()
        .await;
    assert_eq!(tool_result(&reply)["answers"][0]["content"]["seat"], "5E", "{reply}");
    gateway.wait_for_children(0, SOON).await;
    let (stream, _) = caller.listen(3, json!({ "toolsListChanged": true })).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(gateway.children().len(), 1, "a listen needs the last child");
    drop(stream);
    gateway.wait_for_children(0, SOON).await;
}

/// 4.1, cancellation: the child is notified with its own id of the call, and the late response of the call reaches nobody.
#[tokio::test]
async fn line_4_1_disconnect_cancels_the_call_at_the_child() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada").with_capabilities(json!({})); // its calls share a process
    let mut stays = caller
        .start(1, "slow", json!({ "steps": 20, "text": "stays" }), json!({}))
        .await;
    let arguments = json!({ "steps": 600, "text": "leaves", "responds-late": true });
    let mut leaves = caller.start(2, "slow", arguments, json!({})).await;
    stays.next().await.expect("progress");
    leaves.next().await.expect("progress");
    drop(leaves);
    let stopped = || received(&gateway, "stopped");
    assert!(
        wait_until(SOON, || !stopped().is_empty()).await,
        "no call was cancelled"
    );
    let last = stays.messages().await.pop().unwrap();
    assert_eq!((&last["id"], &tool_result(&last)["text"]), (&json!(1), &json!("stays")));
    let next = caller.call(3, "echo", json!({ "text": "next" })).await;
    assert_eq!(tool_result(&next)["text"], "next", "{next}");
    assert_eq!(stopped(), [json!({ "text": "leaves" })]);
}

/// A parked call does not survive the gateway: its retry gets a clear error, and the tool does not run again.
#[tokio::test]
async fn rst_05_retry_after_a_restart_gets_a_clear_error() {
    let gateway = bridge_with("legacy").with_data_dir().start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask", json!({})).await;
    assert_asked(&asked);
    let gateway = gateway.kill_and_restart();
    let caller = Caller::new(&gateway, "ada");
    let reply = caller
        .retry(2, "ask", json!({}), &asked, accept("7G"))
        .await
        .response()
        .await;
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    assert_eq!(
        tool_result(&caller.call(3, "runs", json!({})).await),
        1,
        "nothing ran again"
    );
}

/// GW-15: the era spoken to a dual server, for every client.
#[tokio::test]
async fn gw_15_era_fixes_what_is_spoken_to_the_server_only() {
    let gateway = bridge_with("dual").option("--era legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask", json!({})).await;
    assert_asked(&asked);
    let reply = caller
        .retry(2, "ask", json!({}), &asked, accept("8H"))
        .await
        .response()
        .await;
    assert_eq!(
        tool_result(&reply)["answers"][0]["content"]["seat"],
        "8H",
        "the session API of the server"
    );
    gateway.client().open_session(LATEST).await;
    let methods: Vec<_> = gateway
        .recorded_messages()
        .iter()
        .map(|m| m["method"].clone())
        .collect();
    assert!(!methods.contains(&json!("server/discover")), "{methods:?}");

    let gateway = bridge_with("dual").option("--era modern").start();
    let session = gateway.client().open_session(LATEST).await;
    let echo = tool_result(&session.call_tool(1, "echo", json!({})).await);
    assert_eq!(echo["meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

/// GW-11: header params of a legacy tool are checked before the first call.
#[tokio::test]
async fn gw_11_header_params_of_a_legacy_server_are_checked() {
    let gateway = bridge_with("legacy").start();
    let params = json!({ "name": "region", "arguments": { "region": "eu" } });
    let reply = gateway
        .client()
        .stateless(json!(1), "tools/call", params, &[("mcp-param-region", "us")])
        .await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.response().await["error"]["code"], -32020);
}

/// 4.1, `x-mcp-header` in child tools: a client would ignore a tool with an invalid annotation.
#[tokio::test]
async fn line_4_1_invalid_header_annotation_is_removed_and_logged() {
    let gateway = bridge_with("legacy,invalid-header").start();
    let caller = Caller::new(&gateway, "ada");
    let listed = caller.send(1, "tools/list", json!({}), json!({})).await;
    let tools = listed.response().await["result"]["tools"].clone();
    let properties = |n: usize| tools[n]["inputSchema"]["properties"].clone();
    assert_eq!(properties(1)["region"]["x-mcp-header"], "Region", "{tools}");
    assert_eq!(
        (&tools[2]["name"], properties(2)),
        (&json!("odd"), json!({ "a": { "type": "string" } }))
    );
    caller.call(2, "odd", json!({ "a": "b" })).await;
    gateway.wait_for_log("tool has invalid header annotations").await;
    let log = gateway.log();
    let line = log
        .lines()
        .find(|line| line.contains("invalid header annotations"))
        .unwrap();
    assert!(line.contains("WARN") && line.contains("odd"), "{line}");
}

/// GW-09: a child that is killed while its call is parked.
#[tokio::test]
async fn gw_09_retry_of_a_call_whose_child_was_killed_gets_its_error() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask", json!({})).await;
    assert_asked(&asked);
    for child in gateway.children() {
        kill(child.pid, Signal::KILL);
    }
    gateway.wait_for_children(0, SOON).await;
    let reply = caller
        .retry(2, "ask", json!({}), &asked, accept("9I"))
        .await
        .response()
        .await;
    assert_eq!(
        (&reply["id"], &reply["error"]["data"]["reason"]),
        (&json!(2), &json!("server_exited")),
        "{reply}"
    );
}
