//! What a call says, answers and hears, on every revision.

use crate::stage::Script;
use crate::support::{ALL, Caller, SESSIONS, serve, text};
use rethread_testkit::client::MODERN;
use serde_json::{Value, json};
use std::sync::Arc;

/// PRG-01, LOG-01, LOG-02: what a call says travels on its own stream, before its answer.
#[tokio::test]
async fn log_01_prg_01_messages_of_a_call_travel_on_its_stream() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
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

/// LOG-02, PRG-01: on 2026-07-28 nothing is logged that was not asked for, and nowhere is progress.
#[tokio::test]
async fn log_02_what_was_not_asked_for_is_not_said() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    let params = json!({ "name": "work", "arguments": { "tag": "a" } });
    let reply = endpoint.client.stateless(1, "tools/call", params, json!({})).await;
    assert!(!reply.is_stream());
    assert_eq!(text(&reply.json().await), "a");
}

#[tokio::test]
async fn a_plain_call_is_answered_with_json_on_every_revision() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
        let caller = Caller::new(&endpoint.client, version).await;
        let reply = caller.tool(7, "echo", json!({ "text": "hi" })).await;
        assert!(!reply.is_stream(), "{version}");
        let answer = reply.json().await;
        assert_eq!((&answer["id"], text(&answer)), (&json!(7), "hi"), "{version}");
        let typed = answer["result"].get("resultType").is_some();
        assert_eq!(typed, version == MODERN, "resultType belongs to 2026-07-28 only");
        let seen = caller.tool(8, "version", json!({})).await.answer().await;
        assert_eq!(text(&seen), version, "the handler sees the true revision");
    }
}

#[tokio::test]
async fn prompts_resources_completion_and_lists_work_on_every_revision() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
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
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
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
            "{version}: the revision's own code for a resource that is not there"
        );
        assert_eq!(error["data"], json!({ "uri": "mem://missing" }));
        let params = json!({ "name": "echo", "arguments": 7 });
        let error = caller.call(3, "tools/call", params).await.answer().await["error"].take();
        assert_eq!(
            error["code"], -32_602,
            "{version}: params of the wrong shape are no unknown method"
        );
    }
}

#[tokio::test]
async fn a_panic_stays_in_its_call() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    for version in ALL {
        let caller = Caller::new(&endpoint.client, version).await;
        let error = caller.tool(1, "panic", json!({})).await.answer().await["error"].take();
        assert_eq!(error["code"], -32_603, "{version}");
        let next = caller.tool(2, "echo", json!({ "text": "alive" })).await.answer().await;
        assert_eq!(text(&next), "alive");
    }
}

#[tokio::test]
async fn custom_requests_and_notifications_reach_the_handler() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in ALL {
        let caller = Caller::new(&endpoint.client, version).await;
        let meta = json!({ "tag": "m" });
        let reply = caller.call_with(1, "stage/custom", json!({ "x": 1 }), meta).await;
        let result = reply.answer().await["result"].take();
        assert_eq!(result["method"], "stage/custom", "{version}");
        assert_eq!((&result["params"], &result["tag"]), (&json!({ "x": 1 }), &json!("m")));
        if let Caller::Session(session) = &caller {
            let method = format!("notifications/stage/{version}");
            let reply = session.notify(&method, json!({ "y": 2 })).await;
            assert_eq!(reply.status, 202);
            script.until(&format!("custom {method} {{\"y\":2}} head true")).await;
        }
    }
    let session = endpoint.client.open(SESSIONS[3]).await;
    session.notify("notifications/roots/list_changed", json!({})).await;
    script.until("roots changed").await;
}

/// Handlers read the head of the request as with rmcp's own transport.
#[tokio::test]
async fn the_head_of_the_request_is_in_the_extensions() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    let client = endpoint.client.prepared(|request| {
        request.headers_mut().insert("x-custom", "mine".parse().unwrap());
    });
    for version in ALL {
        let caller = Caller::new(&client, version).await;
        let answer = caller.tool(1, "head", json!({})).await.answer().await;
        assert_eq!(
            text(&answer),
            r#"POST /mcp Some("mine") Some("left by a layer")"#,
            "{version}"
        );
    }
    script.until("initialize testkit head true").await;
}

/// CAN-01, CAN-03: a handler learns that its call was cancelled; in a session by notification, without one by hanging up.
#[tokio::test]
async fn can_01_can_03_cancellation_reaches_the_handler() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in ALL {
        let caller = Caller::new(&endpoint.client, version).await;
        let arguments = json!({ "tag": version });
        match caller {
            Caller::Session(session) => {
                let waiting = tokio::spawn({
                    let session = session.clone();
                    async move { session.tool(5, "wait", arguments).await.bytes().await }
                });
                script.until(&format!("waiting {version}")).await;
                let params = json!({ "requestId": 5, "reason": "enough" });
                session.notify("notifications/cancelled", params).await;
                script.until("cancelled Some(Number(5))").await;
                script.until(&format!("stopped {version}")).await;
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
                script.until(&format!("waiting {version}")).await;
                waiting.abort();
                script.until(&format!("stopped {version}")).await;
            }
        }
    }
}

/// LOG-01: the handler hears of the level, and the transport keeps it.
#[tokio::test]
async fn log_01_the_level_is_heard_and_kept() {
    let script = Arc::new(Script::default());
    let endpoint = serve(script.handler()).await;
    for version in SESSIONS {
        let session = endpoint.client.open(version).await;
        let reply = session.call(1, "logging/setLevel", json!({ "level": "warning" })).await;
        assert_eq!(reply.json().await["result"], json!({}), "{version}");
        script.until("level Warning").await;
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

/// HDR-04: the schema's own annotations bind the headers, also for servers that tell of their tools only in lists.
#[tokio::test]
async fn hdr_04_mirrored_arguments_must_equal_their_headers() {
    let endpoint = serve(Arc::new(Script::default()).handler()).await;
    let params = json!({ "name": "echo", "arguments": { "text": "hi", "region": "eu" } });
    for (header, status) in [("eu", 200), ("us", 400)] {
        let client = endpoint.client.prepared(move |request| {
            request
                .headers_mut()
                .insert("mcp-param-region", header.parse().unwrap());
        });
        let reply = client.stateless(1, "tools/call", params.clone(), json!({})).await;
        assert_eq!(reply.status, status, "{header}");
        let answer: Value = reply.json().await;
        assert_eq!(answer["error"]["code"] == -32_020, status == 400, "{answer}");
    }
}
