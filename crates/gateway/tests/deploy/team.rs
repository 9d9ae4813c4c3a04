//! `team.toml`: HTTPS, tokens and limits in one file, with curl as the client.

use crate::curl::Curl;
use crate::deploy_file;
use crate::gateway::{Gateway, PROGRAM};
use rethread_testkit::certificates::Authority;
use std::process::Command;

/// Makes a token with the program, as the comment in the file says. Returns it and the lines for the file.
fn new_token(name: &str, scopes: &[&str]) -> (String, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["token", "new", name]);
    for scope in scopes {
        command.args(["--scope", scope]);
    }
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let (token, lines) = text.split_once('\n').unwrap();
    (token.to_owned(), lines.to_owned())
}

#[test]
fn team_file_serves_callers_with_tokens_over_https() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let authority = Authority::new();
    authority.write_pair(&path("fullchain.pem"), &path("privkey.pem"));
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    let ((ada, ada_lines), (bob, bob_lines)) = (new_token("ada", &["mcp", "files"]), new_token("bob", &["mcp"]));
    std::fs::write(path("tokens.toml"), format!("{ada_lines}\n{bob_lines}")).unwrap();
    let text = deploy_file("team.toml");
    let mut text = text.replace("0.0.0.0:8443", "127.0.0.1:0");
    for line in deploy_file("team.toml")
        .lines()
        .filter(|line| line.starts_with("command = "))
    {
        text = text.replace(line, &format!("command = ['{PROGRAM}', 'demo-server']"));
    }
    std::fs::write(path("team.toml"), text + "\n").unwrap();
    let config = path("team.toml").display().to_string();
    let args = ["serve", "--memory", "--config", &config].map(str::to_owned);
    let gateway = Gateway::start(&args);
    let client = |server: &str, token: &str| Curl {
        curl_options: [
            "--cacert",
            path("ca.pem").to_str().unwrap(),
            "--connect-to",
            &format!("mcp.example.com:8443:localhost:{}", gateway.port()),
            "-H",
            &format!("authorization: Bearer {token}"),
            "-H",
            "accept: application/json, text/event-stream",
            "-H",
            "host: mcp.example.com:8443",
        ]
        .map(str::to_owned)
        .to_vec(),
        url: format!("https://localhost:{}/servers/{server}/mcp", gateway.port()),
    };
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let status = |server: &str, token: &str| client(server, token).status(&["-d", initialize]);
    assert_eq!(status("files", &ada), "200");
    assert_eq!(status("git", &bob), "200");
    assert_eq!(status("files", &bob), "403", "the scope `files` is missing");
    assert_eq!(status("git", "rt_wrong"), "401");
}
