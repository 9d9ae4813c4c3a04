//! The built-in server on stdin and stdout.

use crate::program::ProgramRunner;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A running `demo-server`.
struct DemoServer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl DemoServer {
    fn start() -> Self {
        let mut command = ProgramRunner::new().command(&["demo-server"]);
        command.current_dir(env!("CARGO_MANIFEST_DIR")); // the directory of the runner is deleted now
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut server = DemoServer {
            child,
            input,
            output: BufReader::new(output),
        };
        let initialized = server.request(
            0,
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "elicitation": {} },
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        assert_eq!(initialized["result"]["serverInfo"]["name"], "rethread-demo");
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn request(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.next()
    }

    /// Closes stdin, and expects exit code 0.
    fn stop(mut self) {
        drop(self.input.take());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn demo_server_lists_tools_resources_and_prompts() {
    let mut server = DemoServer::start();
    let tools = server.request(1, "tools/list", json!({}));
    let names: Vec<_> = tools["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["countdown", "echo", "ask_name"]);
    let read = server.request(2, "resources/read", json!({ "uri": "demo://uptime" }));
    assert!(
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("seconds")
    );
    let prompt = server.request(
        3,
        "prompts/get",
        json!({ "name": "explain", "arguments": { "topic": "SSE" } }),
    );
    let text = &prompt["result"]["messages"][0]["content"]["text"];
    assert_eq!(text, "Explain SSE in plain words.");
    server.stop();
}

#[test]
fn demo_countdown_reports_twice_a_second() {
    let mut server = DemoServer::start();
    let params = json!({ "name": "countdown", "arguments": { "seconds": 1 }, "_meta": { "progressToken": 7 } });
    let first = server.request(1, "tools/call", params);
    assert_eq!(first["params"]["message"], "0.5 seconds left");
    assert_eq!(server.next()["params"]["progress"], 1.0);
    assert_eq!(server.next()["result"]["content"][0]["text"], "counted down from 1");
    server.stop();
}

#[test]
fn demo_server_asks_for_a_name() {
    let mut server = DemoServer::start();
    let question = server.request(1, "tools/call", json!({ "name": "ask_name", "arguments": {} }));
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    server.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    assert_eq!(server.next()["result"]["content"][0]["text"], "Hello, Ada!");
    server.stop();
}
