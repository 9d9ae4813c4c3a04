//! The admin listener: access, the snapshot and the feed.

use crate::client::{Client, HttpReply, LATEST};
use crate::gateway::{Gateway, GatewayBuilder, gateway_with};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Method, path, headers and expected status.
type Attempt<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u16);

/// A gateway with an admin listener, and its operator.
pub(crate) struct Operator {
    pub(crate) gateway: Gateway,
    pub(crate) addr: SocketAddr,
    pub(crate) token: String,
}

impl Operator {
    pub(crate) fn start(behavior: &str, actions: bool) -> Self {
        Self::start_with(gateway_with(behavior), actions)
    }

    pub(crate) fn start_with(builder: GatewayBuilder, actions: bool) -> Self {
        let config = format!("[admin]\nlisten = '127.0.0.1:0'\nactions = {actions}\n");
        std::fs::write(builder.path("admin.toml"), config).unwrap();
        let gateway = builder.option("--config admin.toml").start();
        let addr = admin_address(&gateway);
        let file = gateway.builder().path(".local/state/rethread/admin.token");
        let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
        Operator { gateway, addr, token }
    }

    /// A client of the admin listener without a token.
    pub(crate) fn stranger(&self) -> Client {
        Client::new(self.addr, "")
    }

    pub(crate) fn client(&self) -> Client {
        self.stranger().with_token(&self.token)
    }

    pub(crate) async fn snapshot(&self, query: &str) -> Value {
        let reply = self.client().get(&format!("/api/v1/snapshot{query}")).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.headers["cache-control"], "no-store");
        serde_json::from_str(&reply.text().await).unwrap()
    }

    pub(crate) async fn act(&self, path: &str) -> StatusCode {
        self.client().send("POST", path, &[], b"").await.status
    }
}

pub(crate) fn admin_address(gateway: &Gateway) -> SocketAddr {
    let found = || {
        let log = gateway.log();
        let line = log
            .lines()
            .find(|line| line.contains("admin listener ready"))?
            .to_owned();
        let words = line.split(|c: char| c.is_whitespace() || c == '"' || c == '=');
        words.filter_map(|word| word.parse().ok()).next()
    };
    let end = std::time::Instant::now() + LIMIT;
    loop {
        if let Some(address) = found() {
            return address;
        }
        assert!(std::time::Instant::now() < end, "{}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The events of a feed until `done`, as name and data.
async fn feed_until(mut feed: HttpReply, done: impl Fn(&[(String, Value)]) -> bool) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    let reading = async {
        while !done(&events) {
            events.push(feed.next_named().await.expect("the feed goes on"));
        }
    };
    let ended = tokio::time::timeout(LIMIT, reading).await;
    assert!(ended.is_ok(), "{events:?}");
    events
}

/// OPS-07, OPS-08, OPS-13: the table of clients without a token, attackers and tokens.
#[tokio::test]
async fn ops_07_admin_paths_need_the_token_and_the_own_host_and_origin() {
    let operator = Operator::start("legacy", true);
    let (addr, token) = (operator.addr.to_string(), &operator.token);
    let own = format!("http://{addr}");
    let bearer = format!("Bearer {token}");
    let auth = ("authorization", bearer.as_str());
    let query = format!("/api/v1/snapshot?token={token}&access_token={token}");
    let cookie = format!("token={token}; rethread-admin-token={token}");
    let table: &[Attempt<'_>] = &[
        // Without a token: health and the page, and nothing else.
        ("GET", "/healthz", &[], 200),
        ("GET", "/readyz", &[], 200),
        ("GET", "/", &[], 200),
        ("GET", "/console.css", &[], 200),
        ("GET", "/console.js", &[], 200),
        ("POST", "/", &[], 405),
        ("GET", "/api/v1/snapshot", &[], 401),
        ("GET", "/api/v1/feed", &[], 401),
        ("GET", "/metrics", &[], 401),
        ("GET", "/nothing", &[], 401),
        ("GET", "//", &[], 401),
        ("GET", "/console.js/", &[], 401),
        ("POST", "/api/v1/drain", &[], 401),
        ("OPTIONS", "/api/v1/drain", &[], 401),
        // A wrong token, or the right one in the wrong place.
        ("GET", "/api/v1/snapshot", &[("authorization", "Bearer wrong")], 401),
        ("GET", "/api/v1/snapshot", &[("authorization", token)], 401),
        ("GET", "/api/v1/snapshot", &[auth, auth], 401),
        ("GET", &query, &[], 401),
        ("GET", "/api/v1/snapshot", &[("cookie", &cookie)], 401),
        ("GET", "/api/v1/snapshot", &[("x-api-key", token)], 401),
        // Foreign hosts and origins, with and without the token.
        ("GET", "/api/v1/snapshot", &[("host", "evil.example"), auth], 403),
        ("GET", "/", &[("host", "evil.example")], 403),
        ("GET", "/healthz", &[("host", "evil.example")], 403),
        (
            "GET",
            "/api/v1/snapshot",
            &[("origin", "https://evil.example"), auth],
            403,
        ),
        ("GET", "/api/v1/snapshot", &[("origin", "null"), auth], 403),
        ("GET", "/", &[("origin", "https://evil.example")], 403),
        // Requests that a page of another site can make a browser send.
        (
            "POST",
            "/api/v1/drain",
            &[("origin", "https://evil.example"), ("content-type", "text/plain")],
            403,
        ),
        (
            "POST",
            "/api/v1/drain",
            &[("origin", "https://evil.example"), auth],
            403,
        ),
        (
            "POST",
            "/api/v1/drain",
            &[
                ("content-type", "application/x-www-form-urlencoded"),
                ("cookie", &cookie),
            ],
            401,
        ),
        ("GET", "/api/v1/drain", &[auth], 405),
        (
            "OPTIONS",
            "/api/v1/drain",
            &[
                ("origin", "https://evil.example"),
                ("access-control-request-method", "POST"),
            ],
            403,
        ),
        // The operator.
        ("GET", "/api/v1/snapshot", &[auth], 200),
        (
            "GET",
            "/api/v1/snapshot",
            &[("host", &addr), ("origin", &own), auth],
            200,
        ),
        ("HEAD", "/api/v1/snapshot", &[auth], 200),
        ("POST", "/api/v1/snapshot", &[auth], 405),
        ("GET", "/api/v1/snapshot/", &[auth], 404),
        ("GET", "/api/v1/snapshot?limit=0", &[auth], 400),
        ("GET", "/nothing", &[auth], 404),
        ("GET", "/metrics", &[auth], 200),
        ("POST", "/metrics", &[auth], 405),
        ("GET", "/mcp", &[auth], 404),
    ];
    for (method, path, headers, status) in table {
        let reply = operator.stranger().send(method, path, headers, b"").await;
        assert_eq!(reply.status.as_u16(), *status, "{method} {path} {headers:?}");
        let cors: Vec<_> = reply
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("access-control"))
            .collect();
        assert!(cors.is_empty(), "{method} {path}: {cors:?}");
        let challenge = reply
            .headers
            .get("www-authenticate")
            .map(|value| value.to_str().unwrap());
        assert_eq!(challenge, (*status == 401).then_some("Bearer"), "{method} {path}");
    }
    assert!(
        operator.gateway.client().get("/readyz").await.status.is_success(),
        "nothing was drained"
    );
    // The admin token opens nothing else, and the file of it is private.
    let elsewhere = operator.gateway.client().with_token(token);
    assert_eq!(elsewhere.get("/api/v1/snapshot").await.status, StatusCode::NOT_FOUND);
    let log = operator.gateway.log();
    assert!(!log.contains(token.as_str()), "{log}");
}

/// OPS-07: a token of a caller is not a token of an operator, and the other way round.
#[tokio::test]
async fn ops_07_tokens_of_callers_and_operators_are_not_exchangeable() {
    let builder = gateway_with("legacy");
    let caller = "rt_caller_token_0123456789abcdefghijklmn";
    let sha256 = sha256_hex(caller);
    std::fs::write(
        builder.path("tokens.toml"),
        format!("[tokens.ada]\nsha256 = [\"{sha256}\"]\nscopes = []\n"),
    )
    .unwrap();
    let operator = Operator::start_with(builder.option("--tokens tokens.toml"), false);
    let as_caller = operator.stranger().with_token(caller);
    assert_eq!(as_caller.get("/api/v1/snapshot").await.status, StatusCode::UNAUTHORIZED);
    let with_admin_token = operator.gateway.client().with_token(&operator.token);
    assert_eq!(
        with_admin_token.initialize(LATEST).await.status,
        StatusCode::UNAUTHORIZED
    );
    operator.gateway.client().with_token(caller).open_session(LATEST).await;
    let snapshot = operator.snapshot("?principal=ada").await;
    let principal = &snapshot["sessions"][0]["principal"];
    assert_eq!(
        *principal,
        json!({ "provider": "tokens", "issuer": "tokens", "subject": "ada" })
    );
    assert!(!snapshot.to_string().contains(caller) && !snapshot.to_string().contains(&operator.token));
    assert_eq!(operator.snapshot("?principal=grace").await["sessions"], json!([]));
}

fn sha256_hex(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// OPS-09: the exact members, and pages that neither repeat nor skip.
#[tokio::test]
async fn ops_09_snapshot_lists_each_session_once_with_its_child() {
    let operator = Operator::start("legacy", false);
    let mut sessions = Vec::new();
    for _ in 0..12 {
        sessions.push(operator.gateway.client().open_session(LATEST).await);
    }
    let pid = sessions[3].child_pid().await;
    let whole = operator.snapshot("").await;
    let keys = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let expected = "errors next node now providers rethread servers sessions started state totals version";
    assert_eq!(keys(&whole), expected.split(' ').map(str::to_owned).collect());
    assert_eq!(
        (&whole["version"], &whole["state"], &whole["next"]),
        (&json!(1), &json!("ready"), &Value::Null)
    );
    assert_eq!(
        keys(&whole["totals"]),
        ["sessions", "calls", "connections", "children", "parks", "listens"]
            .map(str::to_owned)
            .into()
    );
    assert_eq!(
        (&whole["totals"]["sessions"], &whole["totals"]["children"]),
        (&json!(12), &json!(12))
    );
    let server = &whole["servers"][0];
    assert_eq!(
        (&server["sessions"], &server["children"]["running"]),
        (&json!(12), &json!(12))
    );
    let row = &whole["sessions"][0];
    let expected = "calls child client expires principal revision server since streams tag transport used";
    assert_eq!(keys(row), expected.split(' ').map(str::to_owned).collect());
    assert_eq!(
        (&row["revision"], &row["transport"], &row["principal"]),
        (&json!(LATEST), &json!("streamable"), &Value::Null)
    );
    let pids: BTreeSet<u64> = whole["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["child"]["pid"].as_u64().unwrap())
        .collect();
    assert!(pids.len() == 12 && pids.contains(&pid), "{pids:?} {pid}");
    let (mut tags, mut after) = (Vec::new(), String::new());
    loop {
        let page = operator.snapshot(&format!("?limit=5&after={after}")).await;
        tags.extend(
            page["sessions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["tag"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    let mut sorted = tags.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!((tags.len(), &tags), (12, &sorted));
    let text = whole.to_string();
    assert!(
        sessions.iter().all(|session| !text.contains(&session.id)),
        "a session id is a secret"
    );
}

/// OPS-10: within a second, and merged.
#[tokio::test]
async fn ops_10_feed_reports_sessions_streams_and_children() {
    let operator = Operator::start("legacy", false);
    let feed = operator.client().get("/api/v1/feed").await;
    assert_eq!(feed.headers["content-type"], "text/event-stream");
    let client = operator.gateway.client();
    let work = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(600)).await; // the feed has begun
        let session = client.open_session(LATEST).await;
        let listening = session.listen().await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        drop(listening);
        session.delete().await;
        session.id
    });
    let is = |name: &str, state: &str| {
        let (name, state) = (name.to_owned(), state.to_owned());
        move |(found, data): &(String, Value)| *found == name && data["state"] == state
    };
    let events = feed_until(feed, |events| {
        events.iter().any(is("session", "ended")) && events.iter().any(is("child", "exited"))
    })
    .await;
    let id = work.await.unwrap();
    for (name, state) in [("state", "ready"), ("session", "opened"), ("child", "started")] {
        assert!(events.iter().any(is(name, state)), "{name} {state}: {events:?}");
    }
    assert!(
        events
            .iter()
            .any(|(name, data)| name == "stream" && data["kind"] == "push" && data["attached"] == true),
        "{events:?}"
    );
    assert!(
        events
            .iter()
            .any(|(name, data)| name == "totals" && data["sessions"] == 1),
        "{events:?}"
    );
    let opened = events.iter().find(|event| is("session", "opened")(event)).unwrap();
    assert_eq!(opened.1["session"]["tag"], opened.1["tag"]);
    assert!(opened.1.get("principal").is_some());
    assert!(
        events.iter().all(|(_, data)| !data.to_string().contains(&id)),
        "a session id is a secret"
    );
}

/// OPS-10: the last refusals, with their session.
#[tokio::test]
async fn ops_10_refusals_are_in_the_snapshot_and_in_the_feed() {
    let operator = Operator::start("legacy", false);
    let session = operator.gateway.client().open_session(LATEST).await;
    let tag = operator.snapshot("").await["sessions"][0]["tag"].clone();
    let feed = operator.client().get("/api/v1/feed").await;
    tokio::time::sleep(Duration::from_millis(600)).await; // the feed has begun
    let refused = session.raw("PUT", &[], b"").await;
    assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
    let events = feed_until(feed, |events| events.iter().any(|(name, _)| name == "refusal")).await;
    let (_, refusal) = events.iter().find(|(name, _)| name == "refusal").unwrap();
    assert_eq!(
        (&refusal["reason"], &refusal["status"], &refusal["session"]),
        (&json!("method"), &json!(405), &tag)
    );
    let errors = operator.snapshot("").await["errors"].clone();
    assert_eq!(errors.as_array().map(Vec::len), Some(1));
    assert_eq!(errors[0], *refusal);
}
