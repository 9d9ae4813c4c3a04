//! Questions to the client: sent on the call's stream, answered by another POST.

use crate::support::{LEGACY_REVISIONS, ScriptedHandler, V2025_03_26, V2025_06_18, V2025_11_25, form, result_text};
use rethread::{Limits, Timing};
use serde_json::{Value, json};
use std::time::Duration;

fn sampling() -> Value {
    json!({ "messages": [], "maxTokens": 1 })
}

/// S2C-02, S2C-03.
#[tokio::test]
async fn s2c_03_question_goes_to_the_call_stream_and_its_answer_to_another_post() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open(version).await;
        let mut get = session.get(None).await.events();
        let script = handler.script("a");
        let (answered, ()) = tokio::join!(script.ask("sample", sampling()), async {
            let mut events = session.tool(9, "a", json!({})).await.events();
            let question = events.next().await.data;
            assert_eq!(question["method"], "sampling/createMessage");
            assert_eq!(question["params"], sampling());
            let reply = session.answer(&question["id"], json!({ "text": "four" })).await;
            assert_eq!(reply.status, 202);
            assert!(reply.bytes().await.is_empty());
            // S2C-04: the first answer counts. A second one is accepted and ignored.
            assert_eq!(
                session.answer(&question["id"], json!({ "text": "five" })).await.status,
                202
            );
        });
        assert_eq!(answered, Ok(json!({ "text": "four" })));
        assert!(
            get.is_silent_for(Duration::from_millis(10)).await,
            "never on another stream"
        );
    }
}

#[tokio::test]
async fn s2c_03_client_may_answer_with_an_error() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (answered, ()) = tokio::join!(script.ask("roots", json!({})), async {
        let mut events = session.tool(1, "a", json!({})).await.events();
        let question = events.next().await.data;
        assert_eq!(
            question,
            json!({ "jsonrpc": "2.0", "id": question["id"], "method": "roots/list" })
        );
        let body = json!({ "jsonrpc": "2.0", "id": question["id"], "error": { "code": -1, "message": "no" } });
        session.post(&body).await;
    });
    assert_eq!(answered, Err("the client refused: no (-1)".into()));
}

/// S2C-01, S2C-04: ids of clients and of the server do not collide. Another session's answer has no effect.
#[tokio::test]
async fn s2c_04_forged_answer_is_refused() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let (session, other) = (client.open(V2025_11_25).await, client.open(V2025_11_25).await);
    let script = handler.script("a");
    let (answered, ()) = tokio::join!(script.ask("roots", json!({})), async {
        let mut events = session.tool("s1-1", "a", json!({})).await.events();
        let question = events.next().await.data["id"].clone();
        assert_eq!(question, "s1-1", "the call has the same id, and does not mind");
        for (who, id) in [
            (&session, json!("s1-2")),
            (&session, json!(1)),
            (&session, json!("x")),
            (&other, question.clone()),
        ] {
            let reply = who.answer(&id, json!({ "roots": [] })).await;
            assert_eq!(reply.status, 400, "{id}");
            assert_eq!(reply.json().await["error"]["code"], -32600);
        }
        assert_eq!(session.answer(&question, json!({ "roots": [1] })).await.status, 202);
    });
    assert_eq!(answered, Ok(json!({ "roots": [1] })));
}

/// S2C-08: a question is an ordinary event with the same id after a resume.
#[tokio::test]
async fn s2c_08_open_question_is_replayed_after_a_cut() {
    for version in LEGACY_REVISIONS {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open(version).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        let mut events = reply.events();
        events.next().await;
        let cursor = events.cursor().to_owned();
        let (answered, ()) = tokio::join!(script.ask("sample", sampling()), async {
            let first = events.next().await.data["id"].clone();
            drop(events);
            let mut again = session.resume(&cursor).await;
            let second = again.next().await.data["id"].clone();
            assert_eq!(first, second);
            drop(again);
            let mut third = session.resume(&cursor).await;
            assert_eq!(third.next().await.data["id"], first);
            session.answer(&second, json!({ "ok": true })).await;
        });
        assert_eq!(answered, Ok(json!({ "ok": true })));
        script.finish("done").await;
    }
}

/// S2C-05, SES-11: no question is sent.
#[tokio::test]
async fn s2c_05_undeclared_capabilities_fail_locally() {
    let matrix: [(&str, Value, &'static str, Value, bool); 9] = [
        (V2025_11_25, json!({}), "sample", sampling(), false),
        (V2025_11_25, json!({ "sampling": {} }), "sample", sampling(), true),
        (
            V2025_11_25,
            json!({ "sampling": {} }),
            "sample",
            json!({ "messages": [], "maxTokens": 1, "tools": [] }),
            false,
        ),
        (V2025_11_25, json!({}), "roots", json!({}), false),
        (V2025_11_25, json!({}), "elicit", form(), false),
        (V2025_11_25, json!({ "elicitation": {} }), "elicit", form(), true),
        (
            V2025_11_25,
            json!({ "elicitation": { "form": {} } }),
            "elicit",
            json!({ "mode": "url", "url": "https://x" }),
            false,
        ),
        (V2025_06_18, json!({ "elicitation": {} }), "elicit", form(), true),
        (V2025_03_26, json!({ "elicitation": {} }), "elicit", form(), false), // this revision has no elicitation
    ];
    for (version, capabilities, what, params, asked) in matrix {
        let handler = ScriptedHandler::new();
        let (_, client) = handler.serve();
        let session = client.open_with(version, capabilities.clone()).await;
        let script = handler.script("a");
        if asked {
            let (answered, ()) = tokio::join!(script.ask(what, params), async {
                let question = session.tool(1, "a", json!({})).await.events().next().await.data;
                if version == V2025_06_18 {
                    assert!(question["params"].get("mode").is_none(), "2025-06-18 knows no modes");
                }
                session.answer(&question["id"], json!({})).await;
            });
            assert!(answered.is_ok(), "{version} {capabilities} {what}");
        } else {
            let (reply, refused) = tokio::join!(session.tool(1, "a", json!({})), async {
                let refused = script.ask(what, params).await;
                script.finish("x").await;
                refused
            });
            assert!(refused.unwrap_err().contains("does not support"));
            assert!(
                !reply.is_stream(),
                "nothing on the wire: {version} {capabilities} {what}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s2c_06_unanswered_question_is_cancelled() {
    let handler = ScriptedHandler::new();
    let (_, client) =
        handler.serve_with(|b| b.timing(Timing::default().with(|timing| timing.question = Duration::from_secs(60))));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (answered, mut events) = tokio::join!(script.ask("roots", json!({})), async {
        session.tool(1, "a", json!({})).await.events()
    });
    assert_eq!(answered, Err("the client did not answer in time".into()));
    let question = events.next().await.data["id"].clone();
    let cancelled = events.next().await.data;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question);
    assert_eq!(session.answer(&question, json!({})).await.status, 202, "S2C-04: late");
}

#[tokio::test]
async fn s2c_06_cancelled_call_cancels_its_question() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (answered, messages) = tokio::join!(script.ask("roots", json!({})), async {
        let mut events = session.tool(1, "a", json!({})).await.events();
        let question = events.next().await;
        session
            .notify("notifications/cancelled", json!({ "requestId": 1 }))
            .await;
        let mut all = vec![question];
        all.extend(events.rest().await);
        all
    });
    assert!(answered.is_err());
    assert_eq!(messages[1].data["method"], "notifications/cancelled");
    assert_eq!(messages[1].data["params"]["requestId"], messages[0].data["id"]);
    assert_eq!(messages.len(), 2, "CAN-01: and no answer");
}

#[tokio::test]
async fn s2c_07_ping_works_both_ways() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.initialize(V2025_11_25, json!({})).await;
    let reply = session.call("p", "ping", json!({})).await; // works before `initialized`
    assert_eq!(reply.json().await, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    let script = handler.script("a");
    let (answered, ()) = tokio::join!(script.ask("ping", json!({})), async {
        let question = session.tool(1, "a", json!({})).await.events().next().await.data;
        assert_eq!(question["method"], "ping");
        session.answer(&question["id"], json!({})).await;
    });
    assert_eq!(answered, Ok(Value::Null));
}

/// SES-08.
#[tokio::test]
async fn ses_08_questions_wait_for_initialized() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.initialize(V2025_11_25, json!({ "roots": {} })).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut events = reply.events();
    events.next().await;
    let (answered, ()) = tokio::join!(script.ask("roots", json!({})), async {
        assert!(events.is_silent_for(Duration::from_millis(20)).await);
        session.notify("notifications/initialized", json!({})).await;
        let question = events.next().await.data["id"].clone();
        session.answer(&question, json!({})).await;
    });
    assert!(answered.is_ok());
}

#[tokio::test]
async fn d13_open_questions_are_bounded() {
    let handler = ScriptedHandler::new();
    let (_, client) =
        handler.serve_with(|b| b.limits(Limits::default().with(|limits| limits.questions_per_session = 1)));
    let session = client.open(V2025_11_25).await;
    let (one, two) = (handler.script("one"), handler.script("two"));
    let (first, ()) = tokio::join!(one.ask("roots", json!({})), async {
        let mut events = session.tool(1, "one", json!({})).await.events();
        let question = events.next().await.data["id"].clone();
        let (reply, second) = tokio::join!(session.tool(2, "two", json!({})), async {
            let second = two.ask("roots", json!({})).await;
            two.finish("x").await;
            second
        });
        assert_eq!(second, Err("too many open questions to the client".into()));
        assert_eq!(result_text(&reply.json().await), "x");
        session.answer(&question, json!({})).await;
    });
    assert!(first.is_ok());
}
