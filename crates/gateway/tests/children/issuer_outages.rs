//! An issuer that is slow, down for long, or was never up (AUTH-13, AUTH-19, AUTH-24), for every way of calling.

use crate::answer_table::{
    call_in_every_way, challenge, claims, open_both, outcomes, server, start, start_with_failures,
};
use crate::auth::{ADA, write_tokens};
use crate::client::{Client, LATEST};
use crate::gateway::{Gateway, GatewayBuilder, wait_until};
use crate::monitoring::monitor;
use rethread_testkit::issuer::{Issuer, IssuerMode, SigningKey};
use serde_json::json;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// A gateway with a tokens file beside the issuer, and a monitor.
fn start_with_static_token(issuer: &Issuer, provider: &str) -> Gateway {
    let builder = GatewayBuilder::new().option("--metrics 127.0.0.1:0 --tokens tokens.toml");
    write_tokens(&builder, &[("ada", &[ADA], "mcp")]);
    start(builder, issuer, provider)
}

/// Every way is refused with 503, `Retry-After` and no challenge, and counted as `unavailable`.
async fn assert_unavailable(gateway: &Gateway, caller: &Client, session: &str, messages: &str) {
    let mut counted = outcomes(gateway).await;
    let replies = call_in_every_way(caller, session, messages).await;
    *counted.entry("unavailable".to_owned()).or_default() += replies.len();
    for (way, reply) in replies {
        assert_eq!(
            (reply.status.as_u16(), challenge(&reply)),
            (503, None),
            "{way}: never 401"
        );
        assert!(reply.headers.contains_key("retry-after"), "{way}");
    }
    assert_eq!(outcomes(gateway).await, counted);
}

/// The row "keys were never loaded".
#[tokio::test]
async fn auth_19_without_keys_jwts_wait_and_static_tokens_work() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    issuer.set_mode(IssuerMode::Down);
    let gateway = start_with_static_token(&issuer, "");
    let client = server(&gateway);
    let (session, messages, _sse) = open_both(&client.with_token(ADA)).await;
    let jwt = client.with_token(&key.token(&claims(&issuer, json!({}))));
    assert_unavailable(&gateway, &jwt, &session, &messages).await;
    for (way, reply) in call_in_every_way(&client.with_token(ADA), &session, &messages).await {
        let status = reply.status.as_u16();
        assert!(
            matches!(status, 200 | 202 | 204 | 400) && (status != 400 || way == "resume"),
            "{way}: {status}"
        );
    }
    let ready = monitor(&gateway).await.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.text().await.as_str()), (503, "keys\n"));
}

/// The row "issuer down": loaded keys stay valid for `max_stale`, and no longer, also for a token that was verified before.
#[tokio::test]
async fn auth_19_loaded_keys_end_with_max_stale() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let gateway = start_with_static_token(&issuer, "refresh = '1s'\nmax_stale = '4s'");
    let client = server(&gateway);
    let verified = client.with_token(&key.token(&claims(&issuer, json!({}))));
    let (session, messages, _sse) = open_both(&verified).await;
    issuer.set_mode(IssuerMode::Down);
    let down = Instant::now();
    let fresh = client.with_token(&key.token(&claims(&issuer, json!({ "jti": "2" }))));
    let reply = fresh.initialize(LATEST).await;
    assert!(reply.status == 200 || down.elapsed() > 3 * SECOND, "loaded keys stay");
    tokio::time::sleep((6 * SECOND).saturating_sub(down.elapsed())).await;
    assert_unavailable(&gateway, &verified, &session, &messages).await;
    assert_eq!(client.with_token(ADA).initialize(LATEST).await.status, 200);
    issuer.set_mode(IssuerMode::Working);
    let fetches = issuer.fetches();
    assert!(wait_until(60 * SECOND, || issuer.fetches() > fetches).await);
    let mut status = 0;
    for _ in 0..50 {
        status = verified.initialize(LATEST).await.status.as_u16();
        if status == 200 {
            break;
        }
        tokio::time::sleep(SECOND / 5).await;
    }
    assert_eq!(status, 200, "the issuer is back");
}

/// The row "issuer slow": it delays nobody whose `kid` is known.
#[tokio::test]
async fn auth_13_slow_issuer_delays_nobody_whose_key_is_known() {
    const PAUSE: Duration = Duration::from_secs(4); // a fetch may take 5 s
    let issuer = Issuer::start().await;
    let (key, next) = (SigningKey::es256("a"), SigningKey::es256("next"));
    issuer.publish(&[&key]);
    let gateway = start(GatewayBuilder::new(), &issuer, "refresh = '1h'");
    let client = server(&gateway);
    let first = client.with_token(&key.token(&claims(&issuer, json!({}))));
    let (session, messages, _sse) = open_both(&first).await;
    issuer.publish(&[&key, &next]);
    issuer.set_mode(IssuerMode::Slow(PAUSE));
    let fetches = issuer.fetches();
    let started = Instant::now();
    let waiting = tokio::spawn({
        let caller = client.with_token(&next.token(&claims(&issuer, json!({}))));
        async move { caller.initialize(LATEST).await.status.as_u16() }
    });
    assert!(
        wait_until(PAUSE, || issuer.fetches() > fetches).await,
        "the fetch has begun"
    );
    let known = client.with_token(&key.token(&claims(&issuer, json!({ "jti": "2" }))));
    for (way, reply) in call_in_every_way(&known, &session, &messages).await {
        assert_ne!(reply.status.as_u16() / 100, 5, "{way}");
    }
    assert!(started.elapsed() < PAUSE, "nobody has waited: {:?}", started.elapsed());
    assert!(!waiting.is_finished());
    assert_eq!(waiting.await.unwrap(), 200, "the new key came");
}

/// The row "too many bad tokens from one peer": 429 for further unknown tokens, and nobody else.
#[tokio::test]
async fn auth_24_slowed_peer_gets_429_in_every_way() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let builder = GatewayBuilder::new().option("--metrics 127.0.0.1:0 --tokens tokens.toml");
    write_tokens(&builder, &[("ada", &[ADA], "mcp")]);
    let gateway = start_with_failures(builder, "5/1h", &issuer, "");
    let client = server(&gateway);
    let verified = client.with_token(&key.token(&claims(&issuer, json!({}))));
    let (session, messages, _sse) = open_both(&verified).await;
    for n in 0..5 {
        let bad = client.with_token(&format!("bad-{n}")).initialize(LATEST).await;
        assert_eq!(bad.status, 401);
    }
    let mut counted = outcomes(&gateway).await;
    // A good JWT that was not verified before is slowed too: verifying it is the work that the bucket bounds.
    let fresh = key.token(&claims(&issuer, json!({ "jti": "2" })));
    for token in ["bad", fresh.as_str()] {
        let replies = call_in_every_way(&client.with_token(token), &session, &messages).await;
        *counted.entry("slowed".to_owned()).or_default() += replies.len();
        for (way, reply) in replies {
            assert_eq!((reply.status.as_u16(), challenge(&reply)), (429, None), "{way}");
            assert!(reply.headers.contains_key("retry-after"), "{way}");
        }
    }
    assert_eq!(outcomes(&gateway).await, counted);
    for good in [&client.with_token(ADA), &verified] {
        assert_eq!(
            good.initialize(LATEST).await.status,
            200,
            "static and verified tokens pass"
        );
        let stateless = good.stateless(json!(1), "tools/list", json!({}), &[]).await;
        assert_eq!(stateless.status, 200);
    }
}
