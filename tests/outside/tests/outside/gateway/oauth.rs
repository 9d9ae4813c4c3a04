//! The official clients get their tokens by OAuth, without a person: discovery, 401, registration, code, token, retry, and the
//! step-up after 403 (AUTH-01, AUTH-02, AUTH-14, AUTH-15).

use super::process::Gateway;
use crate::script;
use crate::server::root;
use rethread_testkit::authorization_server::AuthorizationServer;
use std::path::PathBuf;

/// Seconds until a token expires: longer than a run.
const LIFETIME: u64 = 600;

/// A gateway whose one server has the tool `counter`, which needs the scope `count`.
fn start(issuer: &AuthorizationServer, name: &str) -> (Gateway, String) {
    let child = root().join("crates/gateway/tests/children/child.py");
    let command = serde_json::json!(["python3", child.display().to_string(), "dual", "oauth"]);
    let text = format!(
        "memory = true\nlisten = '127.0.0.1:0'\n[auth]\nscopes = ['mcp']\n[auth.jwt.test]\nissuer = '{}'\n\
         [servers.only]\ncommand = {command}\ntool_scopes = {{ counter = ['count'] }}\n",
        issuer.url()
    );
    let file: PathBuf = root().join(format!("target/outside/oauth-{name}-{}.toml", std::process::id()));
    std::fs::write(&file, text).expect("the configuration can be written");
    let gateway = Gateway::with_config(&file);
    let url = format!("http://{}/servers/only/mcp", gateway.addr());
    let _ = std::fs::remove_file(&file); // read already
    (gateway, url)
}

async fn assert_flow(name: &str, program: &str, before: &[&str], after: &[&str]) {
    let issuer = AuthorizationServer::start(LIFETIME).await;
    let (_gateway, url) = start(&issuer, name);
    script::run(program, &[before, &[&url], after].concat()).await;
    let events = issuer.events();
    let authorizations: Vec<_> = events.iter().filter(|event| event.starts_with("authorize")).collect();
    assert_eq!(authorizations.len(), 2, "{events:?}");
    assert_eq!(events[0], "register", "{events:?}");
    assert_eq!(authorizations[0], "authorize mcp", "{events:?}");
    let tokens = events.iter().filter(|event| *event == "token authorization_code");
    assert_eq!(tokens.count(), 2, "{events:?}");
}

#[tokio::test]
async fn auth_02_typescript_sdk_1_gets_a_token_and_steps_up() {
    assert_flow("ts1", "node", &["ts/oauth.mjs", "sdk1"], &[]).await;
}

#[tokio::test]
async fn auth_02_typescript_client_2_gets_a_token_and_steps_up() {
    assert_flow("ts2", "node", &["ts/oauth.mjs", "client2"], &[]).await;
}

#[tokio::test]
async fn auth_02_typescript_client_2_gets_a_token_in_the_stateless_era() {
    assert_flow("ts2-modern", "node", &["ts/oauth.mjs", "client2"], &["2026-07-28"]).await;
}

#[tokio::test]
async fn auth_02_python_1_gets_a_token_and_steps_up() {
    assert_flow("py1", "py1/bin/python", &["py/oauth.py"], &[]).await;
}

#[tokio::test]
async fn auth_02_python_2_gets_a_token_and_steps_up() {
    assert_flow("py2", "py2/bin/python", &["py/oauth.py"], &[]).await;
}

#[tokio::test]
async fn auth_02_python_2_gets_a_token_in_the_stateless_era() {
    assert_flow("py2-modern", "py2/bin/python", &["py/oauth.py"], &["stateless"]).await;
}
