//! The audit log with authentication: who was refused, and whether the log may name the caller.

use crate::auth::{ADA, BOB, write_tokens};
use crate::client::{Client, LATEST};
use crate::gateway::{Gateway, GatewayBuilder, fake_child_command};
use crate::monitoring::wait_for_audit;
use rethread_testkit::issuer::{Issuer, SigningKey, now_seconds};
use serde_json::{Value, json};

/// A gateway with an audit log and three servers. `files` needs a scope and one more for the tool `echo`, `mail` admits Bob only.
fn start(issuer: &Issuer) -> Gateway {
    let builder = GatewayBuilder::new().option("--config rethread.toml --audit audit.jsonl");
    let command = serde_json::to_string(&fake_child_command("legacy", builder.marker())).unwrap();
    let text = format!(
        "memory = true\n[auth]\ntokens = 'tokens.toml'\nscopes = ['mcp']\n\
         [auth.jwt.corp]\nissuer = '{}'\naudience = ['api']\n\
         [servers.files]\ncommand = {command}\nscopes = ['files']\n\
         [servers.mail]\ncommand = {command}\nallow = ['corp:bob', 'tokens:bob']\n\
         [servers.tools]\ncommand = {command}\ntool_scopes = {{ echo = ['echo'] }}\n",
        issuer.url()
    );
    std::fs::write(builder.path("rethread.toml"), text).unwrap();
    write_tokens(&builder, &[("ada", &[ADA], "mcp"), ("bob", &[BOB], "mcp")]);
    builder.start()
}

/// The next line `auth.refused`: server, reason and principal.
async fn refusal(gateway: &Gateway, number: usize) -> (Value, Value, Value, Value) {
    let lines = wait_for_audit(gateway, number, |line| line["event"] == "auth.refused").await;
    let mut line = lines[number - 1].clone();
    assert_eq!(
        (&line["outcome"], &line["peer"]),
        (&json!("refused"), &json!("127.0.0.1")),
        "{line}"
    );
    let mut take = |name: &str| line[name].take();
    (take("server"), take("reason"), take("principal"), take("tool"))
}

/// OPS-14: `auth.refused` names the principal if the token was verified, and only then.
#[tokio::test]
async fn ops_14_auth_refusal_names_a_verified_principal_only() {
    let issuer = Issuer::start().await;
    let (key, forger) = (SigningKey::es256("a"), SigningKey::es256("a"));
    issuer.publish(&[&key]);
    let gateway = start(&issuer);
    let claims = |scope: &str, changes: Value| {
        let mut claims = issuer.claims("ada", "api");
        claims["scope"] = json!(scope);
        claims
            .as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        claims
    };
    let good = claims("mcp", json!({}));
    let expired = claims("mcp files", json!({ "exp": now_seconds() - 60 }));
    let ada = json!({ "provider": "corp", "issuer": issuer.url(), "subject": "ada" });
    let static_ada = json!({ "provider": "tokens", "issuer": "tokens", "subject": "ada" });
    let cases = [
        ("files", "mcp", None, "missing", Value::Null),
        ("files", "mcp", Some(forger.token(&good)), "signature", Value::Null),
        ("files", "mcp", Some("rt_unknown".to_owned()), "unknown", Value::Null),
        ("files", "mcp", Some(key.token(&expired)), "expired", ada.clone()),
        (
            "files",
            "mcp",
            Some(key.token(&claims("mcp files", json!({ "aud": "other" })))),
            "audience",
            ada.clone(),
        ),
        ("files", "mcp", Some(key.token(&good)), "scope", ada.clone()),
        ("files", "mcp", Some(ADA.to_owned()), "scope", static_ada.clone()),
        ("mail", "mcp", Some(key.token(&good)), "principal", ada.clone()),
        ("mail", "sse", Some(ADA.to_owned()), "principal", static_ada.clone()),
        ("files", "sse", Some(key.token(&good)), "scope", ada),
        ("files", "sse", None, "missing", Value::Null),
    ];
    let mut count = 0;
    for (server, endpoint, token, reason, principal) in cases {
        let client = Client::new(gateway.addr, &format!("/servers/{server}"));
        let client = token.map_or(client.clone(), |token| client.with_token(&token));
        let reply = match endpoint {
            "sse" => {
                client
                    .send("GET", "/sse", &[("accept", "text/event-stream")], b"")
                    .await
            }
            _ => client.initialize(LATEST).await,
        };
        assert!(reply.status.is_client_error(), "{reason}: {}", reply.status);
        count += 1;
        let found = refusal(&gateway, count).await;
        assert_eq!(found, (json!(server), json!(reason), principal, Value::Null));
    }

    // A tool that needs another scope. On `/messages` the session is named in the query.
    let tools = Client::new(gateway.addr, "/servers/tools").with_token(ADA);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "echo" } });
    let session = tools.open_session(LATEST).await;
    let path = "/messages?sessionId=unknown";
    let headers = [("content-type", "application/json")];
    for endpoint in ["mcp", "messages"] {
        let reply = match endpoint {
            "mcp" => session.post(&call).await,
            _ => tools.send("POST", path, &headers, call.to_string().as_bytes()).await,
        };
        assert_eq!(reply.status.as_u16(), 403);
        count += 1;
        let found = refusal(&gateway, count).await;
        assert_eq!(
            found,
            (json!("tools"), json!("scope"), static_ada.clone(), json!("echo"))
        );
    }
    let calls = wait_for_audit(&gateway, count, |line| line["event"] == "auth.refused").await;
    let tagged: Vec<_> = calls.iter().filter(|line| line["session"].is_string()).collect();
    assert_eq!(tagged.len(), 2, "{tagged:?}");
    assert!(tagged.iter().all(|line| line["method"] == "tools/call"), "{tagged:?}");
    assert_eq!(tagged[0]["revision"], LATEST, "{}", tagged[0]);
}
