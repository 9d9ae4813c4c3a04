//! Conversations compared byte by byte with a file.
//!
//! A transcript lists requests and the exact answers, head and body. `UPDATE=1` rewrites the file; the diff is then for
//! a person to read.
//!
//! ```text
//! > POST
//! > mcp-session-id: ...
//! > {"jsonrpc":"2.0",...}
//! < 200
//! < content-type: text/event-stream
//! < id: 1-0
//! < data:
//! <
//! ```

use crate::client::{Client, Reply};
use http::HeaderMap;
use std::fmt::Write as _;
use std::path::Path;

/// A conversation while it is held: requests are sent and written down with their answers.
pub struct Transcript {
    client: Client,
    text: String,
}

impl Transcript {
    /// An empty conversation with `client`.
    pub fn new(client: &Client) -> Self {
        Transcript {
            client: client.clone(),
            text: String::new(),
        }
    }

    /// Writes a heading, so that the file tells what happens.
    pub fn note(&mut self, note: &str) {
        let _ = writeln!(self.text, "# {note}");
    }

    /// Sends a request and writes it down; the answer is written down by [`Transcript::answered`].
    pub async fn send(&mut self, method: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let _ = writeln!(self.text, "> {method}");
        for (name, value) in headers {
            let _ = writeln!(self.text, "> {name}: {value}");
        }
        if !body.is_empty() {
            let _ = writeln!(self.text, "> {body}");
        }
        self.client.request(method, headers, body.to_owned()).await
    }

    /// Writes down a whole answer.
    pub async fn answered(&mut self, reply: Reply) {
        let _ = writeln!(self.text, "< {}", reply.status.as_u16());
        self.headers(&reply.headers);
        let body = reply.bytes().await;
        for line in String::from_utf8_lossy(&body).lines() {
            let _ = writeln!(self.text, "<{}{line}", if line.is_empty() { "" } else { " " });
        }
        self.text.push('\n');
    }

    /// Sends a request and writes down the whole answer.
    pub async fn exchange(&mut self, method: &str, headers: &[(&str, &str)], body: &str) {
        let reply = self.send(method, headers, body).await;
        self.answered(reply).await;
    }

    fn headers(&mut self, headers: &HeaderMap) {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        lines.sort();
        for line in lines {
            let _ = writeln!(self.text, "< {line}");
        }
    }

    /// Appends another conversation.
    pub fn append(&mut self, other: &Transcript) {
        self.text.push_str(&other.text);
    }

    /// Compares the conversation with the file, or writes the file when `UPDATE=1` is set.
    pub fn check(self, path: &Path) {
        if std::env::var_os("UPDATE").is_some() {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).expect("the folder can be made");
            }
            std::fs::write(path, &self.text).expect("the transcript can be written");
            return;
        }
        let expected = std::fs::read_to_string(path)
            .unwrap_or_else(|e| panic!("{e}: {} cannot be read; UPDATE=1 writes it", path.display()));
        if let Some((number, (ours, theirs))) = self
            .text
            .lines()
            .zip(expected.lines())
            .enumerate()
            .find(|(_, (ours, theirs))| ours != theirs)
        {
            panic!(
                "{} line {}:\n  expected {theirs}\n  found    {ours}",
                path.display(),
                number + 1
            );
        }
        assert_eq!(
            self.text.lines().count(),
            expected.lines().count(),
            "{} has another length; UPDATE=1 rewrites it",
            path.display()
        );
    }
}
