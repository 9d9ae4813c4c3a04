//! A session survives a restart (D9). A restart is a second endpoint on the same store. The first one is abandoned like a
//! killed process, or continues to write.

use crate::support::{
    LEGACY_REVISIONS, ScriptedHandler, V2025_03_26, V2025_11_25, as_principal, progress_values, result_text, start,
};
use rethread::event_id::Seq;
use rethread::store::SessionStore as _;
use rethread::{LogLevel, MemoryStore, Principal, Restore, Timing};
use rethread_proto::clock::Wall;
use rethread_testkit::client::Session;
use rethread_testkit::flaky::FlakyStore;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn restarted(error: &Value, id: impl Into<Value>) {
    assert_eq!(error["id"], id.into(), "{error}");
    assert_eq!(error["error"]["code"], -32603, "{error}");
    assert_eq!(error["error"]["data"]["reason"], "restarted", "{error}");
}

#[tokio::test]
async fn rst_01_session_is_restored_on_first_use() {
    for version in LEGACY_REVISIONS {
        let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
        let (_, client) = start(&handler, &store);
        let session = client.open_with(version, json!({ "sampling": {} })).await;
        session.call(1, "logging/setLevel", json!({ "level": "warning" })).await;
        session
            .call(2, "resources/subscribe", json!({ "uri": "test://kept" }))
            .await;
        session
            .call(3, "resources/subscribe", json!({ "uri": "test://dropped" }))
            .await;
        session
            .call(4, "resources/unsubscribe", json!({ "uri": "test://dropped" }))
            .await;

        let (service, client) = start(&handler, &store);
        let session = session.with_client(&client);
        assert_eq!(service.stats().sessions, 0, "not before it is used");
        let reply = session.call(5, "ping", json!({})).await;
        assert_eq!((reply.status.as_u16(), service.stats().sessions), (200, 1));

        // Version, capabilities and log level are restored.
        let script = handler.script("a");
        let (answered, ()) = tokio::join!(
            async {
                script.log(LogLevel::Info, "too low").await;
                script.log(LogLevel::Error, "above the level").await;
                script.ask("sample", json!({ "messages": [], "maxTokens": 1 })).await
            },
            async {
                let mut events = session.tool(6, "a", json!({})).await.events();
                assert_eq!(events.next().await.data["params"]["data"], "above the level");
                let question = events.next().await.data;
                assert_eq!(question["id"], "s2-1", "question ids go on, and are never used twice");
                session.answer(&question["id"], json!({ "text": "four" })).await;
            }
        );
        assert_eq!(answered, Ok(json!({ "text": "four" })));

        // Subscriptions: the refresh names the subscribed resources only.
        let mut get = session.get(None).await.events();
        let mut refreshed = Vec::new();
        for _ in 0..4 {
            let message = get.next().await.data;
            refreshed.push(message["params"]["uri"].as_str().unwrap_or_default().to_owned());
        }
        refreshed.sort();
        assert_eq!(refreshed, ["", "", "", "test://kept"], "three lists and one resource");
        service.notifier().resource_updated("test://dropped");
        service.notifier().resource_updated("test://kept");
        assert_eq!(get.next().await.data["params"]["uri"], "test://kept");
    }
}

#[tokio::test]
async fn rst_01_restored_session_belongs_to_its_principal() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = as_principal(&client, "alice").open(V2025_11_25).await;
    let (service, client) = start(&handler, &store);
    let mallory = session.with_client(&as_principal(&client, "mallory"));
    for _ in 0..2 {
        assert_eq!(mallory.call(1, "ping", json!({})).await.status, 404);
        assert_eq!(mallory.delete().await.status, 404);
    }
    assert_eq!(service.stats().sessions, 0, "a stranger does not even wake it");
    let alice = session.with_client(&as_principal(&client, "alice"));
    assert_eq!(alice.call(1, "ping", json!({})).await.status, 200);
    assert_eq!(mallory.call(1, "ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn rst_02_every_event_id_survives_and_no_number_is_reused() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    // An ended call, a running call, and a push stream with two messages.
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply);
    script.progress(2).await;
    script.finish("stored").await;
    let mut get = session.get(None).await.events();
    let running = handler.script("b");
    let (reply, ()) = tokio::join!(session.tool(2, "b", json!({})), running.progress(1));
    drop(reply);
    for n in 1..=2 {
        running.push(n).await;
        assert_eq!(get.next().await.data["params"]["data"], n);
    }
    drop(get);

    for life in 2..5 {
        let (service, client) = start(&handler, &store);
        let session = session.with_client(&client);
        for after in 0..=2 {
            let rest = session.resume(&format!("1-{after}")).await.rest().await;
            assert_eq!(progress_values(&rest), (after + 1..=2).collect::<Vec<_>>());
            assert_eq!(result_text(&rest.last().unwrap().data), "stored");
        }
        let rest = session.resume("3-0").await.rest().await;
        assert_eq!(progress_values(&rest), [1]);
        restarted(&rest[1].data, 2);
        assert_eq!(rest[1].id.as_deref(), Some("3-2"), "the error has the next number");
        assert_eq!(session.get(Some("3-2")).await.status, 400, "seen to its end");

        let mut push = session.resume("2-1").await;
        assert_eq!(push.next().await.data["params"]["data"], 2);
        let mut last = 2 + (life - 2) * 4;
        for _ in 2..life {
            for _ in 0..4 {
                push.next().await;
            }
        }
        // Events of the restored session follow with the next numbers.
        for _ in 0..3 {
            last += 1;
            assert_eq!(push.next().await.id.unwrap(), format!("2-{last}"));
        }
        service.notifier().list_changed(rethread::ListKind::Tools);
        assert_eq!(push.next().await.id.unwrap(), format!("2-{}", last + 1));

        let script = handler.script("c");
        let (reply, ()) = tokio::join!(session.tool(3, "c", json!({})), script.progress(1));
        let id = reply.events().next().await.id.unwrap();
        let (ordinal, _) = id.split_once('-').unwrap();
        assert!(
            ordinal.parse::<u64>().unwrap() > life * 1000,
            "{id} may have been given out before"
        );
        script.finish("x").await;
    }
}

/// RST-03: stored answers are delivered, and no handler runs twice.
#[tokio::test]
async fn rst_03_interrupted_call_ends_with_error() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (zombie, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool("mine", "a", json!({})), script.progress(1));
    let mut cut = reply.events();
    cut.next().await;
    let started = handler.started.load(Ordering::SeqCst);

    let (_, client) = start(&handler, &store);
    let rest = session.with_client(&client).resume("1-1").await.rest().await;
    assert_eq!(rest.len(), 1);
    restarted(&rest[0].data, "mine");
    assert_eq!(handler.started.load(Ordering::SeqCst), started, "never run again");

    // The old process still runs: the store fences its later events.
    let _ = script.try_progress(2).await;
    assert_eq!(
        cut.rest().await.len(),
        0,
        "its own connection gets no event that is not stored"
    );
    let again = session.with_client(&client).resume("1-1").await.rest().await;
    assert_eq!(again.len(), 1);
    for _ in 0..300 {
        if zombie.stats().sessions == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        zombie.stats().sessions,
        0,
        "it lets go of a session that is another's now"
    );
    assert_eq!(
        session.with_client(&client).call(9, "ping", json!({})).await.status,
        200
    );
}

/// RST-03 for batches (2025-03-26): stored answers are kept.
#[tokio::test]
async fn rst_03_each_call_of_a_batch_gets_one_answer() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_03_26).await;
    let (first, second) = (handler.script("a"), handler.script("b"));
    let call = |id: u64, name: &str| {
        let meta = json!({ "progressToken": id });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "_meta": meta } })
    };
    let reply = session.post(&json!([call(1, "a"), call(2, "b")])).await;
    second.progress(1).await;
    first.finish("done").await;
    drop(reply);
    let (_, client) = start(&handler, &store);
    let rest = session.with_client(&client).resume("1-1").await.rest().await;
    assert_eq!(result_text(&rest[0].data), "done");
    restarted(&rest[1].data, 2);
    assert_eq!(rest.len(), 2);
}

#[tokio::test]
async fn rst_04_open_question_fails_with_its_call() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let asking = tokio::spawn(async move { script.ask("sample", json!({ "messages": [], "maxTokens": 1 })).await });
    let mut events = session.tool(1, "a", json!({})).await.events();
    let question = events.next().await;
    drop(events);
    let (_, client) = start(&handler, &store);
    let session = session.with_client(&client);
    let reply = session.answer(&question.data["id"], json!({ "text": "late" })).await;
    assert_eq!(reply.status, 202);
    let rest = session.resume(question.id.as_deref().unwrap()).await.rest().await;
    restarted(&rest[0].data, 1);
    assert_eq!(
        session.answer(&json!("s9-1"), json!({})).await.status,
        400,
        "never asked"
    );
    asking.abort();
}

#[tokio::test]
async fn rst_05_parked_call_is_lost_with_an_error() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let key = [7; 32];
    let (_, client) = handler.serve_with(|b| b.store(store.clone()).state_key(key));
    let script = handler.script("a");
    let meta = || json!({ "io.modelcontextprotocol/clientCapabilities": { "sampling": {} } });
    let asking = tokio::spawn(async move { script.ask("sample", json!({ "messages": [], "maxTokens": 1 })).await });
    let parked = client.stateless(1, "tools/call", json!({ "name": "a" }), meta()).await;
    let parked = parked.json().await;
    assert_eq!(parked["result"]["resultType"], "input_required", "{parked}");
    let name = parked["result"]["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();

    let (_, client) = handler.serve_with(|b| b.store(store.clone()).state_key(key));
    let retry = json!({
        "name": "a",
        "requestState": parked["result"]["requestState"],
        "inputResponses": { name: { "role": "assistant", "content": { "type": "text", "text": "x" }, "model": "m" } },
    });
    let error = client.stateless(2, "tools/call", retry, meta()).await.json().await;
    assert_eq!(error["error"]["code"], -32602, "{error}");
    assert!(
        error["error"]["message"].as_str().unwrap().contains("restart"),
        "{error}"
    );
    asking.abort();
}

#[tokio::test]
async fn d9_concurrent_requests_restore_a_session_once() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let flaky = FlakyStore::new(store.clone());
    flaky.switches().delay_sessions(Duration::from_millis(20));
    let (service, client) = handler.serve_with(|b| b.store(flaky));
    let session = session.with_client(&client);
    let crowd = (0..64).map(|n| {
        let session = session.clone();
        tokio::spawn(async move { session.call(n, "ping", json!({})).await.status })
    });
    for reply in crowd.collect::<Vec<_>>() {
        assert_eq!(reply.await.unwrap(), 200);
    }
    assert_eq!(service.stats().sessions, 1);
    let loaded = store.load(&key_of(&session)).await.unwrap();
    assert_eq!(loaded.record.epoch, 2, "one new life, not sixty-four");
}

fn key_of(session: &Session) -> rethread::store::SessionKey {
    rethread::store::SessionKey {
        principal: Principal::anonymous(),
        session: rethread::SessionId::parse(&session.id).unwrap(),
    }
}

#[tokio::test]
async fn d9_handler_may_refuse_to_restore_sessions() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let (_, client) = handler.serve_with(|b| b.store(store.clone()).restore(Restore::Expire));
    assert_eq!(
        session.with_client(&client).call(1, "ping", json!({})).await.status,
        404
    );
    assert!(store.load(&key_of(&session)).await.is_err(), "it has ended for good");
}

#[tokio::test]
async fn ses_05_deleted_session_stays_deleted() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let flaky = FlakyStore::new(store.clone());
    let switches = flaky.switches();
    let (_, client) = handler.serve_with(|b| b.store(flaky));
    let session = session.with_client(&client);
    assert_eq!(session.call(1, "ping", json!({})).await.status, 200);
    // 204 must be reliable: while the store cannot record the end, the client gets no 204.
    switches.fail_sessions(true);
    assert_eq!(session.delete().await.status, 503);
    switches.fail_sessions(false);
    assert_eq!(session.delete().await.status, 204);
    for store in [store.clone()] {
        let (_, client) = start(&handler, &store);
        assert_eq!(
            session.with_client(&client).call(1, "ping", json!({})).await.status,
            404
        );
    }
}

/// D10: requests that need the store get 503 with `Retry-After`.
#[tokio::test]
async fn d10_session_lookup_in_an_outage_returns_503() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let (_, client) = start(&handler, &store);
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply);
    let flaky = FlakyStore::new(store.clone());
    let switches = flaky.switches();
    let (service, client) = handler.serve_with(|b| b.store(flaky));
    let session = session.with_client(&client);
    for fail in [
        |s: &rethread_testkit::flaky::Switches, on| s.fail_sessions(on),
        |s: &rethread_testkit::flaky::Switches, on| s.fail_reads(on),
        |s: &rethread_testkit::flaky::Switches, on| s.fail_appends(on),
    ] {
        fail(&switches, true);
        let reply = session.call(1, "ping", json!({})).await;
        assert_eq!(reply.status, 503);
        assert!(reply.header("retry-after").is_some());
        assert_eq!(service.stats().sessions, 0, "not half restored");
        fail(&switches, false);
    }
    let rest = session.resume("1-1").await.rest().await;
    restarted(&rest[0].data, 1);
}

/// D10: after the outage the resume does not wait for the lost answer.
#[tokio::test]
async fn d10_unstored_answer_gives_an_error_on_resume() {
    let handler = ScriptedHandler::new();
    let store = FlakyStore::new(MemoryStore::default());
    let switches = store.switches();
    let (_, client) = handler.serve_with(|b| b.store(store));
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool("lost", "a", json!({})), script.progress(1));
    drop(reply);
    switches.fail_appends(true);
    script.finish("never stored").await;
    assert_eq!(
        session.call(2, "ping", json!({})).await.status,
        200,
        "JSON answers go on"
    );
    switches.fail_appends(false);
    let rest = session.resume("1-1").await.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].data["id"], "lost");
    assert_eq!(rest[0].data["error"]["data"]["reason"], "answer_lost");
    assert_eq!(rest[0].id.as_deref(), Some(format!("1-{}", Seq(2).0).as_str()));
}

/// D9.
#[tokio::test]
async fn d9_unsaved_record_is_saved_after_the_outage() {
    let (store, handler) = (MemoryStore::default(), ScriptedHandler::new());
    let flaky = FlakyStore::new(store.clone());
    let switches = flaky.switches();
    let (_, client) = handler.serve_with(|b| b.store(flaky));
    let session = client.open(V2025_11_25).await;
    switches.fail_sessions(true);
    let reply = session.call(1, "logging/setLevel", json!({ "level": "error" })).await;
    assert_eq!(reply.status, 200, "the session continues without the store");
    switches.fail_sessions(false);
    for _ in 0..400 {
        let record = store.load(&key_of(&session)).await.unwrap().record;
        if record.log_level.as_deref() == Some("error") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the record was never written");
}

/// SES-09, D9: a used session stays. An idle one expires, also while no process runs.
#[tokio::test]
async fn ses_09_expiry_works_across_restarts() {
    static NOW: AtomicU64 = AtomicU64::new(1_700_000_000_000);
    let clock = || Wall::from_millis(NOW.load(Ordering::SeqCst));
    let store = MemoryStore::with_clock(Default::default(), clock);
    let handler = ScriptedHandler::new();
    let timing = || Timing::default().with(|timing| timing.session_idle = Duration::from_secs(5));
    let serve = || handler.serve_with(|b| b.store(store.clone()).timing(timing()));
    let left_behind = serve().1.open(V2025_11_25).await;
    let (_, client) = serve();
    let idle = left_behind.with_client(&client);
    drop(left_behind); // ends with its process
    let used = client.open(V2025_11_25).await;
    let get = used.get(None).await; // an open stream counts as use
    for _ in 0..3 {
        NOW.fetch_add(4_000, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1_600)).await; // a tenth of the limit and one sweep
    }
    drop(get);
    let (service, client) = serve();
    assert_eq!(used.with_client(&client).call(1, "ping", json!({})).await.status, 200);
    assert_eq!(idle.with_client(&client).call(1, "ping", json!({})).await.status, 404);
    assert_eq!(service.stats().sessions, 1);
    assert_eq!(store.sessions(), 1, "only the used session remains");
}
