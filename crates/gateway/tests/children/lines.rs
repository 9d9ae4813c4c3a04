//! GW-01, GW-10, T-32: messages and variables between gateway and child.

use crate::client::{Client, LATEST, Session, tool_result};
use crate::gateway::{GatewayBuilder, fake_child_command, gateway_with};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn gw_01_invalid_lines_are_skipped_and_logged_without_escapes() {
    let gateway = gateway_with("legacy,noisy-stdout").start();
    let session = gateway.client().open_session(LATEST).await;
    assert_eq!(tool_result(&session.call_tool(1, "counter", json!({})).await), 1);
    let slow = session
        .start_tool(2, "slow", json!({ "ms": 20, "steps": 2 }))
        .await
        .messages()
        .await;
    assert_eq!(slow.len(), 3, "{slow:?}");
    for line in ["\\u{1b}[31mred alert\\u{1b}[0m", "{not json"] {
        let logged = format!("child wrote an invalid line server=\"child\" line={line}");
        gateway.wait_for_log(&logged).await;
    }
    gateway.wait_for_log("text=a word on \\u{1b}[1mstderr\\u{7}").await;
    assert!(!gateway.log().contains('\u{1b}'), "no escape reaches a terminal");
}

#[tokio::test]
async fn gw_01_multi_line_request_reaches_the_child_as_one_line() {
    let gateway = gateway_with("legacy").start();
    let session = gateway.client().open_session(LATEST).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "echo", "arguments": { "text": "two\nlines\r\nand \u{2028} more" } } });
    let pretty = serde_json::to_string_pretty(&body).unwrap().replace('\n', "\r\n");
    let answer = session.raw("POST", &[], pretty.as_bytes()).await.response().await;
    assert_eq!(tool_result(&answer)["text"], "two\nlines\r\nand \u{2028} more");
}

#[tokio::test]
async fn gw_01_large_messages_pass_in_both_directions() {
    let gateway = gateway_with("legacy").start();
    let session = gateway.client().open_session(LATEST).await;
    let big = session.call_tool(1, "big", json!({ "bytes": 3 << 20 })).await;
    assert_eq!(tool_result(&big).as_str().unwrap().len(), 3 << 20);
    let text = "y".repeat(3 << 20);
    assert_eq!(
        tool_result(&session.call_tool(2, "echo", json!({ "text": text })).await)["text"],
        text
    );
}

#[tokio::test]
async fn gw_01_child_may_log_and_ping_before_initialize_completes() {
    let gateway = gateway_with("legacy,logs-before-initialize").start();
    let session = gateway.client().open_session(LATEST).await;
    assert_eq!(tool_result(&session.call_tool(1, "counter", json!({})).await), 1);
    let mut stream = session.listen().await;
    assert_eq!(
        stream.next().await.unwrap()["params"]["data"],
        "starting 0",
        "its log messages are not lost"
    );
}

#[tokio::test]
async fn gw_10_request_cannot_change_command_environment_or_directory() {
    let strange = "$(touch owned); `id` --flag ../../x LD_PRELOAD=/evil \u{1b}[0m";
    let gateway = gateway_with("dual").start();
    let client = gateway.client();
    let headers = [
        ("path", "/evil"),
        ("x-argv", "--evil"),
        ("cwd", "/evil"),
        ("mcp-param-env", "A=evil"),
    ];
    let request = json!({ "jsonrpc": "2.0", "id": "--evil", "method": "initialize", "params": {
        "protocolVersion": LATEST, "capabilities": {}, "command": strange, "args": [strange], "cwd": "/evil",
        "env": { "EVIL": "1", "PATH": "/evil" }, "clientInfo": { "name": strange, "version": strange },
        "_meta": { "env": { "EVIL": "1" } } } });
    let reply = client.post(&headers, &request).await;
    let id = reply.headers["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(reply.response().await["result"].is_object());
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "dump", "arguments": { "command": strange, "env": { "EVIL": "1" } } } });
    let with_session = [&headers[..], &[("mcp-session-id", id.as_str())]].concat();
    let legacy = tool_result(&client.post(&with_session, &call).await.response().await);
    let params = json!({ "name": "dump", "arguments": { "cwd": strange } });
    let modern = tool_result(
        &client
            .stateless(json!(strange), "tools/call", params, &headers)
            .await
            .response()
            .await,
    );
    for dump in [legacy, modern] {
        assert_eq!(dump["argv"], json!(["dual", gateway.builder().marker()]));
        let home = std::fs::canonicalize(gateway.builder().path("")).unwrap();
        assert_eq!(dump["cwd"], json!(home.to_str().unwrap()));
        let env = dump["env"].as_object().unwrap();
        assert_eq!(env["PATH"], json!(std::env::var("PATH").unwrap()));
        let known = ["PATH", "HOME", "RETHREAD_GATEWAY", "LC_CTYPE"];
        let strangers: Vec<_> = env
            .iter()
            .filter(|(name, value)| !known.contains(&name.as_str()) || value.as_str().unwrap().contains("evil"))
            .collect();
        assert!(strangers.is_empty(), "{strangers:?}");
    }
    assert!(!gateway.builder().path("owned").exists());
}

/// GW-10: the variables may hold secrets of the gateway.
#[tokio::test]
async fn gw_10_child_does_not_inherit_variables_of_the_gateway() {
    let builder = gateway_with("legacy")
        .var("RETHREAD_RETRY_MS", "5")
        .var("RETHREAD_SOME_TOKEN", "secret")
        .var("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
        .var("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=secret")
        .var("OTEL_SERVICE_NAME", "kept")
        .var("OTHER", "kept");
    let gateway = builder.option("--env RETHREAD_OWN=given").start();
    let session = gateway.client().open_session(LATEST).await;
    let dump = tool_result(&session.call_tool(1, "dump", json!({})).await);
    let env = dump["env"].as_object().unwrap();
    let own: Vec<_> = env
        .keys()
        .filter(|name| name.starts_with("RETHREAD_") || name.starts_with("OTEL_"))
        .collect();
    assert_eq!(own, ["OTEL_SERVICE_NAME", "RETHREAD_GATEWAY", "RETHREAD_OWN"]);
    assert_eq!((&env["OTHER"], &env["RETHREAD_OWN"]), (&json!("kept"), &json!("given")));
    assert!(env.contains_key("PATH") && env.contains_key("HOME"));
}

#[tokio::test]
async fn gw_10_child_inherits_the_variables_of_inherit_env() {
    let builder = GatewayBuilder::new()
        .option("--config rethread.toml")
        .var("WANTED", "yes");
    let builder = builder.var("UNWANTED", "no").var("ABSENT", "");
    let command = serde_json::to_string(&fake_child_command("legacy", builder.marker())).unwrap();
    let text = format!(
        "memory = true\n[servers.x]\ncommand = {command}\nenv = {{ GIVEN = \"too\" }}\n\
         inherit_env = [\"WANTED\", \"ABSENT\", \"NOT_SET\"]\n"
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    let gateway = builder.start();
    let session = Client::new(gateway.addr, "/servers/x").open_session(LATEST).await;
    let dump = tool_result(&session.call_tool(1, "dump", json!({})).await);
    let mut env = dump["env"].as_object().unwrap().clone();
    env.remove("LC_CTYPE"); // Python sets it for itself
    let names: Vec<_> = env.keys().collect();
    assert_eq!(names, ["ABSENT", "GIVEN", "RETHREAD_GATEWAY", "WANTED"]);
}

/// HTTP-04: a child that reads the last of two equal members would run another tool than the gateway has checked.
#[tokio::test]
async fn http_04_params_with_repeated_members_reach_no_child() {
    let gateway = gateway_with("dual").record_messages().start();
    let client = gateway.client();
    let session = client.open_session(LATEST).await;
    let meta =
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
    for twice in [
        r#""name":"echo","arguments":{},"name":"counter""#,
        r#""name":"echo","arguments":{},"n\u0061me":"counter""#,
        r#""name":"echo","_meta":{"a":1},"\u005fmeta":{"a":2}"#,
        r#""name":"echo","_meta":{"progressToken":1,"progressToken":2}"#,
    ] {
        let legacy = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{twice}}}}}"#);
        let modern = legacy.replacen(r#""params":{"#, &format!(r#""params":{{"_meta":{{{meta}}},"#), 1);
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ];
        for reply in [
            session.raw("POST", &[], legacy.as_bytes()).await,
            client.send("POST", "/mcp", &headers, modern.as_bytes()).await,
        ] {
            let status = reply.status.as_u16();
            let answer = reply.response().await;
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!(-32602)),
                "{twice}: {answer}"
            );
            assert_eq!(answer["id"], 7, "{twice}: {answer}");
        }
    }
    assert!(
        gateway
            .recorded_messages()
            .iter()
            .all(|message| message["method"] != "tools/call")
    );
}

/// Answers the questions among `messages` with `roots`.
async fn answer_questions(session: &Session, messages: &[Value], roots: &Value) {
    for question in messages.iter().filter(|message| message["method"] == "roots/list") {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": roots });
        assert_eq!(session.post(&answer).await.status.as_u16(), 202);
    }
}

/// Waits until the child has received `roots`. Its question may come on the stream of any call.
async fn wait_for_roots(session: &Session, roots: &Value) {
    loop {
        let messages = session
            .start_tool("received", "received", json!({}))
            .await
            .messages()
            .await;
        answer_questions(session, &messages, roots).await;
        let received = tool_result(messages.last().unwrap());
        if let Some(found) = received
            .as_array()
            .unwrap()
            .iter()
            .find(|message| message.get("roots").is_some())
        {
            return assert_eq!(&found["roots"], roots);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Answers all questions on a GET stream.
async fn answer_on_get_stream(session: &Session, roots: &Value) {
    let (session, roots, mut stream) = (session.clone(), roots.clone(), session.listen().await);
    tokio::spawn(async move {
        while let Some(message) = stream.next().await {
            answer_questions(&session, &[message], &roots).await;
        }
    });
}

#[tokio::test]
async fn t_32_early_roots_question_blocks_no_call() {
    let gateway = gateway_with("legacy,asks-for-roots").start();
    let session = gateway.client().open_session(LATEST).await;
    let messages = session.start_tool(1, "counter", json!({})).await.messages().await;
    assert_eq!(tool_result(messages.last().unwrap()), 1, "calls are served meanwhile");
    let roots = json!({ "roots": [{ "uri": "file:///a" }] });
    answer_questions(&session, &messages, &roots).await;
    answer_on_get_stream(&session, &roots).await;
    wait_for_roots(&session, &roots).await;
}

#[tokio::test]
async fn t_32_question_may_be_answered_after_its_call() {
    let gateway = gateway_with("legacy").start();
    for ms in [0, 200] {
        let session = gateway.client().open_session(LATEST).await;
        let messages = session
            .start_tool(1, "ask-without-waiting", json!({ "ms": ms }))
            .await
            .messages()
            .await;
        assert_eq!(tool_result(messages.last().unwrap()), "asked");
        let roots = json!({ "roots": [] });
        answer_questions(&session, &messages, &roots).await;
        // The question comes on the stream of the call, or on the GET stream if the call has ended.
        answer_on_get_stream(&session, &roots).await;
        wait_for_roots(&session, &roots).await;
    }
}

#[tokio::test]
async fn t_32_restarted_child_asks_for_roots_again() {
    let gateway = gateway_with("legacy,asks-for-roots").start();
    let session = gateway.client().open_session(LATEST).await;
    let roots = json!({ "roots": [{ "uri": "file:///b" }] });
    answer_on_get_stream(&session, &roots).await;
    for (method, params) in [
        ("logging/setLevel", json!({ "level": "info" })),
        ("resources/subscribe", json!({ "uri": "test://a" })),
        ("tools/call", json!({ "name": "crash" })),
        ("tools/call", json!({ "name": "counter" })),
    ] {
        let messages = session.call(1, method, params).await.messages().await;
        answer_questions(&session, &messages, &roots).await;
    }
    wait_for_roots(&session, &roots).await;
    assert_ne!(session.child_pid().await, u64::from(session.first_pid()));
}
