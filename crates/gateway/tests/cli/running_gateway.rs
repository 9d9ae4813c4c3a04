//! `rethread export` for a gateway that runs.

use crate::program::{ProgramOutput, ProgramRunner};
use rethread_testkit::certificates::Authority;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Stdio};

/// A gateway that is killed when dropped.
struct RunningGateway {
    child: Child,
    address: String,
    /// Open, so that the gateway can log.
    _stderr: BufReader<ChildStderr>,
}

impl RunningGateway {
    fn start(runner: &ProgramRunner, options: &[&str]) -> Self {
        let serve = ["serve", "--memory", "--listen", "127.0.0.1:0"];
        let mut command = runner.command(&[&serve[..], options].concat());
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = stderr.by_ref().lines().map(Result::unwrap);
        let health = lines.find(|line| line.contains("/healthz")).expect("a start message");
        let (_, address) = health.split_once("://").unwrap();
        let address = address.split('/').next().unwrap().to_owned();
        RunningGateway {
            child,
            address,
            _stderr: stderr,
        }
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn export(runner: &ProgramRunner, client: &str, options: &[&str]) -> ProgramOutput {
    runner.run(&[&["export", "--client", client], options].concat())
}

fn json_of(output: &ProgramOutput) -> Value {
    output.assert_code(0);
    serde_json::from_str(&output.stdout).unwrap()
}

/// The certificate of a gateway names its public host, not the loopback address, and its authority may be private.
#[test]
fn export_asks_a_gateway_with_a_certificate() {
    let runner = ProgramRunner::new();
    let files = tempfile::tempdir().unwrap();
    let (cert, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    Authority::new().write_pair(&cert, &key);
    let program = env!("CARGO_BIN_EXE_rethread");
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let options = [
        "--tls-cert",
        cert,
        "--tls-key",
        key,
        "--name",
        "it",
        "--",
        program,
        "demo-server",
    ];
    let gateway = RunningGateway::start(&runner, &options);
    let url = format!("https://{}/mcp", gateway.address);
    let cursor = export(&runner, "cursor", &["--listen", &gateway.address]);
    assert_eq!(json_of(&cursor), json!({ "mcpServers": { "it": { "url": url } } }));
}

#[test]
fn export_asks_the_running_gateway() {
    let runner = ProgramRunner::new();
    let program = env!("CARGO_BIN_EXE_rethread");
    let gateway = RunningGateway::start(&runner, &["--name", "it", "--", program, "demo-server"]);
    let (address, listen) = (&gateway.address, ["--listen", &gateway.address]);
    let url = format!("http://{address}/mcp");
    let cursor = export(&runner, "cursor", &listen);
    assert_eq!(json_of(&cursor), json!({ "mcpServers": { "it": { "url": url } } }));
    let vscode = json_of(&export(&runner, "vscode", &listen));
    assert_eq!(vscode, json!({ "servers": { "it": { "type": "http", "url": url } } }));
    let codex = export(&runner, "codex", &listen).stdout;
    assert_eq!(codex, format!("[mcp_servers.it]\nurl = \"{url}\"\n"));
    export(&runner, "claude", &listen)
        .assert_code(0)
        .assert_stderr_contains(&format!("claude mcp add --transport http it {url}"));
    let public = [&listen[..], &["--public-url", "https://mcp.example/x"]].concat();
    let public = json_of(&export(&runner, "cursor", &public));
    assert_eq!(public["mcpServers"]["it"]["url"], "https://mcp.example/x/mcp");
}

#[test]
fn export_lists_every_server_of_the_running_gateway() {
    let command = format!("command = [\"{}\", \"demo-server\"]\n", env!("CARGO_BIN_EXE_rethread"));
    let file = format!("[servers.a]\n{command}[servers.b]\n{command}");
    let runner = ProgramRunner::new().file("r.toml", &file);
    let gateway = RunningGateway::start(&runner, &["--config", "r.toml"]);
    let listen = ["--listen", &gateway.address];
    let entry = json_of(&export(&runner, "cursor", &listen));
    let url = |name: &str| json!({ "url": format!("http://{}/servers/{name}/mcp", gateway.address) });
    assert_eq!(entry, json!({ "mcpServers": { "a": url("a"), "b": url("b") } }));
    let public = [&listen[..], &["--public-url", "https://mcp.example"]].concat();
    let public = json_of(&export(&runner, "cursor", &public));
    assert_eq!(public["mcpServers"]["b"]["url"], "https://mcp.example/servers/b/mcp");
}

#[test]
fn export_without_a_gateway_says_so() {
    let runner = ProgramRunner::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let absent = export(&runner, "cursor", &["--listen", &address]);
    absent
        .assert_code(1)
        .assert_stderr_contains(&format!("no gateway answers at http://{address}: "))
        .assert_stderr_contains("--config FILE, or -- COMMAND");
    assert_eq!(absent.stdout, "");
    let invalid = export(&runner, "cursor", &["--listen", "nowhere"]);
    invalid.assert_code(2).assert_stderr_contains("--listen");
    let no_port = export(&runner, "cursor", &["--listen", "127.0.0.1:0"]);
    no_port.assert_code(2).assert_stderr_contains("no fixed port");
}

#[test]
fn export_refuses_the_page_of_another_program() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answers = std::thread::spawn(move || {
        let (mut socket, _) = other.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]).unwrap();
        let page = "<h1>It works!</h1>";
        let length = page.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{page}");
        socket.write_all(answer.as_bytes()).unwrap();
    });
    let output = export(&ProgramRunner::new(), "cursor", &["--listen", &address]);
    answers.join().unwrap();
    output
        .assert_code(1)
        .assert_stderr_contains(&format!("http://{address} does not list servers"));
}
