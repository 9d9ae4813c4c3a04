//! GW-01, GW-10, T-32: what goes through the pipes, and what does not.

use crate::client::{Client, LATEST, Session, said};
use crate::gateway::{Plan, fake, plan};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn gw_01_a_noisy_child_is_understood_and_its_noise_is_made_harmless() {
    let gateway = plan("legacy,noisy").start();
    let session = gateway.client().open(LATEST).await;
    assert_eq!(said(&session.tool(1, "counter", json!({})).await), 1);
    let slow = session
        .begin(2, "slow", json!({ "ms": 20, "steps": 2 }))
        .await
        .messages()
        .await;
    assert_eq!(slow.len(), 3, "{slow:?}");
    for line in ["\\u{1b}[31mred alert\\u{1b}[0m", "{not json"] {
        let logged = format!("child wrote an invalid line server=\"child\" line={line}");
        gateway.says(&logged).await;
    }
    gateway
        .says("child stderr server=\"child\" line=a word on \\u{1b}[1mstderr\\u{7}")
        .await;
    assert!(!gateway.log().contains('\u{1b}'), "no escape reaches a terminal");
}

#[tokio::test]
async fn gw_01_a_message_of_many_lines_reaches_the_child_as_one() {
    let gateway = plan("legacy").start();
    let session = gateway.client().open(LATEST).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "echo", "arguments": { "text": "two\nlines\r\nand \u{2028} more" } } });
    let pretty = serde_json::to_string_pretty(&body).unwrap().replace('\n', "\r\n");
    let answer = session.raw("POST", &[], pretty.as_bytes()).await.answer().await;
    assert_eq!(said(&answer)["said"], "two\nlines\r\nand \u{2028} more");
}

#[tokio::test]
async fn gw_01_large_messages_pass_both_ways() {
    let gateway = plan("legacy").start();
    let session = gateway.client().open(LATEST).await;
    let big = session.tool(1, "big", json!({ "bytes": 3 << 20 })).await;
    assert_eq!(said(&big).as_str().unwrap().len(), 3 << 20);
    let text = "y".repeat(3 << 20);
    assert_eq!(
        said(&session.tool(2, "echo", json!({ "text": text })).await)["said"],
        text
    );
}

#[tokio::test]
async fn gw_01_a_child_may_log_and_ping_before_it_answers() {
    let gateway = plan("legacy,chatty").start();
    let session = gateway.client().open(LATEST).await;
    assert_eq!(said(&session.tool(1, "counter", json!({})).await), 1);
    let mut stream = session.listen().await;
    assert_eq!(
        stream.next().await.unwrap()["params"]["data"],
        "starting 0",
        "what it logged is not lost"
    );
}

#[tokio::test]
async fn gw_10_nothing_of_a_request_reaches_the_command_the_environment_or_the_directory() {
    let strange = "$(touch owned); `id` --flag ../../x LD_PRELOAD=/evil \u{1b}[0m";
    let gateway = plan("dual").start();
    let client = gateway.client();
    let headers = [
        ("path", "/evil"),
        ("x-argv", "--evil"),
        ("cwd", "/evil"),
        ("mcp-param-env", "A=evil"),
    ];
    let hello = json!({ "jsonrpc": "2.0", "id": "--evil", "method": "initialize", "params": {
        "protocolVersion": LATEST, "capabilities": {}, "command": strange, "args": [strange], "cwd": "/evil",
        "env": { "EVIL": "1", "PATH": "/evil" }, "clientInfo": { "name": strange, "version": strange },
        "_meta": { "env": { "EVIL": "1" } } } });
    let reply = client.post(&headers, &hello).await;
    let id = reply.headers["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(reply.answer().await["result"].is_object());
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "dump", "arguments": { "command": strange, "env": { "EVIL": "1" } } } });
    let with_session = [&headers[..], &[("mcp-session-id", id.as_str())]].concat();
    let legacy = said(&client.post(&with_session, &call).await.answer().await);
    let params = json!({ "name": "dump", "arguments": { "cwd": strange } });
    let modern = said(
        &client
            .stateless(json!(strange), "tools/call", params, &headers)
            .await
            .answer()
            .await,
    );
    for dump in [legacy, modern] {
        assert_eq!(dump["argv"], json!(["dual", gateway.plan().marker()]));
        let home = std::fs::canonicalize(gateway.plan().path("")).unwrap();
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
    assert!(!gateway.plan().path("owned").exists());
}

/// GW-10: what the gateway is told in secret is not told to its servers.
#[tokio::test]
async fn gw_10_variables_of_the_gateway_itself_reach_no_child() {
    let plan = plan("legacy")
        .var("RETHREAD_RETRY_MS", "5")
        .var("RETHREAD_SOME_TOKEN", "secret")
        .var("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
        .var("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=secret")
        .var("OTEL_SERVICE_NAME", "kept")
        .var("OTHER", "kept");
    let gateway = plan.option("--env RETHREAD_OWN=given").start();
    let session = gateway.client().open(LATEST).await;
    let dump = said(&session.tool(1, "dump", json!({})).await);
    let env = dump["env"].as_object().unwrap();
    let own: Vec<_> = env
        .keys()
        .filter(|name| name.starts_with("RETHREAD_") || name.starts_with("OTEL_"))
        .collect();
    assert_eq!(own, ["OTEL_SERVICE_NAME", "RETHREAD_GATEWAY", "RETHREAD_OWN"]);
    assert_eq!((&env["OTHER"], &env["RETHREAD_OWN"]), (&json!("kept"), &json!("given")));
    assert!(env.contains_key("PATH") && env.contains_key("HOME"));
}

/// GW-10: an operator may name the variables that a server inherits.
#[tokio::test]
async fn gw_10_a_child_inherits_the_variables_that_its_configuration_names() {
    let plan = Plan::new().option("--config rethread.toml").var("WANTED", "yes");
    let plan = plan.var("UNWANTED", "no").var("ABSENT", "");
    let command = serde_json::to_string(&fake("legacy", plan.marker())).unwrap();
    let text = format!(
        "memory = true\n[servers.x]\ncommand = {command}\nenv = {{ GIVEN = \"too\" }}\n\
         inherit_env = [\"WANTED\", \"ABSENT\", \"NOT_SET\"]\n"
    );
    std::fs::write(plan.path("rethread.toml"), text).unwrap();
    let gateway = plan.start();
    let session = Client::new(gateway.addr, "/servers/x").open(LATEST).await;
    let dump = said(&session.tool(1, "dump", json!({})).await);
    let mut env = dump["env"].as_object().unwrap().clone();
    env.remove("LC_CTYPE"); // Python sets it for itself
    let names: Vec<_> = env.keys().collect();
    assert_eq!(names, ["ABSENT", "GIVEN", "RETHREAD_GATEWAY", "WANTED"]);
}

/// HTTP-04: a child that takes the last of two equal members would run another tool than the one that was seen.
#[tokio::test]
async fn http_04_repeated_members_of_params_reach_no_child_in_any_era() {
    let gateway = plan("dual").recording().start();
    let client = gateway.client();
    let session = client.open(LATEST).await;
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
            let answer = reply.answer().await;
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!(-32602)),
                "{twice}: {answer}"
            );
            assert_eq!(answer["id"], 7, "{twice}: {answer}");
        }
    }
    assert!(gateway.record().iter().all(|told| told["method"] != "tools/call"));
}

/// Answers the questions among `messages` with `roots`.
async fn answer(session: &Session, messages: &[Value], roots: &Value) {
    for question in messages.iter().filter(|message| message["method"] == "roots/list") {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": roots });
        assert_eq!(session.post(&answer).await.status.as_u16(), 202);
    }
}

/// Waits until the child has its answer. A question may come with any call.
async fn roots_of(session: &Session, roots: &Value) {
    loop {
        let messages = session.begin("told", "told", json!({})).await.messages().await;
        answer(session, &messages, roots).await;
        let told = said(messages.last().unwrap());
        if let Some(found) = told.as_array().unwrap().iter().find(|told| told.get("roots").is_some()) {
            return assert_eq!(&found["roots"], roots);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Answers whatever is asked on a stream of its own.
async fn answer_aside(session: &Session, roots: &Value) {
    let (session, roots, mut stream) = (session.clone(), roots.clone(), session.listen().await);
    tokio::spawn(async move {
        while let Some(message) = stream.next().await {
            answer(&session, &[message], &roots).await;
        }
    });
}

#[tokio::test]
async fn t_32_a_child_that_asks_for_roots_at_once_blocks_nobody() {
    let gateway = plan("legacy,roots").start();
    let session = gateway.client().open(LATEST).await;
    let messages = session.begin(1, "counter", json!({})).await.messages().await;
    assert_eq!(said(messages.last().unwrap()), 1, "calls are served meanwhile");
    let roots = json!({ "roots": [{ "uri": "file:///a" }] });
    answer(&session, &messages, &roots).await;
    answer_aside(&session, &roots).await;
    roots_of(&session, &roots).await;
}

#[tokio::test]
async fn t_32_a_question_may_be_answered_after_the_call_that_it_came_with() {
    let gateway = plan("legacy").start();
    for ms in [0, 200] {
        let session = gateway.client().open(LATEST).await;
        let messages = session
            .begin(1, "ask-aside", json!({ "ms": ms }))
            .await
            .messages()
            .await;
        assert_eq!(said(messages.last().unwrap()), "asked");
        let roots = json!({ "roots": [] });
        answer(&session, &messages, &roots).await;
        // It comes on the stream of the call, or on another if that is over.
        answer_aside(&session, &roots).await;
        roots_of(&session, &roots).await;
    }
}

#[tokio::test]
async fn t_32_roots_are_asked_for_again_when_a_child_takes_up_a_session() {
    let gateway = plan("legacy,roots").start();
    let session = gateway.client().open(LATEST).await;
    let roots = json!({ "roots": [{ "uri": "file:///b" }] });
    answer_aside(&session, &roots).await;
    for (method, params) in [
        ("logging/setLevel", json!({ "level": "info" })),
        ("resources/subscribe", json!({ "uri": "test://a" })),
        ("tools/call", json!({ "name": "crash" })),
        ("tools/call", json!({ "name": "counter" })),
    ] {
        let messages = session.call(1, method, params).await.messages().await;
        answer(&session, &messages, &roots).await;
    }
    roots_of(&session, &roots).await;
    assert_ne!(session.pid().await, u64::from(session.first_pid()));
}
