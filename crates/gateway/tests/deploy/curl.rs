//! curl as a client. Reads responses line by line while they arrive.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one endpoint.
pub(crate) struct Curl {
    /// Options to reach the endpoint.
    pub(crate) curl_options: Vec<String>,
    pub(crate) url: String,
}

/// An event with data.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) data: Value,
}

/// A response that is being read.
pub(crate) struct CurlStream {
    curl: Child,
    lines: Receiver<String>,
}

impl Curl {
    pub(crate) fn command(&self, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sN", "--max-time", "120", "--noproxy", "*"])
            .args(&self.curl_options)
            .args(["-H", "content-type: application/json"])
            .args(more)
            .arg(&self.url);
        curl
    }

    /// The complete output.
    pub(crate) fn get(&self, more: &[&str]) -> String {
        String::from_utf8(self.command(more).output().expect("curl is there").stdout).unwrap()
    }

    /// The HTTP status.
    pub(crate) fn status(&self, more: &[&str]) -> String {
        let mut args = vec!["-o", "/dev/null", "-w", "%{http_code}"];
        args.extend(more);
        self.get(&args)
    }

    /// Starts a request, and returns its stream.
    pub(crate) fn open(&self, more: &[&str]) -> CurlStream {
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
        CurlStream { curl, lines }
    }

    /// Opens a session, and returns its header.
    pub(crate) fn session(&self) -> String {
        let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "curl", "version": "1" } } });
        let answer = self.get(&["-i", "-d", &request.to_string()]);
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
    pub(crate) fn call(&self, session: &str, tool: &str, arguments: Value) -> CurlStream {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": tool, "arguments": arguments, "_meta": { "progressToken": 1 } } });
        self.open(&["-H", session, "-d", &call.to_string()])
    }

    /// Resumes after the event `last`.
    pub(crate) fn resume(&self, session: &str, last: &str) -> CurlStream {
        self.open(&["-H", session, "-H", &format!("last-event-id: {last}")])
    }
}

impl CurlStream {
    /// The next line; `None` at the end.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.lines.recv_timeout(LINE_TIMEOUT) {
            Ok(line) => Some(line),
            Err(Disconnected) => None,
            Err(Timeout) => panic!("no line arrives in time"),
        }
    }

    /// The next event with data; `None` at the end.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let mut id = String::new();
        loop {
            let line = self.next_line()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ").filter(|data| !data.is_empty()) {
                let data = serde_json::from_str(data).unwrap();
                return Some(Event { id, data });
            }
        }
    }

    /// All events up to and including `id`.
    pub(crate) fn events_until(&mut self, id: &str) -> Vec<Event> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|event: &Event| event.id != id) {
            seen.push(self.next_event().expect("the stream goes on"));
        }
        seen
    }

    /// All events until the end.
    pub(crate) fn remaining_events(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next_event()).collect()
    }
}

impl Drop for CurlStream {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}
