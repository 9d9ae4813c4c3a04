//! Questions to the client on 2026-07-28: the call is parked, and the retry wakes it (MRTR-01 to MRTR-08).

use crate::support::{D, Puppet, text_of};
use rethread::{Limits, Principal, Timing};
use rethread_testkit::client::{Client, Reply};
use serde_json::{Value, json};
use std::time::Duration;

fn form() -> Value {
    json!({ "mode": "form", "message": "?", "requestedSchema": { "type": "object", "properties": {} } })
}

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

const REFUSED: i64 = -32602;

async fn code_of(reply: Reply) -> i64 {
    assert_eq!(reply.status, 200);
    reply.json().await["error"]["code"].as_i64().unwrap()
}

/// One round from end to end, with a handler that goes on after the answer.
async fn one_round(client: &Client, puppet: &Puppet, id: u64) -> (Value, Value) {
    let strings = puppet.strings("a");
    let first = async {
        let (asked, first) = tokio::join!(
            async { tokio::time::timeout(Duration::from_millis(50), strings.ask("elicit", form())).await },
            async { call(client, id, "a", json!({})).await.json().await }
        );
        assert!(asked.is_err(), "the handler waits");
        first
    }
    .await;
    let answer = json!({ "q1": { "action": "accept", "content": { "n": id } } });
    let (second, ()) = tokio::join!(call(client, id + 1, "a", retry(&first, answer)), async {
        strings.finish("went on").await;
    });
    (first, second.json().await)
}

/// MRTR-02, MRTR-04, S2C-09: the same handler code as in a session.
#[tokio::test]
async fn mrtr_04_a_question_ends_the_request_and_the_retry_takes_the_call_up() {
    let puppet = Puppet::new();
    let (service, client) = puppet.serve();
    let (first, second) = one_round(&client, &puppet, 10).await;
    assert_eq!(
        (&first["id"], &first["result"]["resultType"]),
        (&json!(10), &json!("input_required"))
    );
    let asked = json!({ "method": "elicitation/create", "params": form() });
    assert_eq!(first["result"]["inputRequests"], json!({ "q1": asked }));
    assert_eq!(first["result"].get("ttlMs"), None, "VER-14");
    assert_eq!(second["id"], 11);
    assert_eq!(second["result"]["resultType"], "complete");
    assert_eq!(text_of(&second), "went on");
    assert_eq!((service.parked_calls(), service.running_calls()), (0, 0));
}

/// MRTR-05, T-28: whatever is wrong with the state, the answer is the same and the call is not touched.
#[tokio::test]
async fn mrtr_05_attacks_on_the_request_state() {
    let puppet = Puppet::new();
    let (service, client) = puppet.serve();
    let as_user = |name: &'static str| {
        client.with_request_hook(move |request| {
            request.extensions_mut().insert(Principal::new("i", name));
        })
    };
    let (alice, mallory) = (as_user("alice"), as_user("mallory"));
    let strings = puppet.strings("a");
    let (_, first) = tokio::join!(
        async { tokio::time::timeout(Duration::from_millis(50), strings.ask("elicit", form())).await },
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
            REFUSED,
            "flipped byte {at}"
        );
    }
    assert_eq!(
        code_of(call(&mallory, 2, "a", good.clone()).await).await,
        REFUSED,
        "another principal"
    );
    assert_eq!(
        code_of(call(&alice, 2, "echo", good.clone()).await).await,
        REFUSED,
        "another tool"
    );
    let mut other_arguments = good.clone();
    other_arguments["arguments"] = json!({ "a": 2 });
    assert_eq!(
        code_of(call(&alice, 2, "a", other_arguments).await).await,
        REFUSED,
        "changed arguments"
    );
    assert_eq!(service.parked_calls(), 1, "none of them took the call");

    // Two at once: one goes through, the other finds nothing.
    let (one, two, ()) = tokio::join!(
        call(&alice, 3, "a", good.clone()),
        call(&alice, 4, "a", good.clone()),
        async {
            strings.finish("once").await;
        }
    );
    let replies = [one.json().await, two.json().await];
    assert_eq!(replies.iter().filter(|r| r["error"]["code"] == REFUSED).count(), 1);
    assert_eq!(replies.iter().filter(|r| r.get("result").is_some()).count(), 1);
    assert_eq!(code_of(call(&alice, 5, "a", good).await).await, REFUSED, "replay");
}

/// MRTR-07: a client that never comes back is not waited for.
#[tokio::test(start_paused = true)]
async fn mrtr_07_an_abandoned_call_is_reclaimed() {
    let puppet = Puppet::new();
    let (service, client) = puppet.serve_with(|b| {
        b.timing(Timing {
            question: Duration::from_secs(60),
            ..Timing::default()
        })
    });
    let strings = puppet.strings("a");
    let asking = tokio::spawn(async move { strings.ask("elicit", form()).await });
    let first = call(&client, 1, "a", json!({})).await.json().await;
    assert_eq!(service.parked_calls(), 1);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(asking.await.unwrap().is_err());
    assert_eq!((service.parked_calls(), service.running_calls()), (0, 0));
    let late = retry(&first, json!({ "q1": { "action": "accept" } }));
    assert_eq!(code_of(call(&client, 2, "a", late).await).await, REFUSED, "expired");
}

/// MRTR-06: what is missing is asked for again, under a fresh state.
#[tokio::test]
async fn mrtr_06_missing_answers_are_asked_for_again_and_malformed_ones_refused() {
    let puppet = Puppet::new();
    let (service, client) = puppet.serve();
    let strings = puppet.strings("a");
    let (_, first) = tokio::join!(
        async { tokio::time::timeout(Duration::from_millis(50), strings.ask("roots", json!({}))).await },
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
    assert_eq!(code_of(malformed).await, REFUSED);
    assert_eq!(service.parked_calls(), 1, "a malformed answer loses nothing");
    let (done, ()) = tokio::join!(
        call(&client, 4, "a", retry(&again, json!({ "q1": { "roots": [] } }))),
        strings.finish("x")
    );
    assert_eq!(text_of(&done.json().await), "x");
}

/// MRTR-03, VER-11: only what this request declared.
#[tokio::test]
async fn mrtr_03_undeclared_capabilities_are_not_asked_for() {
    let puppet = Puppet::new();
    let (_, client) = puppet.serve();
    let strings = puppet.strings("a");
    let none = json!({ "io.modelcontextprotocol/clientCapabilities": {} });
    let (reply, asked) = tokio::join!(
        client.stateless(1, "tools/call", json!({ "name": "a" }), none.clone()),
        async {
            let asked = strings.ask("elicit", form()).await;
            strings
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
    let own = client.stateless(2, "tools/call", json!({ "name": "own" }), none).await;
    assert_eq!(own.status, 400);
}

/// D7: a handler may ask in its own answer, and nothing is parked.
#[tokio::test]
async fn mrtr_02_a_handler_may_keep_its_state_with_the_client() {
    let (service, client) = Puppet::new().serve();
    let first = call(&client, 1, "own", json!({})).await.json().await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(service.parked_calls(), 0);
    let answer = json!({ "name": { "action": "accept", "content": { "name": "Ada" } } });
    for id in 2..4 {
        let done = call(&client, id, "own", retry(&first, answer.clone()))
            .await
            .json()
            .await;
        assert_eq!(text_of(&done), "kept \"Ada\"", "nothing waits, so nothing is used up");
    }
    let mut tampered = retry(&first, answer);
    tampered["requestState"] = json!("v1.AAAA");
    assert_eq!(code_of(call(&client, 4, "own", tampered).await).await, REFUSED);
    // In a session the same tool says what it needs.
    let session = client.open(D).await;
    let refused = session.tool(1, "own", json!({})).await.json().await;
    assert_eq!(refused["error"]["code"], -32603);
}

/// Two nodes that share the key open each other's state; a parked call lives on its own node (RST-05).
#[tokio::test]
async fn mrtr_05_nodes_share_a_key_and_strangers_do_not() {
    let first = {
        let (_, client) = Puppet::new().serve_with(|b| b.state_key([7; 32]));
        call(&client, 1, "own", json!({})).await.json().await
    };
    let answer = retry(
        &first,
        json!({ "name": { "action": "accept", "content": { "name": "x" } } }),
    );
    let (_, sibling) = Puppet::new().serve_with(|b| b.state_key([7; 32]));
    assert_eq!(
        text_of(&call(&sibling, 2, "own", answer.clone()).await.json().await),
        "kept \"x\""
    );
    let (_, stranger) = Puppet::new().serve();
    assert_eq!(code_of(call(&stranger, 2, "own", answer).await).await, REFUSED);
}

#[tokio::test]
async fn d13_waiting_calls_are_bounded() {
    let puppet = Puppet::new();
    let (service, client) = puppet.serve_with(|b| {
        b.limits(Limits {
            parks: 1,
            ..Limits::default()
        })
    });
    let one = puppet.strings("one");
    let held = tokio::spawn(async move { one.ask("elicit", form()).await });
    call(&client, 1, "one", json!({})).await;
    let two = puppet.strings("two");
    let refused = tokio::spawn(async move { two.ask("elicit", form()).await });
    let reply = call(&client, 2, "two", json!({})).await.json().await;
    assert_eq!(reply["error"]["code"], -32603);
    assert!(refused.await.unwrap().is_err());
    assert_eq!(service.parked_calls(), 1);
    held.abort();
}

/// A handler that asks two things at once, twice.
struct Curious;

impl rethread::Handler for Curious {
    async fn handle(
        &self,
        call: rethread::Call,
        cx: &rethread::Context,
    ) -> Result<rethread::Reply, rethread::RpcError> {
        let _ = call;
        let mut heard = Vec::new();
        for _ in 0..2 {
            let (form, roots) = tokio::join!(cx.elicit(form()), cx.roots());
            heard.push(json!([form?.json::<Value>()?, roots?.json::<Value>()?]));
        }
        Ok(rethread::Reply::json(
            json!({ "content": [{ "type": "text", "text": json!(heard).to_string() }] }),
        ))
    }
}

/// D7: several questions at once are one round, several rounds are several retries.
#[tokio::test]
async fn mrtr_04_several_questions_at_once_and_several_rounds() {
    let client = Client::new(rethread::McpService::builder(Curious).build());
    let first = call(&client, 1, "x", json!({})).await.json().await;
    let asked = first["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), ["q1", "q2"]);
    // One of them first, the other later: what is missing is asked for again.
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
    assert_eq!(text_of(&done), r#"[[{"n":1},{"n":2}],[{"n":3},{"n":4}]]"#);
}

/// MRTR-08: a handler that never has enough.
#[tokio::test]
async fn mrtr_08_rounds_are_bounded() {
    let limits = Limits {
        input_rounds: 1,
        ..Limits::default()
    };
    let service = rethread::McpService::builder(Curious).limits(limits).build();
    let client = Client::new(service.clone());
    let first = call(&client, 1, "x", json!({})).await.json().await;
    let answers = json!({ "q1": {}, "q2": {} });
    let reply = call(&client, 2, "x", retry(&first, answers)).await.json().await;
    assert_eq!(reply["error"]["code"], -32603);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((service.parked_calls(), service.running_calls()), (0, 0));
}
