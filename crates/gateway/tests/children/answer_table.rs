//! The table of answers to credentials, for every way of calling: both eras, GET, DELETE, batches, `/sse`,
//! `/messages`; and the attacks on it.

use crate::answer_rows::{InvalidToken, InvalidTokens};
use crate::client::{Client, HttpReply, LATEST};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, wait_until};
use crate::monitoring::monitor;
use rethread_testkit::certificates::Authority;
use rethread_testkit::issuer::{Issuer, IssuerMode, SigningKey, now_seconds};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const PUBLIC: &str = "https://mcp.example";
const RESOURCE: &str = "https://mcp.example/servers/only/mcp";
const SECOND: Duration = Duration::from_secs(1);

/// A gateway with one server of both eras. `provider` continues `[auth.jwt.corp]`.
pub(crate) fn start(builder: GatewayBuilder, issuer: &Issuer, provider: &str) -> Gateway {
    start_with_failures(builder, "100000/1m", issuer, provider)
}

/// The same with a rate of bad tokens.
pub(crate) fn start_with_failures(builder: GatewayBuilder, failures: &str, issuer: &Issuer, provider: &str) -> Gateway {
    let builder = builder.option("--config rethread.toml");
    let command = serde_json::to_string(&fake_child_command("dual", builder.marker())).unwrap();
    let text = format!(
        "memory = true\npublic_url = '{PUBLIC}'\n[auth]\nscopes = ['mcp']\nfailures = '{failures}'\n\
         [auth.jwt.corp]\nissuer = '{}'\ncooldown = '1h'\n{provider}\n\
         [servers.only]\ncommand = {command}\ntool_scopes = {{ counter = ['count'] }}\n",
        issuer.url()
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    builder.start_on_public_url()
}

pub(crate) fn server(gateway: &Gateway) -> Client {
    Client::new(gateway.addr, "/servers/only")
}

pub(crate) fn claims(issuer: &Issuer, changes: Value) -> Value {
    let mut claims = issuer.claims("ada", RESOURCE);
    claims["scope"] = json!("mcp");
    let fields = claims.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    claims
}

pub(crate) fn challenge(reply: &HttpReply) -> Option<String> {
    let mut values = reply.headers.get_all("www-authenticate").iter();
    let first = values.next().map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(values.next(), None, "one challenge");
    first
}

/// Every way of calling the server `only`. `session` and `messages` are of a caller whose token is good.
pub(crate) async fn call_in_every_way(
    client: &Client,
    session: &str,
    messages: &str,
) -> Vec<(&'static str, HttpReply)> {
    let accept = ("accept", "application/json, text/event-stream");
    let json_type = ("content-type", "application/json");
    let in_session = [
        accept,
        json_type,
        ("mcp-session-id", session),
        ("mcp-protocol-version", "2025-03-26"),
    ];
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let batch = format!("[{ping},{ping}]");
    let stream = [("accept", "text/event-stream")];
    let resume = [&in_session[..], &[("last-event-id", "1-0")]].concat();
    vec![
        ("initialize", client.initialize(LATEST).await),
        ("POST", client.send("POST", "/mcp", &in_session, ping.as_bytes()).await),
        (
            "batch",
            client.send("POST", "/mcp", &in_session, batch.as_bytes()).await,
        ),
        ("GET", client.send("GET", "/mcp", &in_session, b"").await),
        ("resume", client.send("GET", "/mcp", &resume, b"").await),
        (
            "stateless",
            client.stateless(json!(1), "tools/list", json!({}), &[]).await,
        ),
        ("sse", client.send("GET", "/sse", &stream, b"").await),
        (
            "messages",
            client.send("POST", messages, &[json_type], ping.as_bytes()).await,
        ),
        ("DELETE", client.send("DELETE", "/mcp", &in_session, b"").await),
    ]
}

/// A session of 2025-03-26 and an open `/sse` connection of Ada.
pub(crate) async fn open_both(client: &Client) -> (String, String, HttpReply) {
    let session = client.open_session("2025-03-26").await;
    let mut sse = client
        .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
        .await;
    let endpoint = sse.next().await.unwrap().as_str().unwrap().to_owned();
    let messages = endpoint.strip_prefix("/servers/only").unwrap().to_owned();
    (session.id, messages, sse)
}

/// AUTH-07 to AUTH-12: each row with `invalid_token`, for every way of calling.
#[tokio::test]
async fn auth_12_every_row_of_the_table_holds_for_every_way_of_calling() {
    let table = InvalidTokens::start().await;
    let gateway = start(
        GatewayBuilder::new().option("--metrics 127.0.0.1:0"),
        &table.issuer,
        &table.second_provider(),
    );
    let client = server(&gateway);
    let good = claims(&table.issuer, json!({}));
    let ada = client.with_token(&table.key.token(&good));
    let (session, messages, _sse) = open_both(&ada).await;
    let mut counted = outcomes(&gateway).await;
    for InvalidToken { row, outcome, token } in table.rows() {
        let replies = call_in_every_way(&client.with_token(&token), &session, &messages).await;
        *counted.entry(outcome.to_owned()).or_default() += replies.len();
        for (way, reply) in replies {
            let expected = format!(r#"Bearer error="invalid_token", scope="mcp", {}"#, metadata_of(way));
            let found = (reply.status.as_u16(), challenge(&reply));
            assert_eq!(found, (401, Some(expected)), "{row}, {way}");
            let body = reply.text().await;
            assert!(
                !token.split('.').any(|part| part.len() > 3 && body.contains(part)),
                "{row}: {body}"
            );
        }
        assert_eq!(outcomes(&gateway).await, counted, "{row} is counted as `{outcome}`");
    }
    assert_eq!(
        (table.trap.fetches(), table.trap.other_requests()),
        (0, 0),
        "nothing is fetched because of a token"
    );
    // A token of the same person is served in every way; the session is still Ada's.
    let refreshed = client.with_token(&table.key.token(&claims(&table.issuer, json!({ "jti": "2" }))));
    for (way, reply) in call_in_every_way(&refreshed, &session, &messages).await {
        let status = reply.status.as_u16();
        assert!(
            matches!(status, 200 | 202 | 204 | 400) && (status != 400 || way == "resume"),
            "{way}: {status}"
        );
    }
}

/// The parameter of a challenge that names the metadata of the called endpoint.
fn metadata_of(way: &str) -> String {
    let endpoint = if ["sse", "messages"].contains(&way) {
        "sse"
    } else {
        "mcp"
    };
    format!(r#"resource_metadata="{PUBLIC}/.well-known/oauth-protected-resource/servers/only/{endpoint}""#)
}

/// The requests of each outcome so far (`rethread_auth_total`), all providers together.
pub(crate) async fn outcomes(gateway: &Gateway) -> BTreeMap<String, usize> {
    let text = monitor(gateway).await.get("/metrics").await.text().await;
    let mut outcomes = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("rethread_auth_total{")) {
        let (_, outcome) = line.split_once("outcome=\"").unwrap();
        let (outcome, _) = outcome.split_once('"').unwrap();
        let count: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
        *outcomes.entry(outcome.to_owned()).or_default() += count;
    }
    outcomes
}

/// AUTH-01, AUTH-05, AUTH-06, AUTH-14, AUTH-17: the rows without an invalid token, for every way of calling.
#[tokio::test]
async fn auth_05_rows_of_the_header_hold_for_every_way_of_calling() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let builder = GatewayBuilder::new().option("--metrics 127.0.0.1:0");
    let command = serde_json::to_string(&fake_child_command("dual", builder.marker())).unwrap();
    let closed = format!("[servers.closed]\ncommand = {command}\nallow = ['corp:bob']");
    let gateway = start(builder, &issuer, &closed);
    let client = server(&gateway);
    let token = key.token(&claims(&issuer, json!({})));
    let bearer = format!("Bearer {token}");
    let ada = client.with_token(&token);
    let (session, messages, _sse) = open_both(&ada).await;
    let poor = key.token(&claims(&issuer, json!({ "scope": "other" })));
    let rows = [
        ("no header", client.clone(), 401, Some(""), "missing"),
        (
            "other scheme",
            client.with_authorization(&["Basic dXNlcjpwYXNz"]),
            401,
            Some(""),
            "missing",
        ),
        (
            "two headers",
            client.with_authorization(&[&bearer, &bearer]),
            400,
            Some("invalid_request"),
            "malformed",
        ),
        (
            "two words",
            client.with_token("a b"),
            400,
            Some("invalid_request"),
            "malformed",
        ),
        (
            "not a b64token",
            client.with_token("a,b"),
            400,
            Some("invalid_request"),
            "malformed",
        ),
        (
            "query",
            client.with_query("access_token=x"),
            400,
            Some("invalid_request"),
            "malformed",
        ),
        (
            "query beside a header",
            ada.with_query("access_token=x"),
            400,
            Some("invalid_request"),
            "malformed",
        ),
        (
            "scopes",
            client.with_token(&poor),
            403,
            Some("insufficient_scope"),
            "scope",
        ),
    ];
    let mut counted = outcomes(&gateway).await;
    for (row, caller, status, error, outcome) in rows {
        let replies = call_in_every_way(&caller, &session, &messages).await;
        *counted.entry(outcome.to_owned()).or_default() += replies.len();
        for (way, reply) in replies {
            let error = error.filter(|error| !error.is_empty());
            let error = error.map_or_else(String::new, |error| format!(r#"error="{error}", "#));
            let expected = format!(r#"Bearer {error}scope="mcp", {}"#, metadata_of(way));
            let found = (reply.status.as_u16(), challenge(&reply));
            assert_eq!(found, (status, Some(expected)), "{row}, {way}");
        }
        assert_eq!(outcomes(&gateway).await, counted, "{row} is counted as `{outcome}`");
    }
    // AUTH-17: no scope would help, so there is no challenge.
    let closed = json!({ "aud": format!("{PUBLIC}/servers/closed/mcp") });
    let closed = Client::new(gateway.addr, "/servers/closed").with_token(&key.token(&claims(&issuer, closed)));
    let replies = call_in_every_way(&closed, &session, &messages).await;
    *counted.entry("principal".to_owned()).or_default() += replies.len();
    for (way, reply) in replies {
        assert_eq!((reply.status.as_u16(), challenge(&reply)), (403, None), "allow, {way}");
    }
    assert_eq!(outcomes(&gateway).await, counted);
}

/// AUTH-04 to AUTH-06: the header and nothing else, whatever else a request carries.
#[tokio::test]
async fn auth_05_only_one_well_formed_header_counts() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let gateway = start(GatewayBuilder::new(), &issuer, "");
    let client = server(&gateway);
    let token = key.token(&claims(&issuer, json!({})));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let bearer = format!("Bearer {token}");
    let lower = format!("bEaReR {token}");
    let (two_spaces, tail, padded) = (
        format!("Bearer  {token}"),
        format!("Bearer {token} x"),
        format!("Bearer {token}="),
    );
    let in_query = format!("/mcp?access_token={token}");
    let basic = "Basic dXNlcjpwYXNz";
    type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);
    let table: [Row<'_>; 14] = [
        ("good", "/mcp", &[("authorization", &bearer)], 200),
        ("scheme", "/mcp", &[("authorization", &lower)], 200),
        ("other scheme", "/mcp", &[("authorization", basic)], 401),
        ("cookie", "/mcp", &[("cookie", &bearer)], 401),
        (
            "other header",
            "/mcp",
            &[("x-authorization", &bearer), ("x-access-token", &token)],
            401,
        ),
        ("proxy", "/mcp", &[("proxy-authorization", &bearer)], 401),
        (
            "twice",
            "/mcp",
            &[("authorization", &bearer), ("authorization", &bearer)],
            400,
        ),
        (
            "two schemes",
            "/mcp",
            &[("authorization", basic), ("authorization", &bearer)],
            400,
        ),
        ("empty", "/mcp", &[("authorization", "Bearer ")], 400),
        ("spaces", "/mcp", &[("authorization", &two_spaces)], 200),
        ("tail", "/mcp", &[("authorization", &tail)], 400),
        ("query", &in_query, &[], 400),
        ("query and header", &in_query, &[("authorization", &bearer)], 400),
        ("changed", "/mcp", &[("authorization", &padded)], 401),
    ];
    for (row, path, headers, status) in table {
        let mut all = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        all.extend_from_slice(headers);
        let reply = client.send("POST", path, &all, body.as_bytes()).await;
        assert_eq!(reply.status.as_u16(), status, "{row}");
        if status == 400 {
            let found = challenge(&reply).unwrap();
            assert!(
                found.starts_with("Bearer error=\"invalid_request\", "),
                "{row}: {found}"
            );
        }
    }
    // Host and origin come first, and the token is not examined.
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        for token in [&bearer, "Bearer x"] {
            let headers = [
                ("content-type", "application/json"),
                (name, value),
                ("authorization", token),
            ];
            let reply = client.send("POST", "/mcp", &headers, body.as_bytes()).await;
            assert_eq!((reply.status.as_u16(), challenge(&reply)), (403, None), "{name}");
        }
    }
    let preflight = [
        ("origin", "http://localhost:3000"),
        ("access-control-request-method", "POST"),
    ];
    let reply = client.send("OPTIONS", "/mcp", &preflight, b"").await;
    assert!(reply.status.is_success(), "{}", reply.status);
}

/// AUTH-15: scopes of tools are asked for in both eras and for a batch, and a later token is enough.
#[tokio::test]
async fn auth_15_step_up_in_both_eras_and_in_a_batch() {
    let issuer = Issuer::start().await;
    let key = SigningKey::ed25519("a");
    issuer.publish(&[&key]);
    let gateway = start(GatewayBuilder::new(), &issuer, "");
    let client = server(&gateway);
    let poor = client.with_token(&key.token(&claims(&issuer, json!({}))));
    let rich = client.with_token(&key.token(&claims(&issuer, json!({ "scope": "mcp count" }))));
    let (old, new) = (poor.open_session("2025-03-26").await, poor.open_session(LATEST).await);
    let call = |name: &str| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name } });
    let batch = json!([call("echo"), call("counter")]).to_string();
    let refused = [
        new.call(1, "tools/call", json!({ "name": "counter" })).await,
        old.raw("POST", &[], batch.as_bytes()).await,
        poor.stateless(json!(1), "tools/call", json!({ "name": "counter" }), &[])
            .await,
    ];
    for reply in refused {
        let found = challenge(&reply).unwrap();
        assert!(
            found.starts_with("Bearer error=\"insufficient_scope\", scope=\"mcp count\", "),
            "{found}"
        );
        assert_eq!(reply.status, 403);
    }
    assert!(new.call_tool(2, "echo", json!({})).await["result"].is_object());
    let stepped_up = new.with_client(&rich).call_tool(3, "counter", json!({})).await;
    assert_eq!(
        stepped_up["result"]["content"][0]["text"], "1",
        "no refused call has run: {stepped_up}"
    );
    let stateless = rich.call_tool(4, "counter", json!({})).await;
    assert!(stateless["result"].is_object(), "{stateless}");
}

/// AUTH-21: an expired token ends GET streams after `retry:` and `listen` with its result, in the era of each.
#[tokio::test]
async fn auth_21_streams_of_both_eras_end_with_their_token() {
    let issuer = Issuer::start().await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let builder = GatewayBuilder::new();
    let gateway = start(builder, &issuer, "");
    let client = server(&gateway);
    // The default leeway is 30 s, so this token ends in three seconds.
    let short = key.token(&claims(&issuer, json!({ "exp": now_seconds() - 27 })));
    let session = client.with_token(&short).open_session(LATEST).await;
    let mut get = session.listen().await;
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut listen = client
        .with_token(&short)
        .stateless(json!("sub"), "subscriptions/listen", filter, &[])
        .await;
    assert_eq!(
        listen.next().await.unwrap()["method"],
        "notifications/subscriptions/acknowledged"
    );
    let call = session
        .start_tool(1, "slow", json!({ "ms": 6000, "steps": 6, "text": "long" }))
        .await;
    assert_eq!(get.next().await, None, "the GET ends");
    let last = listen.messages().await.pop().unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!("sub"), &json!("complete")),
        "{last}"
    );
    assert_eq!(session.listen().await.status, 401, "the old token");
    let mut call = call;
    while call.next().await.is_some() {}
    let cursor = call.cursor();
    let refreshed = key.token(&claims(&issuer, json!({ "jti": "2" })));
    let refreshed = session.with_client(&client.with_token(&refreshed));
    let rest = refreshed.resume(&cursor).await.messages().await;
    assert_eq!(rest.last().unwrap()["id"], 1, "no response is lost: {rest:?}");
}

/// AUTH-19: keys over HTTPS. A certificate that nobody trusts is a failed fetch, never a 401.
#[tokio::test]
async fn auth_19_keys_are_fetched_over_https_with_a_trusted_certificate_only() {
    let authority = Authority::new();
    let issuer = Issuer::start_with_tls(&authority).await;
    let key = SigningKey::es256("a");
    issuer.publish(&[&key]);
    let token = key.token(&claims(&issuer, json!({})));
    for (is_trusted, status) in [(true, 200), (false, 503)] {
        let builder = GatewayBuilder::new();
        let trusted = if is_trusted {
            authority.pem()
        } else {
            Authority::new().pem()
        };
        std::fs::write(builder.path("ca.pem"), trusted).unwrap();
        let ca = builder.path("ca.pem").display().to_string();
        let gateway = start(builder.var("SSL_CERT_FILE", &ca), &issuer, "");
        let reply = server(&gateway).with_token(&token).initialize(LATEST).await;
        assert_eq!(
            (reply.status.as_u16(), challenge(&reply)),
            (status, None),
            "{}",
            gateway.log()
        );
    }
}

/// AUTH-13: a key that is no longer published ends within `refresh`, also for a token that was verified before, in each era.
#[tokio::test]
async fn auth_13_withdrawn_key_ends_with_the_next_refresh() {
    let issuer = Issuer::start().await;
    let (key, next) = (SigningKey::es256("a"), SigningKey::es256("b"));
    issuer.publish(&[&key, &next]);
    let gateway = start(GatewayBuilder::new(), &issuer, "refresh = '1s'");
    let client = server(&gateway).with_token(&key.token(&claims(&issuer, json!({}))));
    let session = client.open_session(LATEST).await;
    issuer.set_mode(IssuerMode::Down);
    assert_eq!(
        session.call(1, "ping", json!({})).await.status,
        200,
        "an outage changes nothing"
    );
    issuer.publish(&[&next]);
    issuer.set_mode(IssuerMode::Working);
    let fetches = issuer.fetches();
    assert!(wait_until(30 * SECOND, || issuer.fetches() > fetches + 1).await);
    assert_eq!(session.call(2, "ping", json!({})).await.status, 401);
    let stateless = client.stateless(json!(3), "tools/list", json!({}), &[]).await;
    assert_eq!(stateless.status, 401);
    let renewed = server(&gateway).with_token(&next.token(&claims(&issuer, json!({}))));
    assert_eq!(
        session.with_client(&renewed).call(4, "ping", json!({})).await.status,
        200
    );
}
