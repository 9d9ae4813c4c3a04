//! Snapshots for operators: pages, filters, streams, differences, and no secret (OPS-09, OPS-15).

use crate::support::{ScriptedHandler, V2025_11_25, as_principal};
use rethread::{ChangeCursor, MemoryLimits, MemoryStore, Query, Retention, SessionState, Tag};
use rethread_store_redis::{RedisCluster, RedisOptions};
use rethread_testkit::redis_server::RedisServer;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

fn query(change: impl FnOnce(&mut Query)) -> Query {
    Query::default().with(change)
}

#[tokio::test]
async fn ops_09_pages_list_each_session_once_in_the_order_of_tags() {
    let (service, client) = ScriptedHandler::new().serve();
    let mut sessions = Vec::new();
    for _ in 0..12 {
        sessions.push(client.open(V2025_11_25).await);
    }
    let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = service.snapshot(&query(|query| (query.limit, query.after) = (5, after)));
        assert_eq!((page.version, page.totals.sessions), (1, 12));
        listed.extend(page.sessions.iter().map(|session| session.tag));
        after = page.next;
        pages += 1;
        if after.is_none() {
            break;
        }
    }
    let expected: BTreeSet<Tag> = sessions
        .iter()
        .map(|session| Tag::of_session(&rethread::SessionId::parse(&session.id).unwrap()))
        .collect();
    assert_eq!(listed, expected.into_iter().collect::<Vec<_>>());
    assert_eq!(pages, 3);
    let whole = service.snapshot(&query(|query| query.limit = 12));
    assert_eq!(
        (whole.sessions.len(), whole.next),
        (12, None),
        "a full last page has no next one"
    );
}

#[tokio::test]
async fn ops_09_filters_select_by_subject_state_and_text() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let ada = as_principal(&client, "ada").open(V2025_11_25).await;
    let bob = as_principal(&client, "bob").open(V2025_11_25).await;
    let script = handler.script("slow");
    let (reply, ()) = tokio::join!(ada.tool(1, "slow", json!({})), script.progress(1));
    let tags = |query: &Query| -> Vec<_> {
        let sessions = service.snapshot(query).sessions;
        sessions
            .into_iter()
            .map(|session| session.principal.unwrap().subject().to_owned())
            .collect()
    };
    assert_eq!(tags(&query(|query| query.subject = Some("ada".into()))), ["ada"]);
    assert!(
        tags(&query(|query| query.subject = Some("ad".into()))).is_empty(),
        "a subject is compared exactly"
    );
    assert_eq!(tags(&query(|query| query.state = Some(SessionState::Active))), ["ada"]);
    assert_eq!(tags(&query(|query| query.state = Some(SessionState::Idle))), ["bob"]);
    assert_eq!(tags(&query(|query| query.text = Some("BO".into()))), ["bob"]);
    let bob_tag = Tag::of_session(&rethread::SessionId::parse(&bob.id).unwrap()).to_string();
    assert_eq!(
        tags(&query(|query| query.text = Some(bob_tag[3..11].to_uppercase()))),
        ["bob"]
    );
    assert_eq!(
        tags(&query(|query| query.text = Some("testkit".into()))).len(),
        2,
        "the name of the client"
    );
    drop(reply);
}

#[tokio::test]
async fn ops_09_streams_show_their_cursor_retention_and_gap() {
    let limits = MemoryLimits::default().with_stream(Retention::default().with_events(10));
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|builder| builder.store(MemoryStore::new(limits)));
    let session = client.open(V2025_11_25).await;
    let push = session.get(None).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let mut events = reply.events();
    assert_eq!(events.next().await.id.as_deref(), Some("1-1"));
    let only = || service.snapshot(&Query::default()).sessions.remove(0);
    let seen = only();
    assert_eq!(
        (seen.calls, seen.expires.is_none(), seen.revision.as_str()),
        (1, true, V2025_11_25)
    );
    let (call, pushed) = (&seen.streams[0], &seen.streams[1]);
    assert_eq!(
        (call.ordinal, call.kind, call.method.as_deref()),
        (1, "call", Some("tools/call"))
    );
    assert_eq!((call.attached, call.sealed, call.gap), (true, false, false));
    assert_eq!((call.first, call.last, call.cursor), (Some(0), Some(1), Some(1)));
    assert!(call.bytes > 0);
    assert_eq!(
        (pushed.kind, pushed.method.as_deref(), pushed.attached),
        ("push", None, true)
    );
    drop((events, push)); // without a reader the handler does not wait
    for n in 2..=50 {
        script.progress(n).await;
    }
    let seen = only();
    let call = &seen.streams[0];
    assert_eq!((call.attached, call.cursor, call.last), (false, None, Some(50)));
    assert_eq!(call.first, Some(41), "older events are evicted");
    assert!(
        seen.streams[1..].iter().all(|stream| !stream.attached),
        "{:?}",
        seen.streams
    );
    let resumed = session.get(Some("1-5")).await;
    assert!(only().streams[0].gap, "the reader has missed events");
    drop(resumed);
    script.finish("done").await;
    assert_eq!(only().calls, 0);
}

/// A store of several nodes does not answer at once.
#[tokio::test]
async fn ops_09_streams_show_their_retention_with_redis() {
    let Some(redis) = RedisServer::start() else { return };
    let retention = Retention::default().with_events(10);
    let options = RedisOptions::parse(&redis.url()).unwrap().with_retention(retention);
    let cluster = RedisCluster::connect(options).await.unwrap();
    let store = cluster.store("snapshot").await.unwrap();
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|builder| builder.store(store));
    service.join().await;
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    drop(reply); // without a reader the handler does not wait
    for n in 2..=50 {
        script.progress(n).await;
    }
    let mut page = service.snapshot(&Query::default());
    while page.sessions[0].streams[0].last != Some(50) {
        tokio::time::sleep(Duration::from_millis(5)).await; // the store has not answered yet
        page = service.snapshot(&Query::default());
    }
    assert_eq!(page.sessions[0].streams[0].first, None, "a snapshot does not wait");
    service.read_stored(&mut page.sessions).await;
    let call = &page.sessions[0].streams[0];
    // A batch is evicted as a whole, and the machine decides about batches.
    assert!(call.first.is_some_and(|first| (2..=41).contains(&first)), "{call:?}");
    assert!(!call.gap, "nobody has missed anything yet");
    let resumed = session.get(Some("1-0")).await;
    let mut page = service.snapshot(&Query::default());
    service.read_stored(&mut page.sessions).await;
    assert!(page.sessions[0].streams[0].gap, "the reader has missed events");
    drop(resumed);
    script.finish("done").await;
}

#[tokio::test]
async fn ops_10_changes_report_what_is_new_since_the_last_look() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let mut cursor = ChangeCursor::default();
    let session = as_principal(&client, "ada").open(V2025_11_25).await;
    let first = service.changes(&mut cursor);
    assert_eq!((first.opened.len(), first.changed.len(), first.ended.len()), (1, 0, 0));
    let quiet = service.changes(&mut cursor);
    assert_eq!((quiet.opened.len(), quiet.changed.len(), quiet.ended.len()), (0, 0, 0));
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let busy = service.changes(&mut cursor);
    assert_eq!((busy.opened.len(), busy.changed.len()), (0, 1));
    assert_eq!(busy.changed[0].calls, 1);
    script.progress(2).await;
    assert_eq!(service.changes(&mut cursor).changed.len(), 1, "an event was appended");
    drop(reply);
    session.delete().await;
    let ended = service.changes(&mut cursor).ended;
    let brief = as_principal(&client, "bob").open(V2025_11_25).await;
    brief.delete().await;
    let looked = service.changes(&mut cursor);
    assert_eq!((looked.opened.len(), looked.ended.len()), (0, 0));
    assert_eq!(looked.brief.len(), 1, "it lived between two looks");
    assert!(service.changes(&mut cursor).brief.is_empty(), "reported once");
    let (tag, owner) = &ended[0];
    assert_eq!((ended.len(), *tag), (1, first.opened[0].tag));
    assert_eq!(owner.as_ref().map(rethread::Principal::subject), Some("ada"));
}

#[tokio::test]
async fn ops_11_session_is_ended_by_its_tag() {
    let (service, client) = ScriptedHandler::new().serve();
    let session = client.open(V2025_11_25).await;
    let tag = service.snapshot(&Query::default()).sessions[0].tag;
    assert!(service.end_session(tag).await);
    assert!(!service.end_session(tag).await, "it has ended");
    assert!(service.snapshot(&Query::default()).sessions.is_empty());
    assert_eq!(session.call(1, "ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn ops_15_snapshot_has_no_session_id_argument_or_result() {
    const SECRET: &str = "hunter2-secret";
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve();
    let session = client.open(V2025_11_25).await;
    let script = handler.script("a");
    let arguments = json!({ "password": SECRET });
    let (reply, ()) = tokio::join!(session.tool(SECRET, "a", arguments), script.progress(1));
    let text = serde_json::to_string(&service.snapshot(&Query::default())).unwrap();
    assert!(text.contains("tools/call"), "{text}");
    assert!(!text.contains(SECRET) && !text.contains(&session.id), "{text}");
    drop(reply);
}

/// OPS-10: a look at quiet sessions builds nothing. The bound is far above the measured time, which is printed.
#[tokio::test]
async fn ops_10_look_at_many_quiet_sessions_is_cheap() {
    const SESSIONS: u32 = 2000;
    let (service, client) = ScriptedHandler::new().serve();
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(client.open(V2025_11_25).await);
    }
    let mut cursor = ChangeCursor::default();
    assert_eq!(service.changes(&mut cursor).opened.len(), SESSIONS as usize);
    let started = std::time::Instant::now();
    let quiet = service.changes(&mut cursor);
    let look = started.elapsed() / SESSIONS;
    assert!(quiet.opened.is_empty() && quiet.changed.is_empty() && quiet.ended.is_empty());
    let started = std::time::Instant::now();
    let page = service.snapshot(&query(|query| query.limit = 1000));
    let listed = started.elapsed() / SESSIONS;
    println!("for each session: a look {look:?}, a page of 1000 {listed:?}");
    assert_eq!(page.sessions.len(), 1000);
    assert!(look < Duration::from_micros(500), "{look:?}");
}
