//! A client that is curl: what it gets, line by line, while it gets it.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one endpoint.
pub(crate) struct Curl {
    /// How to get there: options of curl.
    pub(crate) way: Vec<String>,
    pub(crate) url: String,
}

/// An event with data.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) data: Value,
}

/// A response that is being read.
pub(crate) struct Stream {
    curl: Child,
    lines: Receiver<String>,
}

impl Curl {
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sN", "--max-time", "120", "--noproxy", "*"])
            .args(&self.way)
            .args(["-H", "content-type: application/json"])
            .args(more)
            .arg(&self.url);
        curl
    }

    /// The whole answer.
    pub(crate) fn get(&self, more: &[&str]) -> String {
        String::from_utf8(self.command(more).output().expect("curl is there").stdout).unwrap()
    }

    /// The status.
    pub(crate) fn status(&self, more: &[&str]) -> String {
        let mut args = vec!["-o", "/dev/null", "-w", "%{http_code}"];
        args.extend(more);
        self.get(&args)
    }

    /// Begins to read.
    pub(crate) fn open(&self, more: &[&str]) -> Stream {
        let mut curl = self
            .command(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl is there");
        let output = BufReader::new(curl.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Stream { curl, lines }
    }

    /// Opens a session; returns the header that names it.
    pub(crate) fn session(&self) -> String {
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "curl", "version": "1" } } });
        let answer = self.get(&["-i", "-d", &hello.to_string()]);
        let named = answer.lines().find(|line| line.starts_with("mcp-session-id: "));
        let session = named
            .unwrap_or_else(|| panic!("no session: {answer}"))
            .trim()
            .to_owned();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.status(&["-H", &session, "-d", &ready.to_string()]), "202");
        session
    }

    /// Calls a tool.
    pub(crate) fn call(&self, session: &str, tool: &str, arguments: Value) -> Stream {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } } });
        self.open(&["-H", session, "-d", &call.to_string()])
    }

    /// Comes back after the event `last`.
    pub(crate) fn resume(&self, session: &str, last: &str) -> Stream {
        self.open(&["-H", session, "-H", &format!("last-event-id: {last}")])
    }
}

impl Stream {
    /// The next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(Disconnected) => None,
            Err(Timeout) => panic!("nothing arrives: is the stream held back?"),
        }
    }

    /// The next event that says something; `None` at the end.
    pub(crate) fn event(&mut self) -> Option<Event> {
        let mut id = String::new();
        loop {
            let line = self.line()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ").filter(|data| !data.is_empty()) {
                let data = serde_json::from_str(data).unwrap();
                return Some(Event { id, data });
            }
        }
    }

    /// Events up to and with the one that has `id`.
    pub(crate) fn until(&mut self, id: &str) -> Vec<Event> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|event: &Event| event.id != id) {
            seen.push(self.event().expect("the stream goes on"));
        }
        seen
    }

    /// Everything up to the end.
    pub(crate) fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.event()).collect()
    }
}

impl Drop for Stream {
    /// The client vanishes.
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}
