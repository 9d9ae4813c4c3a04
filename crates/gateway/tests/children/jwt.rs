//! Callers with JWTs of a real issuer: keys that rotate, and an issuer that is slow, down or wrong.

use crate::client::{Client, HttpReply, LATEST};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command};
use rethread_testkit::issuer::{Issuer, IssuerMode, SigningKey, encode, now_seconds};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PUBLIC: &str = "https://mcp.example";
const FILES: &str = "https://mcp.example/servers/files/mcp";

/// A gateway with the servers `files` and `mail`, whose callers come from `issuer`.
fn start(issuer: &Issuer, provider: &str) -> Gateway {
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    let command = serde_json::to_string(&fake_child_command("legacy", builder.marker())).unwrap();
    let text = format!(
        "memory = true\npublic_url = '{PUBLIC}'\n[auth]\nscopes = ['mcp']\n\
         implies = {{ admin = ['mcp', 'files'] }}\n[auth.jwt.corp]\nissuer = '{}'\n{provider}\n\
         [servers.files]\ncommand = {command}\nscopes = ['files']\n[servers.mail]\ncommand = {command}\n",
        issuer.url()
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    builder.start_on_public_url()
}

fn server(gateway: &Gateway, name: &str) -> Client {
    Client::new(gateway.addr, &format!("/servers/{name}"))
}

fn claims(issuer: &Issuer, changes: Value) -> Value {
    let mut claims = issuer.claims("ada", FILES);
    claims["scope"] = json!("mcp files");
    claims
        .as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn challenge(reply: &HttpReply) -> Option<String> {
    let value = reply.headers.get("www-authenticate");
    value.map(|value| value.to_str().unwrap().to_owned())
}

async fn status(client: &Client, token: &str) -> u16 {
    client.with_token(token).initialize(LATEST).await.status.as_u16()
}

/// SEC-04.
#[tokio::test]
async fn auth_02_challenge_leads_to_the_metadata_of_its_endpoint() {
    let issuer = Issuer::start_at("/realms/corp").await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let gateway = start(&issuer, "");
    let root = Client::new(gateway.addr, "");
    for (name, endpoint, scopes) in [("files", "mcp", "mcp files"), ("mail", "sse", "mcp")] {
        let accept = [("accept", "text/event-stream")];
        let path = format!("/servers/{name}/{endpoint}");
        let refused = match endpoint {
            "sse" => root.send("GET", &path, &accept, b"").await,
            _ => server(&gateway, name).initialize(LATEST).await,
        };
        let document = format!("/.well-known/oauth-protected-resource{path}");
        let expected = format!(r#"Bearer scope="{scopes}", resource_metadata="{PUBLIC}{document}""#);
        assert_eq!((refused.status.as_u16(), challenge(&refused)), (401, Some(expected)));
        // Nothing that a client sends changes the URLs.
        let forged = [
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-proto", "http"),
            ("origin", "https://a.example"),
        ];
        let reply = root.send("GET", &document, &forged, b"").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        let body = reply.response().await;
        assert_eq!(body["resource"], format!("{PUBLIC}{path}"));
        assert_eq!(body["authorization_servers"], json!([issuer.url()]));
        assert_eq!(body["scopes_supported"], json!(scopes.split(' ').collect::<Vec<_>>()));
        assert_eq!(body["bearer_methods_supported"], json!(["header"]));
    }
    let bare = root.get("/.well-known/oauth-protected-resource").await;
    assert_eq!(bare.status, 404, "two servers");
    assert_eq!(
        status(&server(&gateway, "files"), &key.token(&claims(&issuer, json!({})))).await,
        200
    );
}

/// AUTH-07 to AUTH-12 over HTTP: the rows of the answer table.
#[tokio::test]
async fn auth_12_every_bad_token_is_refused_with_its_challenge() {
    let issuer = Issuer::start().await;
    let (key, other) = (SigningKey::es256("a"), SigningKey::es256("a"));
    issuer.publish(&[&key]);
    let gateway = start(&issuer, &format!("jwks_url = '{}'\ncooldown = '1h'", issuer.jwks_url()));
    let files = server(&gateway, "files");
    let good = claims(&issuer, json!({}));
    assert_eq!(status(&files, &key.token(&good)).await, 200);
    let trap = Issuer::start().await;
    let elsewhere = json!({ "jku": trap.jwks_url(), "x5u": trap.jwks_url(), "jwk": other.jwk() });
    let now = now_seconds();
    for (name, token) in [
        ("signature", other.token(&good)),
        ("elsewhere", other.token_with(elsewhere, &good)),
        (
            "none",
            format!("{}.{}.", encode(&json!({ "alg": "none" })), encode(&good)),
        ),
        ("hmac", key.token_with(json!({ "alg": "HS256" }), &good)),
        ("crit", key.token_with(json!({ "crit": ["x"] }), &good)),
        ("kid", key.token_with(json!({ "kid": trap.jwks_url() }), &good)),
        ("expired", key.token(&claims(&issuer, json!({ "exp": now - 31 })))),
        ("no exp", key.token(&claims(&issuer, json!({ "exp": null })))),
        ("early", key.token(&claims(&issuer, json!({ "nbf": now + 60 })))),
        (
            "audience",
            key.token(&claims(&issuer, json!({ "aud": format!("{PUBLIC}/servers/mail/mcp") }))),
        ),
        ("no audience", key.token(&claims(&issuer, json!({ "aud": null })))),
        ("issuer", key.token(&claims(&issuer, json!({ "iss": trap.url() })))),
        ("subject", key.token(&claims(&issuer, json!({ "sub": "" })))),
        ("not a JWT", "abc".to_owned()),
    ] {
        let reply = files.with_token(&token).initialize(LATEST).await;
        let expected = format!(
            r#"Bearer error="invalid_token", scope="mcp files", resource_metadata="{PUBLIC}/.well-known/oauth-protected-resource/servers/files/mcp""#
        );
        assert_eq!(
            (reply.status.as_u16(), challenge(&reply)),
            (401, Some(expected)),
            "{name}"
        );
        assert!(
            !reply.text().await.contains(&token[..3.min(token.len())]) || token == "abc",
            "{name}"
        );
    }
    assert_eq!(
        (trap.fetches(), trap.other_requests()),
        (0, 0),
        "nothing is fetched because of a token"
    );
    // AUTH-14, AUTH-16
    let poor = files
        .with_token(&key.token(&claims(&issuer, json!({ "scope": "mcp" }))))
        .initialize(LATEST)
        .await;
    assert_eq!(poor.status, 403);
    assert!(
        challenge(&poor)
            .unwrap()
            .starts_with(r#"Bearer error="insufficient_scope", scope="mcp files", "#)
    );
    let broad = claims(&issuer, json!({ "scope": null, "scp": ["admin"] }));
    assert_eq!(status(&files, &key.token(&broad)).await, 200);
    let log = gateway.log();
    assert!(!log.contains(&key.token(&good)[..40]), "{log}");
}

/// AUTH-09: a token that one server has accepted does not pass at another.
#[tokio::test]
async fn auth_09_verified_token_is_checked_again_at_every_server() {
    let issuer = Issuer::start().await;
    let key = SigningKey::ed25519("a");
    issuer.publish(&[&key]);
    let gateway = start(&issuer, "");
    let token = key.token(&claims(&issuer, json!({})));
    for _ in 0..2 {
        assert_eq!(status(&server(&gateway, "files"), &token).await, 200);
        assert_eq!(status(&server(&gateway, "mail"), &token).await, 401);
    }
    let sse = json!({ "aud": ["x", format!("{PUBLIC}/servers/files/sse/")] });
    let sse = key.token(&claims(&issuer, sse));
    assert_eq!(
        status(&server(&gateway, "files"), &sse).await,
        200,
        "/mcp and /sse accept the same tokens"
    );
}

#[tokio::test]
async fn auth_13_rotation_needs_one_fetch_for_all_callers() {
    let issuer = Issuer::start().await;
    let (old, new) = (SigningKey::es256("old"), SigningKey::es256("new"));
    issuer.publish(&[&old]);
    let gateway = start(
        &issuer,
        &format!("jwks_url = '{}'\ncooldown = '1h'\nrefresh = '1h'", issuer.jwks_url()),
    );
    let files = server(&gateway, "files");
    let token = old.token(&claims(&issuer, json!({})));
    assert_eq!(status(&files, &token).await, 200);
    assert_eq!(issuer.fetches(), 1);

    issuer.publish(&[&new]);
    issuer.set_mode(IssuerMode::Slow(Duration::from_millis(500)));
    let next = new.token(&claims(&issuer, json!({})));
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let (files, next) = (files.clone(), next.clone());
            tokio::spawn(async move { status(&files, &next).await })
        })
        .collect();
    // A caller whose key is known does not wait for the issuer.
    let started = Instant::now();
    let known = old.token(&claims(&issuer, json!({ "jti": "1" })));
    let known = status(&files, &known).await;
    assert!(
        known == 200 || started.elapsed() > Duration::from_millis(400),
        "{known}"
    );
    for caller in callers {
        assert_eq!(caller.await.unwrap(), 200);
    }
    assert_eq!(issuer.fetches(), 2, "one fetch for all");
    assert_eq!(
        status(&files, &token).await,
        401,
        "the old key is no longer published, also for a verified token"
    );
    for n in 0..30 {
        let unknown = SigningKey::es256(&format!("unknown-{n}"));
        assert_eq!(status(&files, &unknown.token(&claims(&issuer, json!({})))).await, 401);
    }
    assert_eq!(issuer.fetches(), 2, "within the cooldown");
}

#[tokio::test]
async fn auth_19_issuer_that_is_down_is_503_and_loaded_keys_stay() {
    let issuer = Issuer::start().await;
    let key = SigningKey::rsa("a");
    issuer.publish(&[&key]);
    issuer.set_mode(IssuerMode::Down);
    let gateway = start(
        &issuer,
        &format!("jwks_url = '{}'\ncooldown = '200ms'", issuer.jwks_url()),
    );
    let (files, root) = (server(&gateway, "files"), Client::new(gateway.addr, ""));
    let token = key.token(&claims(&issuer, json!({})));
    let reply = files.with_token(&token).initialize(LATEST).await;
    assert_eq!((reply.status.as_u16(), challenge(&reply)), (503, None), "never 401");
    assert!(reply.headers.contains_key("retry-after"));
    let ready = root.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.text().await.as_str()), (503, "keys\n"));

    issuer.set_mode(IssuerMode::Working);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(status(&files, &token).await, 200);
    assert_eq!(root.get("/readyz").await.status, 200);
    let trap = Issuer::start().await;
    trap.publish(&[&SigningKey::es256("b")]);
    for mode in [
        IssuerMode::Down,
        IssuerMode::Answer(500, Vec::new()),
        IssuerMode::Answer(200, b"<html>".to_vec()),
        IssuerMode::Answer(200, vec![b' '; 600 * 1024]),
        IssuerMode::Redirect(trap.jwks_url()),
    ] {
        issuer.set_mode(mode.clone());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let unknown = SigningKey::es256("b").token(&claims(&issuer, json!({})));
        let reply = files.with_token(&unknown).initialize(LATEST).await;
        assert_eq!(
            (reply.status.as_u16(), challenge(&reply)),
            (503, None),
            "{:?}",
            std::mem::discriminant(&mode)
        );
        let fresh = key.token(&claims(&issuer, json!({ "jti": format!("{:?}", Instant::now()) })));
        assert_eq!(status(&files, &fresh).await, 200, "loaded keys stay");
    }
    assert_eq!(trap.fetches(), 0, "redirects are not followed");
}

#[tokio::test]
async fn auth_24_peer_with_many_bad_tokens_is_slowed() {
    let issuer = Issuer::start().await;
    let key = SigningKey::ed25519("a");
    issuer.publish(&[&key]);
    let gateway = start(
        &issuer,
        "[auth.jwt.other]\nissuer = 'https://other.example'\njwks_file = 'missing.json'",
    );
    let files = server(&gateway, "files");
    let verified = key.token(&claims(&issuer, json!({})));
    assert_eq!(status(&files, &verified).await, 200);
    let mut statuses = Vec::new();
    for n in 0..80 {
        statuses.push(status(&files, &format!("bad-{n}")).await);
    }
    assert_eq!(statuses[..60], [401; 60]);
    let reply = files.with_token("bad").initialize(LATEST).await;
    assert_eq!((reply.status.as_u16(), challenge(&reply)), (429, None), "{statuses:?}");
    assert!(reply.headers.contains_key("retry-after"));
    assert_eq!(status(&files, &verified).await, 200, "a verified token passes");
}

/// AUTH-20: equal subjects of two providers are two principals.
#[tokio::test]
async fn auth_20_refreshed_token_continues_and_another_issuer_does_not() {
    let (issuer, second) = (Issuer::start().await, Issuer::start().await);
    let (key, key_of_second) = (SigningKey::es256("a"), SigningKey::es256("a"));
    issuer.publish(&[&key]);
    second.publish(&[&key_of_second]);
    let gateway = start(&issuer, &format!("[auth.jwt.second]\nissuer = '{}'", second.url()));
    let files = server(&gateway, "files");
    let session = files
        .with_token(&key.token(&claims(&issuer, json!({}))))
        .open_session(LATEST)
        .await;
    let refreshed = key.token(&claims(&issuer, json!({ "jti": "2" })));
    let refreshed = session.with_client(&files.with_token(&refreshed));
    assert_eq!(refreshed.call(1, "ping", json!({})).await.status, 200);
    let ada = key_of_second.token(&claims(&second, json!({})));
    assert_eq!(status(&files, &ada).await, 200);
    let ada = session.with_client(&files.with_token(&ada));
    assert_eq!(ada.call(1, "ping", json!({})).await.status, 404);
    // AUTH-10: the key of one issuer on a token that names the other.
    let forged = key_of_second.token(&claims(&issuer, json!({})));
    assert_eq!(status(&files, &forged).await, 401);
}

/// AUTH-09, AUTH-10: tokens as Keycloak and Auth0 issue them, with the configuration of the guide.
#[tokio::test]
async fn auth_10_tokens_of_keycloak_and_auth0_are_accepted() {
    let (keycloak, auth0) = (Issuer::start_at("/realms/corp").await, Issuer::start_at("/").await);
    let (realm_key, tenant_key) = (SigningKey::rsa("realm"), SigningKey::rsa("tenant"));
    keycloak.publish(&[&realm_key]);
    auth0.publish(&[&tenant_key]);
    let partners = format!(
        "[auth.jwt.partners]\nissuer = '{}'\naudience = ['{PUBLIC}']",
        auth0.url()
    );
    let gateway = start(&keycloak, &partners);
    let files = server(&gateway, "files");
    let of_realm = json!({ "aud": [FILES, "account"], "azp": "client", "typ": "Bearer", "scope": "openid mcp files",
        "sub": "3f2a6c1e-0000-4000-8000-000000000000", "realm_access": { "roles": ["offline_access"] } });
    let of_realm = realm_key.token_with(json!({ "typ": "JWT" }), &claims(&keycloak, of_realm));
    assert_eq!(status(&files, &of_realm).await, 200);
    let of_tenant = |changes: Value| {
        let mut all = json!({ "aud": [PUBLIC, "https://partners.example/userinfo"], "azp": "client", "sub": "auth0|5f7c",
            "scope": "openid mcp files", "permissions": ["mcp"] });
        all.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        tenant_key.token_with(json!({ "typ": "at+jwt" }), &claims(&auth0, all))
    };
    assert!(auth0.url().ends_with('/'));
    assert_eq!(status(&files, &of_tenant(json!({}))).await, 200);
    // The final slash counts, an opaque token is not known, and an API of somebody else is another audience.
    let without_slash = auth0.url().trim_end_matches('/');
    assert_eq!(status(&files, &of_tenant(json!({ "iss": without_slash }))).await, 401);
    assert_eq!(
        status(&files, &of_tenant(json!({ "aud": "https://other.example" }))).await,
        401
    );
    assert_eq!(status(&files, "opaque-0123456789").await, 401);
    assert_eq!(
        status(&files, &of_tenant(json!({ "aud": FILES }))).await,
        401,
        "`audience` replaces the URLs of the server"
    );
}
