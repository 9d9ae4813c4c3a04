//! Isolation between sessions and principals: guessed event ids, equal JSON-RPC ids (SEC-05, T-14).

use crate::support::{ScriptedHandler, V2025_11_25, as_principal, result_text};
use rethread::MemoryStore;
use rethread::event_id::Qualified;
use serde_json::json;
use std::time::Duration;

const QUIET_PERIOD: Duration = Duration::from_millis(20);

/// RES-03, STO-03: sessions share one store and use equal event ids and request ids.
#[tokio::test]
async fn res_03_event_id_of_another_session_replays_nothing() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let mut sessions = Vec::new();
    for name in ["mine", "theirs"] {
        let session = client.open(V2025_11_25).await;
        let script = handler.script("a");
        let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
        drop(reply);
        script.finish(name).await;
        sessions.push(session);
    }
    // Each session gets its own event under the same id.
    for (session, name) in sessions.iter().zip(["mine", "theirs"]) {
        let rest = session.resume("1-0").await.rest().await;
        assert_eq!(result_text(&rest[1].data), name);
    }
    // A third session has no such stream: it gets a new GET stream without events.
    let third = client.open(V2025_11_25).await;
    for guessed in ["1-0", "1-1", "2-0", "3-7", "1-99999", "nonsense", "1-1; drop"] {
        assert!(
            third.resume(guessed).await.is_silent_for(QUIET_PERIOD).await,
            "{guessed}"
        );
    }
}

#[tokio::test]
async fn res_03_interleaved_streams_of_one_session_do_not_mix() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let (one, two) = (handler.script("one"), handler.script("two"));
    let (first, second, ()) = tokio::join!(
        session.tool("t1", "one", json!({})),
        session.tool("t2", "two", json!({})),
        async {
            for n in 1..50 {
                one.progress(n).await;
                two.progress(n).await;
            }
            one.finish("1").await;
            two.finish("2").await;
        }
    );
    drop((first, second));
    for (cursor, token, text) in [("1-0", "t1", "1"), ("3-0", "t2", "2")] {
        let rest = session.resume(cursor).await.rest().await;
        assert!(rest[..49].iter().all(|m| m.data["params"]["progressToken"] == token));
        assert_eq!(result_text(&rest[49].data), text);
    }
}

/// SES-06, SEC-05, D12: on every method, as for an unknown session.
#[tokio::test]
async fn ses_06_another_principal_gets_404_on_everything() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let (alice, mallory) = (as_principal(&client, "alice"), as_principal(&client, "mallory"));
    let session = alice.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    for stranger in [session.with_client(&mallory), session.with_client(&client)] {
        assert_eq!(stranger.call(2, "ping", json!({})).await.status, 404);
        assert_eq!(stranger.get(None).await.status, 404);
        assert_eq!(stranger.get(Some("1-0")).await.status, 404);
        assert_eq!(stranger.answer(&json!("s1-1"), json!({})).await.status, 404);
        assert_eq!(
            stranger
                .notify("notifications/cancelled", json!({ "requestId": 1 }))
                .await
                .status,
            404
        );
        assert_eq!(stranger.delete().await.status, 404);
    }
    script.finish("for alice").await;
    assert_eq!(result_text(&reply.events().rest().await[1].data), "for alice");
    // A refreshed token has the same principal.
    let refreshed = session.with_client(&as_principal(&client, "alice"));
    assert_eq!(refreshed.call(2, "ping", json!({})).await.status, 200);
    assert_eq!(service.stats().sessions, 1);
}

/// D1: qualified ids work end to end and are unknown in other sessions.
#[tokio::test]
async fn d1_qualified_event_ids_resume_in_their_own_session_only() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|b| b.event_ids(Qualified).node_name("n1"));
    let session = client.open(V2025_11_25).await;
    let other = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(7, "a", json!({})), script.progress(1));
    let mut events = reply.events();
    events.next().await;
    let cursor = events.cursor().to_owned();
    assert!(cursor.contains("-1-n1-") && !cursor.contains(&session.id), "{cursor}");
    drop(events);
    script.finish("done").await;
    assert_eq!(result_text(&session.resume(&cursor).await.rest().await[0].data), "done");
    assert!(other.resume(&cursor).await.is_silent_for(QUIET_PERIOD).await);
}

/// SES-05, D2: nothing reappears after DELETE.
#[tokio::test]
async fn d2_session_deleted_during_a_call_leaves_no_data() {
    let store = MemoryStore::default();
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|b| b.store(store.clone()));
    let session = client.open(V2025_11_25).await;
    let mut get = session.get(None).await.events();
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut call = reply.events();
    call.next().await;
    assert_eq!(session.delete().await.status, 204);
    assert!(
        call.message().await.is_none() && get.message().await.is_none(),
        "open streams get EOF"
    );
    drop((call, get));
    script.wait_for_end().await; // cancelled by DELETE
    assert_eq!(
        (
            service.stats().sessions,
            service.stats().running_calls,
            service.stats().connections
        ),
        (0, 0, 0)
    );
    assert_eq!((store.sessions(), store.streams(), store.held_bytes()), (0, 0, 0));
    for reply in [
        session.call(2, "ping", json!({})).await,
        session.get(Some("1-1")).await,
        session.delete().await,
    ] {
        assert_eq!(reply.status, 404, "SES-04");
    }
}
