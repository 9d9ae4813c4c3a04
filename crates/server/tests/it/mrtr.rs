//! Questions to the client on 2026-07-28: a question parks the call, and a retry resumes it (MRTR-01 to MRTR-08).

use crate::support::{ScriptedHandler, V2025_11_25, as_principal, form, result_text};
use rethread::{Limits, Timing};
use rethread_store_redis::{RedisCluster, RedisOptions};
use rethread_testkit::client::{Client, Reply};
use rethread_testkit::redis_server::RedisServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

async fn call(client: &Client, id: u64, name: &str, more: Value) -> Reply {
    let mut params = json!({ "name": name, "arguments": { "a": 1 } });
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    client.stateless(id, "tools/call", params, json!({})).await
}

fn retry(asked: &Value, answers: Value) -> Value {
    json!({ "requestState": asked["result"]["requestState"], "inputResponses": answers })
}

const INVALID_PARAMS: i64 = -32602;

async fn code_of(reply: Reply) -> i64 {
    assert_eq!(reply.status, 200);
    reply.json().await["error"]["code"].as_i64().unwrap()
}

/// One complete round with a handler that continues after the answer.
async fn one_round(client: &Client, handler: &ScriptedHandler, id: u64) -> (Value, Value) {
    let script = handler.script("a");
    let first = async {
        let (asked, first) = tokio::join!(
            async { tokio::time::timeout(Duration::from_millis(50), script.ask("elicit", form())).await },
            async { call(client, id, "a", json!({})).await.json().await }
        );
        assert!(asked.is_err(), "the handler waits");
        first
    }
    .await;
    let answer = json!({ "q1": { "action": "accept", "content": { "n": id } } });
    let (second, ()) = tokio::join!(call(client, id + 1, "a", retry(&first, answer)), async {
        script.finish("went on").await;
    });
    (first, second.json().await)
}

/// MRTR-02, MRTR-04, S2C-09: the handler code is the same as in a session.
#[tokio::test]
async fn mrtr_04_question_parks_the_call_and_the_retry_resumes_it() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let (first, second) = one_round(&client, &handler, 10).await;
    assert_eq!(
        (&first["id"], &first["result"]["resultType"]),
        (&json!(10), &json!("input_required"))
    );
    let asked = json!({ "method": "elicitation/create", "params": form() });
    assert_eq!(first["result"]["inputRequests"], json!({ "q1": asked }));
    assert_eq!(first["result"].get("ttlMs"), None, "VER-14");
    assert_eq!(second["id"], 11);
    assert_eq!(second["result"]["resultType"], "complete");
    assert_eq!(result_text(&second), "went on");
    assert_eq!((service.stats().parked_calls, service.stats().running_calls), (0, 0));
}

/// MRTR-05, T-28: every invalid state gets the same error and does not touch the call.
#[tokio::test]
async fn mrtr_05_forged_request_state_is_refused() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
    let script = handler.script("a");
    let (_, first) = tokio::join!(
        async { tokio::time::timeout(Duration::from_millis(50), script.ask("elicit", form())).await },
        async { call(&alice, 1, "a", json!({})).await.json().await }
    );
    let good = retry(&first, json!({ "q1": { "action": "accept" } }));
    let state = good["requestState"].as_str().unwrap();
    for at in [0, 3, state.len() / 2, state.len() - 1] {
        let mut flipped = state.as_bytes().to_vec();
        flipped[at] = if flipped[at] == b'A' { b'B' } else { b'A' };
        let mut spoiled = good.clone();
        spoiled["requestState"] = json!(String::from_utf8(flipped).unwrap());
        assert_eq!(
            code_of(call(&alice, 2, "a", spoiled).await).await,
            INVALID_PARAMS,
            "flipped byte {at}"
        );
    }
    assert_eq!(
        code_of(call(&mallory, 2, "a", good.clone()).await).await,
        INVALID_PARAMS,
        "another principal"
    );
    assert_eq!(
        code_of(call(&alice, 2, "echo", good.clone()).await).await,
        INVALID_PARAMS,
        "another tool"
    );
    let mut other_arguments = good.clone();
    other_arguments["arguments"] = json!({ "a": 2 });
    assert_eq!(
        code_of(call(&alice, 2, "a", other_arguments).await).await,
        INVALID_PARAMS,
        "changed arguments"
    );
    assert_eq!(service.stats().parked_calls, 1, "none of them took the call");

    // Two concurrent retries: one resumes the call, the other gets an error.
    let (one, two, ()) = tokio::join!(
        call(&alice, 3, "a", good.clone()),
        call(&alice, 4, "a", good.clone()),
        async {
            script.finish("once").await;
        }
    );
    let replies = [one.json().await, two.json().await];
    assert_eq!(
        replies.iter().filter(|r| r["error"]["code"] == INVALID_PARAMS).count(),
        1
    );
    assert_eq!(replies.iter().filter(|r| r.get("result").is_some()).count(), 1);
    assert_eq!(
        code_of(call(&alice, 5, "a", good).await).await,
        INVALID_PARAMS,
        "replay"
    );
}

/// MRTR-04: a stream waits for further questions for `Timing::collect_questions`.
#[tokio::test(start_paused = true)]
async fn mrtr_04_questions_are_collected_for_the_configured_time() {
    let handler = ScriptedHandler::new();
    let wait = Duration::from_secs(3);
    let (_, client) =
        handler.serve_with(|b| b.timing(Timing::default().with(|timing| timing.collect_questions = wait)));
    let script = handler.script("a");
    let params = json!({ "name": "a", "arguments": {} });
    let progress = json!({ "progressToken": "p" });
    let (reply, ()) = tokio::join!(client.stateless(1, "tools/call", params, progress), script.progress(1));
    let start = tokio::time::Instant::now();
    let asking = tokio::spawn(async move { script.ask("elicit", form()).await });
    let messages = reply.events().rest().await;
    assert_eq!(messages.last().unwrap().data["result"]["resultType"], "input_required");
    assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
    asking.abort();
}

/// MRTR-07: the client never retries.
#[tokio::test(start_paused = true)]
async fn mrtr_07_abandoned_call_is_dropped() {
    let handler = ScriptedHandler::new();
    let (service, client) =
        handler.serve_with(|b| b.timing(Timing::default().with(|timing| timing.question = Duration::from_secs(60))));
    let script = handler.script("a");
    let asking = tokio::spawn(async move { script.ask("elicit", form()).await });
    let first = call(&client, 1, "a", json!({})).await.json().await;
    assert_eq!(service.stats().parked_calls, 1);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(asking.await.unwrap().is_err());
    assert_eq!((service.stats().parked_calls, service.stats().running_calls), (0, 0));
    let late = retry(&first, json!({ "q1": { "action": "accept" } }));
    assert_eq!(
        code_of(call(&client, 2, "a", late).await).await,
        INVALID_PARAMS,
        "expired"
    );
}

/// MRTR-06: missing answers are requested again with a new state.
#[tokio::test]
async fn mrtr_06_missing_answers_are_asked_for_again_and_malformed_ones_refused() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let script = handler.script("a");
    let (_, first) = tokio::join!(
        async { tokio::time::timeout(Duration::from_millis(50), script.ask("roots", json!({}))).await },
        async { call(&client, 1, "a", json!({})).await.json().await }
    );
    assert_eq!(first["result"]["inputRequests"]["q1"]["method"], "roots/list");
    let again = call(&client, 2, "a", retry(&first, json!({ "wrong": {} })))
        .await
        .json()
        .await;
    assert_eq!(again["result"]["resultType"], "input_required");
    assert_eq!(again["result"]["inputRequests"], first["result"]["inputRequests"]);
    assert_ne!(again["result"]["requestState"], first["result"]["requestState"]);
    let malformed = call(&client, 3, "a", retry(&again, json!({ "q1": 7 }))).await;
    assert_eq!(code_of(malformed).await, INVALID_PARAMS);
    assert_eq!(service.stats().parked_calls, 1, "a malformed answer loses nothing");
    let (done, ()) = tokio::join!(
        call(&client, 4, "a", retry(&again, json!({ "q1": { "roots": [] } }))),
        script.finish("x")
    );
    assert_eq!(result_text(&done.json().await), "x");
}

/// MRTR-03, VER-11: only capabilities that this request declares.
#[tokio::test]
async fn mrtr_03_undeclared_question_is_not_asked() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let script = handler.script("a");
    let none = json!({ "io.modelcontextprotocol/clientCapabilities": {} });
    let (reply, asked) = tokio::join!(
        client.stateless(1, "tools/call", json!({ "name": "a" }), none.clone()),
        async {
            let asked = script.ask("elicit", form()).await;
            script
                .fail(rethread::AskError::NotSupported("elicitation").into())
                .await;
            asked
        }
    );
    assert!(asked.is_err());
    assert_eq!(reply.status, 400);
    let error = reply.json().await;
    assert_eq!(error["error"]["code"], -32021);
    assert_eq!(
        error["error"]["data"]["requiredCapabilities"],
        json!({ "elicitation": {} })
    );
    let own = client
        .stateless(2, "tools/call", json!({ "name": "own_input" }), none)
        .await;
    assert_eq!(own.status, 400);
}

/// D7: the handler returns an input-required result itself, and no call is parked.
#[tokio::test]
async fn mrtr_02_handler_may_store_its_state_with_the_client() {
    let (service, client) = ScriptedHandler::new().serve();
    let first = call(&client, 1, "own_input", json!({})).await.json().await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(service.stats().parked_calls, 0);
    let answer = json!({ "name": { "action": "accept", "content": { "name": "Ada" } } });
    for id in 2..4 {
        let done = call(&client, id, "own_input", retry(&first, answer.clone()))
            .await
            .json()
            .await;
        assert_eq!(
            result_text(&done),
            "state \"Ada\"",
            "no call is parked, so the state can be used again"
        );
    }
    let mut tampered = retry(&first, answer);
    tampered["requestState"] = json!("v1.AAAA");
    assert_eq!(
        code_of(call(&client, 4, "own_input", tampered).await).await,
        INVALID_PARAMS
    );
    // In a session the same tool gets an error.
    let session = client.open(V2025_11_25).await;
    let refused = session.tool(1, "own_input", json!({})).await.json().await;
    assert_eq!(refused["error"]["code"], -32603);
}

/// MRTR-05: nodes with the same key accept each other's state. A parked call stays on its node (RST-05).
#[tokio::test]
async fn mrtr_05_request_state_needs_the_shared_key() {
    let first = {
        let (_, client) = ScriptedHandler::new().serve_with(|b| b.state_key([7; 32]));
        call(&client, 1, "own_input", json!({})).await.json().await
    };
    let answer = retry(
        &first,
        json!({ "name": { "action": "accept", "content": { "name": "x" } } }),
    );
    let (_, sibling) = ScriptedHandler::new().serve_with(|b| b.state_key([7; 32]));
    assert_eq!(
        result_text(&call(&sibling, 2, "own_input", answer.clone()).await.json().await),
        "state \"x\""
    );
    let (_, stranger) = ScriptedHandler::new().serve();
    assert_eq!(
        code_of(call(&stranger, 2, "own_input", answer).await).await,
        INVALID_PARAMS
    );
}

/// A client of a node on a store whose clock is ahead of the clock of the node.
async fn client_of_a_store(redis: &RedisServer, prefix: &str, ahead: Duration) -> Client {
    let skew = Arc::new(AtomicI64::new(ahead.as_millis() as i64));
    let options = RedisOptions::parse(&format!("{}?prefix={prefix}:", redis.url())).unwrap();
    let options = options.with_secret([7; 32]).with_skew(skew);
    let cluster = RedisCluster::connect(options).await.unwrap();
    let store = cluster.store("clocks").await.unwrap();
    let (service, client) = ScriptedHandler::new().serve_with(|builder| builder.store(store));
    service.join().await;
    client
}

/// MRTR-05: the time of the store decides when a state expires. The clock of the node is an hour behind.
#[tokio::test]
async fn mrtr_05_request_state_expires_by_the_time_of_the_store() {
    let Some(redis) = RedisServer::start() else { return };
    let (hour, lifetime, minute) = (
        Duration::from_secs(3600),
        Timing::default().question,
        Duration::from_secs(60),
    );
    let client = client_of_a_store(&redis, "now", hour).await;
    let first = call(&client, 1, "own_input", json!({})).await.json().await;
    let answer = json!({ "name": { "action": "accept", "content": { "name": "x" } } });
    let before = client_of_a_store(&redis, "before", hour + lifetime - minute).await;
    let accepted = call(&before, 2, "own_input", retry(&first, answer.clone())).await;
    assert_eq!(result_text(&accepted.json().await), "state \"x\"");
    let after = client_of_a_store(&redis, "after", hour + lifetime + minute).await;
    let refused = call(&after, 2, "own_input", retry(&first, answer)).await;
    assert_eq!(code_of(refused).await, INVALID_PARAMS);
}

#[tokio::test]
async fn d13_parked_calls_are_bounded() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.limits(Limits::default().with(|limits| limits.parks = 1)));
    let one = handler.script("one");
    let held = tokio::spawn(async move { one.ask("elicit", form()).await });
    call(&client, 1, "one", json!({})).await;
    let two = handler.script("two");
    let refused = tokio::spawn(async move { two.ask("elicit", form()).await });
    let reply = call(&client, 2, "two", json!({})).await.json().await;
    assert_eq!(reply["error"]["code"], -32603);
    assert!(refused.await.unwrap().is_err());
    assert_eq!(service.stats().parked_calls, 1);
    held.abort();
}

/// A handler that asks two questions at once, in two rounds.
struct AskingHandler;

impl rethread::Handler for AskingHandler {
    async fn handle(
        &self,
        call: rethread::Call,
        cx: &rethread::Context,
    ) -> Result<rethread::Reply, rethread::RpcError> {
        let _ = call;
        let mut received = Vec::new();
        for _ in 0..2 {
            let (form, roots) = tokio::join!(cx.elicit_json(form()), cx.roots_json());
            received.push(json!([form?.json::<Value>()?, roots?.json::<Value>()?]));
        }
        Ok(rethread::Reply::json(
            json!({ "content": [{ "type": "text", "text": json!(received).to_string() }] }),
        ))
    }
}

/// D7: concurrent questions are one round. Each round is one retry.
#[tokio::test]
async fn mrtr_04_call_may_ask_several_questions_in_several_rounds() {
    let client = Client::new(rethread::McpService::builder(AskingHandler).build());
    let first = call(&client, 1, "x", json!({})).await.json().await;
    let asked = first["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), ["q1", "q2"]);
    // A partial answer: the missing one is requested again.
    let half = call(&client, 2, "x", retry(&first, json!({ "q1": { "n": 1 } })))
        .await
        .json()
        .await;
    assert_eq!(
        half["result"]["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["q2"]
    );
    let second = call(&client, 3, "x", retry(&half, json!({ "q2": { "n": 2 } })))
        .await
        .json()
        .await;
    let asked = second["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(
        asked.keys().collect::<Vec<_>>(),
        ["q3", "q4"],
        "names are never used twice"
    );
    let answers = json!({ "q3": { "n": 3 }, "q4": { "n": 4 } });
    let done = call(&client, 4, "x", retry(&second, answers)).await.json().await;
    assert_eq!(result_text(&done), r#"[[{"n":1},{"n":2}],[{"n":3},{"n":4}]]"#);
}

/// MRTR-08: a handler that never stops asking.
#[tokio::test]
async fn mrtr_08_rounds_are_bounded() {
    let limits = Limits::default().with(|limits| limits.input_rounds = 1);
    let service = rethread::McpService::builder(AskingHandler).limits(limits).build();
    let client = Client::new(service.clone());
    let first = call(&client, 1, "x", json!({})).await.json().await;
    let answers = json!({ "q1": {}, "q2": {} });
    let reply = call(&client, 2, "x", retry(&first, answers)).await.json().await;
    assert_eq!(reply["error"]["code"], -32603);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((service.stats().parked_calls, service.stats().running_calls), (0, 0));
}
