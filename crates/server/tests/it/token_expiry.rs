//! AUTH-21: connections end with the token of their caller. Calls go on, and their answers wait.

use crate::http_sse::HttpSseClient;
use crate::support::{ScriptedHandler, V2025_06_18, V2025_11_25, result_text};
use http::request::Parts;
use rethread::auth::{AuthOutcome, AuthRefusal, Challenge};
use rethread::{Authenticate, Authentication, Caller, Principal, Wall};
use rethread_testkit::client::{Client, Session};
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The token of every request is the time of its end, or `never`.
struct TimedTokens;

impl Authenticate for TimedTokens {
    fn caller(&self, head: &Parts) -> Authentication {
        let token = head.headers["authorization"].to_str().unwrap();
        let expires = token.parse().ok().map(Wall::from_millis);
        if expires.is_some_and(|expires| expires <= now()) {
            let refusal = AuthRefusal::challenge(AuthOutcome::Expired, "timed", Challenge::default());
            return Authentication::Done(Err(refusal));
        }
        let caller = Caller::new(Principal::new("test", "ada"), "timed");
        Authentication::Done(Ok(caller.with_expiry(expires)))
    }
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Wall::from_millis(since.as_millis() as u64)
}

fn with_token(client: &Client, token: &str) -> Client {
    let value = token.parse::<http::HeaderValue>().unwrap();
    client.with_request_hook(move |request| {
        request.headers_mut().insert("authorization", value.clone());
    })
}

/// A token that ends soon.
fn short() -> String {
    (now() + Duration::from_millis(700)).as_millis().to_string()
}

async fn open(client: &Client, version: &str) -> (Session, Session) {
    let session = with_token(client, &short()).open(version).await;
    let refreshed = session.with_client(&with_token(client, "never"));
    (session, refreshed)
}

#[tokio::test]
async fn auth_21_connections_close_after_retry_and_no_answer_is_lost() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|builder| builder.authenticate(TimedTokens));
    let (session, refreshed) = open(&client, V2025_11_25).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    let (mut push, mut call) = (session.get(None).await.events(), reply.events());
    for events in [&mut push, &mut call] {
        let mut last_retry = None;
        while let Some(block) = events.block().await {
            last_retry = block.retry.or(last_retry.filter(|_| block.data.is_none()));
        }
        assert!(last_retry.is_some(), "a `retry:` is in front of the end");
    }
    assert_eq!(service.stats().running_calls, 1, "the call goes on");
    let cursor = call.cursor().to_owned();
    script.finish("done").await;
    assert_eq!(session.get(Some(&cursor)).await.status, 401, "the old token");
    let rest = refreshed.resume(&cursor).await.rest().await;
    assert_eq!(result_text(&rest.last().unwrap().data), "done");
    // A better token keeps the next connection open.
    assert!(
        refreshed
            .get(None)
            .await
            .events()
            .is_silent_for(Duration::from_secs(2))
            .await
    );
}

#[tokio::test]
async fn auth_21_latest_expiry_counts_and_old_call_streams_finish() {
    let handler = ScriptedHandler::new();
    let (_, client) = handler.serve_with(|builder| builder.authenticate(TimedTokens));
    let (session, refreshed) = open(&client, V2025_11_25).await;
    let mut push = session.get(None).await.events();
    assert_eq!(refreshed.call(1, "ping", json!({})).await.status, 200);
    assert!(
        push.is_silent_for(Duration::from_secs(2)).await,
        "a refreshed token keeps the connection"
    );

    // SSE-09: a call stream of 2025-06-18 cannot be closed early.
    let (session, _) = open(&client, V2025_06_18).await;
    let script = handler.script("a");
    let (reply, ()) = tokio::join!(session.tool(1, "a", json!({})), script.progress(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    script.finish("done").await;
    let messages = reply.events().rest().await;
    assert_eq!(result_text(&messages.last().unwrap().data), "done");
}

#[tokio::test]
async fn auth_21_sse_connections_and_subscriptions_end() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|builder| builder.authenticate(TimedTokens));
    let sse = with_token(&Client::new(service.http_sse("/messages")), &short());
    let mut opened = HttpSseClient::open(&sse).await;
    while opened.events.block().await.is_some() {}

    let params = json!({ "notifications": { "toolsListChanged": true } });
    let listen = with_token(&client, &short())
        .stateless(7, "subscriptions/listen", params, json!({}))
        .await;
    let messages = listen.events().rest().await;
    let last = &messages.last().unwrap().data;
    assert_eq!(
        (&last["id"], &last["error"]),
        (&json!(7), &json!(null)),
        "it ends with its result"
    );
}

/// AUTH-18: a token that was removed counts as expired at once.
#[tokio::test]
async fn auth_18_revoked_principal_loses_its_connections_and_keeps_its_sessions() {
    let handler = ScriptedHandler::new();
    let (service, client) = handler.serve_with(|builder| builder.authenticate(TimedTokens));
    let session = with_token(&client, "never").open(V2025_11_25).await;
    let mut push = session.get(None).await.events();
    service.revoke(&Principal::new("test", "somebody else"));
    assert!(push.is_silent_for(Duration::from_secs(2)).await);
    service.revoke(&Principal::new("test", "ada"));
    while push.block().await.is_some() {}
    assert_eq!(
        session.call(1, "ping", json!({})).await.status,
        200,
        "another token continues the session"
    );
}
