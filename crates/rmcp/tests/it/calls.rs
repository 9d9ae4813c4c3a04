//! Calls on every revision: results, errors, notifications, cancellation.

use crate::fixture::ServerControl;
use crate::support::{ALL_REVISIONS, Caller, LEGACY_REVISIONS, assert_region_header_is_checked, serve, text};
use rethread_testkit::client::MODERN;
use serde_json::json;
use std::sync::Arc;

/// PRG-01, LOG-01, LOG-02: logs and progress go to the call's stream, before its result.
#[tokio::test]
async fn log_01_prg_01_call_messages_go_to_the_call_stream() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let messages = caller
            .tool(1, "work", json!({ "tag": "a" }))
            .await
            .events()
            .rest()
            .await;
        let methods: Vec<_> = messages
            .iter()
            .map(|m| m.data["method"].as_str().unwrap_or("answer"))
            .collect();
        let (log, progress) = ("notifications/message", "notifications/progress");
        assert_eq!(
            methods,
            [log, progress, log, progress, log, progress, log, "answer"],
            "{version}"
        );
        assert_eq!(messages[0].data["params"]["data"], json!({ "tag": "a", "step": 1 }));
        assert_eq!(
            messages[1].data["params"],
            json!({ "progressToken": "t1", "progress": 1, "total": 3 })
        );
        assert_eq!(text(&messages[7].data), "a");
    }
}

/// LOG-02, PRG-01: a stateless request without a level and a token gets neither logs nor progress.
#[tokio::test]
async fn log_02_stateless_call_without_a_level_sends_no_logs() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    let params = json!({ "name": "work", "arguments": { "tag": "a" } });
    let reply = endpoint.client.stateless(1, "tools/call", params, json!({})).await;
    assert!(!reply.is_stream());
    assert_eq!(text(&reply.json().await), "a");
}

#[tokio::test]
async fn plain_call_returns_json_on_every_revision() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let reply = caller.tool(7, "echo", json!({ "text": "hi" })).await;
        assert!(!reply.is_stream(), "{version}");
        let answer = reply.json().await;
        assert_eq!((&answer["id"], text(&answer)), (&json!(7), "hi"), "{version}");
        let typed = answer["result"].get("resultType").is_some();
        assert_eq!(typed, version == MODERN, "resultType belongs to 2026-07-28 only");
        let seen = caller.tool(8, "version", json!({})).await.answer().await;
        assert_eq!(text(&seen), version, "the handler sees the client's revision");
    }
}

#[tokio::test]
async fn prompts_resources_completion_and_lists_work_on_every_revision() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let ask = async |method, params| caller.call(1, method, params).await.answer().await["result"].take();
        assert_eq!(
            ask("tools/list", json!({})).await["tools"][0]["name"],
            "echo",
            "{version}"
        );
        assert_eq!(ask("prompts/list", json!({})).await["prompts"][0]["name"], "greet");
        let prompt = ask("prompts/get", json!({ "name": "greet" })).await;
        assert_eq!(prompt["messages"][0]["content"]["text"], "hello from greet");
        let page = ask("resources/list", json!({ "cursor": "next" })).await;
        assert_eq!(page["resources"][0]["uri"], "mem://next", "the cursor arrives");
        let templates = ask("resources/templates/list", json!({})).await;
        assert_eq!(templates["resourceTemplates"], json!([]));
        let read = ask("resources/read", json!({ "uri": "mem://a" })).await;
        assert_eq!(read["contents"][0]["text"], "remember");
        let reference = json!({ "type": "ref/prompt", "name": "greet" });
        let argument = json!({ "name": "who", "value": "wor" });
        let completed = ask("completion/complete", json!({ "ref": reference, "argument": argument })).await;
        assert_eq!(completed["completion"]["values"], json!(["wor!"]));
    }
}

#[tokio::test]
async fn errors_keep_their_code_and_data() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let error = caller.tool(1, "fail", json!({})).await.answer().await["error"].take();
        assert_eq!(
            error,
            json!({ "code": -31_234, "message": "on purpose", "data": { "why": "because" } }),
            "{version}"
        );
        let params = json!({ "uri": "mem://missing" });
        let error = caller.call(2, "resources/read", params).await.answer().await["error"].take();
        let expected = if version == MODERN { -32_602 } else { -32_002 };
        assert_eq!(
            error["code"], expected,
            "{version}: its error code for an unknown resource"
        );
        assert_eq!(error["data"], json!({ "uri": "mem://missing" }));
        let params = json!({ "name": "echo", "arguments": 7 });
        let error = caller.call(3, "tools/call", params).await.answer().await["error"].take();
        assert_eq!(error["code"], -32_602, "{version}: invalid params");
    }
}

#[tokio::test]
async fn panic_fails_only_its_call() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let error = caller.tool(1, "panic", json!({})).await.answer().await["error"].take();
        assert_eq!(error["code"], -32_603, "{version}");
        let next = caller.tool(2, "echo", json!({ "text": "alive" })).await.answer().await;
        assert_eq!(text(&next), "alive");
    }
}

#[tokio::test]
async fn custom_requests_and_notifications_reach_the_handler() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let meta = json!({ "tag": "m" });
        let reply = caller.call_with(1, "fixture/custom", json!({ "x": 1 }), meta).await;
        let result = reply.answer().await["result"].take();
        assert_eq!(result["method"], "fixture/custom", "{version}");
        assert_eq!((&result["params"], &result["tag"]), (&json!({ "x": 1 }), &json!("m")));
        if let Caller::Session(session) = &caller {
            let method = format!("notifications/fixture/{version}");
            let reply = session.notify(&method, json!({ "y": 2 })).await;
            assert_eq!(reply.status, 202);
            control
                .wait_for(&format!("custom {method} {{\"y\":2}} parts true"))
                .await;
        }
    }
    let session = endpoint.client.open(LEGACY_REVISIONS[3]).await;
    session.notify("notifications/roots/list_changed", json!({})).await;
    control.wait_for("roots changed").await;
}

/// Handlers read the request parts as with rmcp's own transport.
#[tokio::test]
async fn request_parts_are_in_the_extensions() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    let client = endpoint.client.with_request_hook(|request| {
        request.headers_mut().insert("x-custom", "mine".parse().unwrap());
    });
    for version in ALL_REVISIONS {
        let caller = Caller::new(&client, version).await;
        let answer = caller.tool(1, "request_parts", json!({})).await.answer().await;
        assert_eq!(
            text(&answer),
            r#"POST /mcp Some("mine") Some("from a layer")"#,
            "{version}"
        );
    }
    control.wait_for("initialize testkit parts true").await;
}

/// CAN-01, CAN-03: a session client cancels with a notification, a stateless client by closing the connection.
#[tokio::test]
async fn can_01_can_03_cancellation_reaches_the_handler() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in ALL_REVISIONS {
        let caller = Caller::new(&endpoint.client, version).await;
        let arguments = json!({ "tag": version });
        match caller {
            Caller::Session(session) => {
                let waiting = tokio::spawn({
                    let session = session.clone();
                    async move { session.tool(5, "wait", arguments).await.bytes().await }
                });
                control.wait_for(&format!("waiting {version}")).await;
                let params = json!({ "requestId": 5, "reason": "enough" });
                session.notify("notifications/cancelled", params).await;
                control.wait_for("cancelled Some(Number(5))").await;
                control.wait_for(&format!("stopped {version}")).await;
                let body = waiting.await.unwrap();
                let body = String::from_utf8_lossy(&body).into_owned();
                assert!(
                    !body.contains("\"error\"") && !body.contains("\"result\""),
                    "{version}: {body}"
                );
            }
            Caller::Stateless(client) => {
                let waiting = tokio::spawn(async move {
                    let params = json!({ "name": "wait", "arguments": arguments });
                    client.stateless(5, "tools/call", params, json!({})).await.bytes().await
                });
                control.wait_for(&format!("waiting {version}")).await;
                waiting.abort();
                control.wait_for(&format!("stopped {version}")).await;
            }
        }
    }
}

/// LOG-01.
#[tokio::test]
async fn log_01_set_level_reaches_the_handler_and_filters_logs() {
    let control = Arc::new(ServerControl::default());
    let endpoint = serve(control.handler()).await;
    for version in LEGACY_REVISIONS {
        let session = endpoint.client.open(version).await;
        let reply = session.call(1, "logging/setLevel", json!({ "level": "warning" })).await;
        assert_eq!(reply.json().await["result"], json!({}), "{version}");
        control.wait_for("level Warning").await;
        let messages = session
            .tool(2, "work", json!({ "tag": "a" }))
            .await
            .events()
            .rest()
            .await;
        let logs = messages.iter().filter(|m| m.data["method"] == "notifications/message");
        assert_eq!(logs.count(), 0, "{version}: info is below warning");
        session.call(3, "logging/setLevel", json!({ "level": "info" })).await;
        let messages = session
            .tool(4, "work", json!({ "tag": "a" }))
            .await
            .events()
            .rest()
            .await;
        let logs = messages.iter().filter(|m| m.data["method"] == "notifications/message");
        assert_eq!(logs.count(), 3, "{version}: debug is below info");
    }
}

/// HDR-04: annotations in the schema apply, also for servers that implement only `list_tools`.
#[tokio::test]
async fn hdr_04_mirrored_argument_must_match_its_header() {
    let endpoint = serve(Arc::new(ServerControl::default()).handler()).await;
    let params = json!({ "name": "echo", "arguments": { "text": "hi", "region": "eu" } });
    assert_region_header_is_checked(&endpoint.client, &params).await;
}
