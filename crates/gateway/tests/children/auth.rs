//! Callers with static tokens: who is served, and what others see.

use crate::client::{Client, HttpReply, LATEST, tool_result};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::Duration;

pub(crate) const ADA: &str = "rt_ada-0123456789-0123456789-0123456789";
const ADA_NEXT: &str = "rt_ada-next-0123456789-0123456789-01234";
pub(crate) const BOB: &str = "rt_bob-0123456789-0123456789-0123456789";
const TOP: &str = "memory = true\n[auth]\ntokens = 'tokens.toml'\nscopes = ['mcp']\n";

fn digest(token: &str) -> String {
    let digest = Sha256::digest(token.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a token file: name, token, scopes.
pub(crate) fn write_tokens(builder: &GatewayBuilder, tokens: &[(&str, &[&str], &str)]) {
    let entries = tokens.iter().map(|(name, tokens, scopes)| {
        let digests: Vec<_> = tokens.iter().map(|token| format!("'{}'", digest(token))).collect();
        let scopes: Vec<_> = scopes.split_whitespace().map(|scope| format!("'{scope}'")).collect();
        let (digests, scopes) = (digests.join(", "), scopes.join(", "));
        format!("[tokens.{name}]\nsha256 = [{digests}]\nscopes = [{scopes}]\n")
    });
    std::fs::write(builder.path("tokens.toml"), entries.collect::<String>()).unwrap();
}

/// A gateway with the servers `files` and `mail`, and the tokens of Ada and Bob.
fn start(files: &str, mail: &str) -> Gateway {
    let builder = GatewayBuilder::new().option("--config rethread.toml");
    let command = |behavior| serde_json::to_string(&fake_child_command(behavior, builder.marker())).unwrap();
    let (legacy, dual) = (command("legacy"), command("dual"));
    let text = format!(
        "{TOP}[servers.files]\ncommand = {legacy}\n{files}\n[servers.mail]\ncommand = {dual}\n{mail}\n\
         env = {{ RECORD = '{}' }}\n",
        builder.path("record").display()
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    write_tokens(&builder, &[("ada", &[ADA], "mcp files"), ("bob", &[BOB], "mcp")]);
    builder.start()
}

fn server(gateway: &Gateway, name: &str) -> Client {
    Client::new(gateway.addr, &format!("/servers/{name}"))
}

fn challenge(reply: &HttpReply) -> Option<&str> {
    let mut values = reply.headers.get_all("www-authenticate").iter();
    let first = values.next().map(|value| value.to_str().unwrap());
    assert_eq!(values.next(), None, "one challenge");
    first
}

#[tokio::test]
async fn auth_01_gateway_serves_callers_with_a_token_only() {
    let gateway = start("scopes = ['files']", "");
    let files = server(&gateway, "files");
    for (token, status, expected) in [
        (None, 401, r#"Bearer scope="mcp files""#),
        (
            Some("unknown"),
            401,
            r#"Bearer error="invalid_token", scope="mcp files""#,
        ),
        (
            Some(&digest(ADA)[..]),
            401,
            r#"Bearer error="invalid_token", scope="mcp files""#,
        ),
        (Some("a b"), 400, r#"Bearer error="invalid_request", scope="mcp files""#),
        (
            Some(BOB),
            403,
            r#"Bearer error="insufficient_scope", scope="mcp files""#,
        ),
    ] {
        let client = token.map_or(files.clone(), |token| files.with_token(token));
        let reply = client.initialize(LATEST).await;
        assert_eq!(
            (reply.status.as_u16(), challenge(&reply)),
            (status, Some(expected)),
            "{token:?}"
        );
        let body = reply.text().await;
        assert!(token.is_none_or(|token| !body.contains(token)), "{body}");
    }
    let reply = files
        .with_token(ADA)
        .send("POST", "/mcp?access_token=x", &[], b"")
        .await;
    assert_eq!(reply.status, 415, "the form of the request is checked first");
    let session = files.with_token(ADA).open_session(LATEST).await;
    assert_eq!(session.call_tool(1, "echo", json!({})).await["id"], 1);
    assert_eq!(
        files
            .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
            .await
            .status,
        401
    );
    let sse = files
        .with_token(ADA)
        .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
        .await;
    assert!(sse.is_stream());
}

#[tokio::test]
async fn auth_03_unknown_paths_name_no_server() {
    let gateway = start("", "");
    let root = Client::new(gateway.addr, "");
    for path in [
        "/",
        "/mcp",
        "/servers",
        "/servers/other/mcp",
        "/servers/files",
        "/nothing",
    ] {
        for headers in [&[][..], &[("accept", "text/html")]] {
            let reply = root.with_token(ADA).send("GET", path, headers, b"").await;
            assert_eq!(reply.status, 404, "{path}");
            let body = reply.text().await;
            assert!(!body.contains("files") && !body.contains("mail"), "{path}: {body}");
        }
    }
    let page = root
        .send("GET", "/servers/files/mcp", &[("accept", "text/html")], b"")
        .await;
    assert_ne!(page.status, 200, "no page without a token");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(root.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn auth_15_tool_scopes_and_allow_lists_apply_to_their_server() {
    let gateway = start("tool_scopes = { 'ec*' = ['files'] }", "allow = ['tokens:bob']");
    let (ada, bob) = (
        server(&gateway, "files").with_token(ADA).open_session(LATEST).await,
        server(&gateway, "files").with_token(BOB).open_session(LATEST).await,
    );
    assert_eq!(ada.call_tool(1, "echo", json!({})).await["id"], 1);
    let refused = bob.call(1, "tools/call", json!({ "name": "echo" })).await;
    let header = r#"Bearer error="insufficient_scope", scope="mcp files""#;
    assert_eq!((refused.status.as_u16(), challenge(&refused)), (403, Some(header)));
    // AUTH-17
    let refused = server(&gateway, "mail").with_token(ADA).initialize(LATEST).await;
    assert_eq!((refused.status.as_u16(), challenge(&refused)), (403, None));
    assert_eq!(
        server(&gateway, "mail").with_token(BOB).initialize(LATEST).await.status,
        200
    );
}

/// AUTH-20, SEC-05: the session of another caller is a session that never existed.
#[tokio::test]
async fn auth_20_other_caller_sees_what_a_stranger_sees() {
    let gateway = start("", "");
    let files = server(&gateway, "files");
    let ada = files.with_token(ADA).open_session(LATEST).await;
    let bob = files.with_token(BOB);
    let mut never = ada.with_client(&bob);
    never.id = "A".repeat(ada.id.len());
    let theirs = ada.with_client(&bob);
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }).to_string();
    for (method, more, body) in [
        ("POST", &[][..], ping.as_bytes()),
        ("GET", &[], b""),
        ("GET", &[("last-event-id", "1-0")], b""),
        ("DELETE", &[], b""),
    ] {
        let (one, other) = (
            theirs.raw(method, more, body).await,
            never.raw(method, more, body).await,
        );
        let without_date = |reply: &HttpReply| {
            let mut headers = reply.headers.clone();
            headers.remove("date");
            (reply.status, headers)
        };
        assert_eq!(without_date(&one), without_date(&other), "{method}");
        assert_eq!(one.status, 404);
        assert_eq!(one.text().await, other.text().await, "{method}");
    }
    assert_eq!(ada.call(1, "ping", json!({})).await.status, 200, "Ada's session lives");
}

#[tokio::test]
async fn auth_18_reloaded_tokens_apply_at_once_and_an_invalid_file_changes_nothing() {
    let gateway = start("", "");
    let files = server(&gateway, "files");
    let session = files.with_token(ADA).open_session(LATEST).await;
    let pid = session.child_pid().await;
    let reload = async |expected: &str| {
        let count = |gateway: &Gateway| gateway.log().matches(expected).count();
        let before = count(&gateway);
        gateway.signal(Signal::HUP);
        let done = wait_until(Duration::from_secs(20), || count(&gateway) > before).await;
        assert!(done, "`{expected}` is not in\n{}", gateway.log());
    };
    // A second token of the same name continues the session.
    write_tokens(
        gateway.builder(),
        &[("ada", &[ADA, ADA_NEXT], "mcp"), ("bob", &[BOB], "mcp")],
    );
    reload("configuration reloaded").await;
    let refreshed = session.with_client(&files.with_token(ADA_NEXT));
    assert_eq!(refreshed.child_pid().await, pid);
    assert_eq!(session.child_pid().await, pid);

    std::fs::write(gateway.builder().path("tokens.toml"), "[tokens.ada]\nsha256 = 'x'\n").unwrap();
    reload("configuration reloaded in part").await;
    assert_eq!(session.child_pid().await, pid, "the tokens in force stay");

    write_tokens(gateway.builder(), &[("ada", &[ADA_NEXT], "mcp")]);
    reload("tokens revoked").await;
    assert_eq!(session.call(1, "ping", json!({})).await.status, 401);
    assert_eq!(files.with_token(BOB).initialize(LATEST).await.status, 401);
    assert_eq!(refreshed.child_pid().await, pid, "the session goes on");
}

/// AUTH-22, OPS-12, SEC-07: not in the environment, the arguments and the messages of a child, and not in the log.
#[tokio::test]
async fn auth_22_no_token_reaches_a_child_or_the_log() {
    let gateway = start("", "");
    let mail = server(&gateway, "mail").with_token(ADA);
    let session = mail.open_session(LATEST).await;
    session.call_tool(1, "echo", json!({})).await;
    let reply = mail
        .stateless(json!(2), "tools/call", json!({ "name": "echo", "arguments": {} }), &[])
        .await;
    let pid = tool_result(&reply.response().await)["pid"].as_u64().unwrap();
    let refused = server(&gateway, "mail")
        .with_token("rt_wrong-0123456789")
        .initialize(LATEST)
        .await;
    assert_eq!(refused.status, 401);
    let read = |path: String| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    for child in [pid, session.child_pid().await] {
        for file in ["environ", "cmdline"] {
            let text = read(format!("/proc/{child}/{file}"));
            assert!(!text.is_empty() && !text.contains("rt_ada"), "{file}: {text}");
        }
    }
    let recorded = gateway.recorded_messages();
    assert!(!recorded.is_empty());
    assert!(!json!(recorded).to_string().contains("rt_ada"), "{recorded:?}");
    let log = gateway.log();
    assert!(!log.contains("rt_ada") && !log.contains("rt_wrong"), "{log}");
    assert!(!log.contains(&session.id), "{log}");
}

/// AUTH-23: a client cannot claim an identity, and the child learns the caller only if the operator says so.
#[tokio::test]
async fn auth_23_child_learns_the_caller_only_if_the_operator_says_so() {
    for (identity, expected) in [
        ("identity = 'none'", Value::Null),
        ("identity = 'meta'", json!({ "issuer": "tokens", "subject": "ada" })),
    ] {
        let gateway = start("", identity);
        let mail = server(&gateway, "mail").with_token(ADA);
        let session = mail.open_session(LATEST).await;
        let forged = r#"{"name":"echo","arguments":{"n":1},"_m\u0065ta":{"io.rethread\/principal":{"subject":"mallory"},"io.rethread/x":1,"mine":2}}"#;
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{forged}}}"#);
        assert_eq!(session.raw("POST", &[], body.as_bytes()).await.status, 200);
        let messages = gateway.recorded_messages();
        let call = messages
            .iter()
            .find(|message| message["method"] == "tools/call")
            .unwrap();
        let meta = &call["params"]["_meta"];
        assert_eq!(
            (&meta["io.rethread/principal"], &meta["io.rethread/x"]),
            (&expected, &Value::Null),
            "{call}"
        );
        assert_eq!(meta["mine"], 2);
        assert!(!json!(messages).to_string().contains("mallory"));
    }
    let gateway = start("", "identity = 'env'");
    let mail = server(&gateway, "mail");
    for (token, name) in [(ADA, "ada"), (BOB, "bob")] {
        let session = mail.with_token(token).open_session(LATEST).await;
        let stateless = mail.with_token(token).call_tool(2, "echo", json!({})).await;
        for pid in [
            session.child_pid().await,
            tool_result(&stateless)["pid"].as_u64().unwrap(),
        ] {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            let variables = String::from_utf8_lossy(&variables).into_owned();
            let own: Vec<_> = variables
                .split('\0')
                .filter(|text| text.starts_with("RETHREAD_"))
                .collect();
            assert!(own.contains(&&*format!("RETHREAD_SUBJECT={name}")), "{own:?}");
            assert!(own.contains(&"RETHREAD_ISSUER=tokens"), "{own:?}");
        }
    }
}

/// AUTH-18, AUTH-21: the relayed subscription of a caller that loses its token ends with its result.
#[tokio::test]
async fn auth_18_revoked_token_ends_a_relayed_subscription() {
    let gateway = start("", "");
    let mail = server(&gateway, "mail");
    let subscribe = async |token: &str| {
        let filter = json!({ "notifications": { "toolsListChanged": true } });
        let client = mail.with_token(token);
        let mut stream = client
            .stateless(json!("sub"), "subscriptions/listen", filter, &[])
            .await;
        let first = stream.next().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        stream
    };
    let (ada, mut bob) = (subscribe(ADA).await, subscribe(BOB).await);
    write_tokens(gateway.builder(), &[("bob", &[BOB], "mcp")]);
    gateway.signal(Signal::HUP);
    let last = ada.messages().await.pop().unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!("sub"), &json!("complete")),
        "{last}"
    );
    mail.with_token(BOB).call_tool(2, "change-tools", json!({})).await;
    let change = bob.next().await.unwrap();
    assert_eq!(change["method"], "notifications/tools/list_changed", "Bob's goes on");
}

/// AUTH-23: an answer to a question cannot claim an identity, in both eras.
#[tokio::test]
async fn auth_23_answer_to_a_question_carries_no_forged_identity() {
    let gateway = start("", "identity = 'meta'");
    let mail = server(&gateway, "mail").with_token(ADA);
    let forged = r#"{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m","_meta":{"io.rethread\u002fprincipal":{"subject":"mallory"},"mine":2}}"#;
    let session = mail.open_session(LATEST).await;
    let mut asked = session.start_tool(1, "ask", json!({})).await;
    let question = loop {
        let message = asked.next().await.expect("a question");
        if message["method"] == "sampling/createMessage" {
            break message;
        }
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{forged}}}"#, question["id"]);
    assert_eq!(session.raw("POST", &[], body.as_bytes()).await.status, 202);
    let in_session = asked.response().await;
    let asked = mail.call_tool(2, "ask", json!({})).await;
    let keys = asked["result"]["inputRequests"]
        .as_object()
        .unwrap_or_else(|| panic!("{asked}"));
    let key = keys.keys().next().unwrap();
    let params = json!({ "name": "ask", "arguments": {}, "requestState": asked["result"]["requestState"],
        "inputResponses": { key: serde_json::from_str::<Value>(forged).unwrap() } });
    let stateless = mail
        .stateless(json!(3), "tools/call", params, &[])
        .await
        .response()
        .await;
    for answer in [in_session, stateless] {
        let seen = tool_result(&answer);
        assert_eq!(seen["_meta"], json!({ "mine": 2 }), "{answer}");
    }
}
