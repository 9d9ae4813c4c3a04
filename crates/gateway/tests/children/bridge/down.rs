//! Clients with sessions in front of a server of 2026-07-28 (requirements 4.2).

use super::{REVISIONS, SOON, answer, bridge_with, next_question, open_session, within};
use crate::client::{LATEST, tool_result};
use serde_json::{Value, json};

const PREFIX: &str = "io.modelcontextprotocol/";

/// 4.2, `initialize` and requests.
#[tokio::test]
async fn gw_15_every_revision_is_served_in_front_of_a_modern_server() {
    let gateway = bridge_with("modern").start();
    for version in REVISIONS {
        let session = open_session(&gateway.client(), version).await;
        let result = &session.initialize_response["result"];
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"], json!({ "name": "bridge", "version": "1" }));
        assert_eq!(result["instructions"], "be kind");
        assert_eq!(result["capabilities"].get("extensions"), None);
        let echo = tool_result(&session.call_tool(1, "echo", json!({ "text": "hi" })).await);
        assert_eq!(echo["text"], "hi");
        let meta = &echo["meta"];
        assert_eq!(meta[format!("{PREFIX}protocolVersion")], "2026-07-28");
        assert_eq!(meta[format!("{PREFIX}clientInfo")]["own"], "words");
        assert_eq!(
            meta[format!("{PREFIX}logLevel")],
            "info",
            "legacy servers log without being asked"
        );
        let capabilities = &meta[format!("{PREFIX}clientCapabilities")];
        assert_eq!(capabilities["roots"], json!({}), "{capabilities}");
        assert_eq!(
            capabilities.get("elicitation").is_some(),
            version >= "2025-06-18",
            "{version}"
        );
        session.delete().await;
    }
    let messages = gateway.recorded_messages();
    let serving = messages
        .iter()
        .find(|message| message["method"] == "tools/call")
        .unwrap();
    let methods = gateway.methods_received(serving["pid"].as_u64().unwrap());
    for method in ["initialize", "notifications/initialized"] {
        assert!(
            !methods.contains(&method.to_owned()),
            "one process has one era: {methods:?}"
        );
    }
}

/// 4.2, `initialize`: `server/discover` is asked again only after its `ttlMs`.
#[tokio::test]
async fn line_4_2_discover_is_kept_for_its_ttl() {
    for (behavior, expected) in [("modern,discover-ttl=600000", 1), ("modern", 3)] {
        let gateway = bridge_with(behavior).start();
        let mut pid = 0;
        for _ in 0..3 {
            pid = open_session(&gateway.client(), LATEST).await.child_pid().await;
        }
        let methods = gateway.methods_received(pid);
        let asked = methods.iter().filter(|method| *method == "server/discover").count();
        assert_eq!(asked, expected, "{behavior}: {methods:?}");
    }
}

/// 4.2, results.
#[tokio::test]
async fn line_4_2_results_are_those_of_the_revision() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let result = session.call_tool(1, "structured", json!({})).await["result"].clone();
    assert_eq!(result, json!({ "content": [{ "type": "text", "text": "[1,2]" }] }));
    let old = open_session(&gateway.client(), "2025-03-26").await;
    let result = old.call_tool(1, "links", json!({})).await["result"].clone();
    assert_eq!(result, json!({ "content": [{ "type": "text", "text": "n: a:b" }] }));
    let completed = session.call(2, "completion/complete", json!({})).await.response().await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["a", "b"]));
}

/// 4.2, `InputRequiredResult`: several questions of a round at once.
#[tokio::test]
async fn line_4_2_questions_of_a_round_are_asked_at_once_on_the_stream_of_the_call() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let arguments = json!({ "kinds": ["form", "sample", "roots"], "text": "which?" });
    let mut stream = session.start_tool(7, "ask", arguments.clone()).await;
    let mut questions = Vec::new();
    for _ in 0..3 {
        questions.push(next_question(&mut stream).await);
    }
    let mut methods: Vec<_> = questions.iter().map(|q| q["method"].as_str().unwrap()).collect();
    methods.sort_unstable();
    assert_eq!(methods, ["elicitation/create", "roots/list", "sampling/createMessage"]);
    for question in questions.iter().rev() {
        let result = match question["method"].as_str().unwrap() {
            "elicitation/create" => json!({ "action": "accept", "content": { "seat": "2A" } }),
            "roots/list" => json!({ "roots": [{ "uri": "file:///r" }] }),
            _ => json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "yes" } }),
        };
        answer(&session, question, result).await;
    }
    let last = stream.messages().await.pop().unwrap();
    assert_eq!(last["id"], 7);
    let result = tool_result(&last);
    assert_eq!(result["responses"]["k0"]["content"]["seat"], "2A");
    assert_eq!(result["responses"]["k1"]["content"]["text"], "yes");
    assert_eq!(result["responses"]["k2"]["roots"][0]["uri"], "file:///r");
    assert_eq!(result["state"], "state é \" which?", "the exact state");
    assert_eq!(result["arguments"], arguments, "the original arguments");
}

/// 4.2: two rounds; each retry has the answers of its own round.
#[tokio::test]
async fn line_4_2_rounds_follow_each_other_with_their_own_answers() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), "2025-06-18").await;
    let mut stream = session.start_tool(1, "rounds", json!({ "rounds": 3 })).await;
    for round in 0..3 {
        let question = next_question(&mut stream).await;
        assert_eq!(question["params"]["message"], format!("round {round}"));
        assert_eq!(question["params"].get("mode"), None);
        answer(
            &session,
            &question,
            json!({ "action": "accept", "content": { "n": round } }),
        )
        .await;
    }
    let result = tool_result(&stream.messages().await.pop().unwrap());
    assert_eq!(
        result["last"],
        json!({ "r2": { "action": "accept", "content": { "n": 2 } } })
    );
}

/// MRTR-08: a server that asks for ever gets an end.
#[tokio::test]
async fn mrtr_08_rounds_of_a_call_are_bounded() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let mut stream = session.start_tool(1, "rounds", json!({ "rounds": 1000 })).await;
    for _ in 0..16 {
        let question = next_question(&mut stream).await;
        answer(&session, &question, json!({ "action": "decline" })).await;
    }
    let last = within(stream.messages()).await.pop().unwrap();
    assert_eq!(last["error"]["code"], -32603, "{last}");
}

/// 4.2: a result with a state only is tried again without a question.
#[tokio::test]
async fn line_4_2_state_without_questions_is_retried() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let result = tool_result(&session.call_tool(1, "wait", json!({})).await);
    assert_eq!(result["waited"], 3);
}

/// 4.2: a client that answers with an error.
#[tokio::test]
async fn line_4_2_error_of_the_client_cancels_a_form_and_fails_a_sampling_call() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let refuse = async |question: Value| {
        let error = json!({ "code": -1, "message": "the user said no" });
        session
            .post(&json!({ "jsonrpc": "2.0", "id": question["id"], "error": error }))
            .await;
    };
    let mut stream = session.start_tool(1, "ask", json!({ "kinds": ["form"] })).await;
    refuse(next_question(&mut stream).await).await;
    let result = tool_result(&stream.messages().await.pop().unwrap());
    assert_eq!(result["responses"]["k0"], json!({ "action": "cancel" }));
    let mut stream = session.start_tool(2, "ask", json!({ "kinds": ["sample"] })).await;
    refuse(next_question(&mut stream).await).await;
    let last = stream.messages().await.pop().unwrap();
    assert_eq!(last["error"], json!({ "code": -1, "message": "the user said no" }));
}

/// 4.2: a question that the client did not declare fails the call and says why.
#[tokio::test]
async fn line_4_2_question_for_an_undeclared_capability_fails_the_call() {
    let gateway = bridge_with("modern").start();
    let session = gateway.client().open_session_with(LATEST, json!({})).await;
    let reply = session.call_tool(1, "ask", json!({ "kinds": ["form"] })).await;
    assert_eq!(reply["error"]["code"], -32603);
    let message = "the server asked for elicitation, which this client did not declare";
    assert_eq!(reply["error"]["message"], message, "{reply}");
}

/// 4.2, URL elicitation: the same URL again is not asked again, and the client is notified when it is done.
#[tokio::test]
async fn line_4_2_url_is_asked_once_and_reported_complete() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let mut stream = session.start_tool(1, "sign-in", json!({})).await;
    let question = next_question(&mut stream).await;
    let id = question["params"]["elicitationId"].as_str().unwrap().to_owned();
    answer(&session, &question, json!({ "action": "accept" })).await;
    let rest = within(stream.messages()).await;
    let methods: Vec<_> = rest.iter().filter_map(|message| message["method"].as_str()).collect();
    assert_eq!(methods, ["notifications/elicitation/complete"], "{rest:?}");
    assert_eq!(rest[0]["params"]["elicitationId"], id);
    assert_eq!(tool_result(rest.last().unwrap())["signed in"]["u"]["action"], "accept");
}

/// 4.2, `logging/setLevel`.
#[tokio::test]
async fn line_4_2_log_level_is_stored_and_injected() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let set = session
        .call(1, "logging/setLevel", json!({ "level": "error" }))
        .await
        .response()
        .await;
    assert_eq!(set["result"], json!({}));
    let wrong = session
        .call(2, "logging/setLevel", json!({ "level": "loud" }))
        .await
        .response()
        .await;
    assert_eq!(wrong["error"]["code"], -32602);
    let echo = tool_result(&session.call_tool(3, "echo", json!({})).await);
    assert_eq!(echo["meta"][format!("{PREFIX}logLevel")], "error");
    let messages = session
        .start_tool(4, "log", json!({ "text": "careful" }))
        .await
        .messages()
        .await;
    assert!(
        messages.iter().any(|m| m["params"]["data"] == "careful"),
        "{messages:?}"
    );
}

/// 4.2, HTTP+SSE: questions are on the one stream of the client.
#[tokio::test]
async fn line_4_2_old_client_is_served_on_the_sse_endpoint() {
    let gateway = bridge_with("modern").start();
    let client = gateway.client();
    let (mut stream, path) = client.open_sse().await;
    let post = async |body: Value| client.post_sse(&path, body).await;
    let params = json!({ "protocolVersion": "2024-11-05", "capabilities": { "sampling": {} }, "clientInfo": { "name": "t", "version": "1" } });
    post(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await;
    assert_eq!(stream.next().await.unwrap()["result"]["protocolVersion"], "2024-11-05");
    post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    post(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "ask", "arguments": { "kinds": ["sample"] } } })).await;
    let question = next_question(&mut stream).await;
    assert_eq!(question["method"], "sampling/createMessage");
    post(json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "model": "m" } })).await;
    let result = tool_result(&stream.next().await.unwrap());
    assert_eq!(result["responses"]["k0"]["model"], "m");
}

/// GW-16 in a session: a modern child that asks by a request.
#[tokio::test]
async fn gw_16_modern_child_that_asks_by_a_request_is_answered_in_a_session() {
    let gateway = bridge_with("modern").start();
    let session = open_session(&gateway.client(), LATEST).await;
    let mut stream = session.start_tool(1, "ask-by-request", json!({})).await;
    let question = next_question(&mut stream).await;
    answer(&session, &question, json!({ "action": "decline" })).await;
    let result = tool_result(&stream.messages().await.pop().unwrap());
    assert_eq!(result, json!({ "answer": { "action": "decline" }, "run": 1 }));
}

/// Two sessions with questions at once: none crosses.
#[tokio::test]
async fn line_4_2_questions_of_two_sessions_do_not_cross() {
    let gateway = bridge_with("modern").start();
    let one = open_session(&gateway.client(), LATEST).await;
    let two = open_session(&gateway.client(), "2025-06-18").await;
    let mut first = one.start_tool(1, "ask", json!({ "text": "for one" })).await;
    let mut second = two.start_tool(1, "ask", json!({ "text": "for two" })).await;
    let (for_one, for_two) = (next_question(&mut first).await, next_question(&mut second).await);
    assert_eq!(for_one["params"]["message"], "for one");
    assert_eq!(for_two["params"]["message"], "for two");
    answer(
        &two,
        &for_two,
        json!({ "action": "accept", "content": { "who": "two" } }),
    )
    .await;
    answer(
        &one,
        &for_one,
        json!({ "action": "accept", "content": { "who": "one" } }),
    )
    .await;
    for (stream, who) in [(first, "one"), (second, "two")] {
        let result = tool_result(&stream.messages().await.pop().unwrap());
        assert_eq!(result["responses"]["k0"]["content"]["who"], who);
    }
}

/// D9: the record has all that a session needs, so it continues after kill -9 without a replay.
#[tokio::test]
async fn rst_02_session_in_front_of_a_modern_server_survives_a_restart() {
    let gateway = bridge_with("modern").with_data_dir().start();
    let session = open_session(&gateway.client(), LATEST).await;
    session
        .call(1, "logging/setLevel", json!({ "level": "alert" }))
        .await
        .response()
        .await;
    session
        .call(2, "resources/subscribe", json!({ "uri": "a:1" }))
        .await
        .response()
        .await;
    let mut stream = session.start_tool(3, "slow", json!({ "steps": 600 })).await;
    stream.next().await.unwrap();
    let cursor = stream.cursor();
    let gateway = gateway.kill_and_restart();
    let session = session.at_address(gateway.addr);
    let echo = tool_result(&session.call_tool(4, "echo", json!({})).await);
    assert_eq!(echo["meta"][format!("{PREFIX}logLevel")], "alert");
    assert_eq!(echo["meta"][format!("{PREFIX}clientInfo")]["name"], "test");
    let lost = within(session.resume(&cursor).await.messages()).await;
    assert!(
        lost.last().unwrap()["error"].is_object(),
        "RST-03: the call ends with an error: {lost:?}"
    );
    let mut pushed = session.listen().await;
    let changes = json!({ "methods": ["notifications/resources/updated"], "uri": "a:1" });
    let subscribed = async || {
        let state = tool_result(&session.call_tool(5, "change", changes.clone()).await);
        state["filters"].to_string().contains("a:1")
    };
    let began = std::time::Instant::now();
    while !subscribed().await {
        assert!(began.elapsed() < SOON, "the subscription comes back");
    }
    while pushed.next().await.expect("the update comes")["params"]["uri"] != "a:1" {} // after the refresh of D4
}
