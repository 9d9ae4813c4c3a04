//! The JSON files of clients: `import`, `check`, `serve` and `export`.

use crate::program::{ProgramOutput, ProgramRunner};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

const CLAUDE_DESKTOP: &str = include_str!("client_files/claude_desktop_config.json");
const CURSOR: &str = include_str!("client_files/cursor_mcp.json");
const VSCODE: &str = include_str!("client_files/vscode_mcp.json");
const PROJECT: &str = include_str!("client_files/project.mcp.json");

/// A directory with the file, and with programs of the names that the files use. Each is the built-in server.
fn runner(text: &str) -> ProgramRunner {
    let runner = ProgramRunner::new()
        .file("mcp.json", text)
        .var("CURSOR_API_KEY", "hush-env")
        .var("VSCODE_DEBUG", "api");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", runner.path().display());
    for dir in ["tools", "."] {
        std::fs::create_dir_all(runner.path().join(dir)).unwrap();
    }
    for program in ["npx", "docker", "uv", "uvx", "tools/server.sh"] {
        let file = runner.path().join(program);
        let script = format!("#!/bin/sh\nexec {} demo-server\n", env!("CARGO_BIN_EXE_rethread"));
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    runner.var("PATH", &path)
}

fn import(text: &str) -> (ProgramOutput, String) {
    let runner = runner(text);
    let output = runner.run(&["import", "mcp.json"]);
    output.assert_code(0);
    let toml = output.stdout.replace(&runner.path().display().to_string(), "DIR");
    (output, toml)
}

#[test]
fn import_prints_a_file_of_claude_desktop() {
    let (output, toml) = import(CLAUDE_DESKTOP);
    let expected = r#"# From mcp.json.
# `GitHub (work)` of mcp.json is served as `GitHub--work`: the name is part of URLs

[servers.filesystem]
command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Documents", 'C:\Users\ada']

[servers.GitHub--work]
command = ["docker", "run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"]

[servers.GitHub--work.env]
GITHUB_PERSONAL_ACCESS_TOKEN = "hush-ghp-1"

[servers.weather]
command = ["uv", "--directory", "/opt/weather", "run", "weather.py"]
"#;
    assert_eq!(toml, expected);
    output
        .assert_stderr_contains(
            "the output has the values of GitHub--work.env.GITHUB_PERSONAL_ACCESS_TOKEN; keep it private",
        )
        .assert_stderr_contains("is served as `GitHub--work`");
    assert!(!output.stderr.contains("hush"), "{output:?}");
}

#[test]
fn import_prints_a_file_of_cursor() {
    let (output, toml) = import(CURSOR);
    let expected = r#"# From mcp.json.
# `remote` of mcp.json is not served: it is an HTTP server, and the gateway serves stdio servers only; the command `npx -y mcp-remote URL` turns it into one
# `old` of mcp.json is not served: the file disables it

[servers.postgres]
command = ["npx", "-y", "@modelcontextprotocol/server-postgres", "postgresql://app:hush-pg@db.example/app"]

[servers.postgres.env]
PGSSLMODE = "require"
API_KEY = "${CURSOR_API_KEY}"

[servers.bridge]
command = ["npx", "-y", "mcp-remote", "https://mcp.example/sse", "--header", "X-Custom:hush-env"]
"#;
    assert_eq!(toml, expected);
    output
        .assert_stderr_contains("the output has the present values of the variables in bridge.args")
        .assert_stderr_contains("the output has the values of postgres.env.PGSSLMODE; keep it private");
    assert!(!output.stderr.contains("hush"), "{output:?}");
}

#[test]
fn import_prints_a_file_of_vs_code() {
    let (output, toml) = import(VSCODE);
    let expected = r#"# From mcp.json.
# `github` of mcp.json is not served: it is an HTTP server, and the gateway serves stdio servers only; the command `npx -y mcp-remote URL` turns it into one

[servers.playwright]
command = ["npx", "-y", "@playwright/mcp@latest", "--output-dir=DIR/shots"]
cwd = "DIR/tools"

[servers.playwright.env]
DEBUG = "pw:${VSCODE_DEBUG}"
RETRIES = "3"
HEADLESS = "true"

[servers.fetch]
command = ["uvx", "mcp-server-fetch"]
"#;
    assert_eq!(toml, expected);
    output.assert_stderr_contains("`github` of mcp.json is not served");
}

#[test]
fn import_prints_a_file_of_claude_code() {
    let (_, toml) = import(PROJECT);
    let expected = r#"# From mcp.json.
# `sentry` of mcp.json is not served: it is an HTTP server, and the gateway serves stdio servers only; the command `npx -y mcp-remote URL` turns it into one
# `events` of mcp.json is not served: it is an HTTP server, and the gateway serves stdio servers only; the command `npx -y mcp-remote URL` turns it into one

[servers.local]
command = ["DIR/tools/server.sh", "--port", "3000"]

[servers.local.env]
CACHE_DIR = "/tmp/cache"
LEVEL = "info"
PRICE = "$5 $${"
"#;
    assert_eq!(toml, expected);
}

/// The rows of `check` without their sources, paths and masks.
fn check_rows(runner: &ProgramRunner, file: &str) -> (ProgramOutput, Vec<String>) {
    let output = runner.run(&["check", "--memory", "--listen", "127.0.0.1:0", "--config", file]);
    let rows = output.stdout.lines().skip_while(|line| !line.starts_with("[servers"));
    let rows = rows.filter(|line| !line.starts_with("env.") && !line.starts_with("command"));
    let rows = rows.map(|row| row.split("  (").next().unwrap_or_default().trim_end().to_owned());
    let rows = rows.collect();
    (output, rows)
}

#[test]
fn check_takes_the_file_and_its_import_alike() {
    for text in [CLAUDE_DESKTOP, CURSOR, VSCODE, PROJECT] {
        let runner = runner(text);
        let imported = runner.run(&["import", "mcp.json"]).stdout;
        let runner = runner.file("rethread.toml", &imported);
        let (direct, rows) = check_rows(&runner, "mcp.json");
        direct.assert_code(0);
        let (converted, converted_rows) = check_rows(&runner, "rethread.toml");
        converted.assert_code(0);
        assert!(!rows.is_empty());
        assert_eq!(rows, converted_rows);
        assert!(!format!("{direct:?}").contains("hush"), "{direct:?}");
    }
}

#[test]
fn check_masks_variables_and_names_skipped_entries() {
    let (output, _) = check_rows(&runner(CURSOR), "mcp.json");
    assert_eq!(
        output.value_line("env.PGSSLMODE"),
        "env.PGSSLMODE = ****** (mcp.json:6)"
    );
    assert!(output.stdout.contains("--header X-Custom:******"), "{output:?}");
    output
        .assert_stderr_contains("warning: `remote` of mcp.json is not served: it is an HTTP server")
        .assert_stderr_contains("warning: `old` of mcp.json is not served: the file disables it");
}

#[test]
fn serve_takes_each_file() {
    for (text, names) in [
        (CLAUDE_DESKTOP, &["GitHub--work", "filesystem", "weather"][..]),
        (CURSOR, &["bridge", "postgres"]),
        (VSCODE, &["fetch", "playwright"]),
        (PROJECT, &["local"]),
    ] {
        let runner = runner(text);
        let mut command = runner.command(&["serve", "--memory", "--listen", "127.0.0.1:0", "--config", "mcp.json"]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let message: Vec<String> = lines.take_while(|line| !line.starts_with("Ctrl-C stops")).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let message = message.join("\n");
        for name in names {
            assert!(
                message.contains(&format!("/servers/{name}/mcp ")),
                "{name} is not in {message}"
            );
        }
        assert!(!message.contains("hush"), "{message}");
        let is_complete = message.matches("old clients: ").count() == names.len();
        assert!(is_complete, "{message}");
    }
}

#[test]
fn variables_of_editors_and_unset_ones_are_refused_with_server_and_key() {
    let table = [
        (
            r#"{ "servers": { "a": { "command": "npx", "env": {
                 "KEY": "${input:key}" } } } }"#,
            "mcp.json:2: `a.env.KEY` has `${input:key}`, which only the client can replace",
            "${env:NAME} in its place",
        ),
        (
            r#"{ "servers": { "a": { "command": "npx", "args": ["${workspaceFolder}/x"] } } }"#,
            "mcp.json:1: `a.args` has `${workspaceFolder}`",
            "the path of the folder in its place",
        ),
        (
            r#"{ "mcpServers": { "a": { "command": "npx", "env": { "KEY": "${env:NOWHERE}" } } } }"#,
            "`a.env.KEY` needs the variable NOWHERE, which is not set",
            "export NOWHERE=",
        ),
        (
            r#"{ "mcpServers": { "a": { "command": "npx", "envFile": ".env" } } }"#,
            "`a.envFile` is not read",
            "put its variables into `env`",
        ),
        (
            r#"{ "mcpServers": { "a": { "url": "https://x.example" } } }"#,
            "there is no server to serve: `a` of mcp.json is not served: it is an HTTP server",
            "an entry with a `command`",
        ),
        (
            r#"{ "mcpServers": { "a b": { "command": "npx" }, "a-b": { "command": "npx" } } }"#,
            "the server `a-b` is in this file twice",
            "another name",
        ),
        (
            r#"{ "mcpServers": { "日本": { "command": "npx" } } }"#,
            "`日本` cannot be a server's name",
            "part of URLs",
        ),
        (r#"{ "mcpServers": { "a": {} } }"#, "`a` has no command", "\"command\":"),
        (r#"{ "editor": 1 }"#, "neither `mcpServers` nor `servers`", "mcpServers"),
        (
            "{\n \"mcpServers\": {",
            "mcp.json:2: invalid JSON:",
            "JSON of an MCP client",
        ),
    ];
    for (text, what, hint) in table {
        for command in ["check", "serve"] {
            let output = runner(text).run(&[command, "--memory", "--listen", "127.0.0.1:0", "--config", "mcp.json"]);
            output
                .assert_code(2)
                .assert_stderr_contains(what)
                .assert_stderr_contains(hint);
        }
    }
}

#[test]
fn import_refuses_other_files() {
    let runner = ProgramRunner::new().file("r.toml", "listen = 'x'\n");
    let output = runner.run(&["import", "r.toml"]);
    output.assert_code(2).assert_stderr_contains("r.toml is not JSON");
    let output = runner.run(&["import", "nowhere.json"]);
    output.assert_code(2).assert_stderr_contains("cannot read nowhere.json");
}

#[test]
fn export_prints_the_entry_of_each_client() {
    let runner = runner(CURSOR);
    let export = |client: &str, options: &[&str]| {
        let output = runner.run(&[&["export", "--client", client][..], options].concat());
        output.assert_code(0);
        output
    };
    let file = ["--config", "mcp.json", "--public-url", "https://mcp.example/x"];
    let url = |name: &str| format!("https://mcp.example/x/servers/{name}/mcp");
    let claude = export("claude", &file);
    let entry: Value = serde_json::from_str(&claude.stdout).unwrap();
    assert_eq!(
        entry["mcpServers"]["bridge"],
        json!({ "type": "http", "url": url("bridge") })
    );
    claude
        .assert_stderr_contains("claude mcp add --transport http postgres https://mcp.example/x/servers/postgres/mcp")
        .assert_stderr_contains("Claude Desktop")
        .assert_stderr_contains("`remote` of mcp.json is not served");
    let vscode: Value = serde_json::from_str(&export("vscode", &file).stdout).unwrap();
    assert_eq!(
        vscode["servers"]["postgres"],
        json!({ "type": "http", "url": url("postgres") })
    );
    let command = ["--listen", "127.0.0.1:9000", "--name", "it", "--", "npx"];
    let cursor: Value = serde_json::from_str(&export("cursor", &command).stdout).unwrap();
    assert_eq!(
        cursor,
        json!({ "mcpServers": { "it": { "url": "http://127.0.0.1:9000/mcp" } } })
    );
    let codex = export("codex", &command).stdout;
    assert_eq!(codex, "[mcp_servers.it]\nurl = \"http://127.0.0.1:9000/mcp\"\n");
    let no_port = runner.run(&["export", "--client", "codex", "--listen", "127.0.0.1:0", "--", "npx"]);
    no_port.assert_code(2).assert_stderr_contains("no fixed port");
}
