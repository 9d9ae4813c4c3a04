//! 2026-07-28: stateless requests on the same endpoint as sessions.

use crate::support::{ScriptedHandler, V2025_11_25, progress_values, result_text};
use rethread::{LogLevel, RpcError};
use rethread_testkit::client::{Client, MODERN, stateless};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
const CLIENT_CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

async fn tool(client: &Client, id: impl Into<Value>, name: &str) -> rethread_testkit::client::Reply {
    let params = json!({ "name": name, "arguments": { "message": "hi" } });
    client
        .stateless(id, "tools/call", params, json!({ "progressToken": 1 }))
        .await
}

/// VER-13, HTTP-15: both eras work on one endpoint.
#[tokio::test]
async fn ver_13_stateless_call_returns_a_typed_result() {
    let (service, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let reply = tool(&client, "x", "echo").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("mcp-session-id"), None, "never minted");
    let body = reply.json().await;
    assert_eq!(result_text(&body), "hi");
    assert_eq!(body["id"], "x");
    assert_eq!(body["result"]["resultType"], "complete");
    assert_eq!(body["result"]["_meta"][SERVER_INFO_KEY]["name"], "handler");
    let legacy = session.tool(1, "echo", json!({ "message": "hi" })).await.json().await;
    assert_eq!(
        legacy["result"],
        json!({ "content": [{ "type": "text", "text": "hi" }] }),
        "nothing more"
    );
    assert_eq!(service.stats().sessions, 1);
}

#[tokio::test]
async fn ver_07_discover_returns_versions_and_capabilities() {
    let (_, client) = ScriptedHandler::new().serve();
    let result = client
        .stateless(1, "server/discover", json!({}), json!({}))
        .await
        .json()
        .await["result"]
        .clone();
    assert_eq!(result["supportedVersions"][0], MODERN);
    assert_eq!(result["supportedVersions"].as_array().unwrap().len(), 5);
    assert!(result["capabilities"]["tools"].is_object());
    assert_eq!(
        (&result["resultType"], &result["ttlMs"], &result["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    assert_eq!(result["_meta"][SERVER_INFO_KEY]["name"], "handler");
}

/// VER-05, HDR-01, HDR-02, HDR-04, HTTP-12: status, code and id for one defect at a time.
#[tokio::test]
async fn ver_05_each_defect_has_its_status_and_code() {
    let (_, client) = ScriptedHandler::new().serve();
    let base = || {
        stateless(
            &json!(7),
            "tools/call",
            json!({ "name": "echo", "arguments": {} }),
            json!({}),
        )
    };
    type Break = fn(&mut Vec<(&'static str, String)>, &mut Value);
    let defects: [(&str, Break, u16, i64); 11] = [
        (
            "no method header",
            |h, _| h.retain(|(n, _)| *n != "mcp-method"),
            400,
            -32020,
        ),
        ("wrong method header", |h, _| h[1].1 = "TOOLS/CALL".into(), 400, -32020),
        (
            "no name header",
            |h, _| h.retain(|(n, _)| *n != "mcp-name"),
            400,
            -32020,
        ),
        ("wrong name header", |h, _| h[2].1 = "other".into(), 400, -32020),
        (
            "no version header",
            |h, _| h.retain(|(n, _)| *n != "mcp-protocol-version"),
            400,
            -32020,
        ),
        ("other version header", |h, _| h[0].1 = "2025-11-25".into(), 400, -32020),
        (
            "no capabilities",
            |_, b| {
                let meta = b["params"]["_meta"].as_object_mut().unwrap();
                meta.remove(CLIENT_CAPABILITIES_KEY);
            },
            400,
            -32602,
        ),
        (
            "capabilities not an object",
            |_, b| b["params"]["_meta"][CLIENT_CAPABILITIES_KEY] = json!(1),
            400,
            -32602,
        ),
        (
            "invalid log level",
            |_, b| b["params"]["_meta"][LOG_LEVEL_KEY] = json!("loud"),
            400,
            -32602,
        ),
        (
            "unknown version",
            |h, b| {
                h[0].1 = "2027-01-01".into();
                b["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2027-01-01");
            },
            400,
            -32022,
        ),
        (
            "no _meta at all",
            |_, b| drop(b["params"].as_object_mut().unwrap().remove("_meta")),
            400,
            -32602,
        ),
    ];
    for (name, spoil, status, code) in defects {
        let (mut headers, mut body) = base();
        spoil(&mut headers, &mut body);
        let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let reply = client.request("POST", &headers, body.to_string()).await;
        assert_eq!(reply.status.as_u16(), status, "{name}");
        let error = reply.json().await;
        assert_eq!(
            (&error["error"]["code"], &error["id"]),
            (&json!(code), &json!(7)),
            "{name}"
        );
    }
    for removed in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/list",
        "no/such",
    ] {
        let reply = client.stateless("r", removed, json!({}), json!({})).await;
        assert_eq!(reply.status, 404, "{removed}");
        let error = reply.json().await;
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(-32601), &json!("r")));
    }
    let unknown_tool = tool(&client, 1, "nobody").await;
    assert_eq!(unknown_tool.status, 200, "HTTP-13");
    assert_eq!(unknown_tool.json().await["error"]["code"], -32602);
}

/// VER-05: checks run in order: method, log level, mirrored headers.
#[tokio::test]
async fn ver_05_unknown_method_is_refused_before_its_log_level() {
    let (_, client) = ScriptedHandler::new().serve();
    let loud = || json!({ LOG_LEVEL_KEY: "loud" });
    for (method, status, code) in [
        ("ping", 404, -32601),
        ("no/such", 404, -32601),
        ("tools/list", 400, -32602),
    ] {
        let reply = client.stateless(1, method, json!({}), loud()).await;
        assert_eq!(reply.status, status, "{method}");
        assert_eq!(reply.json().await["error"]["code"], code, "{method}");
    }
    let params = json!({ "name": "mirrored", "arguments": { "region": "eu" } }); // without Mcp-Param-Region
    let reply = client.stateless(1, "tools/call", params, loud()).await;
    assert_eq!(reply.json().await["error"]["code"], -32602);
}

#[tokio::test]
async fn hdr_04_annotated_argument_must_match_its_header() {
    let (_, client) = ScriptedHandler::new().serve();
    let call = |region: Value, header: Option<&'static str>| {
        let client = client.clone();
        async move {
            let params = json!({ "name": "mirrored", "arguments": { "region": region } });
            let (headers, body) = stateless(&json!(1), "tools/call", params, json!({}));
            let mut headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            headers.extend(header.map(|value| ("mcp-param-region", value)));
            client.request("POST", &headers, body.to_string()).await.status.as_u16()
        }
    };
    assert_eq!(call(json!("eu"), Some("eu")).await, 200);
    assert_eq!(call(json!("ü"), Some("=?base64?w7w=?=")).await, 200);
    assert_eq!(call(Value::Null, None).await, 200);
    for (region, header) in [
        (json!("eu"), None),
        (json!("eu"), Some("us")),
        (Value::Null, Some("eu")),
        (json!("ü"), Some("=?base64?!?=")),
    ] {
        assert_eq!(call(region, header).await, 400);
    }
}

/// SSE-03, SSE-11, SSE-12, RES-10.
#[tokio::test]
async fn sse_11_stateless_stream_has_no_ids_and_ends_with_the_answer() {
    let handler = ScriptedHandler::new();
    let store = rethread::MemoryStore::default();
    let (_, client) = handler.serve_with(|b| b.store(store.clone()));
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(tool(&client, "m", "a"), async {
        script.progress(1).await;
        script.progress(2).await;
        script.finish("done").await;
    });
    assert_eq!(reply.header("x-accel-buffering").as_deref(), Some("no"));
    let body = reply.bytes().await;
    let text = std::str::from_utf8(&body).unwrap();
    assert!(!text.contains("id: ") && !text.contains("retry:"), "{text}");
    assert_eq!(text.matches("data: ").count(), 3);
    assert!(text.ends_with("\n\n") && text.contains("\"resultType\":\"complete\""));
    assert_eq!(store.streams(), 0, "no storage");
    // Headers of the legacy era are ignored.
    let (headers, body) = stateless(&json!(1), "tools/call", json!({ "name": "echo" }), json!({}));
    let mut headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    headers.extend([("last-event-id", "1-1"), ("mcp-session-id", "nobody")]);
    assert_eq!(client.request("POST", &headers, body.to_string()).await.status, 200);
}

/// LOG-02.
#[tokio::test]
async fn log_02_logs_are_sent_only_on_request() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    for (level, expected) in [
        (None, vec![]),
        (Some("warning"), vec!["error"]),
        (Some("debug"), vec!["info", "error"]),
    ] {
        let script = handler.script("a");
        let meta = level.map_or(json!({}), |level| json!({ LOG_LEVEL_KEY: level }));
        let (reply, ()) = tokio::join!(client.stateless(1, "tools/call", json!({ "name": "a" }), meta), async {
            script.log(LogLevel::Info, "i").await;
            script.log(LogLevel::Error, "e").await;
            script.finish("x").await;
        });
        let levels: Vec<String> = if reply.is_stream() {
            let messages = reply.events().rest().await;
            messages
                .iter()
                .filter_map(|m| m.data["params"]["level"].as_str().map(str::to_owned))
                .collect()
        } else {
            Vec::new()
        };
        assert_eq!(levels, expected, "{level:?}");
    }
}

/// CAN-03: before and during a stream.
#[tokio::test]
async fn can_03_disconnect_cancels_the_call() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    // A silent call: the client drops the pending response.
    let script = handler.script("a");
    let gone = tokio::time::timeout(Duration::from_millis(20), tool(&client, 1, "a")).await;
    assert!(gone.is_err());
    script.wait_for_end().await;
    // A streaming call: the client drops the body.
    let script = handler.script("b");
    let (reply, ()) = tokio::join!(tool(&client, 1, "b"), script.progress(1));
    let mut events = reply.events();
    assert_eq!(progress_values(&[events.next().await]), [1]);
    drop(events);
    script.wait_for_end().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(
        (service.stats().running_calls, handler.ended.load(Ordering::Relaxed)),
        (0, 2)
    );
}

/// HTTP-06, CAN-04.
#[tokio::test]
async fn http_06_notifications_are_accepted_and_answers_refused() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(tool(&client, 1, "a"), script.progress(1));
    let version = ("mcp-protocol-version", MODERN);
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1, "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN } } });
    let taken = client.request("POST", &[version], cancel.to_string()).await;
    assert_eq!(taken.status, 202);
    assert!(taken.bytes().await.is_empty());
    let mismatched = client
        .request("POST", &[version, ("mcp-method", "other")], cancel.to_string())
        .await;
    assert_eq!(mismatched.status, 400);
    let answer = json!({ "jsonrpc": "2.0", "id": "q1", "result": {} });
    let refused = client.request("POST", &[version], answer.to_string()).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["code"], -32600);
    script.finish("not cancelled").await;
    assert_eq!(result_text(&reply.events().rest().await[1].data), "not cancelled");
}

/// VER-09.
#[tokio::test]
async fn ver_09_stateless_get_and_delete_return_405() {
    let (_, client) = ScriptedHandler::new().serve();
    for method in ["GET", "DELETE"] {
        let reply = client.request(method, &[("mcp-protocol-version", MODERN)], "").await;
        assert_eq!(reply.status, 405);
        assert_eq!(reply.header("allow").as_deref(), Some("POST"));
    }
}

/// HTTP-08, T-37: a silent call becomes a stream before proxies time out.
#[tokio::test(start_paused = true)]
async fn http_08_slow_call_becomes_a_stream_with_keep_alives() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let script = handler.script("a");
    let start = tokio::time::Instant::now();
    let mut events = tool(&client, 1, "a").await.events();
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert!(events.block().await.unwrap().comment);
    script.fail(RpcError::method_not_found("late")).await;
    assert_eq!(
        events.next().await.data["error"]["code"],
        -32601,
        "any later error travels in-stream"
    );
}

/// SSE-14: emits wait for the reader, then the call is cancelled.
#[tokio::test(start_paused = true)]
async fn sse_14_stalled_stateless_reader_loses_its_call() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(tool(&client, 1, "a"), script.progress(1));
    let start = tokio::time::Instant::now();
    let mut emitted = 1;
    while script.try_progress(emitted + 1).await.is_ok() {
        emitted += 1;
        assert!(emitted < 1000, "it must end");
    }
    assert!(start.elapsed() >= Duration::from_secs(10));
    script.wait_for_end().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(service.stats().running_calls, 0);
    drop(reply);
}

/// CAN-03: one thousand disconnects during calls.
#[tokio::test]
async fn can_03_disconnects_leave_no_calls_behind() {
    let store = rethread::MemoryStore::default();
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(store.clone()));
    client.stateless(0, "server/discover", json!({}), json!({})).await; // starts the background tasks of the node
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    for n in 0..1000 {
        let script = handler.script("a");
        match n % 4 {
            0 => {
                let call = tool(&client, n, "a");
                let _ = tokio::time::timeout(Duration::from_micros(200), call).await;
            }
            1 => {
                let (reply, ()) = tokio::join!(tool(&client, n, "a"), script.progress(1));
                drop(reply);
            }
            2 => {
                let filter = json!({ "notifications": { "toolsListChanged": true } });
                drop(client.stateless(n, "subscriptions/listen", filter, json!({})).await);
            }
            _ => {
                let mut events = {
                    let (reply, ()) = tokio::join!(tool(&client, n, "a"), script.progress(1));
                    reply.events()
                };
                events.next().await;
            }
        }
        drop(script);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((service.stats().running_calls, service.stats().parked_calls), (0, 0));
    assert_eq!(alive(), before, "no task remains");
    assert_eq!((service.stats().subscriptions, service.stats().connections), (0, 0));
    assert_eq!(
        (service.stats().sessions, store.streams(), store.held_bytes()),
        (0, 0, 0)
    );
}

/// T-38: without an error the client would wait, because it only sees its stream end.
#[tokio::test(start_paused = true)]
async fn t_38_shutdown_ends_stateless_calls_with_an_error() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let (silent, streaming) = (handler.script("silent"), handler.script("streaming"));
    let held = tokio::spawn({
        let client = client.clone();
        async move { tool(&client, 1, "silent").await.json().await }
    });
    let (reply, ()) = tokio::join!(tool(&client, 2, "streaming"), streaming.progress(1));
    service.shutdown(Duration::from_secs(3)).await;
    assert_eq!(held.await.unwrap()["error"]["code"], -32603);
    let last = reply.events().rest().await.pop().unwrap();
    assert_eq!(
        (&last.data["id"], &last.data["error"]["code"]),
        (&json!(2), &json!(-32603))
    );
    tokio::join!(silent.wait_for_end(), streaming.wait_for_end());
}

/// VER-15: lists have a stable order.
#[tokio::test]
async fn ver_15_lists_do_not_depend_on_connections_or_earlier_calls() {
    use rethread::catalog::{NoArgs, Tool};
    let mut catalog = rethread::Catalog::new("lists", "1").page_size(3);
    for name in ["zebra", "apple", "mango", "kiwi"] {
        let tool = |_: NoArgs, _: rethread::Context| async { Ok::<_, RpcError>("x") };
        catalog = catalog.tool(Tool::new(name).description(name), tool);
    }
    let service = rethread::McpService::builder(catalog).build();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let client = Client::new(service.clone());
        let first = client
            .stateless(1, "tools/list", json!({}), json!({}))
            .await
            .json()
            .await["result"]
            .clone();
        client
            .stateless(2, "tools/call", json!({ "name": "kiwi" }), json!({}))
            .await;
        let cursor = json!({ "cursor": first["nextCursor"] });
        let second = client.stateless(3, "tools/list", cursor, json!({})).await.json().await["result"].clone();
        assert_eq!(first["cacheScope"], second["cacheScope"], "VER-14: one list, one scope");
        seen.push((first, second));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].0["tools"].as_array().unwrap().len(), 3);
}
