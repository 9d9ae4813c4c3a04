//! Questions of a server with sessions for clients of 2026-07-28 (requirements 4.1.1).

use super::caller::{Caller, accept, assert_asked, retry_params};
use super::{SOON, bridge_from_file, bridge_with, received, wait_for_received, within};
use crate::client::{Client, tool_result};
use crate::gateway::wait_until;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// requirements 4.1.1: several questions in a round, and several rounds; the tool runs once.
#[tokio::test]
async fn line_4_1_1_questions_park_the_call_and_the_retry_resumes_it() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let arguments = json!({ "kinds": ["form", "sample", "roots"] });
    let asked = caller.call(1, "ask", arguments.clone()).await;
    assert_asked(&asked);
    let requests = asked["result"]["inputRequests"].as_object().unwrap();
    let mut methods: Vec<_> = requests
        .values()
        .map(|request| request["method"].as_str().unwrap())
        .collect();
    methods.sort_unstable();
    assert_eq!(
        methods,
        ["elicitation/create", "roots/list", "sampling/createMessage"],
        "one round"
    );
    let reply = caller
        .retry(2, "ask", arguments.clone(), &asked, accept("2B"))
        .await
        .response()
        .await;
    assert_eq!(reply["id"], 2);
    let result = tool_result(&reply);
    assert_eq!(
        (result["answers"].as_array().unwrap().len(), &result["run"]),
        (3, &json!(1)),
        "{result}"
    );
    let replayed = caller
        .retry(3, "ask", arguments, &asked, accept("2B"))
        .await
        .response()
        .await;
    assert_eq!(replayed["error"]["code"], -32602, "single use: {replayed}");

    let mut asked = caller.call(4, "rounds", json!({ "rounds": 3 })).await;
    for round in 0..3 {
        assert_asked(&asked);
        let questions = asked["result"]["inputRequests"].to_string();
        assert!(questions.contains(&format!("round {round}")), "{questions}");
        let answer = accept(&round.to_string());
        asked = caller
            .retry(5 + round, "rounds", json!({ "rounds": 3 }), &asked, answer)
            .await
            .response()
            .await;
    }
    let seats: Vec<_> = tool_result(&asked)["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["content"]["seat"].clone())
        .collect();
    assert_eq!(seats, ["0", "1", "2"]);
}

/// 4.1: prompts and resources may ask, as tools may.
#[tokio::test]
async fn line_4_1_1_questions_of_prompts_and_resources_park_the_request() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    for (method, mut params, text) in [
        ("prompts/get", json!({ "name": "p" }), "/result/messages/0/content/text"),
        ("resources/read", json!({ "uri": "a:1" }), "/result/contents/0/text"),
    ] {
        params["asks"] = json!(["form", "roots"]); // one after the other
        for id in 1..=2 {
            let asked = caller
                .send(id, method, params.clone(), json!({}))
                .await
                .response()
                .await;
            assert_asked(&asked);
            for (key, value) in retry_params(&asked, &accept(&id.to_string())).as_object().unwrap() {
                params[key] = value.clone();
            }
        }
        let reply = caller.send(3, method, params, json!({})).await.response().await;
        let answers: Value = serde_json::from_str(reply.pointer(text).unwrap().as_str().unwrap()).unwrap();
        assert_eq!(answers, json!([accept("1"), accept("2")]), "{method}");
        let received = received(&gateway, method);
        assert_eq!(received.len(), 1, "the server gets one request: {received:?}");
    }
}

/// GW-13: four calls at once, each with its own question; quick calls meanwhile; the fifth waits and is notified of it.
#[tokio::test]
async fn gw_13_calls_that_ask_hold_their_children_alone() {
    let gateway = bridge_with("legacy")
        .option("--lease-children 5 --lease-wait 1s")
        .start();
    let caller = Caller::new(&gateway, "ada");
    let mut asked = Vec::new();
    for n in 0..5_u64 {
        let arguments = json!({ "text": format!("question {n}") });
        let reply = caller.call(n, "ask", arguments).await;
        assert_asked(&reply);
        assert!(
            reply["result"]["inputRequests"]
                .to_string()
                .contains(&format!("question {n}")),
            "{reply}"
        );
        asked.push(reply);
    }
    let busy = caller.call(50, "ask", json!({})).await;
    assert_eq!(
        (&busy["error"]["code"], &busy["error"]["data"]["reason"]),
        (&json!(-32603), &json!("busy")),
        "{busy}"
    );
    let mut pids = Vec::new();
    for (n, reply) in asked.iter().enumerate().rev() {
        let arguments = json!({ "text": format!("question {n}") });
        let answer = accept(&n.to_string());
        let reply = caller
            .retry(60 + n as u64, "ask", arguments, reply, answer)
            .await
            .response()
            .await;
        let result = tool_result(&reply);
        assert_eq!(result["answers"][0]["content"]["seat"], n.to_string(), "{result}");
        pids.push(result["pid"].as_u64().unwrap());
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 5, "each call had a process of its own");
}

/// GW-13: while a call is parked, others are served by another child.
#[tokio::test]
async fn gw_13_quick_calls_are_served_while_one_is_parked() {
    let gateway = bridge_with("legacy").option("--lease-children 2").start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask", json!({})).await;
    assert_asked(&asked);
    for n in 2..5 {
        let tools = caller
            .send(n, "tools/list", json!({}), json!({}))
            .await
            .response()
            .await;
        assert!(tools["result"]["tools"].is_array(), "{tools}");
        tool_result(&caller.call(10 + n, "echo", json!({})).await);
    }
    let reply = caller
        .retry(20, "ask", json!({}), &asked, accept("3C"))
        .await
        .response()
        .await;
    assert_eq!(tool_result(&reply)["answers"][0]["content"]["seat"], "3C");
}

/// GW-13: `asks` names the tools that ask. A question of another one gets an error.
#[tokio::test]
async fn gw_13_two_callers_never_get_each_others_questions() {
    let gateway = bridge_with("legacy").start();
    let (ada, bob) = (Caller::new(&gateway, "ada"), Caller::new(&gateway, "bob"));
    let calls = async |caller: &Caller, first: u64| {
        for n in 0..4 {
            let arguments = json!({ "text": format!("for {} {n}", caller.name) });
            let asked = caller.call(first + n, "ask", arguments.clone()).await;
            assert_asked(&asked);
            let questions = asked["result"]["inputRequests"].to_string();
            assert!(questions.contains(&format!("for {} {n}", caller.name)), "{questions}");
            let reply = caller
                .retry(first + 50 + n, "ask", arguments, &asked, accept(caller.name))
                .await
                .response()
                .await;
            assert_eq!(tool_result(&reply)["answers"][0]["content"]["seat"], caller.name);
        }
    };
    tokio::join!(calls(&ada, 100), calls(&bob, 200), calls(&ada, 300));
}

/// GW-14: messages while parked reach the retry, under its own id and token.
#[tokio::test]
async fn gw_14_messages_of_a_parked_call_reach_the_retry() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let arguments = json!({ "reports": 70 });
    let params = json!({ "name": "ask", "arguments": arguments });
    let level = json!({ "progressToken": 1, "io.modelcontextprotocol/logLevel": "info" });
    let asked = caller
        .send(1, "tools/call", params.clone(), level)
        .await
        .response()
        .await;
    assert_asked(&asked);
    wait_for_received(&gateway, "reported").await;
    // Nothing shows that the gateway has read the last line. A retry that comes earlier gets the rest as it comes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut params = params;
    let key = asked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    params["inputResponses"] = json!({ key: accept("4D") });
    params["requestState"] = asked["result"]["requestState"].clone();
    let level = json!({ "progressToken": "mine", "io.modelcontextprotocol/logLevel": "info" });
    let messages = caller.send(2, "tools/call", params, level).await.messages().await;
    let logs = messages
        .iter()
        .filter(|m| m["method"] == "notifications/message")
        .count();
    assert_eq!(logs, 64, "the rest is counted");
    let progress: Vec<_> = messages
        .iter()
        .filter(|m| m["method"] == "notifications/progress")
        .collect();
    assert_eq!(progress.len(), 1, "the latest");
    assert_eq!(
        progress[0]["params"],
        json!({ "progressToken": "mine", "progress": 70 })
    );
    assert_eq!(messages.last().unwrap()["id"], 2);
}

/// GW-14: a question that the child withdrew needs no answer, and an answer that came meanwhile goes to the retry.
#[tokio::test]
async fn gw_14_withdrawn_question_needs_no_answer() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    for (n, tool, expected) in [(1, "withdraw", "went on"), (3, "ask-and-finish", "finished")] {
        let asked = caller.call(n, tool, json!({})).await;
        assert_asked(&asked);
        let withdrawn = || received(&gateway, "withdrawn").len() as u64 == n.div_ceil(2);
        assert!(wait_until(SOON, withdrawn).await);
        let more = json!({ "requestState": asked["result"]["requestState"] });
        let reply = within(caller.start(n + 1, tool, json!({}), more).await.response()).await;
        assert_eq!(
            (&reply["id"], tool_result(&reply)),
            (&json!(n + 1), json!(expected)),
            "{reply}"
        );
    }
}

/// GW-17: a late question of a cancelled call reaches nobody, and the next call waits.
#[tokio::test]
async fn gw_17_late_question_of_a_cancelled_call_reaches_nobody() {
    let gateway = bridge_with("legacy")
        .option("--lease-children 1 --lease-wait 20s")
        .start();
    let caller = Caller::new(&gateway, "ada");
    let slow = caller.start(1, "ask-late", json!({}), json!({}));
    let _ = tokio::time::timeout(Duration::from_secs(2), slow).await; // the client leaves
    wait_for_received(&gateway, "notifications/cancelled").await;
    let next = caller.call(2, "ask", json!({ "text": "my own" })).await;
    assert_asked(&next);
    let questions = next["result"]["inputRequests"].to_string();
    assert!(
        questions.contains("my own") && !questions.contains("late"),
        "{questions}"
    );
    let messages = gateway.recorded_messages();
    let late = messages
        .iter()
        .find(|m| m["method"] == "late-answer")
        .expect("the question was answered");
    assert_eq!(late["params"]["answer"]["error"]["code"], -32602, "{late}");
}

/// CAN-03, requirements 4.1.1 (7): a connection that is cut while a retry waits cancels the call at the child. The lease goes on.
#[tokio::test]
async fn can_03_cut_of_a_retry_cancels_the_call_at_the_child() {
    let gateway = bridge_with("legacy")
        .option("--lease-children 1 --lease-wait 1m")
        .start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "ask-then-wait", json!({})).await;
    assert_asked(&asked);
    let count = |method: &str| received(&gateway, method).len();
    let cut = async {
        assert!(
            wait_until(SOON, || count("waits") == 1).await,
            "the child has the answer"
        );
        assert_eq!(count("notifications/cancelled"), 0);
    };
    tokio::select! {
        reply = caller.retry(2, "ask-then-wait", json!({}), &asked, accept("1A")) => panic!("status {}", reply.status),
        () = cut => {} // the connection is closed with the future
    }
    assert!(wait_until(SOON, || count("notifications/cancelled") == 1).await);
    let replayed = caller.retry(3, "ask-then-wait", json!({}), &asked, accept("1A")).await;
    assert_eq!(
        replayed.response().await["error"]["code"],
        -32602,
        "it is not run again"
    );
    let next = caller.call(4, "ask", json!({ "text": "next" })).await;
    assert_asked(&next);
    assert_eq!(gateway.children().len(), 1, "the same process");
}

/// requirements 4.1.1 (6): calls whose client never comes back keep their processes until they expire. Then the child gets
/// an answer to each question, the call is cancelled there, and the lease goes on with the same processes.
#[tokio::test]
async fn line_4_1_1_abandoned_calls_expire_and_free_their_processes() {
    let gateway = bridge_with("legacy")
        .option("--lease-children 2 --lease-wait 2m --question-timeout 3s")
        .test_timeout(Duration::from_secs(120))
        .start();
    let caller = Caller::new(&gateway, "ada");
    let arguments = json!({ "kinds": ["form", "sample", "roots"] });
    let mut abandoned = Vec::new();
    for n in 0..2 {
        let asked = caller.call(n, "ask", arguments.clone()).await;
        assert_asked(&asked);
        abandoned.push(asked);
    }
    let mut before: Vec<_> = gateway.children().iter().map(|child| child.pid).collect();
    before.sort_unstable();
    // Both processes are held, so this call waits for the first expiry.
    let served = tool_result(&caller.call(10, "echo", json!({})).await);
    let pid = served["pid"].as_u64().unwrap();
    assert!(before.iter().any(|known| u64::from(*known) == pid), "{before:?} {pid}");

    let cancelled = || received(&gateway, "notifications/cancelled").len();
    assert!(
        wait_until(SOON, || cancelled() == 2).await,
        "{} calls were cancelled",
        cancelled()
    );
    for child in &before {
        let messages = gateway.recorded_messages();
        let of_child: Vec<_> = messages.iter().filter(|m| m["pid"] == *child).collect();
        let answers: Vec<_> = of_child.iter().filter(|m| m["method"] == "answer").collect();
        assert_eq!(answers.len(), 3, "one answer to each question: {answers:?}");
        let mut outcomes: Vec<_> = answers
            .iter()
            .map(|m| {
                (
                    m["params"]["result"]["action"].clone(),
                    m["params"]["error"]["code"].clone(),
                )
            })
            .map(|outcome| format!("{outcome:?}"))
            .collect();
        outcomes.sort_unstable();
        let mut expected = [
            (json!("cancel"), Value::Null),
            (Value::Null, json!(-1)),
            (Value::Null, json!(-32603)),
        ]
        .map(|outcome| format!("{outcome:?}"));
        expected.sort_unstable();
        assert_eq!(outcomes, expected);
        let last_answer = of_child.iter().rposition(|m| m["method"] == "answer");
        let told = of_child.iter().position(|m| m["method"] == "notifications/cancelled");
        assert!(
            last_answer < told,
            "the child does not wait for an answer when it is told: {of_child:?}"
        );
    }
    for (n, asked) in abandoned.iter().enumerate() {
        let late = caller
            .retry(20 + n as u64, "ask", arguments.clone(), asked, accept("late"))
            .await;
        let late = late.response().await;
        assert_eq!(late["error"]["code"], -32602, "{late}");
        let message = late["error"]["message"].as_str().unwrap();
        assert!(message.contains("expired or already used"), "{message}");
    }
    let mut after: Vec<_> = gateway.children().iter().map(|child| child.pid).collect();
    after.sort_unstable();
    assert_eq!(after, before, "the processes live on");
    // Two calls that may ask at once: both processes are free.
    let (one, two) = tokio::join!(
        caller.call(30, "ask", json!({ "text": "one" })),
        caller.call(31, "ask", json!({ "text": "two" }))
    );
    assert_asked(&one);
    assert_asked(&two);
}

/// 4.1: a question for a capability that the client did not declare.
#[tokio::test]
async fn line_4_1_undeclared_question_gets_an_error_and_the_call_goes_on() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada").with_capabilities(json!({ "roots": {} }));
    let reply = caller.call(1, "ask", json!({ "kinds": ["form", "sample"] })).await;
    let answers = tool_result(&reply)["answers"].clone();
    assert_eq!(answers[0]["error"]["code"], -32601, "{answers}");
    assert_eq!(answers[1]["error"]["code"], -32601, "{answers}");
    let message = answers[0]["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "the server asked for elicitation, which this client did not declare"
    );
    let deaf = Caller::new(&gateway, "ada").with_capabilities(json!({}));
    let reply = deaf.call(2, "ask", json!({})).await;
    assert!(tool_result(&reply)["answers"][0]["error"].is_object(), "{reply}");
}

/// T-32: questions of no call are answered from the settings, at once.
#[tokio::test]
async fn line_4_1_roots_of_the_settings_answer_a_child_that_asks_at_its_start() {
    for (config, expected) in [
        ("", json!({ "code": -32601 })),
        ("roots = ['file:///work']", json!([{ "uri": "file:///work" }])),
    ] {
        let gateway = bridge_from_file("legacy,asks-for-roots", config).start();
        let mut caller = Caller::new(&gateway, "ada");
        caller.client = Client::new(gateway.addr, "/servers/bridge");
        let began = Instant::now();
        loop {
            let roots = tool_result(&caller.call(1, "level", json!({})).await)["roots"][0].clone();
            if roots.is_null() {
                assert!(began.elapsed() < SOON, "the child gets an answer");
                continue;
            }
            match expected.get("code") {
                Some(code) => assert_eq!(&roots["error"]["code"], code, "{roots}"),
                None => assert_eq!(roots["roots"], expected),
            }
            break;
        }
    }
}

/// requirements 4.1.2: `-32042` becomes input requests, and the retry is a new call.
#[tokio::test]
async fn line_4_1_2_required_url_is_asked_and_the_call_sent_again() {
    let gateway = bridge_with("legacy").start();
    let caller = Caller::new(&gateway, "ada");
    let asked = caller.call(1, "sign-in", json!({})).await;
    assert_asked(&asked);
    let request = asked["result"]["inputRequests"]["url1"].clone();
    assert_eq!(
        request["params"],
        json!({ "mode": "url", "url": "https://example.com", "message": "m" })
    );
    let reply = caller
        .retry(2, "sign-in", json!({}), &asked, json!({ "action": "accept" }))
        .await
        .response()
        .await;
    assert_eq!(tool_result(&reply), "signed in");
    let formless = Caller::new(&gateway, "bob").with_capabilities(json!({ "elicitation": {} }));
    let refused = formless.call(3, "sign-in", json!({})).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}
